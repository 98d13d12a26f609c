"""Faults on purpose, for tests: a tool that hangs, crashes, is slow, or answers from a recording.

    faults = Faults()
    app.extend(faults)
    faults.inject("WebFetch", "timeout", times=1)

The fault happens inside the tool, so everything around it (time-out, retry, circuit breaker, metrics) is the real
thing.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from surehand.core.errors import ToolFailure
from surehand.core.tool import Tool
from surehand.engine.extensions import Extension
from surehand.engine.running import runner
from surehand.engine.workers import Workers

if TYPE_CHECKING:
    from surehand.core.call import ToolResult
    from surehand.core.context import ToolContext
    from surehand.engine.replay import Recording

Kind = Literal["timeout", "crash", "slow", "fail"]


@dataclass(slots=True)
class _Fault:
    kind: Kind
    seconds: float
    left: int | None
    message: str


class Faults(Extension):
    """Injects faults into tools by name, for a number of calls or until taken back."""

    name = "faults"
    priority = -1000  # innermost: what others make of it is part of the test

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}
        self._workers = Workers("surehand-faults")
        self.struck: list[tuple[str, Kind]] = []

    def inject(
        self, tool: str, kind: Kind, *, seconds: float = 0.05, times: int | None = None, message: str = "injected"
    ) -> None:
        """Make calls of a tool hang past their deadline, raise, wait or fail; `times` limits for how many calls."""
        self._faults[tool] = _Fault(kind, seconds, times, message)

    def clear(self, tool: str | None = None) -> None:
        """Take faults back."""
        if tool is None:
            self._faults.clear()
        else:
            self._faults.pop(tool, None)

    def extend(self, tool: Tool) -> Tool:
        """Return the tool with its faults built in."""
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
    """Answers calls from a recording instead of running them; one that was not recorded fails."""

    name = "playback"
    priority = -999

    def __init__(self, recording: Recording) -> None:
        self._results: dict[tuple[str, str], list[ToolResult]] = {}
        for each in recording.calls:
            self._results.setdefault(_key(each.call.name, each.call.args), []).append(each.result)

    def extend(self, tool: Tool) -> Tool:
        """Return the tool with recorded answers instead of its own."""

        async def run(args: Any, ctx: ToolContext) -> ToolResult:
            del args
            results = self._results.get(_key(tool.name, ctx.call.args))
            if not results:
                raise ToolFailure(
                    f"the recording has no such call of {tool.name}", details={"args": dict(ctx.call.args)}
                )
            # The last one answers for good: a test may ask more often than the recording did.
            return results.pop(0) if len(results) > 1 else results[0]

        return replace(tool, run=run, check=None, where=None)


def _key(name: str, args: Any) -> tuple[str, str]:
    return name, json.dumps(args, sort_keys=True, default=repr)
