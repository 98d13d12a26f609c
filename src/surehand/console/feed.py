"""The feed of what happens in every session, shared by all pages: running sessions, latest calls, a stream of events.

A reader that does not keep up loses events, and gets their number; nobody else waits for it.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

from surehand.state.follow import follow_sessions

CALLS_LIMIT: Final = 20_000
"""Calls kept for pages that are opened later."""
RECENT_LIMIT: Final = 5_000
"""Events kept for readers that lost their connection and come back."""
READER_LIMIT: Final = 20_000
BATCH_S: Final = 0.02
KEEP_ALIVE_S: Final = 15.0
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)

Event = dict[str, Any]
Line = tuple[int, Event, str]
"""An event with its number in this feed, and encoded."""


class Reader:
    """One reader of the stream, with its queue."""

    def __init__(self, wanted: Callable[[Event], bool]) -> None:
        self._wanted = wanted
        self._waiting: deque[Line] = deque()
        self._lost = 0
        self._ready = asyncio.Event()

    def put(self, line: Line) -> None:
        """Queue an event for the reader, or count it as lost if the queue is full."""
        if not self._wanted(line[1]):
            return
        if len(self._waiting) >= READER_LIMIT:
            self._lost += 1
        else:
            self._waiting.append(line)
        self._ready.set()

    async def take(self, wait_s: float = KEEP_ALIVE_S) -> tuple[list[Line], int]:
        """Wait for events and return them, with the number lost before; empty after a timeout."""
        try:
            async with asyncio.timeout(wait_s):
                await self._ready.wait()
        except TimeoutError:
            return [], 0
        await asyncio.sleep(BATCH_S)  # events that come together are sent together
        taken, lost = list(self._waiting), self._lost
        self._waiting.clear()
        self._ready.clear()
        self._lost = 0
        return taken, lost


class Feed:
    """All sessions of the user: those that run, their latest calls, and the readers of the stream."""

    def __init__(self) -> None:
        self.sessions: dict[str, Event] = {}
        """Running sessions by id, as they introduced themselves."""
        self.calls: OrderedDict[str, Event] = OrderedDict()
        """The latest calls, oldest first: what began, and what became of it."""
        self.callers: dict[str, str] = {}
        """Sub-agent's session → the call that started it."""
        self.lost = 0
        """Events that sessions dropped before we could read them."""
        self._readers: set[Reader] = set()
        self._recent: deque[Line] = deque(maxlen=RECENT_LIMIT)
        self._number = 0
        self._listeners: list[Callable[[Event], None]] = []

    @property
    def readers(self) -> int:
        """Number of readers."""
        return len(self._readers)

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Have a function called with every event, before readers get it."""
        self._listeners.append(listener)

    @asynccontextmanager
    async def follow(self) -> AsyncGenerator[None]:
        """Follow all sessions while inside."""
        async with follow_sessions(answers=True) as events:

            async def take_all() -> None:
                async for event in events:
                    self.add_event(event)

            task = asyncio.create_task(take_all())
            try:
                yield
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def add_event(self, event: Event) -> None:
        """Record one event, and queue it for every reader."""
        self._keep(event)
        for listener in self._listeners:
            listener(event)
        self._number += 1
        line = (self._number, event, _ENCODER.encode(event))
        self._recent.append(line)
        for reader in self._readers:
            reader.put(line)

    def _keep(self, event: Event) -> None:
        kind = event.get("kind")
        if kind in ("call_started", "call_progress", "call_finished"):
            self._keep_call(event)
        elif kind == "hello":
            self.sessions[event["session_id"]] = event
        elif kind in ("session_closed", "session_lost"):
            if self.sessions.pop(event["session_id"], None) is not None:
                self._end_calls(event["session_id"])
        elif kind == "subagent_start":
            self.callers[str(event.get("child_session_id"))] = str(event.get("caller") or "")
            if len(self.callers) > CALLS_LIMIT:
                del self.callers[next(iter(self.callers))]
        elif kind == "gap":
            self.lost += int(event.get("lost", 0))

    def _keep_call(self, event: Event) -> None:
        id = event["call_id"]
        known = self.calls.get(id, {})
        if event["kind"] == "call_progress" and not known:
            return
        fresh: Event = {key: value for key, value in event.items() if key not in ("kind", "seq", "at", "text")}
        if event["kind"] == "call_started":
            fresh |= {"at": event["at"], "state": "running"}
        elif event["kind"] == "call_progress":
            fresh = {"progress": {key: event.get(key) for key in ("text", "done", "total")}}
        else:
            fresh |= {"at": known.get("at", event["at"]), "ended": event["at"], "state": state_of(event)}
        if caller := self.callers.get(event["session_id"]):
            fresh.setdefault("parent", caller)
        self.calls[id] = known | fresh
        while len(self.calls) > CALLS_LIMIT:
            self.calls.popitem(last=False)

    def _end_calls(self, session_id: str) -> None:
        """Mark the running calls of a vanished session as lost."""
        for call in self.calls.values():
            if call["state"] == "running" and session_id in (call["session_id"], call.get("root")):
                call["state"] = "lost"

    def add_recorded(self, recorded: list[Event]) -> None:
        """Insert recorded calls before those seen since, without duplicates."""
        past = {each["call_id"]: {**each, "state": state_of(each), "ended": each["at"]} for each in recorded}
        for each in past.values():
            del each["kind"]
        self.calls = OrderedDict({**past, **self.calls})
        while len(self.calls) > CALLS_LIMIT:
            self.calls.popitem(last=False)

    # -- readers -------------------------------------------------------------------------------------------------------

    async def stream(self, wanted: Callable[[Event], bool], after: int | None = None) -> AsyncGenerator[str]:
        """Yield what happens as server-sent events: who runs now first, or what came after an event known already."""
        reader = Reader(wanted)
        self._readers.add(reader)
        try:
            yield "".join(self._begin(wanted, after))
            while True:
                taken, lost = await reader.take()
                told = f"data: {_ENCODER.encode({'kind': 'gap', 'lost': lost, 'reader': True})}\n\n" if lost else ""
                # What was lost came after what was kept.
                yield "".join(f"id: {number}\ndata: {text}\n\n" for number, _, text in taken) + told or ": alive\n\n"
        finally:
            self._readers.discard(reader)

    def _begin(self, wanted: Callable[[Event], bool], after: int | None) -> Iterator[str]:
        yield f"retry: 1000\nid: {self._number}\ndata: {_ENCODER.encode({'kind': 'begin', 'number': self._number})}\n\n"
        if after is None or after > self._number:  # the number of an earlier console's event
            for hello in self.sessions.values():
                if wanted(hello):
                    yield f"data: {_ENCODER.encode(hello)}\n\n"
            return
        oldest = self._recent[0][0] if self._recent else self._number + 1
        if missing := max(0, oldest - after - 1):
            yield f"data: {_ENCODER.encode({'kind': 'gap', 'lost': missing, 'reader': True})}\n\n"
        for number, event, text in self._recent:
            if number > after and wanted(event):
                yield f"id: {number}\ndata: {text}\n\n"


def state_of(event: Event) -> str:
    """Return what a call came to, in a word: ok, refused, cancelled or failed."""
    if event.get("ok"):
        return "ok"
    error: Event = event.get("error") or {}
    return {"permission_denied": "refused", "cancelled": "cancelled"}.get(str(error.get("code")), "failed")
