"""`surehand ps`, `events` and `reap`: list the tasks of all sessions, follow their events, end orphaned commands.

Running sessions are asked for their tasks; those of ended sessions are read from their journals.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from surehand.cli import render
from surehand.cli.screen import format_duration
from surehand.cli.session import run as run_command
from surehand.commands import leftovers
from surehand.commands.leftovers import find_abandoned
from surehand.commands.leftovers import records as process_records
from surehand.core.errors import StateError
from surehand.core.events import EventKind
from surehand.core.tasks import task_from_dict
from surehand.core.text import format_count
from surehand.engine.channel import read_recorded_calls
from surehand.engine.journal import records
from surehand.files.sanitize import visible
from surehand.state import local_rpc, locations
from surehand.state.local_rpc import follow_sessions, running_sessions
from surehand.tools.history import NOT_A_TIME, moment

_ENDED = ("done", "failed", "cancelled")


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--all", action="store_true", help="also what has ended, other folders' to-dos, and launchers")
    commands = parser.add_subparsers(dest="action", metavar="output | stop")
    for name, about in (("output", "the output of a running task"), ("stop", "end something that runs")):
        command = commands.add_parser(name, help=about, allow_abbrev=False)
        command.add_argument("id", metavar="ID", help="such as bg_task_1; --session NAME says whose")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    live = list(_live())
    if options.action:
        return _order(options, [row for row in live if _is_of(row, options.session)])
    known = {row["session_id"] for row in live}
    rows = [*live, *(row for row in _list_kept_tasks(options) if row["session_id"] not in known)]
    rows = [row for row in rows if options.all or row["running"] or row["state"] not in _ENDED]
    rows = [*rows, *_processes(options, rows)]
    shown = [row for row in rows if _is_of(row, options.session)]
    plain = [{key: value for key, value in row.items() if key != "channel"} for row in shown]
    render.facts(options, plain, lambda: _table(shown))
    return 0


# -- listing tasks -----------------------------------------------------------------------------------------------------


def _row(task: Mapping[str, Any], session_id: str, workspace: str, *, channel: str = "") -> dict[str, Any]:
    details: Mapping[str, Any] = task.get("details") or {}
    active = details.get("last_activity") or task.get("updated") or task.get("created") or 0.0
    return {
        "id": task["id"],
        "kind": task.get("kind", "todo"),
        "state": task["status"],
        "title": task.get("title", ""),
        "session_id": session_id,
        "workspace": workspace,
        "created": task.get("created", 0.0),
        "last_activity": active,
        "tool_calls": details.get("tool_calls"),
        "tokens": details.get("tokens"),
        "command": details.get("command", ""),
        "call_id": details.get("call_id", ""),
        "pid": None,
        "running": bool(channel) and task["status"] == "in_progress" and task.get("kind", "todo") != "todo",
        "live": bool(channel),
        "channel": channel,
    }


def _live() -> Iterator[dict[str, Any]]:
    """Yield the tasks of all running sessions."""
    for name in local_rpc.session_sockets():
        board: dict[str, Any] = local_rpc.ask(name, {"want": "board"}) or {}
        for task in board.get("tasks", ()):
            yield _row(task, task["session_id"], task["workspace"], channel=name)


def _list_kept_tasks(options: Namespace) -> Iterator[dict[str, Any]]:
    """Yield the tasks of ended sessions, and those shared by all sessions of a workspace."""
    here = locations.workspace_state(options.cwd)
    every = os.path.join(locations.home(), "workspaces")
    folders = [entry.path for entry in os.scandir(every)] if options.all and os.path.isdir(every) else [here]
    for folder in sorted(folders):
        shared = {task["id"]: task for task in _read_shared_tasks(folder)}
        for task in shared.values():
            yield _row(_mark_ended(task), "", options.cwd if folder == here else folder)
        for session_id, workspace, task in _read_journalled_tasks(folder):
            if task.get("title") != shared.get(task["id"], {}).get("title"):
                yield _row(_mark_ended(task), session_id, workspace or folder)


def _mark_ended(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """Mark a running task of a dead process as cancelled."""
    gone = task.get("kind", "todo") != "todo" and task["status"] == "in_progress"
    return {**task, "status": "cancelled"} if gone else task


def _read_shared_tasks(folder: str) -> list[dict[str, Any]]:
    try:
        with open(os.path.join(folder, "tasks.json"), encoding="utf-8") as file:
            return [task for each in json.load(file) if (task := _parse_task(each)) is not None]
    except (OSError, ValueError, TypeError):
        return []


def _parse_task(task: Any) -> dict[str, Any] | None:
    """Return a saved task; None if it is damaged."""
    try:
        return task_from_dict(task).to_dict()
    except (ValueError, TypeError, AttributeError):
        return None


def _read_journalled_tasks(folder: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    sessions = os.path.join(folder, "sessions")
    for name in sorted(os.listdir(sessions)) if os.path.isdir(sessions) else ():
        workspace, tasks = "", dict[str, dict[str, Any]]()
        for record in records(os.path.join(sessions, name), ("session_started", "task_changed")):
            data: dict[str, Any] = record.get("data") or {}
            workspace = str(data.get("workspace") or workspace)
            if (task := _parse_task(data.get("task"))) is not None:
                tasks[task["id"]] = task
        for task in tasks.values():
            yield f"session_{name.removesuffix('.jsonl')}", workspace, task


def _processes(options: Namespace, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the processes of calls that belong to no task; set the pid of tasks that have one."""
    tasks = {row["call_id"]: row for row in rows if row["call_id"]}
    found: list[dict[str, Any]] = []
    for record in process_records():
        for process in leftovers.running(record):
            if (task := tasks.get(process.call_id)) is not None:
                task["pid"] = task["pid"] or process.pid
            elif options.all or not process.ours:
                began = time.time() - process.seconds
                known = {"id": str(process.pid), "title": process.command, "status": "in_progress", "created": began}
                kind = "launcher" if process.ours else "process"
                row = _row(known | {"kind": kind}, process.session_id, record.workspace)
                row |= {"pid": process.pid, "command": process.command, "call_id": process.call_id, "running": True}
                found.append(row | {"orphan": not record.owner_alive})
    return found


