"""Changes of a workspace: listed, shown and undone. And the audit of its calls: filtered and verified.

Undo and redo call the tools of that name. A preview has a digest, which the request to apply it must repeat: if the
preview would be different by now, nothing is done.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from surehand.console.access import WORKSPACE, ApiError, ApiRequest, Endpoint, find_workspace
from surehand.engine.audit import records, verify
from surehand.history.history import History, open_to_look
from surehand.history.undo import change_diff
from surehand.state.locations import Workspace

if TYPE_CHECKING:
    from surehand.console.server import Console
    from surehand.core.call import ToolResult

T = TypeVar("T")
FILES_LIMIT: Final = 200
"""Maximum number of files listed for one change; a command may have changed thousands."""
_UNDO: Final = ("change_id", "turns", "to", "session", "file", "all_sessions", "merge", "force")
_REDO: Final = ("change_id", "merge", "force")


async def list_changes(console: Console, request: ApiRequest) -> Any:
    """Return the changes of a workspace, newest first."""
    limit = request.number("limit", 200, 5000)
    session, file = request.query.get("session") or None, request.query.get("file") or None

    def read(workspace: Workspace, history: History) -> dict[str, Any]:
        path = os.path.realpath(os.path.join(workspace.path, file)) if file else None
        found = history.changes(limit=limit, session_id=session, path=path, turn=request.query.get("turn") or None)
        changes = [_shorten(each.to_dict()) for each in found]
        return {"changes": changes, "dropped": history.describe_pruned(), "size_bytes": history.size_bytes()}

    return await _read_history(request, read)


def _shorten(change: dict[str, Any]) -> dict[str, Any]:
    files = cast("list[dict[str, Any]]", change["files"])
    return change | {"files": files[:FILES_LIMIT], "file_count": len(files)}


async def show_change(console: Console, request: ApiRequest) -> Any:
    """Return one change and its diff."""

    def read(workspace: Workspace, history: History) -> dict[str, Any]:
        del workspace
        change = history.change(request.path["id"])
        if change is None:
            raise ApiError(404, f"there is no change {request.path['id']}", history.describe_pruned())
        return _shorten(change.to_dict()) | {"diff": change_diff(history, change)}

    return await _read_history(request, read)


async def _read_history(request: ApiRequest, read: Callable[[Workspace, History], T]) -> T:
    """Call `read` in a thread with the history of the request's workspace."""
    workspace = await find_workspace(request)

    def open_and_read() -> T:
        with open_to_look(workspace.state_dir, lambda text: None) as history:
            return read(workspace, history)

    return await asyncio.to_thread(open_and_read)


async def undo(console: Console, request: ApiRequest) -> Any:
    """Undo changes, or preview it."""
    return await _reverse(console, request, "Undo", _UNDO)


async def redo(console: Console, request: ApiRequest) -> Any:
    """Redo undone changes, or preview it."""
    return await _reverse(console, request, "Redo", _REDO)


async def _reverse(console: Console, request: ApiRequest, tool: str, names: tuple[str, ...]) -> Any:
    workspace = request.text("workspace")
    args = {name: request.body[name] for name in names if request.body.get(name)}
    if not args.keys() - {"merge", "force", "all_sessions"}:
        raise ApiError(400, "name what to undo: a change, turns, a session, a point to go back to, or a file")
    shown = _preview(await console.apps.call(workspace, tool, args, dry_run=True))
    if request.flag("dry_run"):
        return shown
    if not shown["ok"]:
        raise ApiError(409, shown["error"]["message"], shown["error"]["hint"], preview=shown)
    if request.text("digest") != shown["digest"]:
        raise ApiError(409, "something has changed since this was shown; look again", preview=shown)
    result = await console.apps.call(workspace, tool, args)
    if result.error is not None:
        raise ApiError(409, result.error.message, result.error.hint)
    return {"ok": True, "output": result.output, "data": result.data}


