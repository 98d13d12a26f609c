"""Turns of the event loop: calls that never wait give it back after a few milliseconds.

A read that lies in memory is answered without a single `await` that really waits; a thousand of them in one list would
hold up everything else for as long as all of them take. So a call that finds its turn used up waits for the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import Final

HOLD_S: Final = 0.004
"""How long calls may follow one another in one turn; a turn is longer than this by the call that used it up."""
_RELEASED: Final = 32
"""How many of those that wait try again in a turn; the rest keep their place."""


class Turns:
    """Knows when the current turn of the loop began, as far as calls are concerned."""

    __slots__ = ("_began", "_loop", "_waiting")

    def __init__(self) -> None:
        self._began = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    def is_over(self) -> bool:
        """Tell whether the calls of this turn have held the loop long enough."""
        loop = asyncio.get_running_loop()
        if self._began and loop is self._loop:
            return perf_counter() - self._began > HOLD_S
        self._begin(loop)
        return False

    async def wait(self) -> None:
        """Let everybody else have the loop, then go on in the order of coming."""
        while self.is_over():
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:  # an application that moved to another loop left nobody behind who could go on
            self._loop = loop
            self._waiting.clear()
        self._began = perf_counter()
        loop.call_soon(self._end, loop)

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run when everything that was ready has had its turn."""
        if loop is not self._loop:
            return
        self._began = 0.0
        for _ in range(min(_RELEASED, len(self._waiting))):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
        if self._waiting:
            self._begin(loop)
