"""`surehand replay FILE`: make recorded calls again and compare, or judge them by the rules in force now."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from surehand.cli import render, session
from surehand.core.errors import StateError
from surehand.engine.replay import judge, read, replay

if TYPE_CHECKING:
    from surehand.engine.replay import Judged, Recording, Replayed


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "file", metavar="FILE", help="a recording (`tools invoke --record FILE`) or a session's journal"
    )
    parser.add_argument("--judge", action="store_true", help="run nothing; compare the verdicts with the current rules")
    parser.add_argument(
        "--ignore", action="append", default=[], metavar="PLACE", help="a field that may differ, such as data.timestamp"
    )


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    try:
        recording = read(options.file)
    except StateError as problem:
        render.error(str(problem), "Make one with `surehand tools invoke NAME --record FILE`.", code="invalid_args")
        return 2
    if options.judge:
        return _report_judged(options, session.run(_judge_calls(options, recording)))
    return _report_replayed(options, session.run(_replay_calls(options, recording)))


async def _replay_calls(options: Namespace, recording: Recording) -> list[Replayed]:
    async with session.open_app(options) as app:
        calls = replay(recording, app.executor, app.session, app.selection, ignore=options.ignore)
        return [each async for each in calls]


async def _judge_calls(options: Namespace, recording: Recording) -> list[Judged]:
    async with session.open_app(options) as app:
        return judge(recording, app.executor, app.session, app.selection)


def _report_replayed(options: Namespace, calls: list[Replayed]) -> int:
    different = [each for each in calls if each.differences]
    data = {
        "calls": len(calls),
        "same": len(calls) - len(different),
        "different": len(different),
        "results": [each.to_dict() for each in calls],
    }

    def text() -> str:
        lines: list[str] = []
        for number, each in enumerate(calls, 1):
            mark = render.paint("differs", "red") if each.differences else render.paint("same", "green")
            lines.append(f"{number:4}  {mark}  {each.recorded.call.name}")
            lines += [f"      {difference}" for difference in each.differences]
        return "\n".join([*lines, f"{len(calls)} calls, {len(different)} different"])

    render.facts(options, data, text)
    return 1 if different else 0


def _report_judged(options: Namespace, calls: list[Judged]) -> int:
    rows = [each.to_dict() for each in calls]
    changed = [row for row in rows if not row["same"]]

    def text() -> str:
        shown = [(row["tool"], row["before"] or "-", row["after"], row["reason"]) for row in rows]
        return (
            render.table(shown, ("TOOL", "THEN", "NOW", "WHY"))
            + f"\n{len(rows)} calls, {len(changed)} judged otherwise"
        )

    render.facts(options, {"calls": len(rows), "changed": len(changed), "verdicts": rows}, text)
    return 1 if changed else 0
