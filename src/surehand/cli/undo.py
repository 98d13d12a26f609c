"""`surehand undo`, `redo` and `rewind`: take back changes, reapply them, and return to before a turn."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from argparse import ArgumentParser, Namespace
from time import localtime, strftime
from typing import TYPE_CHECKING, Any

from surehand.cli import render, session
from surehand.cli.parser import count_above_zero
from surehand.cli.tools import EXIT_CODES
from surehand.core.errors import StateError
from surehand.engine.journal import find_session, records
from surehand.files.sanitize import visible
from surehand.state import locations

if TYPE_CHECKING:
    from surehand.app import Surehand
    from surehand.core.call import ToolResult


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
    """Call Undo or Redo; typing the command counts as the approval."""
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
    """Print the result of an undo, a redo or a rewind; the diff of a dry run or a conflict in colours."""
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
    options.allow = [*options.allow, "Undo", "Redo"]  # typing the command counts as the approval
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
    """Return the session of this workspace that was used last and has a turn."""
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
    """Return the turns of a session with what each of them changed, as plain data."""
    turns = app.checkpoints()
    changed = app.rewinder.changes(turns)
    return [each.to_dict() | {"paths": changed[each.turn]} for each in turns]


def format_turns(session: str, rows: list[dict[str, Any]], how: str = "") -> str:
    """Return turns as a table for people, and how to go back to one."""
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
    """Rewind after the person has seen what that would change; return None when they said no."""
    if dry_run or asks:
        shown = await app.rewind(to, dry_run=True, **wanted)
        if dry_run or not shown.ok:
            return shown
        render.line(render.diff(shown.output))
        if not await asyncio.to_thread(render.confirm, "Rewind?"):
            return None
    return await app.rewind(to, **wanted)
