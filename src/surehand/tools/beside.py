"""What a write does beside its main work: in a thread for a large content, while the disk works for a small one."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

from surehand.core.session import Kept

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from surehand.core.session import Session

BESIDE_BYTES: Final = 900_000
"""From this size on the new bytes are hashed and described in a thread, while they are written."""
T = TypeVar("T")


def start_beside(session: Session, size: int, work: Callable[[], T]) -> Callable[[], T]:
    """Return a function that returns the result of `work`, which it does once; for a large content it begins now."""
    if size < BESIDE_BYTES:
        return cache(work)
    try:
        return session.keep(WRITE_THREAD).submit(work).result
    except (OSError, RuntimeError):  # no thread or no descriptor left: then at once
        outcome = work()
        return lambda: outcome


def close_beside(session: Session, fd: int) -> None:
    """Close the last descriptor of a large file that was replaced: its blocks are freed then, which takes its time."""
    held = [fd]

    def close() -> None:
        while held:
            os.close(held.pop())

    try:
        session.keep(WRITE_THREAD).submit(close)
    except (OSError, RuntimeError):  # no thread left; what stays in its queue finds nothing held
        close()


def _make_thread(session: Session) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, "surehand-writes")


async def _close_thread(thread: ThreadPoolExecutor) -> None:
    thread.shutdown(wait=False)


WRITE_THREAD: Final = Kept("write_thread", make=_make_thread, close=_close_thread)
"""One thread per session for work that an edit need not wait for: starting a thread for each edit takes longer."""
