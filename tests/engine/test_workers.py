"""Worker threads: which of them takes the next job."""

from __future__ import annotations

import asyncio
import threading

from surehand.engine.running import Workers


async def test_the_thread_that_worked_last_takes_the_next_job() -> None:
    workers, together = Workers(), threading.Barrier(2)
    await asyncio.gather(workers.submit(together.wait), workers.submit(together.wait))
    used: set[int] = set()
    for _ in range(10):
        await _until_idle(workers, 2)
        used.add(await workers.submit(threading.get_ident))
    assert len(used) == 1


async def test_a_job_that_finds_all_threads_busy_gets_one_of_its_own() -> None:
    workers, go_on = Workers(), threading.Event()
    waiting = [workers.submit(lambda: go_on.wait(60)) for _ in range(5)]
    assert await workers.submit(lambda: "done") == "done"
    go_on.set()
    assert await asyncio.gather(*waiting) == [True] * 5


async def _until_idle(workers: Workers, count: int) -> None:
    """A job's outcome is there a moment before its thread is free again."""
    while len(workers._idle) < count:  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(0.001)
