"""The log of changes and its pruning, in SQLite (write-ahead log), used by several processes at once."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from surehand.history import contents
from surehand.history.words import CALL_MADE, Change, ChangeKind, Compensation, FileChange, FileState
from surehand.state.files import open_to_read

SEEN_ROWS: Final = 2000
SEEN_BYTES: Final = 64 * 1024 * 1024
PRUNED_SHARE: Final = 0.9
"""Pruning stops at this share of the limit, which is also the most that one change may take."""
_PRUNE_SEEN: Final = """
DELETE FROM seen WHERE digest IN (SELECT digest FROM (
    SELECT digest, ROW_NUMBER() OVER latest AS rows, SUM(LENGTH(body)) OVER latest AS bytes
    FROM seen WINDOW latest AS (ORDER BY at DESC, digest)) WHERE rows > ? OR bytes > ?)
"""

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS change(
    number INTEGER PRIMARY KEY, at REAL NOT NULL, session TEXT NOT NULL, call TEXT NOT NULL, tool TEXT NOT NULL,
    description TEXT NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL, about TEXT NOT NULL, temporary TEXT NOT NULL,
    files TEXT NOT NULL, main_session TEXT NOT NULL DEFAULT '', turn TEXT NOT NULL DEFAULT '',
    note TEXT NOT NULL DEFAULT '', compensation TEXT NOT NULL DEFAULT '', parts TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS seen(digest TEXT PRIMARY KEY, at REAL NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS fact(name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_COLUMNS: Final = (
    "number, at, session, call, tool, description, kind, state, about, temporary, files,"
    " main_session, turn, note, compensation, parts"
)
VERSION: Final = 4
_OLD_INDEXES: Final = ("intent", "kind", "done", "parts", "call", "turn")
_INDEXES: Final = """
CREATE INDEX change_state ON change(state) WHERE kind != 'undo';
CREATE INDEX change_kind ON change(kind, state) WHERE kind != 'change';
CREATE INDEX change_parts ON change(number) WHERE parts != '';
CREATE INDEX change_call ON change(call);
CREATE INDEX change_turn ON change(turn) WHERE turn != call;
"""
"""For the queries of an undo: the latest change of a kind, undos of a part of a change, changes of a call or a turn.
Every edit writes a page of each index, so they do not overlap."""


def of_kind(kind: ChangeKind) -> str:
    """Return the condition for changes of a kind, spelled so that SQLite uses a partial index."""
    return "kind = 'change' AND kind != 'undo'" if kind == "change" else f"kind = '{kind}' AND kind != 'change'"


def of_turns(count: int) -> str:
    """Return the condition for changes of some turns; its values are their names, twice."""
    names = ",".join("?" * count)
    return f"((turn IN ({names}) AND turn != call) OR (call IN ({names}) AND turn = call))"


PARTIAL_UNDOS: Final = "parts != '' AND +kind = 'undo' AND +state = 'done'"
"""The `+` signs make SQLite use the index of `parts`, the smaller one: most undos are of whole changes."""
_UPGRADES: Final = {
    1: """
