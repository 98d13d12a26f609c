"""A scripted model, which says what a test gives it: for tests and recordings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, cast

from surehand.core.call import ToolCall
from surehand.core.model import Message, ModelError, ModelEvent, ModelRequest, TextDelta, Turn, Usage


class ScriptedModel:
    """Plays a script: each step is a text, a list of calls (`("Read", {...})`), both, an error, or a function of the
    request that returns one of these. It remembers every request it got."""

    provider = "scripted"

    def __init__(
        self, *script: Any, name: str = "scripted", context_tokens: int = 200_000, caches_prompts: bool = False
    ) -> None:
        self.caches_prompts = caches_prompts
        self.name = name
        self.context_tokens = context_tokens
        self.requests: list[ModelRequest] = []
        self._script = list(script)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer to a request as it comes; the last event is the turn."""
        self.requests.append(request)
        if not self._script:
            raise ModelError("the script has ended", "Add a step to it.")
        step: Any = self._script.pop(0)
        if callable(step):
            step = cast("Any", step)(request)
        if isinstance(step, Exception):
            raise step
        text, calls = _parts(step)
        for word in text.splitlines(keepends=True):
            yield TextDelta(word)
        usage = Usage(input_tokens=10 * len(request.messages), output_tokens=max(1, len(text) // 4))
        yield Turn(Message("assistant", text, calls), "tool_use" if calls else "end", usage)

    async def close(self) -> None:
        """Do nothing: nothing is open."""


def _parts(step: Any) -> tuple[str, tuple[ToolCall, ...]]:
    if isinstance(step, str):
        return step, ()
    if isinstance(step, tuple):
        said, wanted = cast("tuple[str, list[Any]]", step)
        return said, _calls(wanted)
    return "", _calls(step)


def _calls(wanted: Iterable[Any]) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    for each in wanted:
        if isinstance(each, ToolCall):
            calls.append(each)
        else:
            name, args = _pair(each)
            calls.append(ToolCall(name, args, source="model"))
    return tuple(calls)


def _pair(each: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    return str(each[0]), dict(each[1]) if len(each) > 1 else {}
