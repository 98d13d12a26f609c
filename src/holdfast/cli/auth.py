"""`holdfast auth`: keep a provider's key in the keyring or a private file; never in settings or logs."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from holdfast.cli import render
from holdfast.host import keys


def configure(parser: ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", required=True, metavar="set | status | remove")
    for name, about in (("set", "keep a key, read from the terminal or standard input"), ("remove", "forget a key")):
        one = commands.add_parser(name, help=about, allow_abbrev=False)
        one.add_argument("provider", choices=sorted(keys.VARIABLES))
    commands.add_parser("status", help="which keys are there, and where", allow_abbrev=False)


def run(options: Namespace) -> int:
    match options.action:
        case "set":
            where = keys.put(options.provider, _key(options.provider))
            render.facts(options, {"provider": options.provider, "kept": where}, f"kept in {where}")
        case "remove":
            gone = keys.remove(options.provider)
            text = f"removed from {', '.join(gone)}" if gone else "there was no key"
            render.facts(options, {"provider": options.provider, "removed": gone}, text)
        case _:
            rows = {name: (found[1] if (found := keys.get(name)) else None) for name in keys.VARIABLES}
            render.facts(options, rows, render.table((name, where or "no key") for name, where in rows.items()))
    return 0


def _key(provider: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.read()
    from getpass import getpass

    return getpass(f"key for {provider} (not shown): ")
