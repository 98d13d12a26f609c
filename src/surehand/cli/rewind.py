"""`surehand rewind`: list the turns of a session, and bring its files and transcript back to before one of them."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentParser, Namespace
from time import localtime, strftime
from typing import TYPE_CHECKING, Any

from surehand.cli import render, session
from surehand.cli.tools import EXIT_CODES
from surehand.cli.undo import show_result
from surehand.core.errors import StateError
from surehand.engine.journal import find_session, records
from surehand.files.sanitize import visible
from surehand.state import locations

if TYPE_CHECKING:
    from surehand.app import Surehand
    from surehand.core.call import ToolResult


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
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


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    if named := options.name or options.session:
        find_session(os.path.join(locations.workspace_state(options.cwd), "sessions"), named)
    options.session = named or _latest(options)
    options.allow = [*options.allow, "Undo", "Redo"]  # typing the command counts as the approval
    if options.to is None and not options.undo:
        rows = session.run(_list(options))
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


async def _list(options: Namespace) -> list[dict[str, Any]]:
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
