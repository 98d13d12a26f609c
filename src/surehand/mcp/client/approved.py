"""What the tools of MCP servers said of themselves when they were approved.

A server may change a tool's description after the user has said yes to it. What was approved is kept, and a tool that
says something else asks again, with the difference.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, Final, cast

from surehand.state import locations

_TOLD: Final = ("description", "title", "inputSchema", "outputSchema", "annotations")
FILE: Final = "mcp_approved.json"


def definition(tool: Mapping[str, Any], fingerprint: str) -> str:
    """Return all a tool says of itself and how its server is reached, as text that can be compared."""
    told = {key: tool[key] for key in _TOLD if tool.get(key) is not None}
    return json.dumps({**told, "server": fingerprint}, indent=1, sort_keys=True, ensure_ascii=False)


class Approved:
    """The definitions that were approved, by full name; kept in a file where there is a folder for it."""

    def __init__(self, folder: str | None) -> None:
        self._path = os.path.join(folder, FILE) if folder is not None else None
        self._known: dict[str, str] | None = None

    def change(self, name: str, now: str) -> str:
        """Return the difference to what was approved; empty when there is none or nothing was approved yet."""
        before = self._load().get(name)
        if before is None or before == now:
            return ""
        from difflib import unified_diff

        lines = unified_diff(before.splitlines(), now.splitlines(), "as approved", "as it is now", lineterm="", n=1)
        return "\n".join(lines)

    def approve(self, name: str, now: str) -> None:
        """Remember what a tool says of itself: a call of it was permitted."""
        known = self._load()
        if known.get(name) == now:
            return
        known[name] = now
        if self._path is not None:
            self._save(self._path, known)

    def _load(self) -> dict[str, str]:
        if self._known is None:
            self._known = _read(self._path) if self._path is not None else {}
        return self._known

    def _save(self, path: str, known: Mapping[str, str]) -> None:
        locations.private_dir(os.path.dirname(path))
        merged = {**_read(path), **known}  # another process may have added to it
        mark = hashlib.sha256(os.urandom(8)).hexdigest()[:8]
        fresh = f"{path}.{mark}.new"
        with open(fresh, "w", encoding="utf-8", opener=_only_ours) as file:
            json.dump(merged, file, ensure_ascii=False)
        os.replace(fresh, path)


def _only_ours(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _read(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            known: Any = json.load(file)
    except (OSError, ValueError):
        return {}
    return cast("dict[str, str]", known) if isinstance(known, dict) else {}
