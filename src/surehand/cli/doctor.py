"""`surehand doctor`: what works here and what does not, found out by doing it. A list of sections; add yours."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any, Final

from surehand.cli import render
from surehand.core.frozen import field, frozen


@frozen
class Check:
    """One thing looked at: whether it is well, and what was found."""

    name: str
    ok: bool
    found: str
    hint: str = ""


@frozen
class Section:
    """A heading, the checks under it, and facts for programs."""

    title: str
    checks: tuple[Check, ...]
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


def sandbox(options: Namespace) -> Section:
    """Say what the sandbox really enforces here."""
    from surehand.cli.doctor_sandbox import examine

    return examine(options.cwd)


def tools(options: Namespace) -> Section:
    """Say whether every provider would take the tools, and what they cost."""
    from surehand.cli.doctor_tools import examine

    return examine(options)


def settings(options: Namespace) -> Section:
    """Say whether the settings can be used."""
    from surehand.cli import doctor_setup

    return doctor_setup.settings(options)


def model(options: Namespace) -> Section:
    """Say which model answers, and why."""
    from surehand.cli import doctor_setup

    return doctor_setup.model(options)


def web(options: Namespace) -> Section:
    """Say what the web tools would use."""
    from surehand.cli import doctor_setup

    return doctor_setup.web(options)


def servers(options: Namespace) -> Section:
    """Say which MCP servers answer."""
    from surehand.cli import doctor_setup

    return doctor_setup.servers(options)


SECTIONS: Final[tuple[Callable[[Namespace], Section], ...]] = (
    settings,
    sandbox,
    tools,
    model,
    web,
    servers,
)


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "section", nargs="?", metavar="SECTION", help=f"only one of: {', '.join(each.__name__ for each in SECTIONS)}"
    )


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    chosen = [each for each in SECTIONS if options.section in (None, each.__name__)]
    if not chosen:
        render.error(f"there is no section {options.section!r}", "`surehand doctor --help` lists them.")
        return 2
    sections = [each(options) for each in chosen]
    render.facts(options, [_data(each) for each in sections], lambda: "\n\n".join(_text(each) for each in sections))
    return 0 if all(check.ok for section in sections for check in section.checks) else 1


def _data(section: Section) -> dict[str, Any]:
    checks = [{"name": c.name, "ok": c.ok, "found": c.found, "hint": c.hint} for c in section.checks]
    return {"section": section.title, "checks": checks, **section.facts}


def _text(section: Section) -> str:
    lines = [render.paint(section.title, "bold")]
    width = max((len(check.name) for check in section.checks), default=0)
    for check in section.checks:
        mark = render.paint("ok", "green") if check.ok else render.paint("--", "yellow")
        lines.append(f"  {mark}  {check.name.ljust(width)}  {render.folded(check.found, width + 8)}")
        if check.hint and not check.ok:
            lines.append(f"      {render.folded(check.hint, 6)}")
    return "\n".join(lines)
