"""Dispatch of a no-op tool: the whole door against a lean pipeline that does the same in forty lines."""

from __future__ import annotations

import asyncio
import tempfile
import time
from typing import Any

from pydantic import BaseModel

from benchmarks.harness import Harness

CALLS = 2000


class LeanArgs(BaseModel):
    text: str
    times: int = 1


class Lean:
    """Validate, look up a rule, take a slot, run under a time-out, count, tell listeners: nothing more."""

    def __init__(self) -> None:
        self.tools: dict[str, Any] = {"noop": (LeanArgs, self._noop)}
        self.rules = {"noop": "allow"}
        self.slots = asyncio.Semaphore(10)
        self.counts: dict[str, list[float]] = {"noop": []}
        self.listeners: list[Any] = [lambda event: None]

    async def _noop(self, args: LeanArgs) -> str:
        return args.text

    async def call(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        started = time.perf_counter()
        model, run = self.tools[name]
        parsed = model.model_validate(args)
        if self.rules[name] != "allow":
            raise PermissionError(name)
        for listener in self.listeners:
            listener({"kind": "started", "tool": name})
        async with self.slots, asyncio.timeout(30):
            output = await asyncio.create_task(run(parsed))
        duration = time.perf_counter() - started
        self.counts[name].append(duration)
        for listener in self.listeners:
            listener({"kind": "finished", "tool": name, "duration": duration})
        return {"ok": True, "output": output, "meta": {"tool": name, "duration": duration}}


def rows(harness: Harness) -> None:
    from surehand import Settings, Surehand, ToolContext, tool

    @tool(read_only=True)
    async def noop(text: str, ctx: ToolContext, times: int = 1) -> str:
        "Do nothing."
        return text

    loop = asyncio.new_event_loop()
    scratch = tempfile.TemporaryDirectory()
    app = Surehand(scratch.name, tools=[noop], settings=Settings(), keep_state=False)
    app.bus.subscribe(lambda event: None)
    lean = Lean()

    async def ours() -> None:
        for _ in range(CALLS):
            await app.call("noop", {"text": "x"})

    async def theirs() -> None:
        for _ in range(CALLS):
            await lean.call("noop", {"text": "x"})

    harness.compare(
        f"dispatch, {CALLS} no-op calls",
        [
            ("lean 40-line pipeline", lambda: loop.run_until_complete(theirs())),
            ("surehand", lambda: loop.run_until_complete(ours())),
        ],
        goal="<= 2.5",
        rounds=25,
    )
    loop.run_until_complete(app.close())
    loop.close()
    scratch.cleanup()
