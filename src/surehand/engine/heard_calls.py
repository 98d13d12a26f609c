"""Metrics of calls made elsewhere: in the applications of a batch, or on the nodes of a cluster.

Their events come home, and each says what a call cost. So what is counted here is what was heard, also of
applications that are no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.core.call import ToolResult

if TYPE_CHECKING:
    from surehand.core.events import Event
    from surehand.engine.metrics import Metrics

_UNKNOWN: Final = ToolResult(ok=True)
"""For the end of a call of which nothing else is known."""


class HeardCalls:
    """A listener that counts the calls it hears of, as the executor counts those it makes."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._running: dict[str, dict[str, str]] = {}
        """By session: the calls under way, and their tools."""

    def __call__(self, event: Event) -> None:
        """Take one event in."""
        if event.kind == "subagent_event":
            self(event.data["event"])
        elif event.kind == "call_started":
            running = self._running.setdefault(event.session_id, {})
            if event.call_id not in running:  # one whose node died may have been made again
                running[event.call_id] = event.tool
                self.metrics.count_start(event.tool)
        elif event.kind == "call_finished":
            result = event.data.get("result")
            if isinstance(result, Mapping):  # what could not travel as the object it is came as plain data
                result = ToolResult.from_dict(cast("Mapping[str, Any]", result))
            self._count_end(event, result or _UNKNOWN)
        elif event.kind == "session_closed":
            self._forget(event.session_id)

    def _count_end(self, event: Event, result: ToolResult) -> None:
        ran = self._running.get(event.session_id, {}).pop(event.call_id, None) is not None
        meta = result.meta
        duration_s = meta.get("duration_ms", 0.0) / 1000
        error = result.error.code if result.error else None
        queue_s = meta.get("queued_ms", 0.0) / 1000
        self.metrics.count_end(event.tool, duration_s, error, queue_s=queue_s, bytes_out=len(result.output), ran=ran)
        if (use := meta.get("resources")) is not None:
            self.metrics.count_use(event.tool, use, duration_s)

    def forget_running(self) -> None:
        """Count what is under way as running no more: where it ran is gone, and its end will not be heard of."""
        for session_id in list(self._running):
            self._forget(session_id)

    def _forget(self, session_id: str) -> None:
        for tool in self._running.pop(session_id, {}).values():
            if (record := self.metrics.records.get(tool)) is not None:
                record.running -= 1
