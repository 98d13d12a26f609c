"""`Bus`, which hands events to listeners; `Sinks`, which hand them to functions of a program; and the log.

A listener that raises is reported and never makes a call fail.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from surehand.core.events import Event, EventKind, Listener
from surehand.core.frozen import frozen
from surehand.core.schema import truncate_text
from surehand.files.sanitize import mask

_log = logging.getLogger("surehand")
EventFilter = Callable[[EventKind], bool]
_Subscription: TypeAlias = tuple[Listener, frozenset[EventKind] | None, EventFilter | None]
"""Listener, its kinds (None: all), and a filter that says whether it wants a kind at the moment."""


class Bus:
    """Hands events to listeners, in order of subscription."""

    __slots__ = ("_by_kind", "_changing", "_closed", "_reported", "_subscriptions")

    def __init__(self) -> None:
        self._subscriptions: tuple[_Subscription, ...] = ()
        self._by_kind: dict[EventKind, tuple[_Subscription, ...]] = {}
        self._reported: set[tuple[int, int | None]] = set()
        self._changing = threading.Lock()  # followers come and go in a thread of their own
        self._closed = False

    def subscribe(
        self, listener: Listener, *, kinds: Iterable[EventKind] | None = None, wants: EventFilter | None = None
    ) -> Callable[[], None]:
        """Add a listener for events of these `kinds`, or all; return the function that removes it.

        `wants` is asked for each event whether the listener wants its kind at the moment. Frequent events that no
        listener wants are not made at all.
        """
        with self._changing:
            if self._closed:
                return lambda: None
            added = (listener, None if kinds is None else frozenset(kinds), wants)
            self._subscriptions, self._by_kind = (*self._subscriptions, added), {}

        def unsubscribe() -> None:
            with self._changing:
                self._subscriptions = tuple(each for each in self._subscriptions if each[0] is not listener)
                self._by_kind = {}

        return unsubscribe

    def hears(self, kind: EventKind) -> bool:
        """Whether any listener wants events of this kind; otherwise none need be made."""
        found = self._by_kind.get(kind)
        for _, _, wants in self._find(kind) if found is None else found:  # noqa: SIM110  # half the time of `any`
            if wants is None or wants(kind):
                return True
        return False

    def _find(self, kind: EventKind) -> tuple[_Subscription, ...]:
        """Return the subscriptions to events of a kind, and cache them."""
        by_kind = self._by_kind  # taken first: `subscribe` in another thread replaces it
        found = by_kind[kind] = tuple(each for each in self._subscriptions if each[1] is None or kind in each[1])
        return found

    def close(self) -> None:
        """Remove all listeners; later events are handed to nobody."""
        with self._changing:
            self._subscriptions, self._by_kind = (), {}
            self._closed = True

    def emit(self, event: Event) -> None:
        """Hand an event to every listener; one that raises is reported."""
        found = self._by_kind.get(event.kind)
        for listener, _, _ in self._find(event.kind) if found is None else found:
            try:
                listener(event)
            except OSError as problem:  # a full disk fails every event from here on; log it once
                if (id(listener), problem.errno) not in self._reported:
                    self._reported.add((id(listener), problem.errno))
                    _log.error("what happens is not written down: %s", problem)
            except Exception:
                _log.exception("a listener failed on %s", event.kind)


# -- sinks: functions of a program that get events, each in its own thread ---------------------------------------------

Sink = Callable[[Event], object]
WAITING_LIMIT: Final = 10_000
CLOSING_S: Final = 1.0
"""How long (s) closing waits for each sink to take its queued events."""


@frozen
class SinkFigures:
    """Counts of one sink's events."""

    name: str
    delivered: int
    failed: int
    """Events on which the sink raised."""
    lost: int
    """Events it did not get: it was too slow, or closed before."""


