"""`holdfast approvals`: questions that wait for an answer, and answering them from here."""

from __future__ import annotations

import getpass
import os
import time
from argparse import ArgumentParser, Namespace

from holdfast.cli import render

_KINDS = ("once", "session", "always", "no")


def configure(parser: ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", required=True, metavar="list | answer")
    commands.add_parser("list", help="what waits for an answer", allow_abbrev=False)
    answer = commands.add_parser("answer", help="answer a question", allow_abbrev=False)
    answer.add_argument("id", metavar="ID")
    answer.add_argument("kind", choices=_KINDS, metavar="once | session | always | no")
    answer.add_argument("--reason", default="", help="why not, for the model to read")


def run(options: Namespace) -> int:
    from holdfast.host import locations
    from holdfast.policy.mailbox import Mailbox
    from holdfast.policy.question import Answer

    box = Mailbox(locations.workspace_state(options.cwd))
    if options.action == "list":
        rows = box.pending()
        render.facts(options, rows, lambda: _shown(rows))
        return 0
    by = f"{getpass.getuser()} (process {os.getpid()})"
    box.answer(options.id, Answer(options.kind, options.reason), by=by)
    render.facts(options, {"id": options.id, "answer": options.kind, "by": by}, f"{options.id}: {options.kind}")
    return 0


def _shown(rows: list[dict[str, object]]) -> str:
    if not rows:
        return "Nothing waits for an answer."
    now = time.time()
    parts: list[str] = []
    for row in rows:
        left = f"{float(str(row['expires'])) - now:.0f} s left" if row["waiting"] else "nobody waits any more"
        parts.append(f"{row['id']}  ({left})\n{row['text']}")
    return "\n\n".join(parts)
