"""State: where things are kept, private directories and sockets, keys."""
