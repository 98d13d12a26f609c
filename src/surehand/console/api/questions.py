"""Questions: the open questions of all sessions, a dry run of their calls, and the answers."""

from __future__ import annotations

import asyncio
import getpass
import os
from typing import TYPE_CHECKING, Any, Final

from surehand.console.endpoint import ApiError, ApiRequest, Endpoint

if TYPE_CHECKING:
    from surehand.console.server import Console

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
