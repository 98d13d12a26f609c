"""Work: sessions and their transcripts, running tasks, processes, and MCP servers."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any, Final

from surehand.commands import leftovers
from surehand.commands.leftovers import records as launcher_records
from surehand.console.access import WORKSPACE, ApiError, ApiRequest, Endpoint, find_workspace
from surehand.core.session import name_problem
from surehand.engine import journal

if TYPE_CHECKING:
    from surehand.console.server import Console

TRANSCRIPT_KINDS: Final = ("message", "call_finished", "permission_decided", "note", "turn_started", "rewind_ended")
TEXT_LIMIT: Final = 20_000

Row = dict[str, Any]


async def list_kept_sessions(console: Console, request: ApiRequest) -> Any:
    """Return the sessions of a workspace that have a journal, latest first."""
    workspace = await find_workspace(request)
    folder = os.path.join(workspace.state_dir, "sessions")
    rows = [each.to_dict() for each in await asyncio.to_thread(journal.list_sessions, folder)]
    running = {each.get("name") for each in console.feed.sessions.values() if each["workspace"] == workspace.path}
    return {"workspace": workspace.path, "sessions": [row | {"running": row["name"] in running} for row in rows]}


async def show_transcript(console: Console, request: ApiRequest) -> Any:
    """Return the latest messages, calls and notes of a session, oldest first."""
    del console
    workspace = await find_workspace(request)
    name = request.text("name")
    path = os.path.join(workspace.state_dir, "sessions", f"{name}.jsonl")
    if name_problem(name) or not await asyncio.to_thread(os.path.exists, path):
        raise ApiError(404, f"there is no session {name!r} in {workspace.path}")
    limit = request.number("limit", 500, 20_000)

    def read() -> list[Row]:
        return [_shorten(each) for each in journal.records(path, TRANSCRIPT_KINDS)][-limit:]

    return {"workspace": workspace.path, "name": name, "records": await asyncio.to_thread(read)}


def _shorten(record: Row) -> Row:
    """Return a record with long strings truncated, so that a page stays readable."""

    def short(value: Any) -> Any:
        if isinstance(value, str):
            return value if len(value) <= TEXT_LIMIT else f"{value[:TEXT_LIMIT]} … ({len(value):,} characters)"
        if isinstance(value, dict):
            return {str(key): short(each) for key, each in value.items()}  # pyright: ignore
        return [short(each) for each in value] if isinstance(value, list) else value  # pyright: ignore

    return short(record)


async def list_tasks(console: Console, request: ApiRequest) -> Any:
    """Return the tasks of every running session: to-dos, background commands, agents."""
    del request
    sessions = list(console.feed.sessions)
    boards = await console.ask_every_session({"want": "board"}, 3.0)
    rows = [{**task, "root": root} for root, board in boards.items() for task in board.get("tasks", ())]
    return {"tasks": rows, "silent": [each for each in sessions if each not in boards]}


async def order_task(console: Console, request: ApiRequest) -> Any:
    """Return the output of a running task, or stop it."""
    want = request.text("want")
    if want not in ("output", "stop"):
        raise ApiError(400, "want must be output or stop")
    order = {"want": want, "id": request.text("id"), "session_id": request.text("session_id")}
    answer = await console.ask_session(request.text("root"), order)
    if "error" in answer:
        raise ApiError(409, str(answer["error"]), str(answer.get("hint", "")))
    return {"task": answer["task"], "output": str(answer.get("output", ""))[-TEXT_LIMIT:]}


async def list_processes(console: Console, request: ApiRequest) -> Any:
    """Return the running processes that sessions started; those of dead sessions are marked as orphans."""
    del console, request

    def read() -> list[Row]:
        now = time.time()
        return [
            {**process.to_dict(), "workspace": record.workspace, "orphan": not record.owner_alive, "at": now}
            for record in launcher_records()
            for process in leftovers.running(record)
            if not process.ours or not record.owner_alive
        ]

    return {"processes": await asyncio.to_thread(read)}


async def stop_process(console: Console, request: ApiRequest) -> Any:
    """Kill one process that a session started, if the pid is still the process that was listed."""
    del console
    pid, started = request.body.get("pid"), request.body.get("started")
    if not isinstance(pid, int) or not isinstance(started, int):
        raise ApiError(400, "pid and started must be the numbers from the list of processes")
    ended = await asyncio.to_thread(leftovers.end_command, pid, started)
    if ended is None:
        raise ApiError(409, "that process has already ended, or was not started by a session")
    return {"ended": ended.to_dict()}


async def reap(console: Console, request: ApiRequest) -> Any:
    """Kill the processes of dead sessions and delete what those left on the disk."""
    del console, request

    def end() -> tuple[list[Row], list[str]]:
        return [each.to_dict() for each in leftovers.reap()], [str(each) for each in leftovers.clear()]

    ended, removed = await asyncio.to_thread(end)
    return {"ended": ended, "removed": removed}


async def list_servers(console: Console, request: ApiRequest) -> Any:
    """Return the MCP servers of a workspace; connect to them first if `connect` is set."""
    workspace = await find_workspace(request)
    app = await console.apps.app(workspace.path)
    if request.flag("connect"):
        await app.connect_servers(patience_s=10)
    rows: list[Row] = []
    for name in app.servers.names():
        connection = app.servers.get(name)
        rows.append(
            {
                "name": name,
                "state": connection.state,
                "problem": connection.problem,
                "where": connection.server.where,
                "source": connection.server.source,
                "tools": app.servers.tools_of(name),
                "changed": app.servers.changed_definitions(name),
            }
        )
    return {"workspace": workspace.path, "servers": rows, "warnings": list(app.warnings)}


async def approve_definition(console: Console, request: ApiRequest) -> Any:
    """Approve a changed tool definition; refused unless it is the one that was shown."""
    workspace = await find_workspace(request)
    app = await console.apps.app(workspace.path)
    tool = request.text("tool")
    if not app.servers.approve_definition(tool, request.text("change")):
        raise ApiError(409, f"the definition of {tool} has changed again since it was shown", "Look at it again.")
    return {"approved": tool}


ENDPOINTS = (
    Endpoint("GET", "/api/kept-sessions", list_kept_sessions, "Sessions of a workspace that are kept", WORKSPACE),
    Endpoint(
        "GET",
        "/api/transcript",
        show_transcript,
        "What was said and done in a session",
        {**WORKSPACE, "name": "the session's name", "limit": "how many records at most, the latest"},
    ),
    Endpoint("GET", "/api/tasks", list_tasks, "Tasks of every running session"),
    Endpoint(
        "POST",
        "/api/tasks",
        order_task,
        "What a running task said so far, or its end",
        {"want": "output or stop", "id": "the task", "session_id": "whose it is", "root": "the session that runs"},
    ),
    Endpoint("GET", "/api/processes", list_processes, "Processes that sessions started"),
    Endpoint(
        "POST",
        "/api/processes/stop",
        stop_process,
        "End one process that a session started",
        {"pid": "its number", "started": "when it began, as listed"},
    ),
    Endpoint("POST", "/api/processes/reap", reap, "End what dead sessions left running"),
    Endpoint(
        "GET",
        "/api/servers",
        list_servers,
        "MCP servers of a workspace",
        {**WORKSPACE, "connect": "connect to those that are not yet"},
    ),
    Endpoint(
        "POST",
        "/api/servers/approve",
        approve_definition,
        "Approve what a server says of a tool otherwise than was approved",
        {**WORKSPACE, "tool": "its full name", "change": "the difference that was shown"},
    ),
)
