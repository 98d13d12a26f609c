"""The agent loop: its own cost per turn, without those of the model and the tools."""

from __future__ import annotations

import asyncio
import tempfile
import time
from typing import Any

from benchmarks.harness import Harness

TURNS = 40


def rows(harness: Harness) -> None:
    from surehand import Settings, Surehand, tool
    from surehand.agent.loop import Limits
    from surehand.testing import ScriptedModel

    @tool(read_only=True)
    async def noop(n: int) -> str:
        "Do nothing."
        return "x" * 200

    async def conversation(scratch: str) -> float:
        settings = Settings.parse({"engine": {"repeat_limit": 0}})
        script: list[Any] = [[("noop", {"n": n})] for n in range(TURNS)]
        async with Surehand(scratch, tools=[noop], settings=settings, session="bench") as app:
            loop = app.conversation(ScriptedModel(*script, "done"), limits=Limits(turns=TURNS + 1))
            start = time.process_time()
            await loop.ask("go")
            return (time.process_time() - start) / (TURNS + 1)

    with tempfile.TemporaryDirectory() as scratch:
        spent = [asyncio.run(conversation(scratch)) for _ in range(3 if harness.quick else 9)]
    harness.fact(
        "agent loop, CPU ms per turn",
        "surehand (one call a turn, journal)",
        sorted(spent)[len(spent) // 2] * 1e3,
        "<= 2",
    )
