"""`surehand events`: what happens in every session of the user, as it happens, one line an event."""

from __future__ import annotations

import asyncio
import contextlib
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any, get_args

from surehand.cli import render
from surehand.cli.screen import format_duration
from surehand.cli.session import run as run_command
from surehand.core.events import EventKind
from surehand.core.text import format_count
from surehand.engine.channel import read_recorded_calls
from surehand.files.sanitize import visible
from surehand.state.local_rpc import follow_sessions, running_sessions
from surehand.tools.history import NOT_A_TIME, moment

_SAYING = ("args", "text", "message", "reason", "path", "title")
_KINDS = ("hello", "session_lost", *get_args(EventKind))


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--follow", "-f", action="store_true", help="keep following until Ctrl-C, including sessions that start later"
    )
    parser.add_argument("--since", type=_moment, metavar="TIME", help='start with recorded calls: "10 min", 2h, 14:30')
    parser.add_argument("--tool", action="append", metavar="NAME", help="only events about this tool; repeatable")
    parser.add_argument(
        "--kind",
        action="append",
        metavar="KIND",
        choices=_KINDS,
        help="only this kind, such as call_finished; repeatable",
    )


def run(options: Namespace) -> int:
    """List running sessions, print past events, or follow new ones, as the options say."""
    if options.since is not None:
        for event in read_recorded_calls(options.since, lambda problem: render.note(f"warning: {problem}")):
            _show(options, event)
    if options.follow:
        return run_command(_follow(options))
    if options.since is None:
        sessions = [facts for facts in running_sessions() if _is_of(facts, options.session)]
        render.facts(options, sessions, lambda: _sessions_table(sessions))
    return 0


async def _follow(options: Namespace) -> int:
    with contextlib.suppress(asyncio.CancelledError):  # a service manager ends us with SIGTERM
        async with follow_sessions() as events:
            async for event in events:
                _show(options, event)
    return 0


def _show(options: Namespace, event: dict[str, Any]) -> None:
    if not _is_of(event, options.session):
        return
    if options.tool and event.get("tool") not in options.tool:
        return
    if options.kind and event["kind"] not in options.kind:
        return
    if render.as_json(options):
        render.json_line(event)
    else:
        render.line(_line(event))


def _is_of(event: dict[str, Any], session: str | None) -> bool:
    """Whether an event is of a session, or of one of its sub-agents."""
    return session is None or not {event.get("session_id"), event.get("root")}.isdisjoint(
        {session, f"session_{session}"}
    )


def _moment(text: str) -> float:
    at = moment(text, time.time())
    if at is None:
        raise ArgumentTypeError(f"{text!r} {NOT_A_TIME}")
    return at


# -- for people --------------------------------------------------------------------------------------------------------

_WORDS = {"hello": "session", "call_started": "begin", "call_progress": "…", "session_lost": "session lost"}


def _line(event: dict[str, Any]) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(event["at"]))
    kind = str(event["kind"])
    if kind == "call_finished":
        kind = "ok" if event.get("ok") else str(event.get("error", {}).get("code", "failed"))
    what = event.get("tool") or event.get("workspace") or ""
    rest = next((event[key] for key in _SAYING if event.get(key)), "")
    if kind == "gap":
        rest = f"{format_count(event['lost'], 'event')} lost: read faster, or follow less"
    session = str(event.get("session_id", "")).removeprefix("session_")[-12:]
    words = f"{at}  {session}  {_WORDS.get(kind, kind)}  {what}  {rest}"
    return render.shorten_line(visible(words, lines=False), render.columns() - 1)


def _sessions_table(sessions: list[dict[str, Any]]) -> str:
    now = time.time()
    rows = [
        (
            each["session_id"],
            str(each["pid"]),
            format_duration(now - each["started"]),
            each["program"],
            each["workspace"],
        )
        for each in sessions
    ]
    heads = ("SESSION", "PID", "AGE", "PROGRAM", "WORKSPACE")
    return render.table(rows, heads) if rows else "No session runs. `surehand events --follow` waits for one."
