"""A session's channel: other processes of the same user follow its events and send requests.

Without a follower the channel subscribes to no events. With one, an event costs the call one append; the serving thread
describes it, masked and shortened, and sends it with others in a batch. A follower that does not read loses events, and
is told how many; it never delays a call. docs/events.md describes the protocol. Earlier calls are read from the audit
logs of all workspaces, in the form of the channel's events (`read_recorded_calls`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from heapq import merge
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.core.call import Image
from surehand.core.errors import StateError
from surehand.core.events import Event, Progress, plain
from surehand.engine.audit import lines, records
from surehand.files.sanitize import mask, mask_data
from surehand.state import local_rpc, locations
from surehand.state.local_rpc import ANSWER_MOST_S, ANSWER_S, PROTOCOL, Connection, LocalServer, encode_line

if TYPE_CHECKING:
    from surehand.core.call import ToolCall, ToolResult
    from surehand.core.session import Session
    from surehand.engine.bus import Bus
    from surehand.policy.policy import Decision


BATCH_S: Final = 0.02
"""Events are sent in batches this long (s) apart: waking the thread for each costs more than sending it."""
PENDING_LIMIT: Final = 10_000
ARGS_LIMIT: Final = 300
TEXT_LIMIT: Final = 300
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, default=str)
_UNSENT: Final = frozenset({"subagent_event"})
"""Not sent: the events of sub-agents, which it wraps, are sent themselves."""


class Channel:
    """The socket of one running session, for other processes."""

    def __init__(self, session: Session, bus: Bus, unanswered: Callable[[], None] = lambda: None) -> None:
        """Open the channel; `unanswered` is called when the last follower that answers questions disconnects."""
        self._session = session
        self._unanswered = unanswered
        self._answering: set[Connection] = set()
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._started = time.time()
        self._followers: list[Connection] = []
        self._calls = RecentCalls()
        self._unsubscribe: Callable[[], None] | None = None
        self._pending: deque[Event] = deque()
        self._waking = False
        self._overflow = 0
        self._counting = threading.Lock()
        self._sequence = 0
        local_rpc.clear_stale()
        self._server = LocalServer(f"{os.getpid()}-{session.id[-40:]}", self._on_request, self._leave)
        # Announced before the first call, so that followers of all sessions learn even of a short one.
        if waiting := local_rpc.follower_sockets():
            announced = asyncio.run_coroutine_threadsafe(self._announce(waiting), self._server.loop)
            with contextlib.suppress(TimeoutError, OSError):
                announced.result(timeout=1.0)

    @property
    def name(self) -> str:
        """The name of the session's socket."""
        return self._server.name

    @property
    def has_answerers(self) -> bool:
        """Whether a follower answers questions."""
        return bool(self._answering)

    async def close(self) -> None:
        """Send what is queued and close the channel."""
        await self._server.close(self._flush)
        if self._unsubscribe is not None:
            self._unsubscribe()

    # -- in the serving thread -----------------------------------------------------------------------------------------

    async def _announce(self, waiting: list[str]) -> None:
        for name in waiting:
            if (connection := await self._server.connect(name)) is not None:
                self._follow(connection, answers=local_rpc.is_answering(name))

    def _on_request(self, peer: Connection, request: dict[str, Any]) -> None:
        """Reply to a request, or start sending events."""
        version, want = request.get("v", PROTOCOL), str(request.get("want"))
        if not isinstance(version, int) or version > PROTOCOL:
            return peer.answer({"error": f"version {version} is not spoken here", "hint": f"Speak {PROTOCOL}."})
        if want == "events":
            return self._follow(peer, answers=request.get("answers") is True)
        if want == "session":
            return peer.answer(self._facts())
        if want == "call":
            found = self._calls.describe(str(request.get("id")))
            return peer.answer(found or {"error": "that call is no longer kept", "hint": ""})
        if (handler := self._session.requests.get(want)) is None:
            if want == "board":  # a session without tasks has no board yet
                return peer.answer(self._facts() | {"tasks": []})
            return peer.answer({"error": f"there is no request {want!r}", "hint": "`surehand help events` lists them."})
        wait_s = request.get("wait_s", ANSWER_S)
        wait_s = min(float(wait_s), ANSWER_MOST_S) if isinstance(wait_s, int | float) else ANSWER_S
        return local_rpc.run_in(self._loop, lambda: handler(request), peer, wait_s)

    def _facts(self) -> dict[str, Any]:
        session = self._session
        return {
            "session_id": session.id,
            "name": session.name,
            "workspace": session.workspace,
            "mode": session.mode,
            "pid": os.getpid(),
            "program": mask(_program(sys.argv))[:80],
            "started": self._started,
            "channel": self.name,
        }

    def _follow(self, peer: Connection, *, answers: bool) -> None:
        if answers:
            self._answering.add(peer)
        if peer in self._followers:
            return
        # Before the greeting, so that no event after it is missed. This thread sends both, the greeting first.
        if self._unsubscribe is None:
            self._unsubscribe = self._bus.subscribe(self._on_event)
        hello = {"kind": "hello", "v": PROTOCOL, "at": time.time(), "seq": self._sequence}
        peer.send(encode_line(hello | self._facts()))
        self._followers.append(peer)

    def _leave(self, peer: Connection) -> None:
        if peer in self._followers:
            self._followers.remove(peer)
        if peer in self._answering:
            self._answering.discard(peer)
            if not self._answering:
                with contextlib.suppress(RuntimeError):  # the session's loop has ended
                    self._loop.call_soon_threadsafe(self._unanswered)
        if not self._followers and self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
            self._calls.clear()

    def _flush(self) -> None:
        self._waking = False  # the next event wakes the thread again
        waiting = [self._pending.popleft() for _ in range(len(self._pending))]
        with self._counting:
            overflow, self._overflow = self._overflow, 0
        self._sequence += overflow
        for follower in self._followers:
            follower.lost += overflow
        for event in _coalesce(waiting):
            self._sequence += 1
            self._calls.add(event)
            below = {} if event.session_id == self._session.id else {"root": self._session.id}
            line = encode_line({"seq": self._sequence, **below, **describe_event(event)})
            for follower in self._followers:
                self._send(follower, line)

    def _send(self, follower: Connection, line: bytes) -> None:
        if not follower.has_room():
            follower.lost += 1
            return
        if follower.lost:
            gap = {"kind": "gap", "at": time.time(), "session_id": self._session.id, "lost": follower.lost}
            follower.send(encode_line(gap))
            follower.lost = 0
        follower.send(line)

    # -- in the thread that emits an event -----------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        if event.kind in _UNSENT:
            return
        if len(self._pending) >= PENDING_LIMIT:
            with self._counting:
                self._overflow += 1
            return
        self._pending.append(event)
        if not self._waking:
            self._waking = True
            self._server.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._server.loop.call_later(BATCH_S, self._flush)


