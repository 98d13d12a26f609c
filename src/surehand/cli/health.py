"""`surehand health`: check tools, all or some, and say how each is."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from surehand.cli import render, session

if TYPE_CHECKING:
    from surehand.engine.health import HealthReport

_COLOURS = {"healthy": "green", "unhealthy": "yellow", "error": "red", "not_found": "red"}


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("tools", nargs="*", metavar="TOOL", help="which tools (default: all)")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    reports = session.run(_check_tools(options))
    render.facts(options, [report.to_dict() for report in reports], lambda: _table(reports))
    return 0 if all(report.status == "healthy" for report in reports) else 1


async def _check_tools(options: Namespace) -> list[HealthReport]:
    async with session.open_app(options) as app:
        return await app.health.check_all(options.tools or None)


def _table(reports: list[HealthReport]) -> str:
    rows = [(report.tool, report.status, report.state, render.shorten_line(report.message, 200)) for report in reports]
    head, *lines = render.table(rows, ("TOOL", "HEALTH", "STATE", "MESSAGE")).split("\n")
    # Painted whole and last: colours inside a cell would count as its width.
    painted = [render.paint(line, _COLOURS[each.status]) for line, each in zip(lines, reports, strict=True)]
    return "\n".join([head, *painted])
