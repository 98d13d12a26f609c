"""`holdfast ps`: every process the commands of any session run now."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from holdfast.cli import render


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="also Holdfast's own launchers")


def run(options: Namespace) -> int:
    from holdfast.host import leftovers
    from holdfast.host.sandbox.records import records

    rows: list[dict[str, Any]] = []
    for record in records():
        for process in leftovers.running(record):
            if options.all or not process.ours:
                rows.append(process.to_dict() | {"workspace": record.workspace, "orphan": not record.owner_alive})
    shown = ((str(r["pid"]), f"{r['seconds']} s", _whose(r), str(r["command"])[:100]) for r in rows)
    text = render.table(shown, ("PID", "AGE", "SESSION", "COMMAND")) if rows else "Nothing is running."
    render.facts(options, rows, text)
    return 0


def _whose(row: dict[str, Any]) -> str:
    return f"{row['session_id']}{' (gone: `holdfast reap` ends it)' if row['orphan'] else ''}"
