"""Floor 2, plug-ins: the built-in tools.

A tool's module exports `TOOLS`; the others are parts of one. `apply_patch` is the application's own tool.
"""
