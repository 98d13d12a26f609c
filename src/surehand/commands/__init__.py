"""Commands: what a session keeps for the commands it runs, their output, and dry runs of them."""