def _preview(result: ToolResult) -> dict[str, Any]:
    """Return the preview of an undo or redo with its digest, or the reason why it would fail."""
    if result.error is not None:
        return {"ok": False, "error": result.error.to_dict()}
    data: dict[str, Any] = result.data
    preview = {name: data.get(name) for name in ("changes", "paths", "sessions", "left_alone", "diff")}
    digest = hashlib.sha256(json.dumps(preview, sort_keys=True, default=str).encode()).hexdigest()
    return {"ok": True, "digest": digest, "summary": result.output.partition("\n")[0], **preview}


async def prune(console: Console, request: ApiRequest) -> Any:
    """Prune the oldest changes if the history has more than `keep_bytes`, until a tenth of that is free."""
    keep_bytes = request.number("keep_bytes", 0, 2**50)

    def drop(workspace: Workspace, history: History) -> dict[str, Any]:
        del workspace
        dropped = history.prune(keep_bytes)
        return {"dropped": dropped, "size_bytes": history.size_bytes(), "message": history.describe_pruned()}

    return await _read_history(request, drop)


_WHERE: Final = {"workspace": "the folder, as `/api/workspaces` names it"}
_HOW: Final = {
    **_WHERE,
    "merge": "keep what was changed in other lines since",
    "force": "overwrite files that were changed since",
    "dry_run": "only show what would happen",
    "digest": "the digest of the preview that is to be carried out",
}


async def list_records(console: Console, request: ApiRequest) -> Any:
    """Return audit records of a workspace, newest first."""
    del console
    workspace = await find_workspace(request)
    limit, before = request.number("limit", 200, 5000), request.number("before", 0, 2**53)
    tool, text = request.text("tool", ""), request.text("text", "").lower().split()
    refused = request.flag("refused")

    def read() -> tuple[list[dict[str, Any]], int]:
        latest: deque[dict[str, Any]] = deque(maxlen=limit)
        count = 0
        for record in records(os.path.join(workspace.state_dir, "audit")):
            if (before and int(record.get("n", 0)) >= before) or (refused and not record.get("refused")):
                continue
            if (tool and record.get("tool") != tool) or not _has_words(record, text):
                continue
            count += 1
            latest.append(record)
        return list(reversed(latest)), count

    found, count = await asyncio.to_thread(read)
    return {"workspace": workspace.path, "records": found, "total": count}


def _has_words(record: dict[str, Any], words: list[str]) -> bool:
    if not words:
        return True
    text = json.dumps(record, ensure_ascii=False).lower()
    return all(word in text for word in words)


async def verify_chain(console: Console, request: ApiRequest) -> Any:
    """Return whether the audit chain is intact, and every fault if it is not."""
    del console
    workspace = await find_workspace(request)
    found = await asyncio.to_thread(verify, os.path.join(workspace.state_dir, "audit"))
    return {"workspace": workspace.path, **found.to_dict()}


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/changes",
        list_changes,
        "The changes of a workspace, newest first",
        {
            **_WHERE,
            "limit": "how many at most",
            "session": "only of this session",
            "turn": "only of this turn",
            "file": "only of this file or folder",
        },
    ),
    Endpoint("GET", "/api/changes/{id}", show_change, "One change, with its diff", _WHERE),
    Endpoint(
        "POST",
        "/api/undo",
        undo,
        "Take changes back: one, turns, a session, a file's, or all after one; show it first with dry_run",
        {
            "change_id": "this change",
            "turns": "all changes of these turns",
            "session": "all changes of this session",
            "to": "all changes after this one, of `session` or with `all_sessions`",
            "file": "only of this file or folder",
            **_HOW,
        },
    ),
    Endpoint(
        "POST", "/api/redo", redo, "Bring back what an undo took away", {"change_id": "the undo, or the change", **_HOW}
    ),
    Endpoint(
        "POST",
        "/api/history/prune",
        prune,
        "Drop the oldest changes until the history takes so many bytes",
        {**_WHERE, "keep_bytes": "how much to keep"},
    ),
    Endpoint(
        "GET",
        "/api/audit",
        list_records,
        "What was recorded in a workspace, newest first",
        {
            **WORKSPACE,
            "limit": "how many at most",
            "before": "only records before this number, for paging",
            "tool": "only of this tool",
            "refused": "only refused calls",
            "text": "only with all these words",
        },
    ),
    Endpoint("GET", "/api/audit/verify", verify_chain, "Whether the chain of a workspace's audit is whole"),
)
