"""`surehand sessions`: list, show, resume, fork and delete the sessions of a workspace. A session is its journal."""

from __future__ import annotations

import os
import shutil
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from time import localtime, strftime
from typing import Any

from surehand.cli import chat, render, screen
from surehand.cli.parser import whole_number
from surehand.core.call import ToolCall, ToolResult
from surehand.core.errors import StateError
from surehand.engine.journal import find_session, last_records, list_sessions, records
from surehand.files.sanitize import visible
from surehand.state import locations


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="list | show | resume | fork | delete")
    commands.add_parser("list", help="list all sessions, latest first", allow_abbrev=False)
    show = commands.add_parser("show", help="show what was said and done in a session", allow_abbrev=False)
    show.add_argument("name", metavar="NAME")
    show.add_argument(
        "-n", "--limit", type=whole_number, default=200, metavar="N", help="the last N records (200; 0: all)"
    )
    resume = commands.add_parser("resume", help="continue a session in a chat", allow_abbrev=False)
    resume.add_argument("name", metavar="NAME")
    chat.configure(resume)
    fork = commands.add_parser("fork", help="branch off a session under another name", allow_abbrev=False)
    fork.add_argument("name", metavar="NAME")
    fork.add_argument("new", metavar="NEW")
    delete = commands.add_parser("delete", help="delete a session; changes to files stay in the history")
    delete.add_argument("name", metavar="NAME")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    actions = {"list": _list, "show": _show, "resume": _resume, "fork": _fork, "delete": _delete}
    return actions[options.action](options)


def _folder(options: Namespace) -> str:
    return os.path.join(locations.workspace_state(options.cwd), "sessions")


def _path(options: Namespace, name: str, *, exists: bool = True) -> str:
    return find_session(_folder(options), name, exists=exists)


def _list(options: Namespace) -> int:
    rows = [each.to_dict() for each in list_sessions(_folder(options))]
    shown = [
        (row["name"], _when(row["updated"]), str(row["calls"]), render.shorten_line(row["first"], 60)) for row in rows
    ]
    text = (
        render.table(shown, ("NAME", "UPDATED", "CALLS", "FIRST QUESTION")) if rows else "There are no sessions here."
    )
    render.facts(options, rows, text)
    return 0


def _when(at: float) -> str:
    return strftime("%Y-%m-%d %H:%M", localtime(at))


def _show(options: Namespace) -> int:
    path = _path(options, options.name)
    found, more = last_records(path, options.limit) if options.limit > 0 else (list(records(path)), False)
    if more:
        render.note(f"only the last {options.limit} records are shown; --limit 0 shows all")
    render.facts(options, found, lambda: "\n".join(filter(None, map(_line, found))) or "The session is empty.")
    return 0


def _line(record: dict[str, Any]) -> str:
    """Format a record as one line; empty for a damaged one, and for kinds that are not shown."""
    try:
        return _format_record(record)
    except (KeyError, TypeError, AttributeError):
        return ""


def _format_record(record: dict[str, Any]) -> str:
    data: dict[str, Any] = record.get("data") or {}
    match record["kind"]:
        case "message" if data["message"]["text"]:
            who = render.paint(f"{data['message']['role']}:", "bold")
            return f"{who} {visible(data['message']['text'])}"
        case "call_finished":
            return _call(record["at"], ToolCall.from_dict(data["call"]), ToolResult.from_dict(data["result"]))
        case "permission_decided":
            reason = visible(str(data.get("reason") or ""), lines=False)
            return f"  {record['tool']}: permission: {data.get('answer')}{f' ({reason})' if reason else ''}"
        case "dry_run_made" | "dry_run_applied" | "dry_run_discarded" as kind:
            return f"  {record['tool']}: {kind.replace('_', ' ')} ({visible(str(data.get('dry_run')))})"
        case "past":
            return f"  (older records were dropped; {data['calls']:,} calls had been made)"
        case "note":
            return f"  {visible(str(data.get('message', '')))}"
        case _:
            return ""


def _call(at: float, call: ToolCall, result: ToolResult) -> str:
    """Format a call with its subject and result as one line."""
    when = strftime("%H:%M:%S", localtime(at))
    took = screen.format_duration(float(result.meta.get("duration_ms") or 0) / 1000)
    name, about = screen.title(call, max(30, render.columns() - 24))
    head = f"  {when}  {render.paint(name, 'bold')} {about}".rstrip() + f"  {render.paint(took, 'dim')}"
    if result.error is None:
        return head
    problem = render.shorten_line(visible(f"{result.error.code}: {result.error.message}"), render.columns() - 12)
    return f"{head}\n            {render.paint(problem, 'red')}"


def _resume(options: Namespace) -> int:
    _path(options, options.name)
    options.session = options.name
    return chat.run(options)


def _fork(options: Namespace) -> int:
    source, target = _path(options, options.name), _path(options, options.new, exists=False)
    if os.path.exists(target):
        raise StateError(f"the session {options.new!r} exists already; choose another name")
    shutil.copyfile(source, target)
    os.chmod(target, 0o600)
    render.facts(options, {"forked": options.name, "into": options.new}, f"{options.new} goes on from {options.name}")
    return 0


def _delete(options: Namespace) -> int:
    os.unlink(path := _path(options, options.name))
    for ending in (".results", ".checkpoint"):  # the saved results of its calls, and its checkpoint
        with suppress(FileNotFoundError):
            os.unlink(path.removesuffix(".jsonl") + ending)
    render.facts(options, {"deleted": options.name}, f"{options.name} is gone")
    return 0
