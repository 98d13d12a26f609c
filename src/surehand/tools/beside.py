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
"""From this size on the new bytes are hashed in a thread, while they are written."""
_CLOSE_BESIDE_BYTES: Final = 8_000_000
"""From this size on freeing a file's blocks takes longer than handing that to a thread."""
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


def close_beside(session: Session, fd: int, size: int) -> None:
    """Close the last descriptor of a file that was replaced: its blocks are freed then, of a large one in a thread."""
    if size < _CLOSE_BESIDE_BYTES:
        os.close(fd)
        return
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
