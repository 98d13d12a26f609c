"""`surehand models` and `surehand auth`: which model is used and why, what providers lack; and their keys."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from surehand import config
from surehand.cli import render
from surehand.models import choose
from surehand.policy.trust import is_trusted
from surehand.providers.table import PROVIDERS
from surehand.state import keys


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--model", metavar="NAME", help="which model this name would use")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    settings = config.load(options.cwd, trusted=is_trusted(options.cwd)).settings
    choice = choose(settings, options.model)
    served = {name: row for name, row in PROVIDERS.items() if row.server}
    providers = {name: _find_key_source(name, row.key) for name, row in served.items()}
    clients = {name: _client(name) for name in served}
    rows = [
        (name, where, PROVIDERS[name].default or f"{name}/NAME", clients[name]) for name, where in providers.items()
    ]
    rows.append(("local", "-", settings.model.path or "set [model] path to a GGUF file", _client("local")))
    rows.append(("offline", "-", "a planner, no language model", "built in"))
    heads = ("PROVIDER", "KEY", "MODEL", "CLIENT")
    text = f"{choice.provider}/{choice.name}: {choice.why}\n\n{render.table(rows, heads)}"
    render.facts(options, {"chosen": choice.to_dict(), "providers": providers, "clients": clients}, text)
    return 0


def _find_key_source(provider: str, wanted: str) -> str:
    """Say where a provider's key is."""
    found = keys.get(provider)
    return found[1] if found else "no key" if wanted == "needed" else "no key needed"


def _client(provider: str) -> str:
    """Say whether a provider's client is installed, and how to get it if not."""
    from importlib.util import find_spec

    package = PROVIDERS[provider].package
    extra = "local" if provider == "local" else package
    return "installed" if find_spec(package) else f"pip install 'surehand[{extra}]'"


def configure_auth(parser: ArgumentParser) -> None:
    """Add the options of `auth`."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="set | status | remove")
    for name, about in (("set", "keep a key, read from the terminal or standard input"), ("remove", "forget a key")):
        one = commands.add_parser(name, help=about, allow_abbrev=False)
        one.add_argument("provider", choices=sorted(keys.VARIABLES))
    status = commands.add_parser("status", help="which keys are set, and where", allow_abbrev=False)
    status.add_argument("provider", choices=sorted(keys.VARIABLES), nargs="?", help="only this provider")


def run_auth(options: Namespace) -> int:
    """Run `auth` and return its exit code."""
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
