"""`surehand reap`: end the processes of dead sessions, and remove what they left on the disk."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from surehand.cli import render
from surehand.commands import leftovers
from surehand.sandbox.records import records
from surehand.state.private_folder import find_abandoned


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--dry-run", action="store_true", help="only show what would be ended and removed")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    if options.dry_run:
        found = [each for record in records() if not record.owner_alive for each in leftovers.running(record)]
        folders = list(find_abandoned())
    else:
        found, folders = leftovers.reap(), leftovers.clear()
    would = "would be " if options.dry_run else ""
    lines = [f"{would}ended: {each.pid} {each.command[:100]}" for each in found]
    lines += [f"{would}removed: {path}" for path in folders]
    data = {"ended": [each.to_dict() for each in found], "removed": folders}
    render.facts(options, data, "\n".join(lines) or "Nothing was left behind.")
    return 0
