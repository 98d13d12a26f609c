"""Floor 2, plug-ins: the built-in tools.

Modules with `TOOLS` are tools; the others are helpers of one. `apply_patch` is not listed: the application adds it.
A longer description of a tool is in `prompts/NAME.md` (`prompt("edit")` reads `edit.md`), a short one in
`description=`. What a tool answers with is its `output_schema`, the JSON Schema of its `data`, for MCP clients and
frameworks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any


@cache
def prompt(name: str) -> str:
    """Return the text of prompts/NAME.md, without blanks at its ends."""
    with open(os.path.join(os.path.dirname(__file__), "prompts", f"{name}.md"), encoding="utf-8") as file:
        return file.read().strip()


def object_schema(required: Mapping[str, str | dict[str, Any]], **optional: str | dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an answer; a key is given a schema, or the name of its type (`string`, `integer|null`).

    Only what every good answer has is required. Keys beside those named are allowed, and come with new versions.
    """
    properties = {key: _type_schema(kind) for key, kind in {**required, **optional}.items()}
    return {"type": "object", "properties": properties, "required": list(required)}


def list_schema(items: str | dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list, from that of its items."""
    return {"type": "array", "items": _type_schema(items)}


def _type_schema(kind: str | dict[str, Any]) -> dict[str, Any]:
    if not isinstance(kind, str):
        return kind
    return {"type": kind.split("|") if "|" in kind else kind}
