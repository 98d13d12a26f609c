"""Floor 7, the CLI: one file per command group, and `render` is the only one that prints."""
