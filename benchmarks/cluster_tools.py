"""Tools that the benchmarks of the cluster call on its nodes."""

from __future__ import annotations

import asyncio
import time

from surehand import tool


@tool(read_only=True)
async def nothing() -> str:
    "Do nothing."
    return ""


@tool(read_only=True)
async def wait(seconds: float = 0.05) -> str:
    "Wait, as calls that reach somebody else do."
    await asyncio.sleep(seconds)
    return ""


@tool(read_only=True)
def compute(seconds: float = 0.005) -> str:
    "Use a core for so long, by its own clock of work done."
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass
    return ""


TOOLS = (nothing, wait, compute)
