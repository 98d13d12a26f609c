"""`surehand config`: every setting, its value, and where it came from."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from surehand.cli import render


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="show | path")
    show = commands.add_parser("show", help="every value with its source", allow_abbrev=False)
    show.add_argument("--changed", action="store_true", help="only what is not the default")
    commands.add_parser("path", help="where settings and state live", allow_abbrev=False)


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    return _paths(options) if options.action == "path" else _show(options)


def _show(options: Namespace) -> int:
    from surehand import config
    from surehand.policy.trust import is_trusted

    loaded = config.load(options.cwd, flags=config.flags(mode=options.mode), trusted=is_trusted(options.cwd))
    rows = [row for row in config.shown(loaded) if not options.changed or row["from"] != "default"]
    for warning in loaded.warnings:
        render.note(f"warning: {warning}")
    cells = [(row["key"], json.dumps(row["value"], ensure_ascii=False), row["from"]) for row in rows]
    text = render.table(cells, ("KEY", "VALUE", "FROM"), fold=True)
    render.facts(options, rows, text if rows else "Nothing is set; every value is its default.")
    return 0


def _paths(options: Namespace) -> int:
    import os

    from surehand.config import PROJECT_FILE
    from surehand.state import locations

    places = {
        "user settings": locations.user_settings(),
        "project settings": os.path.join(options.cwd, PROJECT_FILE),
        "state": locations.home(),
        "state of this workspace": locations.workspace_state(options.cwd),
    }
    render.facts(options, places, render.table(places.items()))
    return 0
