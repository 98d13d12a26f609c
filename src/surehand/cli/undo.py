"""`surehand undo`, `redo`, `rewind`, `log` and `diff`: undo changes, reapply them, and show them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Container
from contextlib import AbstractContextManager
from time import localtime, strftime
from typing import TYPE_CHECKING, Any, Final

from surehand.cli import render, session
from surehand.cli.parser import count_above_zero, whole_number
from surehand.cli.tools import EXIT_CODES
from surehand.core.errors import StateError
from surehand.engine.journal import find_session, records
from surehand.files.sanitize import visible
from surehand.history.history import open_to_look
from surehand.history.undo import change_diff
from surehand.state import locations

if TYPE_CHECKING:
    from surehand.app import Surehand
    from surehand.core.call import ToolResult
    from surehand.history.history import History
    from surehand.history.words import Change

_FILES_SHOWN: Final = 3


def configure_log(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("path", nargs="?", metavar="PATH", help="only changes of this file, or below this folder")
    parser.add_argument(
        "-n", "--limit", type=whole_number, default=30, metavar="N", help="how many (default 30; 0: all)"
    )
    parser.add_argument("--before", metavar="CHANGE", help="only changes older than this one: the next page")
    parser.add_argument("--of", metavar="SESSION", help="only changes of this session")


def run_log(options: Namespace) -> int:
    """Run the command and return its exit code."""
    named: str | None = options.path
    path = None if named is None else os.path.realpath(os.path.join(options.cwd, named))
    with open_history(options) as history:
        limit = options.limit or -1
        changes = history.changes(
            limit=limit + 1 if limit > 0 else -1, session_id=session_id(options.of), path=path, before=_number(options)
        )
        dropped = history.describe_pruned()
        in_part = history.partial_undos()
    changes, more = (changes[:limit], len(changes) > limit) if limit > 0 else (changes, False)
    data = {"changes": [change.to_dict() for change in changes], "dropped": dropped}
    if more:
        data["before"] = changes[-1].id  # the `--before` of the next page
    asked = " of ".join(["", *(each for each in (named, options.of and f"session {options.of}") if each)])
    nothing = f"No changes{asked} yet."
    render.facts(options, data, lambda: format_changes(options.cwd, changes, dropped, nothing=nothing, in_part=in_part))
    return 0


def _number(options: Namespace) -> int | None:
    before: str | None = options.before
    if before is None:
        return None
    if not (before.isascii() and before.isdecimal() and len(before) < 18):
        raise StateError(f"{before!r} is not the number of a change; `surehand log` lists them")
    return int(before)


def session_id(name: str | None) -> str | None:
    """Return the id of a session named on the command line."""
    return name if name is None or name.startswith("session_") else f"session_{name}"


def open_history(options: Namespace) -> AbstractContextManager[History]:
    """Open the history of the workspace read-only."""
    return open_to_look(locations.workspace_state(options.cwd), render.note)


def format_changes(
    workspace: str,
    changes: list[Change],
    dropped: str = "",
    nothing: str = "No changes yet.",
    in_part: Container[str] = (),
) -> str:
    """Format changes as a table; `in_part` are the ids of the partly undone ones."""
    if not changes:
        return f"{nothing}\n{dropped}" if dropped else nothing
    rows = [
        (each.id, _when(each.at), each.tool, _state(each, in_part), _files(workspace, each), each.session_id)
        for each in changes
    ]
    shown = render.table(rows, ("CHANGE", "WHEN", "TOOL", "STATE", "FILES", "SESSION"))
    return f"{shown}\n{dropped}" if dropped else shown


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _state(change: Change, in_part: Container[str]) -> str:
    if change.kind == "change":
        if change.state == "undone":
            return "undone"
        return "undone in part" if change.id in in_part else change.note.partition(":")[0] or "done"
    return f"{change.kind} of {', '.join(change.about)}"


def _files(workspace: str, change: Change) -> str:
    signs = {"created": "+", "deleted": "-", "changed": "~"}
    files = change.to_dict()["files"]
    if not files:
        return visible(change.description, lines=False)
    if len(files) > _FILES_SHOWN:  # files that are not ignored come first: a test run leaves hundreds of caches
        from surehand.search.ignore_files import KeptFiles  # lazy: ignore_files, 17 ms; few changes are so large

        is_kept = KeptFiles([workspace])
        files = sorted(files, key=lambda each: not is_kept(each["path"]))
    names = [f"{signs[each['action']]} {os.path.relpath(each['path'], workspace)}" for each in files[:_FILES_SHOWN]]
    more = f" and {len(files) - _FILES_SHOWN} more" if len(files) > _FILES_SHOWN else ""
    return visible(", ".join(names), lines=False) + more


def configure_diff(parser: ArgumentParser) -> None:
    """Add the options of `diff`."""
    parser.add_argument("change", nargs="?", metavar="CHANGE", help="a change of `surehand log` (default: the latest)")


def run_diff(options: Namespace) -> int:
    """Run `diff` and return its exit code."""
    with open_history(options) as history:
        latest = history.changes(limit=1)
        change = history.change(options.change) if options.change else (latest[0] if latest else None)
        if change is None:
            wanted = f"there is no change {options.change}" if options.change else "there are no changes yet"
            render.error(wanted, history.describe_pruned() or "`surehand log` lists the changes there are.")
            return 1
        diff = change_diff(history, change)
    render.facts(options, {**change.to_dict(), "diff": diff}, lambda: render.diff(diff))
    return 0


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "change", nargs="?", metavar="CHANGE", help="the change to take back (`surehand log` lists them)"
    )
    chosen.add_argument("--last", type=count_above_zero, metavar="N", help="take back the last N changes (default 1)")
    chosen.add_argument(
        "--turn",
        nargs="?",
        const="last",
        metavar="TURN",
        help="take back everything done for one prompt (default: the last)",
    )
    chosen.add_argument("--since", metavar="TIME", help='take back everything since then: "10 min", "2 h", "14:30"')
    chosen.add_argument("--to", metavar="CHANGE", help="take back every change after this one")
    chosen.add_argument("--of", metavar="SESSION", help="take back every change of a session")
    parser.add_argument("--file", metavar="PATH", help="only this file, or below this folder")
    parser.add_argument("--all", action="store_true", help="include ignored files and caches")
    add_common(parser)


def add_common(parser: ArgumentParser) -> None:
    """Add the options that undo and redo share."""
    parser.add_argument("--all-sessions", action="store_true", help="of any session, not only the latest")
    parser.add_argument("--merge", action="store_true", help="keep later changes to other lines of a file")
    parser.add_argument("--force", action="store_true", help="overwrite files that were changed since")
    parser.add_argument("--dry-run", action="store_true", help="show what would change; change nothing")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    args = {
        "change_id": options.change,
        "last": options.last,
        "turns": [options.turn] if options.turn else None,
        "since": options.since,
        "to": options.to,
        "session": options.of,
        "file": options.file,
        "all": options.all or None,
        "all_sessions": options.all_sessions or None,
        "merge": options.merge or None,
        "force": options.force,
    }
    return reverse(options, "Undo", args)


def reverse(options: Namespace, tool: str, args: dict[str, Any]) -> int:
    """Call Undo or Redo; typing the command is the approval."""
    options.allow = [*options.allow, tool]
    given = {key: value for key, value in args.items() if value is not None}
    result = session.run(_call_undo(options, tool, given))
    show_result(options, result)
    return 0 if result.ok else EXIT_CODES.get(result.error.code if result.error else "", 1)


async def _call_undo(options: Namespace, tool: str, args: dict[str, Any]) -> ToolResult:
    async with session.open_app(options) as app:
        if options.dry_run:
            return await app.dry_run(tool, args)
        return await app.call(tool, args, source="cli")


def show_result(options: Namespace, result: ToolResult) -> None:
    """Print the result of an undo, redo or rewind, with the diff of a dry run or a conflict in colours."""
    if render.as_json(options):
        render.line(json.dumps(result.to_dict(), ensure_ascii=False, default=str))
    elif result.error:
        render.error(render.diff(result.error.message, sys.stderr), result.error.hint)
    else:
        render.line(render.diff(result.output) if options.dry_run else visible(result.output))


def configure_redo(parser: ArgumentParser) -> None:
    """Add the options of `redo`."""
    parser.add_argument("change", nargs="?", metavar="CHANGE", help="the undo to reverse, or a change it took back")
    add_common(parser)


def run_redo(options: Namespace) -> int:
    """Run `redo` and return its exit code."""
    return reverse(
        options,
        "Redo",
        {
            "change_id": options.change,
            "all_sessions": options.all_sessions or None,
            "merge": options.merge or None,
            "force": options.force,
        },
    )


def configure_rewind(parser: ArgumentParser) -> None:
    """Add the options of `rewind`."""
    parser.add_argument("name", nargs="?", metavar="SESSION", help="the session (default: the latest that has turns)")
    parser.add_argument("--to", metavar="TURN", help="rewind to before this turn (default: list the turns)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--files", action="store_true", help="rewind only the files")
    what.add_argument("--transcript", action="store_true", help="rewind only the transcript")
    parser.add_argument(
        "--branch", metavar="NAME", help="continue from there as session NAME; this one keeps its turns"
    )
    parser.add_argument("--undo", action="store_true", help="undo the latest rewind")
    parser.add_argument("--force", action="store_true", help="overwrite files that were changed since")
    parser.add_argument("--dry-run", action="store_true", help="show what would change; change nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run_rewind(options: Namespace) -> int:
    """Run `rewind` and return its exit code."""
    if named := options.name or options.session:
        find_session(os.path.join(locations.workspace_state(options.cwd), "sessions"), named)
    options.session = named or _latest(options)
    options.allow = [*options.allow, "Undo", "Redo"]  # typing the command is the approval
    if options.to is None and not options.undo:
        rows = session.run(_list_session_turns(options))
        render.facts(options, rows, lambda: format_turns(options.session, rows))
        return 0
    result = session.run(_rewind(options))
    if result is None:
        render.note("Nothing was changed.")
        return 130
    show_result(options, result)
    return 0 if result.ok else EXIT_CODES.get(result.error.code if result.error else "", 1)


def _latest(options: Namespace) -> str:
    """Return the last used session of this workspace that has a turn."""
    folder = os.path.join(locations.workspace_state(options.cwd), "sessions")
    found = [entry for entry in os.scandir(folder) if entry.name.endswith(".jsonl")] if os.path.isdir(folder) else []
    for entry in sorted(found, key=lambda entry: entry.stat().st_mtime, reverse=True):
        if next(records(entry.path, ("turn_started",)), None) is not None:
            return entry.name.removesuffix(".jsonl")
    raise StateError("no session here has a turn to rewind to; `surehand ask` and `surehand chat` make them")


async def _list_session_turns(options: Namespace) -> list[dict[str, Any]]:
    async with session.open_app(options) as app:
        return list_turns(app)


def list_turns(app: Surehand) -> list[dict[str, Any]]:
    """Return the turns of a session and the paths that each changed, as plain data."""
    turns = app.checkpoints()
    changed = app.rewinder.changes(turns)
    return [each.to_dict() | {"paths": changed[each.turn]} for each in turns]


def format_turns(session: str, rows: list[dict[str, Any]], how: str = "") -> str:
    """Format turns as a table, and how to rewind to one."""
    if not rows:
        return f"Session {session} has no turns yet."
    shown = [
        (
            str(row["number"]),
            strftime("%Y-%m-%d %H:%M", localtime(row["at"])),
            render.shorten_line(row["prompt"].strip(), 50),
            _format_paths(row["paths"]),
        )
        for row in rows
    ]
    table = render.table(shown, ("TURN", "WHEN", "PROMPT", "CHANGED"))
    how = how or f"`surehand rewind {session} --to TURN` restores files and transcript to before a turn."
    return f"{table}\n{how}"


def _format_paths(paths: list[str]) -> str:
    if not paths:
        return "-"
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return visible(os.path.basename(paths[0]), lines=False) + more


async def _rewind(options: Namespace) -> ToolResult | None:
    async with session.open_app(options) as app:
        if options.undo:
            return await app.undo_rewind(force=options.force)
        return await rewind_with_preview(
            app,
            options.to,
            files=not options.transcript,
            transcript=not options.files,
            branch=options.branch,
            force=options.force,
            dry_run=options.dry_run,
            asks=not options.yes and not render.as_json(options) and sys.stdin.isatty(),
        )


async def rewind_with_preview(app: Surehand, to: str, *, dry_run: bool, asks: bool, **wanted: Any) -> ToolResult | None:
    """Rewind. With `asks`, show its changes first and ask; None if the person declines."""
    if dry_run or asks:
        shown = await app.rewind(to, dry_run=True, **wanted)
        if dry_run or not shown.ok:
            return shown
        render.line(render.diff(shown.output))
        if not await asyncio.to_thread(render.confirm, "Rewind?"):
            return None
    return await app.rewind(to, **wanted)