class Sinks:
    """The sinks of one application; `app.events`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._outlets: list[_Outlet] = []

    def add(self, sink: Sink, *, kinds: Iterable[EventKind] | None = None, waiting: int = WAITING_LIMIT) -> Sink:
        """Hand every event (of these kinds) to `sink`, in its own thread, until the application closes.

        At most `waiting` events are queued for it. Returns the sink, so that it can be used as a decorator.
        """
        outlet = _Outlet(sink, waiting)
        outlet.unsubscribe = self._bus.subscribe(outlet.on_event, kinds=kinds)
        self._outlets.append(outlet)
        return sink

    async def remove(self, sink: Sink) -> None:
        """Remove a sink, after handing it the queued events."""
        leaving = [outlet for outlet in self._outlets if outlet.sink is sink]
        self._outlets = [outlet for outlet in self._outlets if outlet.sink is not sink]
        await self._end(leaving)

    def figures(self) -> list[SinkFigures]:
        """Return the counts of each sink."""
        return [outlet.figures() for outlet in self._outlets]

    async def close(self) -> None:
        """Let every sink take its queued events, for `CLOSING_S` at the most; log how many were lost."""
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
    """One sink, its thread and its queue."""

    def __init__(self, sink: Sink, limit: int) -> None:
        self.sink = sink
        self.unsubscribe: Callable[[], None] = lambda: None
        self._limit = limit
        self._waiting: deque[Event] = deque()
        self._wakes = threading.Condition()
        self._delivered = self._failed = self._lost = 0
        self._stopping = False
        self._name = str(getattr(sink, "__qualname__", type(sink).__name__))
        self._thread = threading.Thread(target=self._run, name=f"surehand-sink-{self._name[:40]}", daemon=True)
        self._thread.start()

    def on_event(self, event: Event) -> None:
        """Queue an event for the sink. Called in any thread; never waits for the sink."""
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
        """Return the counts so far."""
        with self._wakes:
            return SinkFigures(self._name, self._delivered, self._failed, self._lost)

    def wait(self, seconds: float) -> None:
        """Wait until the sink has taken all queued events, at most for `seconds`."""
        self._thread.join(seconds)

    def stop(self) -> None:
        """Take no more events; the thread ends when the queue is empty."""
        self.unsubscribe()
        with self._wakes:
            self._stopping = True
            self._wakes.notify()

    def abandon(self) -> None:
        """Count the events still queued as lost."""
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
            except Exception:  # a sink is code of others: log its errors
                with self._wakes:
                    self._failed += 1
                    first = self._failed == 1
                if first:
                    _log.exception("the sink %s failed on %s", self._name, event.kind)
            else:
                with self._wakes:
                    self._delivered += 1


_CALLS: Final[tuple[EventKind, ...]] = ("call_started", "call_finished")
_WARNED: Final[tuple[EventKind, ...]] = ("extension_failed", "note")
LOGGED: Final = (*_CALLS, *_WARNED)
LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}


def is_logged(kind: EventKind) -> bool:
    """Whether events of this kind are logged: calls only at level info."""
    return kind in _WARNED or (kind in _CALLS and _log.isEnabledFor(logging.INFO))


def log_event(event: Event) -> None:
    """Log an event to the `surehand` logger; a listener of the bus."""
    match event.kind:
        case "call_started":
            if _log.isEnabledFor(logging.INFO):
                args = _short(json.dumps(event.data["call"].shown_args, ensure_ascii=False, default=repr), 200)
                _write(logging.INFO, event, f"{event.tool} started with {args}", args=args)
        case "call_finished":
            result = event.data["result"]
            if result.ok:
                if _log.isEnabledFor(logging.INFO):
                    ms, said = result.meta["duration_ms"], _short(result.output.strip(), 120)
                    _write(
                        logging.INFO, event, f"{event.tool} finished in {ms} ms: {said}", duration_ms=ms, result=said
                    )
            else:
                level = logging.ERROR if event.data["bug"] else logging.INFO
                ms, said = result.meta["duration_ms"], _short(result.error.message, 300)
                text = f"{event.tool} failed after {ms} ms with {result.error.code}: {said}"
                _write(level, event, text, duration_ms=ms, code=result.error.code, error=said)
        case kind if kind in _WARNED:
            _write(logging.WARNING, event, str(event.data.get("message", event.kind)))
        case _:
            pass


def at_levels(levels: Mapping[str, str]) -> Listener:
    """Return a listener that logs events, those of each of these tools only from its level on."""
    least = {tool: LEVELS[level] for tool, level in levels.items()}

    def listen(event: Event) -> None:
        if _level(event) >= least.get(event.tool, logging.NOTSET):
            log_event(event)

    return listen if least else log_event


def _level(event: Event) -> int:
    if event.kind == "call_finished" and event.data["bug"]:
        return logging.ERROR
    return logging.WARNING if event.kind in _WARNED else logging.INFO


def _short(text: str, limit: int) -> str:
    return mask(truncate_text(text, limit))


def _write(level: int, event: Event, message: str, **fields: Any) -> None:
    if _log.isEnabledFor(level):
        about = {"event": event.kind, "tool": event.tool, "call_id": event.call_id, "session_id": event.session_id}
        call = f" [call {event.call_id}]" if event.call_id else ""
        _log.log(level, "%s%s", message, call, extra={"surehand": {**about, **fields}})


class JsonLines(logging.Formatter):
    """Formats log records as one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line of JSON."""
        fields = getattr(record, "surehand", {})
        line = {"at": record.created, "level": record.levelname.lower(), "message": record.getMessage(), **fields}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def to_stderr(level: str, *, json_lines: bool = False) -> None:
    """Send the log to stderr, for the command line; programs configure logging themselves."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if json_lines else logging.Formatter("%(levelname)s %(message)s"))
    _log.handlers[:] = [handler]
    _log.propagate = False
    _log.setLevel(LEVELS[level])
