"""`surehand config`: every setting, its value and where it came from; and setting one."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace

from surehand import config
from surehand.cli import render
from surehand.policy.trust import is_trusted
from surehand.state import locations


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="show | set | path")
    show = commands.add_parser("show", help="every value with its source", allow_abbrev=False)
    show.add_argument("--changed", action="store_true", help="only what is not the default")
    change = commands.add_parser("set", help="set one value in your own settings file", allow_abbrev=False)
    change.add_argument("key", metavar="KEY", help="as `config show` names it, such as model.effort")
    change.add_argument("value", metavar="VALUE", help="text, or JSON if the setting is not text")
    commands.add_parser("path", help="where settings and state are stored", allow_abbrev=False)


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    return {"path": _paths, "set": _set, "show": _show}[options.action](options)


def _set(options: Namespace) -> int:
    file, value = config.set_value(options.key, options.value)
    told = json.dumps(value, ensure_ascii=False)
    render.facts(options, {"key": options.key, "value": value, "file": file}, f"{options.key} = {told}, in {file}")
    return 0


def _show(options: Namespace) -> int:
    loaded = config.load(options.cwd, flags=config.flags(mode=options.mode), trusted=is_trusted(options.cwd))
    rows = [row for row in config.list_values(loaded) if not options.changed or row["from"] != "default"]
    for warning in loaded.warnings:
        render.note(f"warning: {warning}")
    cells = [(row["key"], json.dumps(row["value"], ensure_ascii=False), row["from"]) for row in rows]
    text = render.table(cells, ("KEY", "VALUE", "FROM"), fold=True)
    render.facts(options, rows, text if rows else "Nothing is set; every value is its default.")
    return 0


def _paths(options: Namespace) -> int:
    places = {
        "user settings": locations.user_settings(),
        "project settings": os.path.join(options.cwd, config.PROJECT_FILE),
        "state": locations.home(),
        "state of this workspace": locations.workspace_state(options.cwd),
    }
    render.facts(options, places, render.table(places.items()))
    return 0
