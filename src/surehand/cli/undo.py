"""`surehand undo`: take back the last change, one by its number, a turn, a session, all since a moment, or a file's."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from surehand.cli import render, session
from surehand.cli.parser import count_above_zero
from surehand.cli.tools import EXIT_CODES
from surehand.files.sanitize import visible

if TYPE_CHECKING:
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
