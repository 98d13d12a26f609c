"""Floor 2, plug-ins: the built-in tools.

Modules with `TOOLS` are tools; the others are helpers of one. `apply_patch` is not listed: the application adds it.
"""
