"""`surehand audit` and `surehand replay`: show and verify the audit log; repeat recorded calls and compare."""

from __future__ import annotations

import json
import os
import time
from argparse import ArgumentParser, Namespace
from collections import deque
from typing import TYPE_CHECKING, Any

from surehand.cli import render, session
from surehand.cli.parser import whole_number
from surehand.core.errors import StateError
from surehand.engine.audit import records, verify
from surehand.engine.replay import judge, read, replay
from surehand.files.sanitize import visible
from surehand.state import locations

if TYPE_CHECKING:
    from surehand.engine.replay import Judged, Recording, Replayed


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="show | verify")
    show = commands.add_parser("show", help="the latest records", allow_abbrev=False)
    show.add_argument("-n", "--limit", type=whole_number, default=50, help="how many (default 50; 0 for all)")
    show.add_argument("--tool", help="only calls of this tool")
    show.add_argument("--refused", action="store_true", help="only refused calls")
    commands.add_parser(
        "verify", help="check the chain for changed, missing, moved or truncated lines", allow_abbrev=False
    )


def folder(options: Namespace) -> str:
    """Return the folder of this workspace's audit log."""
    return os.path.join(locations.workspace_state(options.cwd), "audit")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    return _verify(options) if options.action == "verify" else _show(options)


def _verify(options: Namespace) -> int:
    found = verify(folder(options))
    text = f"{found.count} records, the chain is intact." if found.ok else "\n".join(map(str, found.faults))
    render.facts(options, found.to_dict(), visible(text))
    return 0 if found.ok else 1


def _show(options: Namespace) -> int:
    kept = list(records(folder(options)))
    ended = {record.get("call") for record in kept if record.get("kind") == "call"}
    wanted = (
        record
        for record in kept
        if (record.get("kind") != "intent" or record.get("call") not in ended)
        and (not options.tool or record.get("tool") == options.tool)
        and (not options.refused or record.get("refused"))
    )
    rows = list(deque(wanted, maxlen=options.limit if options.limit > 0 else None))
    render.facts(options, rows, lambda: _table(rows))
    return 0


def _format_outcome(row: dict[str, Any]) -> str:
    if row.get("kind") == "dry_run":
        return "dry run"
    if row.get("kind") == "intent":  # started, with no end recorded: still running, or its process was killed
        return "interrupted"
    if row.get("kind") == "gap":
        return f"{row.get('lost')} lost"
    return "ok" if row.get("ok") else str(row.get("error", {}).get("code", "failed"))


def _table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "Nothing has been recorded for this workspace."
    shown = [
        (
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.get("at", 0))),
            str(row.get("tool", "")),
            _format_outcome(row),
            str(row.get("approval", {}).get("answer", row.get("verdict", ""))),
            render.shorten_line(json.dumps(row.get("args", {}), ensure_ascii=False), 60),
        )
        for row in rows
    ]
    cells = [tuple(visible(cell, lines=False) for cell in row) for row in shown]
    return render.table(cells, ("WHEN", "TOOL", "RESULT", "PERMISSION", "ARGUMENTS"))


def configure_replay(parser: ArgumentParser) -> None:
    """Add the options of `replay`."""
    parser.add_argument(
        "file", metavar="FILE", help="a recording (`tools invoke --record FILE`) or a session's journal"
    )
    parser.add_argument("--judge", action="store_true", help="run nothing; compare the verdicts with the current rules")
    parser.add_argument(
        "--ignore", action="append", default=[], metavar="PLACE", help="a field that may differ, such as data.timestamp"
    )


def run_replay(options: Namespace) -> int:
    """Run `replay` and return its exit code."""
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
