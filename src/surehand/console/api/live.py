"""Live sessions: their calls and events as they happen, and their open questions, dry runs and answers."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import StreamingResponse

from surehand.console.endpoint import ApiError, ApiRequest, Endpoint
from surehand.console.feed import state_of
from surehand.engine.recorded_calls import find_recorded_call

if TYPE_CHECKING:
    from surehand.console.server import Console

Row = dict[str, Any]


async def list_sessions(console: Console, request: ApiRequest) -> Any:
    """Return the sessions that run now."""
    del request
    return {"sessions": list(console.feed.sessions.values())}


async def follow_events(console: Console, request: ApiRequest) -> Any:
    """Stream what happens in all sessions."""
    after = request.text("after", "")
    stream = console.feed.stream(_make_filter(request), int(after) if after.isdigit() else None)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def _make_filter(request: ApiRequest) -> Callable[[Row], bool]:
    narrowed = {name: request.query[name].split(",") for name in ("session", "tool", "kind") if request.query.get(name)}

    def wanted(event: Row) -> bool:
        if "session" in narrowed and {event.get("session_id"), event.get("root")}.isdisjoint(narrowed["session"]):
            return False
        return all(event.get(name) in narrowed[name] for name in ("tool", "kind") if name in narrowed)

    return wanted


async def list_calls(console: Console, request: ApiRequest) -> Any:
    """Return calls, newest first."""
    limit, skip = request.number("limit", 200, 5000), request.number("skip", 0, 1_000_000)
    found: list[Row] = []
    count = 0
    for call in _matching(console, request):
        count += 1
        if skip < count <= skip + limit:
            found.append(call)
    return {"calls": found, "total": count, "lost": console.feed.lost}


def _matching(console: Console, request: ApiRequest) -> Iterator[Row]:
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
    """Return one call: in full while its session has it, otherwise from its events and the audit log."""
    id = request.path["id"]
    known = console.feed.calls.get(id)
    if known is not None and (session := _session_of(console, known)):
        try:
            whole = await console.ask_session(session, {"want": "call", "id": id})
        except ApiError:  # the session ended just now; the recorded call is still there
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
    """Stop a call that runs."""
    known = console.feed.calls.get(request.path["id"])
    session = _session_of(console, known) if known is not None else ""
    if not session:
        raise ApiError(404, "that call is no longer running")
    answer = await console.ask_session(session, {"want": "stop_call", "id": request.path["id"]})
    if "error" in answer:
        raise ApiError(409, answer["error"])
    return {"stopped": True}


def _session_of(console: Console, call: Row) -> str:
    """Return the running session that a call belongs to, itself or through its sub-agent; empty where it has ended."""
    return next((id for id in (call["session_id"], call.get("root")) if id in console.feed.sessions), "")


def _text_of(call: Row) -> str:
    return f"{call['tool']} {call.get('args', '')} {call.get('output', '')} {call['session_id']}".lower()


LOOK_S: Final = 3.0
"""Timeout (s) for a session to list its questions; one that exceeds it is named."""
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
    """Make a dry run of the call and return its preview."""
    order = {"want": "try", "id": request.path["id"], "digest": request.text("digest")}
    return _check(await console.ask_session(request.text("session_id"), order, TRY_S))


async def answer_question(console: Console, request: ApiRequest) -> Any:
    """Answer an open question."""
    answer = {name: request.body[name] for name in _ANSWER if request.body.get(name) is not None}
    about = {"id": request.path["id"], "digest": request.text("digest"), "by": _who()}
    order = {"want": "answer", **about, "answer": answer}
    return _check(await console.ask_session(request.text("session_id"), order))


def _check(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        more = {"answered": answer["answered"]} if "answered" in answer else {}
        raise ApiError(409, str(answer["error"]), str(answer.get("hint", "")), **more)
    return answer


def _who() -> str:
    try:
        return f"{getpass.getuser()} in the console"
    except (KeyError, OSError):  # a user without a name, as in many containers
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
