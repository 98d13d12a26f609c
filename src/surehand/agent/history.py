"""A session is its journal: the conversation read back, with calls that a crash interrupted accounted for.

A call that began and has no result may have taken effect. It is never made again by itself: the model is told, and
looks before it acts. A call that never began is simply made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from surehand.agent.unmade import interrupted
from surehand.core.call import ToolResult
from surehand.core.frozen import frozen
from surehand.core.model import Message, Role


@frozen
class Past:
    """A conversation as its journal has it."""

    messages: tuple[Message, ...] = ()
    settled: Mapping[int, ToolResult] | None = None
    """When the last turn's calls were interrupted: results by position for those that began."""


def read(records: Iterable[Mapping[str, Any]]) -> Past:
    """Return the conversation a journal's records hold; what cannot be read is left out."""
    messages: list[Message] = []
    began: list[str] = []
    finished: dict[str, ToolResult] = {}
    for record in records:
        data: Mapping[str, Any] = record.get("data") or {}
        try:
            match record["kind"]:
                case "message":
                    messages.append(_whole(Message.from_dict(data["message"])))
                    began, finished = [], {}
                case "call_started":
                    began.append(record["call_id"])
                case "call_finished":
                    finished[record["call_id"]] = ToolResult.from_dict(data["result"])
                case _:
                    pass
        except (KeyError, TypeError, AttributeError, ValueError):
            continue
    messages = _sound(messages)
    if not messages or not messages[-1].calls:
        return Past(tuple(messages))
    settled = {
        position: finished.get(call.id) or interrupted(call)
        for position, call in enumerate(messages[-1].calls)
        if call.id in finished or call.id in began
    }
    return Past(tuple(messages), settled)


def _whole(message: Message) -> Message:
    """Return a message that is one; raise ValueError for what a damaged line makes of it."""
    shapes = (
        message.role in get_args(Role) and isinstance(message.text, str),
        all(isinstance(call.name, str) and isinstance(call.id, str) for call in message.calls),
        all(isinstance(call.args, dict) for call in message.calls),
        all(isinstance(result.output, str) for result in message.results),
        bool(message.calls) <= (message.role == "assistant"),
        bool(message.results) == (message.role == "tool"),
    )
    if not all(shapes):
        raise ValueError("not a message")
    return message


def _sound(messages: list[Message]) -> list[Message]:
    """Leave out what a damaged journal tore apart: results without their calls, calls without their results."""
    kept: list[Message] = []
    for position, message in enumerate(messages):
        before = kept[-1] if kept else None
        if message.role == "tool":
            if before is None or len(before.calls) != len(message.results):
                continue
        elif before is not None and before.calls and before.role == "assistant":
            kept.pop()
        unanswered = position + 1 < len(messages) and messages[position + 1].role != "tool"
        if message.role == "assistant" and message.calls and unanswered:
            continue
        kept.append(message)
    return kept