ALTER TABLE change ADD COLUMN main_session TEXT NOT NULL DEFAULT '';
ALTER TABLE change ADD COLUMN turn TEXT NOT NULL DEFAULT '';
ALTER TABLE change ADD COLUMN note TEXT NOT NULL DEFAULT '';
ALTER TABLE change ADD COLUMN compensation TEXT NOT NULL DEFAULT '';
ALTER TABLE change ADD COLUMN parts TEXT NOT NULL DEFAULT '';
UPDATE change SET main_session = session, turn = call;
""",
    2: contents.SCHEMA_3,
    3: "".join(f"DROP INDEX IF EXISTS change_{name};" for name in _OLD_INDEXES) + _INDEXES,
}
"""Version → the statements that upgrade a database of that version to the next."""


def connect(folder: str | None) -> tuple[sqlite3.Connection, str]:
    """Open the database of a history folder (None: in memory). Also returns a note if a damaged one was set aside.

    The database is synced on checkpoints, not on every change: a killed process loses nothing, a power cut may lose
    the latest entries but never damages older ones.
    """
    if folder is None:
        return _prepare_database(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)), ""
    path = os.path.join(folder, "history.db")
    try:
        return _open_database(path), ""
    except sqlite3.DatabaseError as problem:
        if not is_damaged(folder, problem):
            raise
        aside = set_aside(folder)
        return _open_database(path), f"the history could not be read ({problem}); it was set aside as {aside}"


def connect_to_read(folder: str | None) -> sqlite3.Connection:
    """Open the database of a history folder read-only; an empty one in memory if there is none."""
    path = os.path.join(folder or "", "history.db")
    if folder is None or not os.path.exists(path):
        return connect(None)[0]
    database = open_to_read(path)
    if (version := _version(database)) != VERSION:
        database.close()
        raise sqlite3.OperationalError(
            f"it has format {version}, and cannot be converted to format {VERSION} meanwhile"
        )
    return database


class Unreadable(sqlite3.DatabaseError):
    """A row that cannot be parsed."""


def is_damaged(folder: str, problem: Exception) -> bool:
    """Return whether an error means lasting damage, unlike a lock or a full disk.

    SQLite also reports "malformed" after one failed read, so the file is checked again.
    """
    code = getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return not _passes_check(os.path.join(folder, "history.db"))
    gone = code == sqlite3.SQLITE_ERROR and str(problem).startswith("no such table")
    return gone or isinstance(problem, Unreadable)


def _passes_check(path: str) -> bool:
    """Run SQLite's quick check on a database; return whether it is intact."""
    try:
        with closing(sqlite3.connect(path, timeout=15)) as database:
            return database.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    except sqlite3.DatabaseError:
        return False


def set_aside(folder: str) -> str:
    """Rename the database of a history folder and its contents; return the database's new name."""
    path, contents, mark = os.path.join(folder, "history.db"), os.path.join(folder, "contents"), time.time_ns()
    aside = f"{path}.broken-{mark}"
    if os.path.isdir(contents):  # first: a new database would delete them as strays
        os.rename(contents, f"{contents}.broken-{mark}")
    os.rename(path, aside)
    for extra in ("-wal", "-shm"):
        if os.path.exists(path + extra):
            os.rename(path + extra, aside + extra)
    return aside


def _open_database(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=15, isolation_level=None, check_same_thread=False)
    try:
        return _prepare_database(database)
    except BaseException:
        database.close()
        raise


def _prepare_database(database: sqlite3.Connection) -> sqlite3.Connection:
    database.execute("PRAGMA auto_vacuum=INCREMENTAL")  # takes effect in a new database only
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("PRAGMA wal_autocheckpoint=4000")
    if _version(database) != VERSION:
        _bring_up_to_date(database)
    return database


def _version(database: sqlite3.Connection) -> int:
    return database.execute("PRAGMA user_version").fetchone()[0]


