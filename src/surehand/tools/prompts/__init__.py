"""The texts a model reads, one Markdown file each beside this one: `prompt("edit")` is `edit.md`."""

from __future__ import annotations

import os
from functools import cache
from typing import Final

_FOLDER: Final = os.path.dirname(__file__)


@cache
def prompt(name: str) -> str:
    """Return the text of NAME.md, without blanks at its ends."""
    with open(os.path.join(_FOLDER, f"{name}.md"), encoding="utf-8") as file:
        return file.read().strip()
