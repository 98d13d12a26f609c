"""`surehand auth`: keep a provider's key in the keyring or a private file; never in settings or logs."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from surehand.cli import render
from surehand.state import keys


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="set | status | remove")
    for name, about in (("set", "keep a key, read from the terminal or standard input"), ("remove", "forget a key")):
        one = commands.add_parser(name, help=about, allow_abbrev=False)
        one.add_argument("provider", choices=sorted(keys.VARIABLES))
    status = commands.add_parser("status", help="which keys are set, and where", allow_abbrev=False)
    status.add_argument("provider", choices=sorted(keys.VARIABLES), nargs="?", help="only this provider")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    match options.action:
        case "set":
            where = keys.put(options.provider, _key(options.provider))
            render.facts(options, {"provider": options.provider, "kept": where}, f"kept in {where}")
        case "remove":
            gone = keys.remove(options.provider)
            text = f"removed from {', '.join(gone)}" if gone else "no key was kept"
            if left := keys.get(options.provider):
                text += f"; {left[1]} is still set in the environment, and is yours to unset"
            render.facts(options, {"provider": options.provider, "removed": gone, "left": left and left[1]}, text)
        case _:
            names = [options.provider] if options.provider else list(keys.VARIABLES)
            rows = {name: (found[1] if (found := keys.get(name)) else None) for name in names}
            render.facts(options, rows, render.table((name, where or "no key") for name, where in rows.items()))
    return 0


def _key(provider: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.read()
    from getpass import getpass

    try:
        return getpass(f"key for {provider} (not shown): ")
    except EOFError:
        render.note("")
        return ""  # not a key; reported like any other invalid input
