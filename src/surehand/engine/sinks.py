"""Sinks: functions of a program's own that get every event, each in a thread of its own.

A sink that blocks or raises delays no call and stops no other sink. What it does not take in time is lost to it, and
counted.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from surehand.core.events import Event, EventKind
from surehand.core.frozen import frozen
from surehand.engine.bus import Bus

Sink = Callable[[Event], object]
WAITING_LIMIT: Final = 10_000
CLOSING_S: Final = 1.0
"""How long closing waits for sinks that have not taken everything yet."""
_log = logging.getLogger("surehand")


@frozen
class SinkFigures:
    """What became of the events for one sink."""

    name: str
    delivered: int
    failed: int
    """Events on which the sink raised."""
    lost: int
    """Events it never got, because it was too slow or closed too early."""


class Sinks:
    """The sinks of one application; `app.events`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._outlets: list[_Outlet] = []

    def add(self, sink: Sink, *, kinds: Iterable[EventKind] | None = None, waiting: int = WAITING_LIMIT) -> Sink:
        """Hand every event (of these kinds) to `sink`, in a thread of its own, until the application closes.

        At most `waiting` events wait for it. Returns the sink, so that it can be used as a decorator.
        """
        outlet = _Outlet(sink, frozenset(kinds) if kinds is not None else None, waiting)
        outlet.unsubscribe = self._bus.subscribe(outlet.take)
        self._outlets.append(outlet)
        return sink

    async def remove(self, sink: Sink) -> None:
        """Hand a sink what waits for it, and nothing further."""
        leaving = [outlet for outlet in self._outlets if outlet.sink is sink]
        self._outlets = [outlet for outlet in self._outlets if outlet.sink is not sink]
        await self._end(leaving)

    def figures(self) -> list[SinkFigures]:
        """Return what each sink got, failed on and lost."""
        return [outlet.figures() for outlet in self._outlets]

    async def close(self) -> None:
        """Give every sink a moment to take what waits; say what was lost."""
        await self._end(self._outlets)

    async def _end(self, outlets: list[_Outlet]) -> None:
        for outlet in outlets:
            outlet.stop()
        await asyncio.gather(*(asyncio.to_thread(outlet.wait, CLOSING_S) for outlet in outlets))
        for outlet in outlets:
            outlet.abandon()
            if (found := outlet.figures()).lost or found.failed:
                _log.warning("the sink %s lost %d events and failed on %d", found.name, found.lost, found.failed)


class _Outlet:
    """One sink, its thread, and what waits for it."""

    def __init__(self, sink: Sink, kinds: frozenset[EventKind] | None, limit: int) -> None:
        self.sink = sink
        self.unsubscribe: Callable[[], None] = lambda: None
        self._kinds = kinds
        self._limit = limit
        self._waiting: deque[Event] = deque()
        self._wakes = threading.Condition()
        self._delivered = self._failed = self._lost = 0
        self._stopping = False
        self._name = str(getattr(sink, "__qualname__", type(sink).__name__))
        self._thread = threading.Thread(target=self._run, name=f"surehand-sink-{self._name[:40]}", daemon=True)
        self._thread.start()

    def take(self, event: Event) -> None:
        """Keep an event for the sink; called wherever it happens, and never waits for the sink."""
        if self._kinds is not None and event.kind not in self._kinds:
            return
        with self._wakes:
            if self._stopping or len(self._waiting) >= self._limit:
                self._lost += 1
                first = self._lost == 1 and not self._stopping
            else:
                self._waiting.append(event)
                self._wakes.notify()
                return
        if first:
            _log.warning("the sink %s is too slow: %d events wait, further ones are lost", self._name, self._limit)

    def figures(self) -> SinkFigures:
        """Return what became of the events so far."""
        with self._wakes:
            return SinkFigures(self._name, self._delivered, self._failed, self._lost)

    def wait(self, seconds: float) -> None:
        """Wait until the sink has taken what waits for it, or the time is over."""
        self._thread.join(seconds)

    def stop(self) -> None:
        """Take no more events; the thread ends when what waits is handed over."""
        self.unsubscribe()
        with self._wakes:
            self._stopping = True
            self._wakes.notify()

    def abandon(self) -> None:
        """Count what still waits as lost."""
        with self._wakes:
            self._lost += len(self._waiting)
            self._waiting.clear()

    def _run(self) -> None:
        while True:
            with self._wakes:
                while not self._waiting and not self._stopping:
                    self._wakes.wait()
                if not self._waiting:
                    return
                event = self._waiting.popleft()
            try:
                self.sink(event)
            except Exception:  # a sink is somebody's own code, and the log is where its faults belong
                with self._wakes:
                    self._failed += 1
                    first = self._failed == 1
                if first:
                    _log.exception("the sink %s failed on %s", self._name, event.kind)
            else:
                with self._wakes:
                    self._delivered += 1
