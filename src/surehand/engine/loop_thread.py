"""`LoopThread`: an event loop in its own thread, so that synchronous code can wait for coroutines.

The caller's own thread would not do: it may already run a loop (in a notebook), and the loop must keep running, for
deadlines and output, while the caller waits.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

from surehand.core.errors import StateError

T = TypeVar("T")
END_LIMIT_S: Final = 30.0
"""Seconds an interrupted caller waits for its call to end: to stop a command, or to finish a change."""


class LoopThread:
    """An event loop in a thread, running from `start` to `stop`."""

    def __init__(self, name: str = "surehand") -> None:
        self.loop = asyncio.new_event_loop()
        self._process = os.getpid()
        # A daemon, so that a program which ends without `stop` can exit.
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def start(self) -> LoopThread:
        """Start the thread and its loop."""
        self._thread.start()
        return self

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    @property
    def is_forked(self) -> bool:
        """Whether this is a forked child, in which the thread does not run."""
        return os.getpid() != self._process

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result. Ctrl-C cancels it and is raised after it has ended."""
        problem = ""
        if self.is_forked:
            problem = "this application was opened in another process, before a fork; open one in this process"
        elif not self._thread.is_alive():
            problem = "this application is closed"
        elif threading.current_thread() is self._thread:
            problem = "this would wait for itself: it is called on the application's own loop; await it instead"
        if problem:
            work.close()
            raise StateError(problem)
        return Submitted(self.loop, work).wait()

    def run(self, function: Callable[[], T]) -> T:
        """Run a plain function on the loop's thread."""

        async def call() -> T:
            return function()

        return self.wait(call())

    def stop(self) -> None:
        """Stop the loop and its thread. Idempotent, and allowed in a forked child."""
        if self.is_forked or not self._thread.is_alive():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=END_LIMIT_S)


class Submitted(Generic[T]):
    """A coroutine running on the loop of another thread.

    Unlike the future of `run_coroutine_threadsafe`, it is not done when cancelled but when the task has ended: after
    an interrupted call has returned, nothing of it may still run.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._outcome: Future[T] = Future()
        try:
            loop.call_soon_threadsafe(self._begin)
        except RuntimeError:
            work.close()
            raise StateError("the loop of this application has ended") from None

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._outcome.set_exception(asyncio.CancelledError())
        elif (problem := task.exception()) is not None:
            self._outcome.set_exception(problem)
        else:
            self._outcome.set_result(task.result())

    def cancel(self) -> None:
        """Cancel the coroutine; `wait` and `result` return when it has ended."""
        self._loop.call_soon_threadsafe(lambda: self._task is not None and self._task.cancel())

    def wait(self) -> T:
        """Wait in a thread without a loop. An interrupt cancels the work, and is raised after its end."""
        try:
            return self._outcome.result()
        except BaseException:
            if not self._outcome.done():
                self.cancel()
                ended = threading.Event()
                self._outcome.add_done_callback(lambda _: ended.set())
                ended.wait(END_LIMIT_S)
            raise

    async def result(self) -> T:
        """Wait on another loop. A cancellation there cancels the work, and is raised after its end."""
        waiter = asyncio.wrap_future(self._outcome)
        try:
            return await asyncio.shield(waiter)
        except asyncio.CancelledError:
            if not waiter.done():
                self.cancel()
                await asyncio.wait([waiter], timeout=END_LIMIT_S)
            if waiter.done() and not waiter.cancelled():
                waiter.exception()  # or asyncio logs that it was never retrieved
            raise
