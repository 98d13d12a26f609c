"""Slots for calls: a concurrency limit and a bounded queue per tool, one call at a time per declared resource.

Waiting calls are served in order of arrival. The common case, a free slot and no resource, is two additions.
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
"""Call id → the future that its call awaits at the moment; cancelling that ends the call."""


class Slot:
    """The running and waiting calls of one tool, and its limits."""

    __slots__ = ("limit", "name", "queue_size", "running", "waiting")

    def __init__(self, name: str, limit: int = DEFAULT_LIMIT, queue_size: int = DEFAULT_QUEUE) -> None:
        self.name = name
        self.limit = limit
        """May be changed at any time; running calls are not stopped."""
        self.queue_size = queue_size
        self.running = 0
        self.waiting: deque[Turn] = deque()

    def to_dict(self) -> dict[str, str | int]:
        """Return the limit and the numbers of running and waiting calls."""
        return {"tool": self.name, "running": self.running, "waiting": len(self.waiting), "limit": self.limit}

    def take(self) -> bool:
        """Take a slot if one is free and no call waits for it."""
        if self.running < self.limit and not self.waiting:
            self.running += 1
            return True
        return False

    async def wait(self, waiters: Waiters, call_id: str) -> float:
        """Wait for a slot, take it and return the seconds waited; raise `queue_full` if too many calls wait."""
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
            if not turn.cancelled():  # cancelled just after it got the slot: pass it on
                self.leave()
            elif turn in self.waiting:
                self.waiting.remove(turn)
            raise
        return perf_counter() - began

    def leave(self) -> None:
        """Release a slot."""
        self.running -= 1
        if self.waiting:
            self.admit()

    def admit(self) -> None:
        """Give free slots to waiting calls; also to be called after raising the limit."""
        while self.waiting and self.running < self.limit:
            turn = self.waiting.popleft()
            if not turn.done():  # otherwise cancelled, and its task has not run yet
                self.running += 1
                turn.set_result(None)


class Resources:
    """Locks by name (`file:/a/b`, `server:x`), each held by one running call at a time."""

    def __init__(self) -> None:
        self._held: dict[str, deque[Turn]] = {}

    def take(self, names: tuple[str, ...]) -> bool:
        """Take all resources if all are free, else none."""
        if any(name in self._held for name in names):
            return False
        for name in names:
            self._held[name] = deque()
        return True

    async def wait(self, names: tuple[str, ...], waiters: Waiters, call_id: str) -> float:
        """Take the resources one by one and return the seconds waited.

        Callers pass names sorted by `sort_names`: taken in one order, they cannot deadlock.
        """
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
        """Release resources, each to the call that has waited longest for it."""
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
            if not turn.cancelled():  # cancelled just after it got the resource: pass it on
                self.leave((name,))
            raise


def sort_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return distinct names in the order in which all calls take them."""
    return tuple(sorted(set(names)))


# -- turns of the event loop -------------------------------------------------------------------------------------------

# A read of a file in the page cache is answered without an `await` that really waits. A thousand of them in one list
# would hold up everything else for as long as all of them take, so a call that finds its turn of the loop used up
# waits for the next.

HOLD_S: Final = 0.004
"""How long calls may follow one another in one turn; a turn is longer than this by the call that used it up."""
_RELEASED: Final = 32
"""How many held-back calls go on per turn; the rest keep their order."""


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
