"""Making room: when a conversation nears the model's limit, the oldest tool results go first, and that is said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from holdfast.core.call import Image, ToolResult
from holdfast.core.model import Message
from holdfast.core.tool import ToolInfo

FULL: Final = 0.8
"""The part of the model's window at which room is made."""
KEPT_TURNS: Final = 6
"""Messages at the end that are never touched."""
_GONE: Final = "[this result was dropped to make room; call the tool again if you need it]"
_IMAGE_TOKENS: Final = 1500


def tokens(messages: Sequence[Message], system: str = "", tools: Sequence[ToolInfo] = ()) -> int:
    """Estimate what a request costs: four characters a token, which errs on the large side for English and code."""
    characters = len(system) + sum(len(tool.description) + len(json.dumps(tool.input_schema)) for tool in tools)
    images = 0
    for message in messages:
        characters += len(message.text) + sum(len(json.dumps(dict(call.args), default=str)) for call in message.calls)
        for result in message.results:
            characters += len(result.output)
            images += sum(isinstance(block, Image) for block in result.content)
    return characters // 4 + images * _IMAGE_TOKENS


def compacted(
    messages: list[Message], system: str, tools: Sequence[ToolInfo], window: int
) -> tuple[list[Message], str]:
    """Return messages that fit, and what was dropped in words (empty when nothing was)."""
    room = int(window * FULL)
    before = tokens(messages, system, tools)
    if before <= room:
        return messages, ""
    made = list(messages)
    results = 0
    for position in range(max(0, len(made) - KEPT_TURNS)):
        if tokens(made, system, tools) <= room:
            break
        if made[position].results:
            results += len(made[position].results)
            made[position] = replace(made[position], results=tuple(map(_emptied, made[position].results)))
    turns = 0
    while len(made) > KEPT_TURNS and tokens(made, system, tools) > room:
        # A question and everything up to the next one go together: providers refuse results without their calls.
        following = next((at for at in range(1, len(made)) if made[at].role == "user"), None)
        if following is None:
            break
        del made[:following]
        turns += 1
    if not results and not turns:
        return messages, ""
    said = f"made room in the conversation: dropped the text of {results} old tool result(s)"
    said += f" and {turns} oldest exchange(s)" if turns else ""
    return made, f"{said}; about {before - tokens(made, system, tools):,} tokens"


def _emptied(result: ToolResult) -> ToolResult:
    return replace(result, output=_GONE, data=None, content=()) if len(result.output) > len(_GONE) else result