def _is_of(row: dict[str, Any], session: str | None) -> bool:
    return session is None or row["session_id"] in (session, f"session_{session}")


# -- output, stop and table --------------------------------------------------------------------------------------------


def _order(options: Namespace, live: list[dict[str, Any]]) -> int:
    """Ask the process that runs a task for the task's output, or to stop the task."""
    row = _one(options.id, live)
    request = {"want": options.action, "id": row["id"], "session_id": row["session_id"]}
    answer = local_rpc.ask(row["channel"], request)
    if answer is None:
        raise StateError(
            f"the process of {row['id']} does not answer; `surehand reap` ends what dead processes left running"
        )
    if "error" in answer:
        raise StateError(f"{answer['error']}. {answer['hint']}")
    task: dict[str, Any] = answer["task"]
    said = f"{task['id']} is {task['status']}."
    text = f"{visible(answer['output'])}\n[{said}]" if options.action == "output" else said
    render.facts(options, task | {"output": answer["output"], "session_id": row["session_id"]}, text)
    return 0


def _one(wanted: str, live: list[dict[str, Any]]) -> dict[str, Any]:
    found = [row for row in live if row["id"] == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(row["session_id"] for row in found)
        raise StateError(f"{wanted} exists in {len(found)} sessions; name the session with --session: {names}")
    known = ", ".join(row["id"] for row in live if row["running"]) or "nothing"
    raise StateError(f"there is no {wanted} in a running session; running: {known}")


def _table(rows: list[dict[str, Any]]) -> str:
    now = time.time()
    cells = [
        (row["id"], row["kind"], row["state"], format_duration(max(0, now - row["created"])), *_rest(row, now))
        for row in rows
    ]
    text = render.table(cells, ("ID", "KIND", "STATE", "AGE", "SESSION", "ACTIVITY", "WHAT"))
    return text if rows else "Nothing runs, and nothing is to be done."


def _rest(row: dict[str, Any], now: float) -> tuple[str, str, str]:
    session = row["session_id"] + (" (gone: `surehand reap` ends it)" if row.get("orphan") else "")
    activity = f"{format_duration(max(0, now - row['last_activity']))} ago"
    if row["tool_calls"] is not None:
        activity = f"{format_count(row['tool_calls'], 'call')}, {row['tokens']:,} tokens, {activity}"
    return session or "-", activity, render.shorten_line(visible(row["title"], lines=False), 70)


def configure_reap(parser: ArgumentParser) -> None:
    """Add the options of `reap`."""
    parser.add_argument("--dry-run", action="store_true", help="only show what would be ended and removed")


def run_reap(options: Namespace) -> int:
    """Run `reap` and return its exit code."""
    if options.dry_run:
        found = [each for record in process_records() if not record.owner_alive for each in leftovers.running(record)]
        folders = list(find_abandoned())
    else:
        found, folders = leftovers.reap(), leftovers.clear()
    would = "would be " if options.dry_run else ""
    lines = [f"{would}ended: {each.pid} {each.command[:100]}" for each in found]
    lines += [f"{would}removed: {path}" for path in folders]
    data = {"ended": [each.to_dict() for each in found], "removed": folders}
    render.facts(options, data, "\n".join(lines) or "Nothing was left behind.")
    return 0


_SAYING = ("args", "text", "message", "reason", "path", "title")
_KINDS = ("hello", "session_lost", *get_args(EventKind))


def configure_events(parser: ArgumentParser) -> None:
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


def run_events(options: Namespace) -> int:
    """List running sessions, print past events, or follow new ones, as the options say."""
    if options.since is not None:
        for event in read_recorded_calls(options.since, lambda problem: render.note(f"warning: {problem}")):
            _show(options, event)
    if options.follow:
        return run_command(_follow(options))
    if options.since is None:
        sessions = [facts for facts in running_sessions() if _is_of_session(facts, options.session)]
        render.facts(options, sessions, lambda: _sessions_table(sessions))
    return 0


async def _follow(options: Namespace) -> int:
    with contextlib.suppress(asyncio.CancelledError):  # a service manager ends us with SIGTERM
        async with follow_sessions() as events:
            async for event in events:
                _show(options, event)
    return 0


def _show(options: Namespace, event: dict[str, Any]) -> None:
    if not _is_of_session(event, options.session):
        return
    if options.tool and event.get("tool") not in options.tool:
        return
    if options.kind and event["kind"] not in options.kind:
        return
    if render.as_json(options):
        render.json_line(event)
    else:
        render.line(_line(event))


def _is_of_session(event: dict[str, Any], session: str | None) -> bool:
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