def _coalesce(events: list[Event]) -> list[Event]:
    """Drop progress events followed by newer ones of the same call."""
    latest = {event.call_id: event for event in events if event.kind == "call_progress"}
    return [event for event in events if event.kind != "call_progress" or latest[event.call_id] is event]


# -- the form of an event ----------------------------------------------------------------------------------------------


def describe_event(event: Event) -> dict[str, Any]:
    """Return an event as it is sent: flat, truncated, secrets masked."""
    known = {
        "kind": event.kind,
        "at": round(event.at, 6),
        "session_id": event.session_id,
        "call_id": event.call_id,
        "tool": event.tool,
    }
    describe = _DESCRIBED.get(event.kind, _describe_rest)
    return {**known, **describe(event.data), **known}


def one_line(args: Mapping[str, Any]) -> str:
    """Return the arguments of a call in one line, truncated, secrets masked."""
    bounded = {key: value[: 2 * ARGS_LIMIT] if isinstance(value, str) else value for key, value in args.items()}
    text = _ENCODER.encode(mask_data(bounded))
    return text if len(text) <= ARGS_LIMIT else f"{text[:ARGS_LIMIT]}…"


def _text(value: object) -> str:
    text = mask(str(value)[: 2 * TEXT_LIMIT])
    return text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]}…"


def _describe_call(call: ToolCall) -> dict[str, Any]:
    made_by = {} if call.parent is None else {"parent": call.parent.id}
    return {"source": call.source, "args": one_line(call.shown_args)} | made_by


