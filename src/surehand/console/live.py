"""Live sessions: one event feed of all sessions, shared by all pages; their calls, questions and answers.

A reader that does not keep up loses events and is told how many; it never delays other readers.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import StreamingResponse

from surehand.console.access import ApiError, ApiRequest, Endpoint
from surehand.engine.channel import find_recorded_call
from surehand.state.local_rpc import follow_sessions

if TYPE_CHECKING:
    from surehand.console.server import Console

CALLS_LIMIT: Final = 20_000
"""Maximum number of calls kept for pages that are opened later."""
RECENT_LIMIT: Final = 5_000
"""Maximum number of events kept for readers that reconnect."""
READER_LIMIT: Final = 20_000
BATCH_S: Final = 0.02
KEEP_ALIVE_S: Final = 15.0
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)

Event = dict[str, Any]
Line = tuple[int, Event, str]
"""Number of an event in this feed, the event, and its JSON."""


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
        """Wait for events; return them and how many were lost. Empty after a timeout."""
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
    """The running sessions of the user, their latest calls, and the readers of the event stream."""

    def __init__(self) -> None:
        self.sessions: dict[str, Event] = {}
        """The `hello` events of running sessions, by id."""
        self.calls: OrderedDict[str, Event] = OrderedDict()
        """The latest calls by id, oldest first, each merged from its events."""
        self.callers: dict[str, str] = {}
        """Sub-agent's session → the call that started it."""
        self.lost = 0
        """How many events sessions dropped before the console read them."""
        self._readers: set[Reader] = set()
        self._recent: deque[Line] = deque(maxlen=RECENT_LIMIT)
        self._number = 0
        self._listeners: list[Callable[[Event], None]] = []

    @property
    def readers(self) -> int:
        """Number of readers."""
        return len(self._readers)

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call a function with every event, before it is queued for readers."""
        self._listeners.append(listener)

    @asynccontextmanager
    async def follow(self) -> AsyncGenerator[None]:
        """Receive the events of all sessions inside the block."""
        async with follow_sessions(answers=True) as events:

            async def add_all() -> None:
                async for event in events:
                    self.add_event(event)

            task = asyncio.create_task(add_all())
            try:
                yield
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def add_event(self, event: Event) -> None:
        """Record one event, and queue it for every reader."""
        self._update(event)
        for listener in self._listeners:
            listener(event)
        self._number += 1
        line = (self._number, event, _ENCODER.encode(event))
        self._recent.append(line)
        for reader in self._readers:
            reader.put(line)

    def _update(self, event: Event) -> None:
        kind = event.get("kind")
        if kind in ("call_started", "call_progress", "call_finished"):
            self._update_call(event)
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

    def _update_call(self, event: Event) -> None:
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
        """Mark the running calls of an ended session as lost."""
        for call in self.calls.values():
            if call["state"] == "running" and session_id in (call["session_id"], call.get("root")):
                call["state"] = "lost"

    def add_recorded(self, recorded: list[Event]) -> None:
        """Insert recorded calls before those received live, without duplicates."""
        past = {each["call_id"]: {**each, "state": state_of(each), "ended": each["at"]} for each in recorded}
        for each in past.values():
            del each["kind"]
        self.calls = OrderedDict({**past, **self.calls})
        while len(self.calls) > CALLS_LIMIT:
            self.calls.popitem(last=False)

    # -- readers -------------------------------------------------------------------------------------------------------

    async def stream(self, wanted: Callable[[Event], bool], after: int | None = None) -> AsyncGenerator[str]:
        """Yield server-sent events: first the running sessions, or all events after number `after`; then live ones."""
        reader = Reader(wanted)
        self._readers.add(reader)
        try:
            yield "".join(self._opening_events(wanted, after))
            while True:
                taken, lost = await reader.take()
                gap = f"data: {_ENCODER.encode({'kind': 'gap', 'lost': lost, 'reader': True})}\n\n" if lost else ""
                # A full queue drops the newest, so the gap comes last.
                yield "".join(f"id: {number}\ndata: {text}\n\n" for number, _, text in taken) + gap or ": alive\n\n"
        finally:
            self._readers.discard(reader)

    def _opening_events(self, wanted: Callable[[Event], bool], after: int | None) -> Iterator[str]:
        yield f"retry: 1000\nid: {self._number}\ndata: {_ENCODER.encode({'kind': 'begin', 'number': self._number})}\n\n"
        if after is None or after > self._number:  # `after` is from an earlier console
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
    """Return the outcome of a call: ok, refused, cancelled or failed."""
    if event.get("ok"):
        return "ok"
    error: Event = event.get("error") or {}
    return {"permission_denied": "refused", "cancelled": "cancelled"}.get(str(error.get("code")), "failed")


# Endpoints.


async def list_sessions(console: Console, request: ApiRequest) -> Any:
    """Return the running sessions."""
    del request
    return {"sessions": list(console.feed.sessions.values())}


async def follow_events(console: Console, request: ApiRequest) -> Any:
    """Stream the events of all sessions."""
    after = request.number("after", -1, 2**53) if request.query.get("after", "").isdecimal() else None
    stream = console.feed.stream(_make_filter(request), after)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def _make_filter(request: ApiRequest) -> Callable[[Event], bool]:
    narrowed = {name: request.query[name].split(",") for name in ("session", "tool", "kind") if request.query.get(name)}

    def wanted(event: Event) -> bool:
        if "session" in narrowed and {event.get("session_id"), event.get("root")}.isdisjoint(narrowed["session"]):
            return False
        return all(event.get(name) in narrowed[name] for name in ("tool", "kind") if name in narrowed)

    return wanted


async def list_calls(console: Console, request: ApiRequest) -> Any:
    """Return calls, newest first."""
    limit, skip = request.number("limit", 200, 5000), request.number("skip", 0, 1_000_000)
    found: list[Event] = []
    count = 0
    for call in _find_calls(console, request):
        count += 1
        if skip < count <= skip + limit:
            found.append(call)
    return {"calls": found, "total": count, "lost": console.feed.lost}


def _find_calls(console: Console, request: ApiRequest) -> Iterator[Event]:
    words = request.query.get("text", "").lower().split()
    same = {name: request.query[name] for name in ("tool", "state") if request.query.get(name)}
    session = request.query.get("session")
    for call in reversed(console.feed.calls.values()):
        if session and session not in (call["session_id"], call.get("root")):
            continue
        if any(call.get(name) != value for name, value in same.items()):
            continue
        if words and not all(word in _text_of(call) for word in words):
            continue
        yield call


async def show_call(console: Console, request: ApiRequest) -> Any:
    """Return one call: in full from its session if that still has it, otherwise from its events and the audit."""
    id = request.path["id"]
    known = console.feed.calls.get(id)
    if known is not None and (session := _session_of(console, known)):
        try:
            whole = await console.ask_session(session, {"want": "call", "id": id})
        except ApiError:  # the session has just ended; use the recorded call
            whole = {"error": ""}
        if isinstance(whole.get("args"), dict):
            return known | whole | {"whole": True}
    record = await asyncio.to_thread(find_recorded_call, id)
    if record is not None:
        return {
            **(known or {"call_id": id, "session_id": record.get("session", ""), "state": state_of(record)}),
            **record,
        }
    if known is None:
        raise ApiError(404, f"there is no call {id}")
    return known


async def stop_call(console: Console, request: ApiRequest) -> Any:
    """Stop a running call."""
    known = console.feed.calls.get(request.path["id"])
    session = _session_of(console, known) if known is not None else ""
    if not session:
        raise ApiError(404, "that call is no longer running")
    answer = await console.ask_session(session, {"want": "stop_call", "id": request.path["id"]})
    if "error" in answer:
        raise ApiError(409, answer["error"])
    return {"stopped": True}


def _session_of(console: Console, call: Event) -> str:
    """Return the running session of a call, or of the sub-agent that made it; empty if it has ended."""
    return next((id for id in (call["session_id"], call.get("root")) if id in console.feed.sessions), "")


def _text_of(call: Event) -> str:
    return f"{call['tool']} {call.get('args', '')} {call.get('output', '')} {call['session_id']}".lower()


LOOK_S: Final = 3.0
"""Timeout (s) for a session to list its questions; sessions that exceed it are reported as silent."""
TRY_S: Final = 900.0
_ANSWER: Final = ("kind", "reason", "rule", "args", "dry_run")


async def list_questions(console: Console, request: ApiRequest) -> Any:
    """Return the open questions, oldest first."""
    del request
    sessions = list(console.feed.sessions)
    asked = (console.ask_session(id, {"want": "questions"}, LOOK_S) for id in sessions)
    found = await asyncio.gather(*asked, return_exceptions=True)
    rows = [row for each in found if isinstance(each, dict) for row in each.get("questions", ())]
    silent = [id for id, each in zip(sessions, found, strict=True) if isinstance(each, ApiError) and each.status == 504]
    return {"questions": sorted(rows, key=lambda row: row["asked"]), "silent": silent}


async def try_question(console: Console, request: ApiRequest) -> Any:
    """Make a dry run of the call in question and return its preview."""
    order = {"want": "try", "id": request.path["id"], "digest": request.text("digest")}
    return _raise_for_error(await console.ask_session(request.text("session_id"), order, TRY_S))


async def answer_question(console: Console, request: ApiRequest) -> Any:
    """Answer an open question."""
    answer = {name: request.body[name] for name in _ANSWER if request.body.get(name) is not None}
    about = {"id": request.path["id"], "digest": request.text("digest"), "by": _who()}
    order = {"want": "answer", **about, "answer": answer}
    return _raise_for_error(await console.ask_session(request.text("session_id"), order))


def _raise_for_error(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        more = {"answered": answer["answered"]} if "answered" in answer else {}
        raise ApiError(409, str(answer["error"]), str(answer.get("hint", "")), **more)
    return answer


def _who() -> str:
    try:
        return f"{getpass.getuser()} in the console"
    except (KeyError, OSError):  # the user id has no name, as in many containers
        return f"user {os.getuid()} in the console"


_SHOWN: Final = {"session_id": "the session it waits in (`root`)", "digest": "the digest of what was shown"}
ENDPOINTS = (
    Endpoint("GET", "/api/sessions", list_sessions, "The sessions that run now"),
    Endpoint(
        "GET",
        "/api/events",
        follow_events,
        "What happens in all sessions, as server-sent events; a `gap` says how many are missing",
        {
            "session": "only of these sessions and their sub-agents, by id, with commas",
            "tool": "only about these tools",
            "kind": "only of these kinds",
            "after": "go on after this event (or the header Last-Event-ID)",
        },
    ),
    Endpoint(
        "GET",
        "/api/calls",
        list_calls,
        "Calls of all sessions, newest first: those under way, those since the console started, recorded ones",
        {
            "limit": "how many at most",
            "skip": "how many to leave out",
            "session": "only of this session",
            "tool": "only of this tool",
            "state": "only running, ok, failed, refused, cancelled or lost ones",
            "text": "only with all these words",
        },
    ),
    Endpoint("GET", "/api/calls/{id}", show_call, "One call, with everything that is known of it"),
    Endpoint("POST", "/api/calls/{id}/stop", stop_call, "Stop a call that runs"),
    Endpoint("GET", "/api/questions", list_questions, "What waits for an answer, in all sessions"),
    Endpoint(
        "POST", "/api/questions/{id}/try", try_question, "Try the call on a copy; show what it would change", _SHOWN
    ),
    Endpoint(
        "POST",
        "/api/questions/{id}/answer",
        answer_question,
        "Answer a question; the first answer counts",
        {
            **_SHOWN,
            "kind": "once, session, always or no",
            "reason": "the reason, for the model to read",
            "rule": "the rule to remember instead of the suggestion, one a line",
            "args": "other arguments, which are judged again",
            "dry_run": "the dry run to apply exactly; empty text: run it again",
        },
    ),
)
