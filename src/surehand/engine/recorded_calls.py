"""Recorded calls of all workspaces: the records of their audits, in the form of the channel's events."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from heapq import merge
from typing import Any, Final, cast

from surehand.core.errors import StateError
from surehand.engine.audit import lines, records
from surehand.engine.channel import one_line
from surehand.state import locations

_KEPT: Final = ("ms", "source", "parent", "ok", "error", "verdict", "rules", "why", "approval")


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


def find_recorded_call(call_id: str) -> dict[str, Any] | None:
    """Return what the audits hold of one call: its arguments, its verdict, who approved; None for one they lack."""
    if not call_id:
        return None
    every = os.path.join(locations.home(), "workspaces")
    for entry in os.scandir(every) if os.path.isdir(every) else ():
        found = (line for _, _, line in lines(os.path.join(entry.path, "audit")) if call_id in line)
        for record in map(_parse_record, found):  # to look for the id first is far cheaper than to parse every line
            if record.get("kind") == "call" and record.get("call") == call_id:
                return record
    return None


def _parse_record(line: str) -> dict[str, Any]:
    try:
        record: Any = json.loads(line)
    except ValueError:
        return {}
    return cast("dict[str, Any]", record) if isinstance(record, dict) else {}
