"""Testing for authors of tools: running a tool through the real engine, on a temporary workspace.

    async def test_word_count():
        result = await run_tool(word_count, {"text": "a b c"})
        assert result.data == 3

In pytest, `pytest_plugins = ["surehand.testing"]` provides the fixture `surehand_app`: an application over
`tmp_path` that keeps no state elsewhere and approves every question.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from surehand.app import Surehand
from surehand.core.call import ToolCall, ToolResult
from surehand.core.errors import ToolFailure
from surehand.core.model import Message, ModelError, ModelEvent, ModelRequest, TextDelta, Turn, Usage
from surehand.core.settings import Settings
from surehand.core.tool import Tool
from surehand.engine.extensions import Extension
from surehand.engine.running import Workers, runner
from surehand.policy.approval import Answer, Question

if TYPE_CHECKING:
    from surehand.core.context import ToolContext
    from surehand.engine.replay import Recording


__all__ = ["Faults", "Playback", "Says", "ScriptedModel", "run_tool", "scratch_app", "surehand_app", "surehand_faults"]


class Says:
    """An approver that gives a fixed answer and records the questions."""

    def __init__(self, kind: str = "once", reason: str = "", args: Mapping[str, Any] | None = None) -> None:
        self.answer = Answer(kind, reason, args)  # pyright: ignore[reportArgumentType]
        self.asked: list[Question] = []

    async def ask(self, question: Question) -> Answer:
        """Record the question and return the answer."""
        self.asked.append(question)
        return self.answer


@asynccontextmanager
async def scratch_app(
    workspace: str | os.PathLike[str] | None = None, *, tools: Sequence[Tool] = (), approve: bool = True, **options: Any
) -> AsyncGenerator[Surehand]:
    """Open an application on a temporary workspace, with default settings and without the user's state."""
    with tempfile.TemporaryDirectory(prefix="surehand-test-") as scratch:
        place = workspace if workspace is not None else scratch
        options.setdefault("approver", Says("once") if approve else Says("no", "the test says no"))
        options.setdefault("settings", Settings())
        options.setdefault("keep_state", False)
        async with Surehand(place, tools=tools, **options) as app:
            yield app


async def run_tool(tool: Tool, args: Mapping[str, Any] | None = None, **options: Any) -> ToolResult:
    """Run a tool once through the engine, with everything approved."""
    async with scratch_app(tools=[tool], builtin=False, **options) as app:
        return await app.call(tool.name, args)


try:
    import pytest
except ImportError:  # used outside a test run
    pass
else:

    @pytest.fixture
    async def surehand_app(tmp_path: Any) -> AsyncGenerator[Surehand]:  # pyright: ignore[reportUntypedFunctionDecorator]
        """An application over `tmp_path` that approves every question."""
        async with scratch_app(tmp_path) as app:
            yield app

    @pytest.fixture
    def surehand_faults(surehand_app: Surehand) -> Faults:  # pyright: ignore[reportUntypedFunctionDecorator]
        """Faults for the tools of `surehand_app`: `surehand_faults.inject("WebFetch", "timeout")`."""
        faults = Faults()
        surehand_app.extend(faults)
        return faults


# -- faults on purpose: a tool that hangs, crashes, is slow, or answers from a recording -------------------------------

#     faults = Faults()
#     app.extend(faults)
#     faults.inject("WebFetch", "timeout", times=1)
#
# The fault happens inside the tool, so everything around it (time-out, retry, circuit breaker, metrics) is the real
# thing.

FaultKind = Literal["timeout", "crash", "slow", "fail"]


@dataclass(slots=True)
class _Fault:
    kind: FaultKind
    seconds: float
    left: int | None
    message: str


class Faults(Extension):
    """Injects faults into tools by name, for a number of calls or until removed."""

    name = "faults"
    priority = -1000  # innermost, so that other extensions see the fault

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}
        self._workers = Workers("surehand-faults")
        self.struck: list[tuple[str, FaultKind]] = []

    def inject(
        self, tool: str, kind: FaultKind, *, seconds: float = 0.05, times: int | None = None, message: str = "injected"
    ) -> None:
        """Make calls of a tool time out, raise, be slow or fail; `times` limits the number of calls."""
        self._faults[tool] = _Fault(kind, seconds, times, message)

    def clear(self, tool: str | None = None) -> None:
        """Remove faults."""
        if tool is None:
            self._faults.clear()
        else:
            self._faults.pop(tool, None)

    def extend(self, tool: Tool) -> Tool:
        """Wrap a tool with its faults."""
        inner = runner(tool, self._workers)

        async def run(args: Any, ctx: ToolContext) -> ToolResult:
            await self._strike(tool.name)
            return await inner(args, ctx)

        def timeout_s(args: Any) -> float | None:
            fault = self._faults.get(tool.name)
            if fault is not None and fault.kind == "timeout" and fault.left != 0:
                return fault.seconds
            return tool.timeout_s(args) if callable(tool.timeout_s) else tool.timeout_s

        return replace(tool, run=run, timeout_s=timeout_s, where=None)

    async def _strike(self, tool: str) -> None:
        fault = self._faults.get(tool)
        if fault is None or fault.left == 0:
            return
        if fault.left is not None:
            fault.left -= 1
        self.struck.append((tool, fault.kind))
        match fault.kind:
            case "timeout":
                await asyncio.Event().wait()
            case "crash":
                raise RuntimeError(fault.message)
            case "fail":
                raise ToolFailure(fault.message)
            case "slow":
                await asyncio.sleep(fault.seconds)


class Playback(Extension):
    """Answers calls from a recording instead of running them; calls without one fail."""

    name = "playback"
    priority = -999

    def __init__(self, recording: Recording) -> None:
        self._results: dict[tuple[str, str], list[ToolResult]] = {}
        for each in recording.calls:
            self._results.setdefault(_recorded_key(each.call.name, each.call.args), []).append(each.result)

    def extend(self, tool: Tool) -> Tool:
        """Replace the behaviour of a tool by recorded answers."""

        async def run(args: Any, ctx: ToolContext) -> ToolResult:
            del args
            results = self._results.get(_recorded_key(tool.name, ctx.call.args))
            if not results:
                raise ToolFailure(
                    f"the recording has no such call of {tool.name}", details={"args": dict(ctx.call.args)}
                )
            # The last answer is repeated: a test may call more often than the recording.
            return results.pop(0) if len(results) > 1 else results[0]

        return replace(tool, run=run, check=None, where=None)


def _recorded_key(name: str, args: Any) -> tuple[str, str]:
    return name, json.dumps(args, sort_keys=True, default=repr)


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
        """Yield the events of an answer; the last one is the turn."""
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
        """Do nothing."""


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
