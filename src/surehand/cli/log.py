"""`surehand log` and `surehand diff`: the changes made in this workspace, newest first, and what one of them did."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Container
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from surehand.cli import render
from surehand.cli.parser import whole_number
from surehand.core.errors import StateError
from surehand.files.sanitize import visible
from surehand.history.history import open_to_look
from surehand.history.undo import change_diff
from surehand.state import locations

if TYPE_CHECKING:
    from surehand.history.history import History
    from surehand.history.words import Change

_FILES_SHOWN: Final = 3


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("path", nargs="?", metavar="PATH", help="only changes of this file, or below this folder")
    parser.add_argument(
        "-n", "--limit", type=whole_number, default=30, metavar="N", help="how many (default 30; 0: all)"
    )
    parser.add_argument("--before", metavar="CHANGE", help="only changes older than this one: the next page")
    parser.add_argument("--of", metavar="SESSION", help="only changes of this session")


def run(options: Namespace) -> int:
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
    """Return changes as a table for people; `in_part` are the partly undone ones."""
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
