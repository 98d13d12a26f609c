"""Floor 7, the CLI: one file per command or group of related ones, and `render` is the only one that prints.

Parts of several: `main`, `markdown`, `parser`, `render`, `screen` and `session`.
"""