def _describe_start(data: Mapping[str, Any]) -> dict[str, Any]:
    return _describe_call(data["call"])


def _describe_progress(data: Mapping[str, Any]) -> dict[str, Any]:
    progress = cast("Progress", data["progress"])
    return {"text": _text(progress.text), "done": progress.done, "total": progress.total}


def _describe_end(data: Mapping[str, Any]) -> dict[str, Any]:
    result = cast("ToolResult", data["result"])
    decision = cast("Decision | None", data.get("decision"))
    meta = result.meta
    told: dict[str, Any] = _describe_call(data["call"]) | {
        "ok": result.ok,
        "duration_ms": meta.get("duration_ms"),
        "cached": bool(meta.get("cached")),
        "output": _text(result.output),
    }
    if result.error is not None:
        told["error"] = {"code": result.error.code, "message": _text(result.error.message)}
    if decision is not None:
        rules = [each.rule.text for each in decision.rules if each.decided]
        told |= {"verdict": decision.verdict, "reason": _text(decision.reason), "rules": rules}
    elif result.error is not None and result.error.code == "permission_denied":
        details = result.error.details
        rules = [str(each["rule"]) for each in details.get("rules", ()) if each.get("decided")]
        told |= {"verdict": details.get("verdict", "deny"), "reason": told["error"]["message"], "rules": rules}
    if result.undo is not None:
        told["change_id"] = result.undo.change_id
    if origin := meta.get("origin"):
        told["origin"] = origin
    return told


def _describe_task(data: Mapping[str, Any]) -> dict[str, Any]:
    task = cast("Mapping[str, Any]", data["task"])
    title = {"title": _text(task.get("title", "")), "task_kind": task.get("kind", "todo")}
    return {"task_id": data["task_id"], "status": data["status"]} | title


def _describe_message(data: Mapping[str, Any]) -> dict[str, Any]:
    message, usage = data.get("message"), data.get("usage")
    return {"role": getattr(message, "role", ""), "usage": plain(usage) if usage else None}


def _describe_rest(data: Mapping[str, Any]) -> dict[str, Any]:
    known = _describe_call(data["call"]) if "call" in data else {}
    return known | {key: mask_data(plain(value), limit=TEXT_LIMIT) for key, value in data.items() if key != "call"}


_DESCRIBED: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "call_started": _describe_start,
    "call_progress": _describe_progress,
    "call_finished": _describe_end,
    "task_changed": _describe_task,
    "message": _describe_message,
}


# -- the latest calls of a followed session, in full, as followers may ask for one -------------------------------------

CALLS_LIMIT: Final = 300
WEIGHT_LIMIT: Final = 16_000_000
"""Approximate limit of characters kept, in all results."""
WHOLE_TEXT_LIMIT: Final = 200_000
IMAGE_LIMIT: Final = 4_000_000


class RecentCalls:
    """Running calls and the latest finished ones, by id."""

    def __init__(self) -> None:
        self._events: OrderedDict[str, tuple[Event, int]] = OrderedDict()
        self._weight = 0

    def add(self, event: Event) -> None:
        """Keep a call that started or finished; drop the oldest over the limit."""
        if event.kind not in ("call_started", "call_finished"):
            return
        self._forget(event.call_id)
        weight = _weigh(event)
        self._events[event.call_id] = (event, weight)
        self._weight += weight
        while len(self._events) > 1 and (len(self._events) > CALLS_LIMIT or self._weight > WEIGHT_LIMIT):
            self._forget(next(iter(self._events)))

    def _forget(self, call_id: str) -> None:
        if (known := self._events.pop(call_id, None)) is not None:
            self._weight -= known[1]

    def clear(self) -> None:
        """Drop all calls, when the last follower has disconnected."""
        self._events.clear()
        self._weight = 0

    def describe(self, call_id: str) -> dict[str, Any] | None:
        """Return a call in full, secrets masked; None if it is not kept."""
        known = self._events.get(call_id)
        return None if known is None else describe_whole(known[0])


