"""`Bus`: one stream of events, any number of listeners, none of whom can hurt a call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from surehand.core.events import Event, EventKind, Listener

_log = logging.getLogger("surehand")
Wish = Callable[[EventKind], bool]


class Bus:
    """Hands every event to every listener, in order of subscription; a listener that raises is reported."""

    __slots__ = ("_changing", "_closed", "_listeners", "_told", "_wishes")

    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()
        self._wishes: tuple[tuple[Listener, Wish], ...] = ()
        self._told: set[tuple[int, int | None]] = set()
        self._changing = threading.Lock()  # followers come and go in a thread of their own
        self._closed = False

    def subscribe(self, listener: Listener, *, wants: Wish | None = None) -> Callable[[], None]:
        """Add a listener and return the function that takes it away.

        `wants` says, each time anew, whether this listener cares for events of a kind; those that nobody cares for
        need not be made (calls begin and end thousands of times, and so many tools may be registered).
        """
        with self._changing:
            if self._closed:
                return lambda: None
            self._listeners = (*self._listeners, listener)
            if wants is not None:
                self._wishes = (*self._wishes, (listener, wants))

        def unsubscribe() -> None:
            with self._changing:
                self._listeners = tuple(each for each in self._listeners if each is not listener)
                self._wishes = tuple(each for each in self._wishes if each[0] is not listener)

        return unsubscribe

    def hears(self, kind: EventKind) -> bool:
        """Say whether anyone cares for events of this kind; the hot path makes no events for nobody."""
        if len(self._listeners) > len(self._wishes):
            return True
        for _, wish in self._wishes:  # noqa: SIM110  # half the time of `any`, and asked twice a call
            if wish(kind):
                return True
        return False

    def close(self) -> None:
        """Let every listener go: what happens from here on is written down nowhere."""
        with self._changing:
            self._listeners = self._wishes = ()
            self._closed = True

    def emit(self, event: Event) -> None:
        """Hand an event to every listener; one that raises is reported."""
        for listener in self._listeners:
            try:
                listener(event)
            except OSError as problem:  # a full disk fails every event from here on, and is said once
                if (id(listener), problem.errno) not in self._told:
                    self._told.add((id(listener), problem.errno))
                    _log.error("what happens is not written down: %s", problem)
            except Exception:
                _log.exception("a listener failed on %s", event.kind)
