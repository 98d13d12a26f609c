"""`surehand approvals`: list and answer the pending questions of all workspaces.

`Deferred` keeps a question on the terminal from interrupting a streaming answer or what the user is typing.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from surehand.cli import render
from surehand.core.errors import StateError
from surehand.policy.approval import Answer
from surehand.policy.mailbox import FILE, Mailbox
from surehand.state import local_rpc, locations

if TYPE_CHECKING:
    from surehand.cli.screen import Screen
    from surehand.policy.approval import Approver, Question

_LOOK_S = 3.0
"""Timeout (s) for a session to list its open questions."""


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="list | show | allow | deny")
    commands.add_parser("list", help="list pending questions", allow_abbrev=False)
    show = commands.add_parser("show", help="show one question in full, with its diff", allow_abbrev=False)
    allow = commands.add_parser("allow", help="let it run", allow_abbrev=False)
    deny = commands.add_parser("deny", help="refuse it", allow_abbrev=False)
    for command in (show, allow, deny):
        command.add_argument("id", metavar="ID", help="a question's name, or an unambiguous part of it")
    kinds = ("once", "session", "always")
    allow.add_argument("--for", dest="kind", choices=kinds, default="once", help="how long the answer holds")
    allow.add_argument("--anew", action="store_true", help="run it again instead of applying the dry run shown")
    deny.add_argument("--reason", default="", help="the reason, for the model to read")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    rows: list[dict[str, Any]] = [row | {"box": box} for box in _boxes() for row in box.pending()]
    put_up = {row["digest"]: row for row in rows}
    for row in _rows_of_sessions():
        if boxed := put_up.get(row["digest"]):  # it may have been listed before under the session's own id
            boxed["also"] = (*boxed.get("also", ()), row["id"])
        else:
            rows.append(row)
    rows.sort(key=lambda row: row["asked"])
    if options.action == "list":
        render.facts(options, [_plain(row) for row in rows], lambda: _format_list(rows))
        return 0
    row = _one(rows, options.id)
    if options.action == "show":
        render.facts(options, _plain(row), lambda: _format_question(row))
        return 0
    return _answer(options, row)


def _boxes() -> Iterator[Mailbox]:
    folder = os.path.join(locations.home(), "workspaces")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if os.path.exists(os.path.join(folder, name, FILE)):
            yield Mailbox(os.path.join(folder, name))


def _rows_of_sessions() -> Iterator[dict[str, Any]]:
    """Yield the open questions of running sessions that another process may answer."""
    for name in local_rpc.session_sockets():
        answer: dict[str, Any] = local_rpc.ask(name, {"want": "questions"}, _LOOK_S) or {}
        for row in answer.get("questions", ()):
            yield row | {"channel": name, "waiting": True}


def _one(rows: list[dict[str, Any]], wanted: str) -> dict[str, Any]:
    names = [(name, row) for row in rows for name in (row["id"], *row.get("also", ()))]
    found = {row["id"]: row for name, row in names if name == wanted}
    found = found or {row["id"]: row for name, row in names if wanted and wanted in name}
    if len(found) == 1:
        return next(iter(found.values()))
    known = ", ".join(found or [row["id"] for row in rows]) or "nothing"
    what = "is not one question" if found else "does not wait for an answer"
    raise StateError(f"{wanted!r} {what}; what waits: {known}")


def _answer(options: Namespace, row: dict[str, Any]) -> int:
    import getpass

    kind = options.kind if options.action == "allow" else "no"
    if kind in ("session", "always") and not row["suggestion"]:
        raise StateError("there is no rule to remember for this call; allow it once")
    try:
        who = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in many containers
        who = f"user {os.getuid()}"
    by = f"{who} (process {os.getpid()})"
    reason = options.reason if kind == "no" else ""
    answer = Answer(kind, reason, dry_run="" if kind != "no" and options.anew else None)
    if "box" in row:
        row["box"].answer(row["id"], answer, by=by)
    else:
        _answer_session(row, answer, by)
    remembered = f"; remembered: {row['suggestion']}" if kind in ("session", "always") else ""
    text = f"{row['tool']} {'was refused' if kind == 'no' else f'may run ({kind})'}{remembered}"
    render.facts(options, {"id": row["id"], "answer": kind, "by": by}, text)
    return 0


def _answer_session(row: dict[str, Any], answer: Answer, by: str) -> None:
    """Answer an open question of a running session."""
    given = {key: value for key, value in answer.to_dict().items() if key in ("kind", "reason", "dry_run")}
    request = {"want": "answer", "id": row["id"], "digest": row["digest"], "by": by, "answer": given}
    said = local_rpc.ask(row["channel"], request)
    if said is None:
        raise StateError("the session that asked is gone")
    if "error" in said:
        raise StateError(str(said["error"]))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("box", "channel", "also")}


def _format_list(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "Nothing waits for an answer."
    shown = ((row["id"], _format_time_left(row), row["tool"], row.get("cwd", ""), row["reason"]) for row in rows)
    cells = ((*cells[:4], render.shorten_line(cells[4], 60)) for cells in shown)
    return render.table(cells, ("ID", "LEFT", "TOOL", "FOLDER", "WHY"))


def _format_time_left(row: dict[str, Any]) -> str:
    return f"{row['expires'] - time.time():.0f} s" if row["waiting"] else "nobody waits"


def _format_question(row: dict[str, Any]) -> str:
    name, rule = row["id"], row["suggestion"]
    kept = f"   (--for session or --for always remembers {rule})" if rule else ""
    answers = f"surehand approvals allow {name}{kept}\nsurehand approvals deny {name} --reason '...'"
    return (
        f"{render.question(row['text'], sys.stdout)}\n\n{row.get('cwd', '')}: {_format_time_left(row)} left\n{answers}"
    )


class Deferred:
    """An approver that asks when the terminal is free: not while the user types something else."""

    def __init__(self, approver: Approver, screen: Screen) -> None:
        self.at_once = False
        """Whether to ask even while the user is typing: set during a slash command."""
        self._approver = approver
        self._screen = screen
        self._waiting: list[asyncio.Event] = []
        self._open: set[asyncio.Task[Answer]] = set()

    async def ask(self, question: Question) -> Answer:
        """Pass the question to the approver and wait for the answer."""
        asking = asyncio.get_running_loop().create_task(self._ask(question))
        self._open.add(asking)
        try:
            await asyncio.wait({asking})
        finally:
            self._open.discard(asking)
            asking.cancel()
        return Answer("no", "the user pressed Ctrl-C") if asking.cancelled() else asking.result()

    def withdraw(self, question: Question, answer: Answer) -> None:
        """Withdraw a question that was answered elsewhere."""
        if (withdraw := getattr(self._approver, "withdraw", None)) is not None:
            withdraw(question, answer)

    async def _ask(self, question: Question) -> Answer:
        if self._screen.at_prompt and not self.at_once:
            await self._turn(question)
        with self._screen.question():
            return await self._approver.ask(question)

    async def _turn(self, question: Question) -> None:
        said = f"\n{question.tool} asks for permission in the background; press Enter to see the question"
        render.note(render.paint(said, "yellow", stream=sys.stderr))
        free = asyncio.Event()
        self._waiting.append(free)
        await free.wait()

    async def catch_up(self) -> None:
        """Ask the deferred questions now; return once none is open and the user may type.

        If cancelled, it answers the open ones with no. There is no await between the last answer and setting
        `at_prompt`, so that no question can appear beside the prompt.
        """
        self._screen.at_prompt = False
        self._screen.flush()
        waiting, self._waiting = self._waiting, []
        for free in waiting:
            free.set()
        try:
            while self._open:
                await asyncio.wait(self._open)
        finally:
            for asking in self._open:
                asking.cancel()
            self._screen.at_prompt = True
