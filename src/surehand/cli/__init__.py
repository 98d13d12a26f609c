"""Floor 7, people at a terminal: one file per command group, and `render` is the only one that prints."""
