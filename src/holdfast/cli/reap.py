"""`holdfast reap`: end what sessions left running whose program is gone."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli import render


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what would be ended")


def run(options: Namespace) -> int:
    from holdfast.host import leftovers
    from holdfast.host.sandbox.records import records

    if options.dry_run:
        found = [each for record in records() if not record.owner_alive for each in leftovers.running(record)]
    else:
        found = leftovers.reap()
    verb = "would be ended" if options.dry_run else "ended"
    lines = [f"{verb}: {each.pid} {each.command[:100]}" for each in found]
    render.facts(options, {"ended": [each.to_dict() for each in found]}, "\n".join(lines) or "Nothing was left behind.")
    return 0
