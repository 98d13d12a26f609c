"""Shell commands: what a session keeps for those it runs, their output, and dry runs of them."""
