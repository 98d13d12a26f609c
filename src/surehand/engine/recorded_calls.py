"""The calls of the past, in all workspaces: what their audits hold, told as the channel tells of calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from heapq import merge
from typing import Any, Final

from surehand.core.errors import StateError
from surehand.engine.audit import records
from surehand.engine.channel import one_line
from surehand.state import locations

_KEPT: Final = ("source", "parent", "ok", "error", "verdict", "rules", "why", "approval")


def read_recorded_calls(since: float, warn: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Yield the calls that the audits of all workspaces hold since then, oldest first; `warn` of those unreadable."""
    every = os.path.join(locations.home(), "workspaces")
    folders = sorted(entry.path for entry in os.scandir(every)) if os.path.isdir(every) else []
    yield from merge(*(_calls_of(each, since, warn) for each in folders), key=lambda event: event["at"])


def _calls_of(state_dir: str, since: float, warn: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    try:
        for record in records(os.path.join(state_dir, "audit")):
            if record.get("kind") == "call" and record.get("at", 0.0) >= since:
                yield {
                    "kind": "call_finished",
                    "at": record["at"],
                    "session_id": record.get("session", ""),
                    "call_id": record.get("call", ""),
                    "tool": record.get("tool", ""),
                    "recorded": True,
                    "args": one_line(record.get("args") or {}),
                } | {key: record[key] for key in _KEPT if key in record}
    except StateError as problem:
        warn(str(problem))
