"""Floor 2, plug-ins: the built-in tools.

Modules with `TOOLS` are tools; the others are helpers of one. `apply_patch` is not listed: the application adds it.
The text a model reads of a tool is in `prompts/NAME.md`: `prompt("edit")` is that of `edit.md`.
"""

from __future__ import annotations

import os
from functools import cache


@cache
def prompt(name: str) -> str:
    """Return the text of prompts/NAME.md, without blanks at its ends."""
    with open(os.path.join(os.path.dirname(__file__), "prompts", f"{name}.md"), encoding="utf-8") as file:
        return file.read().strip()
