"""`surehand models`: which model is used, and why; and what every provider has and lacks."""

from __future__ import annotations

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
