"""Worker threads for sync handlers.

Daemon threads, unlike the standard pool's: a handler that never returns must not keep the process from ending. A
thread cannot be stopped; at its deadline a call returns and the thread is left to end by itself. What must really
stop runs in a process.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from surehand.core.errors import ToolFailure

_IDLE_S: Final = 30.0
_Jobs: TypeAlias = "queue.SimpleQueue[Callable[[], None]]"


class Workers:
    """Threads that are made when all others are busy, and end when idle for long."""

    def __init__(self, name: str = "surehand") -> None:
        self._name = name
        self._idle: list[_Jobs] = []
        """One queue per thread that waits, the latest last: it takes the next job, what it needs is still at hand."""

    def submit(
        self,
        function: Callable[[], Any],
        waiter: asyncio.Future[None] | None = None,
        afterwards: Sequence[Callable[[], object]] = (),
    ) -> asyncio.Future[Any]:
        """Run `function` in a thread; the future may be cancelled, the thread goes on. At its end `waiter` is woken.

        What it puts into `afterwards` runs there then, while nobody waits for it.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def job() -> None:
            try:
                value, problem = context.run(function), None
            except BaseException as raised:  # handed to the caller, whatever it is
                value, problem = None, raised
            try:
                loop.call_soon_threadsafe(_set_outcome, future, value, problem, waiter)
            except RuntimeError:
                pass  # the loop closed while the thread worked; nobody waits any more
            for each in afterwards:
                each()

        try:
            jobs = self._idle.pop()
        except IndexError:
            jobs = self._start_thread()
        jobs.put(job)
        return future

    def _start_thread(self) -> _Jobs:
        jobs: _Jobs = queue.SimpleQueue()
        try:
            threading.Thread(target=self._serve, args=(jobs,), name=f"{self._name}-worker", daemon=True).start()
        except RuntimeError:
            raise ToolFailure(
                "the system cannot start more threads: Resource temporarily unavailable",
                code="tool_unavailable",
                hint="Too many processes are running; end some, then try again.",
            ) from None
        return jobs

    def _serve(self, jobs: _Jobs) -> None:
        while True:
            try:
                job = jobs.get(timeout=_IDLE_S)
            except queue.Empty:
                try:
                    self._idle.remove(jobs)
                except ValueError:
                    continue  # a job was just promised to this thread
                return
            job()
            # Not sooner: a thread that still winds up takes the next job twice as late as another.
            self._idle.append(jobs)


def _set_outcome(
    future: asyncio.Future[Any], value: Any, problem: BaseException | None, waiter: asyncio.Future[None] | None
) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
    if future.done():
        return
    if problem is None:
        future.set_result(value)
    elif isinstance(problem, StopIteration | SystemExit | KeyboardInterrupt | asyncio.CancelledError):
        # asyncio gives these a meaning of its own; as the outcome of a handler they are plain failures.
        future.set_exception(RuntimeError(f"the handler raised {type(problem).__name__}({problem})"))
    else:
        future.set_exception(problem)
