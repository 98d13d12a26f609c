"""Deadlines of many calls under one timer.

A timer of its own costs a call as much as all its checks, and nearly every call ends long before its deadline. So
long deadlines are looked at together, a few times a second; only short ones get a timer each.
"""

from __future__ import annotations

import asyncio
from typing import Final

SHORT_S: Final = 2.0
"""Below this a deadline is kept to the millisecond; above it may be late by one look."""
LOOK_EVERY_S: Final = 0.1
DEADLINE: Final = "surehand: deadline"
"""The message of the cancellation that a deadline brings."""


class Deadlines:
    """Cancels each waiter when its time has come, unless it was let go before."""

    __slots__ = ("_due", "_looking", "_loop")

    def __init__(self) -> None:
        self._due: dict[asyncio.Future[None], float | asyncio.TimerHandle] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looking = False

    def set(self, waiter: asyncio.Future[None], timeout_s: float, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel `waiter` in `timeout_s` seconds."""
        if timeout_s < SHORT_S:
            self._due[waiter] = loop.call_later(timeout_s, waiter.cancel, DEADLINE)
            return
        self._due[waiter] = loop.time() + timeout_s
        if not self._looking or loop is not self._loop:
            self._loop, self._looking = loop, True
            loop.call_later(LOOK_EVERY_S, self._look, loop)

    def drop(self, waiter: asyncio.Future[None]) -> None:
        """Let a waiter go; its call has ended."""
        due = self._due.pop(waiter)
        if isinstance(due, asyncio.TimerHandle):
            due.cancel()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return  # an application that moved to another loop is looked after there
        now = loop.time()
        for waiter, due in list(self._due.items()):
            if isinstance(due, float) and due <= now and not waiter.done():
                waiter.cancel(DEADLINE)
        self._looking = bool(self._due)
        if self._looking:
            loop.call_later(LOOK_EVERY_S, self._look, loop)
