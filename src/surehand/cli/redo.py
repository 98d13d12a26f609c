"""`surehand redo`: reapply what an undo took back."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from surehand.cli.undo import add_common, reverse


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("change", nargs="?", metavar="CHANGE", help="the undo to reverse, or a change it took back")
    add_common(parser)


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
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
