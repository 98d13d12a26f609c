"""`Mailbox`: an approver that stores its questions in a file, where any other process can answer them.

A question is a row with a time limit. The asking process refreshes the row while it waits. If the process dies, the row
stays unanswered, and the same call asked again reuses it. A timeout is a no.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from surehand.core.call import new_id
from surehand.core.errors import StateError
from surehand.files.sanitize import mask_data
from surehand.policy.approval import Answer, Question
from surehand.state.locations import private_dir

if TYPE_CHECKING:
    import sqlite3

_TABLE = """
create table if not exists approvals (
    id text primary key, digest text not null, tool text not null, question text not null,
    asked real not null, expires real not null, waiting real not null,
    answer text, answered real, answered_by text
)
"""
FILE = "approvals.sqlite3"
_WAITS_S = 5.0
"""Age (s) of the last refresh after which the asking process counts as dead."""


class Mailbox:
    """Questions and answers in one SQLite file under the state folder.

    `tell` is called with the id of each new question, to notify someone.
    """

    def __init__(
        self,
        state_dir: str,
        *,
        timeout_s: float = 300.0,
        poll_s: float = 0.05,
        tell: Callable[[str, Question], None] | None = None,
    ) -> None:
        self.path = os.path.join(state_dir, FILE)
        self.timeout_s = timeout_s
        self.poll_s = poll_s
        self._tell = tell

    async def ask(self, question: Question) -> Answer:
        """Store the question and wait for its answer until the time limit."""
        expires = time.time() + self.timeout_s
        with self._open_store() as store:
            identity = _put_up(store, question, expires)
            if self._tell is not None:
                self._tell(identity, question)
            answered = False
            try:
                while time.time() < expires:
                    found = _look(store, identity)
                    if found is not None:
                        answered = True
                        return found
                    await asyncio.sleep(self.poll_s)
                _stop_waiting(store, identity)  # refuses later answers; one given just before is read next
                answered = True
                return _look(store, identity) or Answer("no", f"nobody answered within {self.timeout_s:g} s")
            finally:
                if not answered:
                    _stop_waiting(store, identity)

    def withdraw(self, question: Question, answer: Answer) -> None:
        """Record that a question stored here was answered elsewhere."""
        with self._open_store() as store, store:
            store.execute(
                "update approvals set answer = ?, answered = ?, answered_by = ? where digest = ? and answer is null",
                (json.dumps(answer.to_dict()), time.time(), answer.by, question.digest),
            )

    def pending(self) -> list[dict[str, Any]]:
        """Return all unanswered questions, oldest first; `waiting` is whether the asking process is alive."""
        if not os.path.exists(self.path):
            return []
        now = time.time()
        with self._open_store() as store:
            rows = store.execute(
                "select id, digest, tool, question, asked, expires, waiting from approvals "
                "where answer is null and expires > ? order by asked",
                (now,),
            ).fetchall()
        return [
            {
                "id": row[0],
                "digest": row[1],
                "tool": row[2],
                "asked": row[4],
                "expires": row[5],
                "waiting": now - row[6] < _WAITS_S,
                **json.loads(row[3]),
            }
            for row in rows
        ]

    def answer(self, identity: str, answer: Answer, *, by: str = "") -> None:
        """Answer a question. Raises StateError if it is unknown, answered or expired, or its process is gone."""
        now = time.time()
        if not os.path.exists(self.path):
            raise StateError(f"there is no question {identity}")
        with self._open_store() as store:
            row = store.execute("select answer, expires, waiting from approvals where id = ?", (identity,)).fetchone()
            problem = _answer_problem(identity, row, now)
            if problem:
                raise StateError(problem)
            with store:
                changed = store.execute(
                    "update approvals set answer = ?, answered = ?, answered_by = ? "
                    "where id = ? and answer is null and waiting > ?",  # it may have stopped waiting just now
                    (json.dumps(answer.to_dict()), now, by, identity, now - _WAITS_S),
                ).rowcount
        if changed != 1:
            raise StateError(f"the question {identity} has been answered already, or nobody waits for it any more")

    @contextmanager
    def _open_store(self) -> Generator[sqlite3.Connection]:
        import sqlite3

        private_dir(os.path.dirname(self.path))
        try:
            store = sqlite3.connect(self.path, timeout=10, isolation_level="IMMEDIATE")
        except sqlite3.Error as problem:
            raise StateError(f"{self.path} cannot be opened: {problem}") from None
        try:
            store.execute("pragma journal_mode = wal")
            store.execute(_TABLE)
            yield store
        except sqlite3.DatabaseError as problem:
            raise StateError(f"{self.path} cannot be used: {problem}; remove it to start over") from None
        finally:
            store.close()


def _put_up(store: sqlite3.Connection, question: Question, expires: float) -> str:
    now = time.time()
    with store:
        store.execute("delete from approvals where expires < ?", (now - 7 * 86400,))
        row = store.execute(
            "select id from approvals where digest = ? and answer is null and waiting < ?",
            (question.digest, now - _WAITS_S),
        ).fetchone()
        identity: str = row[0] if row else new_id("approval")
        store.execute(
            "insert or replace into approvals (id, digest, tool, question, asked, expires, waiting) "
            "values (?, ?, ?, ?, ?, ?, ?)",
            (identity, question.digest, question.tool, json.dumps(_to_row(question)), now, expires, now),
        )
    return identity


def _look(store: sqlite3.Connection, identity: str) -> Answer | None:
    row = store.execute("select answer, waiting, answered_by from approvals where id = ?", (identity,)).fetchone()
    if row is None:
        return Answer("no", "the question was taken away")
    if row[0] is not None:
        return Answer.from_dict(json.loads(row[0]) | {"by": row[2]})
    if row[1] and time.time() - row[1] > 1.0:
        with store:
            store.execute("update approvals set waiting = ? where id = ?", (time.time(), identity))
    return None


def _stop_waiting(store: sqlite3.Connection, identity: str) -> None:
    with store:
        store.execute("update approvals set waiting = 0 where id = ? and answer is null", (identity,))


def _to_row(question: Question) -> dict[str, Any]:
    """Return what another process needs to show the question, with secrets masked."""
    return mask_data(
        {
            "text": question.text(),
            "reason": question.decision.reason,
            "suggestion": question.decision.suggestion,
            "source": question.call.source,
            "cwd": question.cwd,
        }
    )


def _answer_problem(identity: str, row: Any, now: float) -> str:
    if row is None:
        return f"there is no question {identity}"
    if row[0] is not None:
        return f"the question {identity} has been answered already"
    if row[1] <= now:
        return f"the time for the question {identity} is over"
    if now - row[2] >= _WAITS_S:
        return f"nobody waits for the question {identity} any more; it will be asked again when the call is made again"
    return ""
