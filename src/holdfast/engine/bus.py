"""`Bus`: one stream of events, any number of listeners, none of whom can hurt a call."""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast.core.events import Event, Listener

_log = logging.getLogger("holdfast")


class Bus:
    """Hands every event to every listener, in order of subscription; a listener that raises is reported."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener and return the function that takes it away."""
        self._listeners = (*self._listeners, listener)

        def unsubscribe() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not listener)

        return unsubscribe

    @property
    def heard(self) -> bool:
        """Whether anyone listens; the hot path makes no events for nobody."""
        return bool(self._listeners)

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                _log.exception("a listener failed on %s", event.kind)
