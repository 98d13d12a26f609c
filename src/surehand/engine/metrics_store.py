"""Metrics kept across processes: each process writes rows of its own, a reader adds them up.

Nobody changes another's rows, so writing twice is harmless and processes never wait for each other's figures. When
many have written, the older rows are added into one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from time import time
from typing import TYPE_CHECKING, Final

from surehand.core.call import new_id
from surehand.core.errors import StateError
from surehand.engine.metrics import Record
from surehand.state.read_database import open_to_read

if TYPE_CHECKING:
    import sqlite3

RUNS_LIMIT: Final = 200
_EARLIER: Final = "earlier"
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS metrics (run TEXT NOT NULL, tool TEXT NOT NULL, written REAL NOT NULL, record TEXT NOT NULL,
PRIMARY KEY (run, tool)) WITHOUT ROWID
"""


class MetricsStore:
    """The metrics of one workspace on disk."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._run = new_id("run")

    def save(self, records: Mapping[str, Record]) -> None:
        """Write what this process has counted so far, in place of what it wrote before."""
        rows = [(self._run, tool, time(), json.dumps(record.to_dict())) for tool, record in records.items()]
        if not rows:
            return
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        with self._open_database() as database, database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?)", rows)
            (runs,) = database.execute("SELECT count(DISTINCT run) FROM metrics").fetchone()
            if runs > RUNS_LIMIT:
                self._fold(database)

    def load(self) -> dict[str, Record]:
        """Return the sum over all processes; nothing when none has written."""
        if not os.path.exists(self.path):
            return {}
        with self._open_database(to_read=True) as database:
            return _add_up_records(database.execute("SELECT tool, record FROM metrics ORDER BY written").fetchall())

    def clear(self) -> None:
        """Forget everything."""
        if os.path.exists(self.path):
            with self._open_database() as database, database:
                database.execute("DELETE FROM metrics")

    @contextmanager
    def _open_database(self, *, to_read: bool = False) -> Generator[sqlite3.Connection]:
        """Open the database for one step; raise StateError when it cannot be used."""
        import sqlite3

        try:
            if to_read:
                with closing(open_to_read(self.path)) as database:
                    yield database
                return
            with closing(sqlite3.connect(self.path, timeout=10, isolation_level=None)) as database:
                database.execute("PRAGMA journal_mode=WAL")
                database.execute(_SCHEMA)
                yield database
        except sqlite3.Error as problem:
            # What is wrong with the disk is no fault of the file.
            next_step = "" if isinstance(problem, sqlite3.OperationalError) else "; delete the file"
            raise StateError(f"the metrics in {self.path} cannot be used ({problem}){next_step}") from problem

    def _fold(self, database: sqlite3.Connection) -> None:
        """Add all rows but those of the newest runs into one row per tool."""
        newest = "SELECT run FROM metrics GROUP BY run ORDER BY max(written) DESC LIMIT ?"
        older = f"run NOT IN ({newest})"
        keep = (RUNS_LIMIT // 2,)
        records = _add_up_records(database.execute(f"SELECT tool, record FROM metrics WHERE {older}", keep).fetchall())
        database.execute(f"DELETE FROM metrics WHERE {older}", keep)
        rows = [(_EARLIER, tool, 0.0, json.dumps(record.to_dict())) for tool, record in records.items()]
        database.executemany("INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?)", rows)


def _add_up_records(rows: list[tuple[str, str]]) -> dict[str, Record]:
    records: dict[str, Record] = {}
    for tool, text in rows:
        record = Record.from_dict(json.loads(text))
        if tool in records:
            records[tool].merge(record)
        else:
            records[tool] = record
    return records
