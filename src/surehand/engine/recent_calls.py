"""The latest calls of a session that somebody follows, kept whole for a moment: a follower may ask for one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.core.call import Image
from surehand.core.events import Event
from surehand.files.sanitize import mask, mask_data

if TYPE_CHECKING:
    from surehand.core.call import ToolCall, ToolResult
    from surehand.policy.policy import Decision

CALLS_LIMIT: Final = 300
WEIGHT_LIMIT: Final = 16_000_000
"""About how many characters of results are kept."""
TEXT_LIMIT: Final = 200_000
IMAGE_LIMIT: Final = 4_000_000


class RecentCalls:
    """Calls that run, and the latest that ended, by id; what is oldest or too much is forgotten."""

    def __init__(self) -> None:
        self._events: OrderedDict[str, tuple[Event, int]] = OrderedDict()
        self._weight = 0

    def take(self, event: Event) -> None:
        """Keep a call that began or ended."""
        if event.kind not in ("call_started", "call_finished"):
            return
        self._forget(event.call_id)
        weight = _weigh(event)
        self._events[event.call_id] = (event, weight)
        self._weight += weight
        while len(self._events) > 1 and (len(self._events) > CALLS_LIMIT or self._weight > WEIGHT_LIMIT):
            self._forget(next(iter(self._events)))

    def _forget(self, call_id: str) -> None:
        if (known := self._events.pop(call_id, None)) is not None:
            self._weight -= known[1]

    def clear(self) -> None:
        """Forget all of them: nobody follows any more."""
        self._events.clear()
        self._weight = 0

    def describe(self, call_id: str) -> dict[str, Any] | None:
        """Return everything that is known of a call, secrets masked; None for one that is not kept."""
        known = self._events.get(call_id)
        return None if known is None else describe_whole(known[0])


def describe_whole(event: Event) -> dict[str, Any]:
    """Return a call with its whole arguments, result and verdict, secrets masked and each text truncated."""
    call = cast("ToolCall", event.data["call"])
    told: dict[str, Any] = {
        "call_id": event.call_id,
        "session_id": event.session_id,
        "tool": event.tool,
        "source": call.source,
        "args": mask_data(call.shown_args, limit=TEXT_LIMIT),
    }
    if call.parent is not None:
        told["parent"] = call.parent.id
    if event.kind == "call_finished":
        told |= _describe_result(event.data["result"])
    decision = cast("Decision | None", event.data.get("decision"))
    return told if decision is None else told | {"judged": mask_data(decision.to_dict())}


def _describe_result(result: ToolResult) -> dict[str, Any]:
    data: Any = result.data
    diff: object = cast("Mapping[str, Any]", data).get("diff") if isinstance(data, Mapping) else None
    told: dict[str, Any] = {
        "ok": result.ok,
        "output": mask(result.output[:TEXT_LIMIT]),
        "output_size": len(result.output),
        "images": [
            {"data": block.data, "mime_type": block.mime_type}
            for block in result.content
            if isinstance(block, Image) and len(block.data) <= IMAGE_LIMIT
        ],
        "meta": mask_data(dict(result.meta), limit=TEXT_LIMIT),
    }
    if isinstance(diff, str) and diff:
        told["diff"] = mask(diff[:TEXT_LIMIT])
    if result.error is not None:
        told["error"] = mask_data(result.error.to_dict(), limit=TEXT_LIMIT)
    if result.undo is not None:
        told["change_id"] = result.undo.change_id
    return told


def _weigh(event: Event) -> int:
    result = cast("ToolResult | None", event.data.get("result"))
    if result is None:
        return 0
    return len(result.output) + sum(len(block.data) for block in result.content if isinstance(block, Image))
