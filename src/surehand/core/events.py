"""Events: everything that happens. Log, metrics, audit, journal and console are subscribers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from surehand.core.frozen import field, frozen

EventKind = Literal[
    "call_started",
    "call_progress",
    "call_finished",
    "call_repaired",
    "permission_asked",
    "permission_decided",
    "permission_withdrawn",
    "dry_run_made",
    "dry_run_applied",
    "dry_run_discarded",
    "tool_registered",
    "tool_unregistered",
    "tool_state",
    "tool_activated",
    "file_read",
    "file_changed",
    "extension_registered",
    "extension_failed",
    "tuning_changed",
    "task_changed",
    "server_state",
    "subagent_start",
    "subagent_event",
    "subagent_end",
    "session_started",
    "session_closed",
    "turn_started",
    "rewind_started",
    "rewind_ended",
    "message",
    "note",
]


@frozen
class Event:
    """One thing that happened: what, when, in which session, about which call and tool."""

    kind: EventKind
    session_id: str = ""
    call_id: str = ""
    tool: str = ""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    at: float = field(default_factory=time.time)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "kind": self.kind,
            "at": self.at,
            "session_id": self.session_id,
            "call_id": self.call_id,
            "tool": self.tool,
            "data": {key: plain(value) for key, value in self.data.items()},
        }


def plain(value: Any) -> Any:
    """Convert a record to plain data. Events carry the records themselves: most are never serialized."""
    return value.to_dict() if hasattr(value, "to_dict") else value


Listener: TypeAlias = Callable[[Event], None]


@frozen
class Progress:
    """Progress of a running call, as yielded by a handler or passed to `ctx.progress`."""

    text: str = ""
    done: float | None = None
    total: float | None = None
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
