"""A listing of a folder's own tools, kept from when they were loaded: to list them again imports none of them.

It counts as long as every file that the folder is trusted with, imported ones included, is what it was then.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from surehand import __version__
from surehand.core.tool import ToolInfo
from surehand.state.json_file import write_private_json

FILE: Final = "own_tools.json"


def keep_listing(state_dir: str, files: Mapping[str, str], infos: Iterable[ToolInfo]) -> None:
    """Keep what is told of tools, with the fingerprints of the files they came from."""
    os.makedirs(state_dir, mode=0o700, exist_ok=True)
    listing = {"of": _describe(files), "tools": [info.to_dict() for info in infos]}
    write_private_json(os.path.join(state_dir, FILE), listing)


def kept_listing(state_dir: str, files: Mapping[str, str]) -> list[ToolInfo] | None:
    """Return what was kept of tools whose files are these; None where they must be loaded to know."""
    try:
        with open(os.path.join(state_dir, FILE), encoding="utf-8") as file:
            listing = json.load(file)
        if listing["of"] != _describe(files):
            return None
        return [ToolInfo.from_dict(row) for row in listing["tools"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _describe(files: Mapping[str, str]) -> dict[str, Any]:
    """Return everything a listing depends on."""
    return {"files": dict(files), "surehand": __version__, "python": sys.version}