def _bring_up_to_date(database: sqlite3.Connection) -> None:
    """Create or upgrade the tables in one transaction; another process may be doing the same."""
    database.execute("BEGIN IMMEDIATE")
    try:
        version = _version(database)
        if version > VERSION:
            raise sqlite3.OperationalError(f"the history was written by a newer version (format {version})")
        scripts = (
            [SCHEMA, contents.SCHEMA, contents.SCHEMA_3, _INDEXES]
            if version == 0
            else map(_UPGRADES.get, range(version, VERSION))
        )
        for statement in _statements("".join(filter(None, scripts))):  # `executescript` would commit before it
            database.execute(statement)
        database.execute(f"PRAGMA user_version={VERSION}")
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script; that of a trigger contains others."""
    statement = ""
    for part in script.split(";")[:-1]:
        statement += f"{part};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


class Log:
    """Rows of changes. The caller holds the database's lock and transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def add(self, change: Change) -> str:
        """Insert a change and return its new id; `change.id` is ignored."""
        description = change.description.encode("utf-8", "backslashreplace").decode()
        row = (change.at, change.session_id, change.call_id, change.tool, description, change.kind, change.state)
        cursor = self._database.execute(
            "INSERT INTO change(at, session, call, tool, description, kind, state, about, temporary, files,"
            " main_session, turn, note, compensation, parts) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                *row,
                json.dumps(change.about) if change.about else "[]",
                change.temporary,
                _pack_files(change.files),
                change.main_session_id or change.session_id,
                change.turn or change.call_id,
                change.note,
                _packed_compensation(change.compensation) if change.compensation else "",
                json.dumps(dict(change.parts)) if change.parts else "",
            ),
        )
        return str(cursor.lastrowid)

    def finish(self, id: str, files: Sequence[FileChange]) -> None:
        """Confirm a change, with its files as they are now known."""
        self._database.execute(
            "UPDATE change SET state='done', temporary='', files=? WHERE number=?", (_pack_files(files), int(id))
        )

    def confirm(self, ids: Sequence[str]) -> None:
        """Confirm changes that happened as recorded, except those that another process has recovered meanwhile."""
        self._database.executemany(
            "UPDATE change SET state='done', temporary='' WHERE number=? AND state='intent'", [(int(id),) for id in ids]
        )

    def set_state(self, ids: Sequence[str], state: str) -> None:
        """Set the state of changes."""
        self._database.executemany("UPDATE change SET state=? WHERE number=?", [(state, int(id)) for id in ids])

    def set_compensation(self, id: str, compensation: Compensation) -> None:
        """Set the call that undoes a change."""
        row = (_packed_compensation(compensation), int(id))
        self._database.execute("UPDATE change SET compensation=? WHERE number=?", row)

    def set_about(self, id: str, about: Sequence[str]) -> None:
        """Set the changes that an undo or redo is about."""
        self._database.execute("UPDATE change SET about=? WHERE number=?", (json.dumps(about), int(id)))

    def update_reversed(self, change: Change) -> None:
        """Update the states of the changes that an undo or redo reversed."""
        taken = self.partial_undos()
        if change.kind == "redo":
            self.set_state(change.about, "undone")
            for undo in filter(None, (self.get(id, with_files=False) for id in change.about)):
                # Changes undone by a call are redone by making the original call again, as changes of their own.
                self.set_state([id for id in undo.about if CALL_MADE not in taken.get(id, ())], "done")
            return
        self.set_state([id for id in change.about if id not in change.parts], "undone")
        for original in filter(None, map(self.get, change.parts)):
            left = self.files_left(original, taken) or self.call_left(original, taken)
            self.set_state([original.id], "done" if left else "undone")

    def partial_undos(self) -> dict[str, set[str]]:
        """Return, by change id, the paths that undos of a part of the change have restored."""
        taken: dict[str, set[str]] = {}
        for undo in self.select(PARTIAL_UNDOS, (), with_files=False):
            for id, paths in undo.parts.items():
                taken.setdefault(id, set()).update(paths)
        return taken

    @staticmethod
    def files_left(change: Change, taken: Mapping[str, set[str]]) -> tuple[FileChange, ...]:
        """Return the files of a change that are not undone."""
        gone = taken.get(change.id)
        return change.files if not gone else tuple(each for each in change.files if each.path not in gone)

    @staticmethod
    def call_left(change: Change, taken: Mapping[str, set[str]]) -> bool:
        """Return whether a change has a compensation that was not called yet."""
        return change.compensation is not None and CALL_MADE not in taken.get(change.id, ())

    def remove(self, ids: Sequence[str]) -> None:
        """Delete changes."""
        self._database.executemany("DELETE FROM change WHERE number=?", [(int(id),) for id in ids])

    def get(self, id: str, *, with_files: bool = True) -> Change | None:
        """Return a change by its id, or None; without its files (there may be very many) if they are not wanted."""
        if not (id.isascii() and id.isdecimal() and len(id) < 18):
            return None
        return next(iter(self.select("number = ?", (int(id),), with_files=with_files)), None)

    def intents(self) -> list[Change]:
        """Return the changes that have begun and are not confirmed, oldest first."""
        found = self.select("state = 'intent' AND kind != 'undo'", ())
        return sorted(found + self.select(f"state = 'intent' AND {of_kind('undo')}", ()), key=lambda each: each.number)

    def select(
        self,
        condition: str,
        values: Sequence[Any],
        *,
        limit: int = -1,
        oldest_first: bool = False,
        with_files: bool = True,
    ) -> list[Change]:
        """Return the changes that meet a condition, newest first unless `oldest_first`."""
        order = "ASC" if oldest_first else "DESC"
        columns = _COLUMNS if with_files else _COLUMNS.replace(" files,", " '[]',")
        query = f"SELECT {columns} FROM change WHERE {condition} ORDER BY number {order} LIMIT ?"
        return [_change(row) for row in self._database.execute(query, (*values, limit))]

    def count(self) -> int:
        """Return how many changes there are."""
        return self._database.execute("SELECT COUNT(*) FROM change").fetchone()[0]

    def digests(self) -> set[str]:
        """Return the digests of all contents that changes refer to."""
        found: set[str] = set()
        for number, files in self._database.execute("SELECT number, files FROM change"):
            for each in _unpack_files(number, files):
                found.update(state.digest for state in (each.before, each.after) if state)
        return found

    def fact(self, name: str, default: str = "") -> str:
        """Return a named value stored beside the changes."""
        row = self._database.execute("SELECT value FROM fact WHERE name=?", (name,)).fetchone()
        return row[0] if row else default

    def set_fact(self, name: str, value: str) -> None:
        """Store a named value beside the changes."""
        self._database.execute("INSERT OR REPLACE INTO fact(name, value) VALUES(?,?)", (name, value))