def describe_whole(event: Event) -> dict[str, Any]:
    """Return a call with all its arguments, result and verdict; secrets masked, texts truncated."""
    call = cast("ToolCall", event.data["call"])
    told: dict[str, Any] = {
        "call_id": event.call_id,
        "session_id": event.session_id,
        "tool": event.tool,
        "source": call.source,
        "args": mask_data(call.shown_args, limit=WHOLE_TEXT_LIMIT),
    }
    if call.parent is not None:
        told["parent"] = call.parent.id
    if event.kind == "call_finished":
        told |= _describe_result(event.data["result"])
    decision = cast("Decision | None", event.data.get("decision"))
    return told if decision is None else told | {"judged": mask_data(decision.to_dict())}


def _describe_result(result: ToolResult) -> dict[str, Any]:
    data: Any = result.data
    diff: object = cast("Mapping[str, Any]", data).get("diff") if isinstance(data, Mapping) else None
    told: dict[str, Any] = {
        "ok": result.ok,
        "output": mask(result.output[:WHOLE_TEXT_LIMIT]),
        "output_size": len(result.output),
        "images": [
            {"data": block.data, "mime_type": block.mime_type}
            for block in result.content
            if isinstance(block, Image) and len(block.data) <= IMAGE_LIMIT
        ],
        "meta": mask_data(dict(result.meta), limit=WHOLE_TEXT_LIMIT),
    }
    if isinstance(diff, str) and diff:
        told["diff"] = mask(diff[:WHOLE_TEXT_LIMIT])
    if result.error is not None:
        told["error"] = mask_data(result.error.to_dict(), limit=WHOLE_TEXT_LIMIT)
    if result.undo is not None:
        told["change_id"] = result.undo.change_id
    return told


def _weigh(event: Event) -> int:
    result = cast("ToolResult | None", event.data.get("result"))
    if result is None:
        return 0
    return len(result.output) + sum(len(block.data) for block in result.content if isinstance(block, Image))


def _program(argv: list[str]) -> str:
    """Return this process's program and first argument, as people name it, without options."""
    name = os.path.basename(argv[0])
    if name == "__main__.py":  # python -m PACKAGE
        name = os.path.basename(os.path.dirname(argv[0]))
    is_value = False
    for word in argv[1:]:
        if not word.startswith("-") and not is_value:
            return f"{name} {os.path.basename(word)}"
        is_value = word.startswith("-")
    return name


_KEPT: Final = ("ms", "source", "parent", "ok", "error", "verdict", "rules", "why", "approval")


def read_recorded_calls(since: float, warn: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Yield the calls in the audit logs of all workspaces since a time, oldest first; `warn` of unreadable logs."""
    every = os.path.join(locations.home(), "workspaces")
    folders = sorted(entry.path for entry in os.scandir(every)) if os.path.isdir(every) else []
    yield from merge(*(_calls_of(each, since, warn) for each in folders), key=lambda event: event["at"])


def _calls_of(state_dir: str, since: float, warn: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    try:
        for record in records(os.path.join(state_dir, "audit")):
            if record.get("kind") == "call" and record.get("at", 0.0) >= since:
                yield {
                    "kind": "call_finished",
                    "at": record["at"],
                    "session_id": record.get("session", ""),
                    "call_id": record.get("call", ""),
                    "tool": record.get("tool", ""),
                    "recorded": True,
                    "args": one_line(record.get("args") or {}),
                } | {key: record[key] for key in _KEPT if key in record}
    except StateError as problem:
        warn(str(problem))


def find_recorded_call(call_id: str) -> dict[str, Any] | None:
    """Return a call as the audit logs have it (arguments, verdict, approver); None if it is in none of them."""
    if not call_id:
        return None
    every = os.path.join(locations.home(), "workspaces")
    for entry in os.scandir(every) if os.path.isdir(every) else ():
        found = (line for _, _, line in lines(os.path.join(entry.path, "audit")) if call_id in line)
        for record in map(_parse_record, found):  # searching for the id first is far cheaper than parsing every line
            if record.get("kind") == "call" and record.get("call") == call_id:
                return record
    return None


def _parse_record(line: str) -> dict[str, Any]:
    try:
        record: Any = json.loads(line)
    except ValueError:
        return {}
    return cast("dict[str, Any]", record) if isinstance(record, dict) else {}
