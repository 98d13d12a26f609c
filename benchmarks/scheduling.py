"""A thousand calls of a millisecond at a limit of ten, against the ideal: the same sleeps one after another, by ten."""

from __future__ import annotations

import asyncio
import tempfile
import time

from benchmarks.harness import Harness

CALLS = 1000
LIMIT = 10
SLEEP_S = 0.001


def rows(harness: Harness) -> None:
    from surehand import Settings, Surehand, ToolCall, tool

    @tool(read_only=True)
    async def nap() -> str:
        "Sleep a millisecond."
        await asyncio.sleep(SLEEP_S)
        return ""

    loop = asyncio.new_event_loop()
    scratch = tempfile.TemporaryDirectory()
    app = Surehand(scratch.name, tools=[nap], builtin=False, settings=Settings(), keep_state=False)
    calls = [ToolCall("nap") for _ in range(CALLS)]

    async def ideal() -> None:
        # A tenth of the sleeps, one after another: what ten workers without any cost of their own would take.
        for _ in range(CALLS // LIMIT):
            await asyncio.sleep(SLEEP_S)

    async def semaphore() -> None:
        places = asyncio.Semaphore(LIMIT)

        async def one() -> None:
            async with places:
                await asyncio.sleep(SLEEP_S)

        await asyncio.gather(*(one() for _ in range(CALLS)))

    async def workers() -> None:
        following = iter(range(CALLS))

        async def one() -> None:
            for _ in following:
                await asyncio.sleep(SLEEP_S)

        await asyncio.gather(*(one() for _ in range(LIMIT)))

    async def ours() -> None:
        results = await app.run_calls(calls)
        assert all(result.ok for result in results)

    harness.compare(
        f"{CALLS:,} calls of 1 ms, {LIMIT} at once",
        [
            ("sequential sleeps / 10", lambda: loop.run_until_complete(ideal())),
            ("ten bare workers", lambda: loop.run_until_complete(workers())),
            ("bare semaphore", lambda: loop.run_until_complete(semaphore())),
            ("surehand", lambda: loop.run_until_complete(ours())),
        ],
        goal="<= 1.15",
        rounds=11,
    )
    began = time.process_time()
    loop.run_until_complete(ours())
    harness.fact("CPU of one scheduled call", "surehand", (time.process_time() - began) / CALLS * 1e6, note="us")
    loop.run_until_complete(app.close())
    loop.close()
    scratch.cleanup()
