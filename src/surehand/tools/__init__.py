"""Floor 2, plug-ins: the built-in tools. Each module exports `TOOLS` and does nothing when imported."""
