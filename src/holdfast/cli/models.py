"""`holdfast models`: which model is used, and why."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from holdfast.cli import render


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--model", metavar="NAME", help="what would be used with this name")


def run(options: Namespace) -> int:
    from holdfast import config
    from holdfast.host import keys
    from holdfast.models import DEFAULTS, choose
    from holdfast.policy.trust import is_trusted

    settings = config.load(options.cwd, trusted=is_trusted(options.cwd)).settings
    choice = choose(settings, options.model)
    providers = {name: (found[1] if (found := keys.get(name)) else "no key") for name in DEFAULTS}
    text = f"{choice.provider}/{choice.name}: {choice.why}\n\n" + render.table(providers.items(), ("PROVIDER", "KEY"))
    render.facts(options, {"chosen": choice.to_dict(), "providers": providers}, text)
    return 0
