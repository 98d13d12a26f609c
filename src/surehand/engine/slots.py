"""Slots to run in: per tool a number of calls at once and a bounded queue; per declared resource one call at a time.

The common case, a free slot and no resource, is two additions; everything else waits its turn, first come first
served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from time import perf_counter
from typing import Final, TypeAlias

from surehand.core.errors import ToolFailure
from surehand.engine.running import stoppable

DEFAULT_LIMIT: Final = 10
DEFAULT_QUEUE: Final = 1000


Turn: TypeAlias = asyncio.Future[None]
Waiters: TypeAlias = dict[str, Turn]
"""Call id → what its call waits for at the moment; cancelling that ends the call."""


class Slot:
    """The places of one tool."""

    __slots__ = ("limit", "name", "queue_size", "running", "waiting")

    def __init__(self, name: str, limit: int = DEFAULT_LIMIT, queue_size: int = DEFAULT_QUEUE) -> None:
        self.name = name
        self.limit = limit
        """May be changed at any time; calls that run stay."""
        self.queue_size = queue_size
        self.running = 0
        self.waiting: deque[Turn] = deque()

    def to_dict(self) -> dict[str, str | int]:
        """Return how many run and wait, as plain data."""
        return {"tool": self.name, "running": self.running, "waiting": len(self.waiting), "limit": self.limit}

    def take(self) -> bool:
        """Take a place if one is free and nobody waits for it."""
        if self.running < self.limit and not self.waiting:
            self.running += 1
            return True
        return False

    async def wait(self, waiters: Waiters, call_id: str) -> float:
        """Take a place when it is our turn; returns the seconds waited. Raises `queue_full` when too many wait."""
        if len(self.waiting) >= self.queue_size:
            raise ToolFailure(
                f"{self.name} has {self.running} calls running and {len(self.waiting)} waiting; its queue is full",
                code="queue_full",
                hint="Wait for some of them to finish, then call again.",
                details={"running": self.running, "waiting": len(self.waiting), "queue_size": self.queue_size},
            )
        began = perf_counter()
        turn: Turn = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        try:
            await stoppable(turn, waiters, call_id)
        except BaseException:
            if not turn.cancelled():  # the slot was granted in the same moment; the next in the queue gets it
                self.leave()
            elif turn in self.waiting:
                self.waiting.remove(turn)
            raise
        return perf_counter() - began

    def leave(self) -> None:
        """Give a place back."""
        self.running -= 1
        if self.waiting:
            self.admit()

    def admit(self) -> None:
        """Hand free places to those who wait; also after the limit was raised."""
        while self.waiting and self.running < self.limit:
            turn = self.waiting.popleft()
            if not turn.done():  # a cancelled one only has not been told yet
                self.running += 1
                turn.set_result(None)


class Resources:
    """What must not be used by two calls at once: names such as `file:/a/b` or `server:x`, held while a call runs."""

    def __init__(self) -> None:
        self._held: dict[str, deque[Turn]] = {}

    def take(self, names: tuple[str, ...]) -> bool:
        """Take all of them if all are free; otherwise none."""
        if any(name in self._held for name in names):
            return False
        for name in names:
            self._held[name] = deque()
        return True

    async def wait(self, names: tuple[str, ...], waiters: Waiters, call_id: str) -> float:
        """Take all of them, one after another, and return the seconds waited; no two calls wait for each other as
        long as everybody takes them `sort_names`."""
        began = perf_counter()
        taken: list[str] = []
        try:
            for name in names:
                await self._take_one(name, waiters, call_id)
                taken.append(name)
        except BaseException:
            self.leave(taken)
            raise
        return perf_counter() - began

    def leave(self, names: Iterable[str]) -> None:
        """Release resources; the longest waiting call is next."""
        for name in names:
            queue = self._held[name]
            while queue and queue[0].done():
                queue.popleft()
            if queue:
                queue.popleft().set_result(None)
            else:
                del self._held[name]

    async def _take_one(self, name: str, waiters: Waiters, call_id: str) -> None:
        queue = self._held.get(name)
        if queue is None:
            self._held[name] = deque()
            return
        turn: Turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await stoppable(turn, waiters, call_id)
        except BaseException:
            if not turn.cancelled():  # it was given in the same moment; pass it on
                self.leave((name,))
            raise


def sort_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return distinct names in the one order everybody takes them."""
    return tuple(sorted(set(names)))


# -- turns of the event loop -----------------------------------------------------------------------------------------

# A read of a file in the page cache is answered without an `await` that really waits. A thousand of them in one list
# would hold up everything else for as long as all of them take, so a call that finds its turn of the loop used up
# waits for the next.

HOLD_S: Final = 0.004
"""How long calls may follow one another in one turn; a turn is longer than this by the call that used it up."""
_RELEASED: Final = 32
"""How many waiting calls go on in a turn; the rest keep their place."""


class Turns:
    """Limits how long calls hold the event loop in one of its turns.

    asyncio does not count its turns. A call that has waited proves that the turn it waited in is over (`end`), so
    most calls need no callback for that; a call that is held back schedules one.
    """

    __slots__ = ("_began", "_loop", "_waiting", "number")

    def __init__(self) -> None:
        self.number = 0
        """The current turn, as far as known; it never runs ahead."""
        self._began = 0.0
        """When the first call of this turn began; 0 if there was none yet."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    def is_over(self) -> bool:
        """Whether the calls of this turn have held the loop long enough; the first one begins it."""
        loop = asyncio.get_running_loop()
        if self._began and loop is self._loop:
            return perf_counter() - self._began > HOLD_S
        if loop is not self._loop:  # an application that moved to another loop left nobody behind who could go on
            self._loop = loop
            self._waiting.clear()
        self._began = perf_counter()
        return False

    def end(self, number: int) -> None:
        """End a turn, if it is still the current one; for a call that was in it and has waited since."""
        if number == self.number:
            self.number += 1
            self._began = 0.0

    async def wait(self) -> None:
        """Let everybody else have the loop, then go on in the order of arrival."""
        while self.is_over():
            loop = asyncio.get_running_loop()
            if not self._waiting:
                loop.call_soon(self._release, loop)
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.append(turn)
            await turn

    def _release(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run when everything that was ready has had its turn."""
        if loop is not self._loop:
            return
        self.end(self.number)
        for _ in range(min(_RELEASED, len(self._waiting))):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
        if self._waiting:
            loop.call_soon(self._release, loop)
