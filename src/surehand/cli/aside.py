"""An event loop in a thread of its own, so that a prompt can have the main one, where Ctrl-C arrives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Aside:
    """Runs coroutines beside the main thread; use as a context manager."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="surehand-loop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine without waiting for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, function: Callable[[], object]) -> None:
        """Have the loop call a function soon."""
        self.loop.call_soon_threadsafe(function)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. Ctrl-C or a signal to end cancels it and is raised."""
        ended = threading.Event()
        made: Future[asyncio.Task[T]] = Future()

        def begin() -> None:
            task = self.loop.create_task(work)
            task.add_done_callback(lambda _: ended.set())
            made.set_result(task)

        self.loop.call_soon_threadsafe(begin)
        task, stopped = made.result(), None
        while not ended.is_set():
            try:
                ended.wait()
            except (KeyboardInterrupt, SystemExit) as signalled:
                stopped = signalled
                self.loop.call_soon_threadsafe(task.cancel)
        if isinstance(stopped, SystemExit) or (stopped is not None and task.cancelled()):
            raise stopped
        return task.result()
