"""Floor 7, the CLI: one file per command or group of related ones; commands print by `render` alone.

Shared by several: `main`, `parser`, `render`, `screen` and `session`.
"""
