"""From a host to its addresses, by the system's resolver and without being held up by it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to addresses; raises OSError when there is none."""


async def system_resolve(host: str, port: int) -> list[str]:
    """Return the addresses the system knows for `host`, in its order of preference.

    Runs in a thread that nobody waits for: a resolver that hangs must hold up neither a deadline nor the end of the
    program.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def settle(result: list[str] | OSError) -> None:
        if not answer.done():
            answer.set_exception(result) if isinstance(result, OSError) else answer.set_result(result)

    def look_up() -> None:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            result: list[str] | OSError = list(dict.fromkeys(str(row[4][0]) for row in rows))
        except (OSError, UnicodeError) as problem:
            result = problem if isinstance(problem, OSError) else OSError(str(problem))
        try:
            loop.call_soon_threadsafe(settle, result)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    threading.Thread(target=look_up, name="surehand-resolve", daemon=True).start()
    return await answer
