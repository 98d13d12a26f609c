"""`surehand diff`: what a change did; the latest one unless another is named."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from surehand.cli import render
from surehand.cli.log import open_history
from surehand.history.undo import change_diff


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("change", nargs="?", metavar="CHANGE", help="a change of `surehand log` (default: the latest)")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
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
