"""Making room: when a conversation nears the model's limit, the oldest tool results go first, and that is said.

A good piece is freed at once. Taking away a little before every turn would change the beginning of each request, and a
provider's prompt cache would never serve.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from surehand.core.call import Image, ToolResult
from surehand.core.counted import counted
from surehand.core.model import Message
from surehand.core.tool import ToolInfo

T = TypeVar("T")
FULL: Final = 0.8
"""The part of the model's window at which room is made."""
FREED: Final = 0.6
"""The part that may be taken afterwards."""
KEPT_MESSAGES: Final = 6
"""Messages at the end whose results are never touched."""
_GONE: Final = "[this result was dropped to make room; call the tool again if you need it]"
_TOKEN: Final = 4
"""Characters of a token, which errs on the large side for English and code."""
_IMAGE: Final = 1500 * _TOKEN


class Room:
    """Keeps one conversation within its model's window. What was measured is not measured again before every turn."""

    def __init__(self) -> None:
        self._measured: dict[int, tuple[object, int]] = {}  # with what was measured, so that no other takes its place

    def compact(
        self, messages: list[Message], system: str, tools: Sequence[ToolInfo], window: int
    ) -> tuple[list[Message], str]:
        """Return messages that fit, and what was dropped in words (empty when nothing was)."""
        if len(self._measured) > 2 * (len(messages) + len(tools)) + 100:
            self._measured.clear()  # most of it is no part of the conversation any more
        before = size = len(system) + sum(self._size(tool, _schema) for tool in tools) + self._all(messages)
        if size <= window * FULL * _TOKEN:
            return messages, ""
        room = window * FREED * _TOKEN
        made = list(messages)
        results = exchanges = 0
        for position, message in enumerate(made[: max(0, len(made) - KEPT_MESSAGES)]):
            if size <= room:
                break
            made[position], emptied = _empty_results(message)
            results += emptied
            size += self._all([made[position]]) - self._all([message])
        while size > room and len(made) > KEPT_MESSAGES and (oldest := _oldest(made)):
            size -= self._all(made[oldest])
            del made[oldest]
            exchanges += 1
        return (made, _format_dropped(results, exchanges, before - size)) if results or exchanges else (messages, "")

    def _all(self, messages: Sequence[Message]) -> int:
        return sum(self._size(message, _characters) for message in messages)

    def _size(self, thing: T, measure: Callable[[T], int]) -> int:
        known = self._measured.get(id(thing))
        if known is None:
            known = self._measured[id(thing)] = (thing, measure(thing))
        return known[1]


def _format_dropped(results: int, exchanges: int, freed: int) -> str:
    dropped = [f"the text of {counted(results, 'old tool result')}"] if results else []
    dropped += [f"the {counted(exchanges, 'oldest exchange')}"] if exchanges else []
    return f"made room in the conversation: dropped {' and '.join(dropped)}; about {freed // _TOKEN:,} tokens"


def _schema(tool: ToolInfo) -> int:
    return len(tool.description) + len(json.dumps(tool.input_schema))


def _characters(message: Message) -> int:
    """Return what a message costs in characters."""
    size = len(message.text) + _IMAGE * len(message.images)
    size += sum(len(json.dumps(dict(call.args), default=str)) for call in message.calls)
    for result in message.results:
        size += len(result.output) + _IMAGE * sum(isinstance(block, Image) for block in result.content)
    return size


def _empty_results(message: Message) -> tuple[Message, int]:
    """Return a message without the text of its results, and how many of them lost it."""
    results = tuple(map(_without_text, message.results))
    changed = sum(new is not old for new, old in zip(results, message.results, strict=True))
    return (replace(message, results=results), changed) if changed else (message, 0)


def _without_text(result: ToolResult) -> ToolResult:
    if len(result.output) <= len(_GONE) and not result.content:
        return result
    return replace(result, output=_GONE, data=None, content=())


def _oldest(messages: Sequence[Message]) -> slice | None:
    """Return what goes first: a question with everything up to the next one, or the oldest turn of the only question.

    What belongs together goes together: providers refuse results without their calls.
    """
    if (following := next((at for at in range(1, len(messages)) if messages[at].role == "user"), None)) is not None:
        return slice(0, following)
    return slice(1, 3) if len(messages) > KEPT_MESSAGES and messages[2].role == "tool" else None
