"""`surehand config`, `trust`, `models` and `auth`: settings and their sources, trusted folders, models, API keys."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace

from surehand import config
from surehand.cli import render
from surehand.files.sanitize import visible
from surehand.models import choose
from surehand.policy import trust
from surehand.policy.trust import Trust, is_trusted
from surehand.providers.table import PROVIDERS, Provider
from surehand.state import keys, locations


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


def configure_trust(parser: ArgumentParser) -> None:
    """Add the options of `trust`."""
    parser.add_argument("--yes", action="store_true", help="trust without asking")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--show", action="store_true", help="only show whether the folder is trusted")
    choice.add_argument("--remove", action="store_true", help="stop trusting this folder")
    choice.add_argument("--list", action="store_true", help="list every trusted folder")


def run_trust(options: Namespace) -> int:
    """Run `trust` and return its exit code."""
    if options.list:
        folders = trust.trusted_folders()
        render.facts(options, folders, "\n".join(map(visible, folders)) or "No folder is trusted.")
        return 0
    if options.remove:
        was = trust.remove_trust(options.cwd)
        render.facts(
            options, {"workspace": options.cwd, "removed": was}, "No longer trusted." if was else "It was not trusted."
        )
        return 0
    return _give(options)


def _give(options: Namespace) -> int:
    now = trust.state_of(options.cwd)
    if not options.show and now.state != "trusted" and (options.yes or now.state != "nothing"):
        if not (options.yes or now.problem or _consent(now)):
            render.facts(options, now.to_dict(), "Not trusted.")
            return 4
        now = trust.add_trust(options.cwd)
    words = {
        "trusted": "is trusted, as it is now; a change asks again",
        "untrusted": f"is not trusted{now.problem and f': {visible(now.problem)}'}",
        "changed": f"has changed since it was trusted: {visible(', '.join(now.changed) or now.problem)}",
        "nothing": "has no settings, tools or servers of its own, so there is nothing to trust",
    }
    render.facts(options, now.to_dict(), f"{visible(now.workspace)} {words[now.state]}.")
    return 0


def _consent(now: object) -> bool:
    assert isinstance(now, Trust)
    shown = now.changed or now.files
    render.note(f"{visible(now.workspace)} brings files that Surehand would act on:")
    for name in shown:
        render.note(f"  {visible(name, lines=False)}")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        render.error(
            "trusting needs your answer, and this is not a terminal",
            "Look at these files, then use `surehand trust --yes`.",
        )
        return False
    return render.confirm("Trust them?")


def configure_models(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--model", metavar="NAME", help="which model this name would use")


def run_models(options: Namespace) -> int:
    """Run the command and return its exit code."""
    settings = config.load(options.cwd, trusted=is_trusted(options.cwd)).settings
    choice = choose(settings, options.model)
    served = {name: row for name, row in PROVIDERS.items() if row.server}
    providers = {name: _find_key_source(name, row) for name, row in served.items()}
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


def _find_key_source(name: str, provider: Provider) -> str:
    """Return where a provider's API key was found, or that there is none."""
    found = provider.find_key(name)
    return found[1] if found else "no key needed" if provider.key_optional else "no key"


def _client(provider: str) -> str:
    """Return 'installed' if a provider's client library is, else the command that installs it."""
    from importlib.util import find_spec

    package = PROVIDERS[provider].package
    extra = "local" if provider == "local" else package
    return "installed" if find_spec(package) else f"pip install 'surehand[{extra}]'"


def configure_auth(parser: ArgumentParser) -> None:
    """Add the options of `auth`."""
    names = sorted(_key_variables())
    commands = parser.add_subparsers(dest="action", required=True, metavar="set | status | remove")
    for name, about in (("set", "keep a key, read from the terminal or standard input"), ("remove", "forget a key")):
        one = commands.add_parser(name, help=about, allow_abbrev=False)
        one.add_argument("provider", choices=names)
    status = commands.add_parser("status", help="which keys are set, and where", allow_abbrev=False)
    status.add_argument("provider", choices=names, nargs="?", help="only this provider")


def _key_variables() -> dict[str, tuple[str, ...]]:
    """Return the environment variables of each API key: of the model providers, then of the search engines."""
    from surehand.web.search_engines import KEY_VARIABLES  # lazy: search_engines, 90 ms; only for `auth`

    return {**{name: row.variables for name, row in PROVIDERS.items() if row.variables}, **KEY_VARIABLES}


def run_auth(options: Namespace) -> int:
    """Run `auth` and return its exit code."""
    match options.action:
        case "set":
            where = keys.put(options.provider, _key(options.provider))
            render.facts(options, {"provider": options.provider, "kept": where}, f"kept in {where}")
        case "remove":
            gone = keys.remove(options.provider)
            text = f"removed from {', '.join(gone)}" if gone else "no key was kept"
            if left := keys.get(options.provider, _key_variables()[options.provider]):
                text += f"; {left[1]} is still set in the environment, and is yours to unset"
            render.facts(options, {"provider": options.provider, "removed": gone, "left": left and left[1]}, text)
        case _:
            shown = {name: given for name, given in _key_variables().items() if options.provider in (None, name)}
            rows = {name: (found[1] if (found := keys.get(name, given)) else None) for name, given in shown.items()}
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
