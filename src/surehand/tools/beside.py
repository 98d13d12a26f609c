"""What a write does beside its main work: in a thread for a large content, while the disk works for a small one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from surehand.core.session import Kept

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from surehand.core.session import Session

BESIDE_BYTES: Final = 900_000
"""From this size on the new bytes are hashed in a thread, while they are written."""
T = TypeVar("T")


def start_beside(session: Session, size: int, work: Callable[[], T]) -> Callable[[], T]:
    """Begin `work` and return a function that returns its result: in a thread, or at once for a small content."""
    if size >= BESIDE_BYTES:
        try:
            return session.keep(WRITE_THREAD).submit(work).result
        except (OSError, RuntimeError):  # no thread or no descriptor left: then at once
            pass
    outcome = work()
    return lambda: outcome


def _make_thread(session: Session) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, "surehand-writes")


async def _close_thread(thread: ThreadPoolExecutor) -> None:
    thread.shutdown(wait=False)


WRITE_THREAD: Final = Kept("write_thread", make=_make_thread, close=_close_thread)
"""One thread per session for work that an edit need not wait for: starting a thread for each edit takes longer."""