_TOGETHER: Final = 256
"""Files per JSON line. Parsing a line holds the GIL, so lines are short."""
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def _pack_files(files: Sequence[FileChange]) -> str:
    # File names that are not UTF-8 hold surrogates, which SQLite takes as ASCII-only JSON.
    lines = [files[at : at + _TOGETHER] for at in range(0, len(files), _TOGETHER)] or [()]
    return "\n".join(_encode([_row(each) for each in line]) for line in lines)


def _row(each: FileChange) -> tuple[str, list[Any], list[Any] | None]:
    return each.path, _state(each.before), each.after and _state(each.after)


def _packed_compensation(compensation: Compensation) -> str:
    return json.dumps({**compensation.to_dict(), "original_args": compensation.original_args})


def _unpack_files(number: int, files: str) -> tuple[FileChange, ...]:
    try:
        return tuple(
            FileChange(path, FileState(*before), FileState(*after) if after else None)
            for line in files.split("\n")
            for path, before, after in json.loads(line)
        )
    except (ValueError, TypeError) as problem:
        raise Unreadable(f"change {number} is unreadable") from problem


def _state(state: FileState) -> list[Any]:
    return [state.kind, state.digest, state.mode, state.size]


def _change(row: tuple[Any, ...]) -> Change:
    number, at, session, call, tool, description, kind, state, about, temporary, files, *more = row
    main_session, turn, note, compensation, parts = more
    return Change(
        id=str(number),
        tool=tool,
        files=_unpack_files(number, files),
        kind=kind,
        state=state,
        about=tuple(json.loads(about)),
        session_id=session,
        main_session_id=main_session,
        turn=turn,
        call_id=call,
        description=description,
        note=note,
        compensation=Compensation.from_dict(json.loads(compensation)) if compensation else None,
        parts={id: tuple(paths) for id, paths in json.loads(parts).items()} if parts else {},
        at=at,
        temporary=temporary,
    )


def prune_seen(database: sqlite3.Connection) -> None:
    """Drop the oldest of the contents that sessions have read."""
    database.execute(_PRUNE_SEEN, (SEEN_ROWS, SEEN_BYTES))


def prune_oldest(log: Log, store: contents.Contents, limit_bytes: int, why: str) -> int:
    """Drop changes until a tenth of the limit is free; store how many and why, and return how many."""
    dropped = 0
    _forget_unused(log, store)  # first: what cancelled calls have stored must not push out a change
    while store.total() > limit_bytes * PRUNED_SHARE:
        # An eighth at a time. The newest stays, so that SQLite never gives its number again.
        count = log.count()
        oldest = log.select("state != 'intent'", (), limit=max(1, count // 8), oldest_first=True, with_files=False)
        if count <= 1 or not oldest:
            break
        log.remove([each.id for each in oldest])
        dropped += len(oldest)
        _forget_unused(log, store)
    if not dropped:
        return 0
    count = int(log.fact("dropped_count", "0")) + dropped
    changes = "older change was" if count == 1 else "older changes were"
    log.set_fact("dropped_count", str(count))
    log.set_fact("dropped", f"{count} {changes} dropped: {why}")
    return dropped


def _forget_unused(log: Log, store: contents.Contents) -> None:
    used, bases = log.digests(), store.bases()
    for digest in list(used):
        while (digest := bases.get(digest, "")) and digest not in used:
            used.add(digest)
    store.forget(store.digests() - used)
