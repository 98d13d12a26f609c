"""`Store`: the database of a history and the contents beside it, opened, held, and changed in transactions.

Where it cannot be written (a full disk, one that is read-only here) it answers all the same, and `unwritable` says why;
every change tries again.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Final

from surehand.core.errors import ToolFailure
from surehand.core.session import digest_of
from surehand.history.contents import Contents, Stream
from surehand.history.disk import HELD_BYTES, open_in
from surehand.history.log import PRUNED_SHARE, Log, connect, connect_to_read, is_damaged, prune_seen, set_aside
from surehand.history.words import FileState

MEMORY_LIMIT_BYTES: Final = 256 * 1024 * 1024


class Store:
    """One database, safe to use from several threads, and by several processes at once."""

    contents: Contents
    log: Log
    unwritable: str
    """Why it can only be read; empty when all is well."""

    def __init__(self, folder: str | None, limit_bytes: int, note: Callable[[str], None]) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes if folder is not None else min(limit_bytes, MEMORY_LIMIT_BYTES)
        self._note = note
        self._lock = threading.RLock()
        self._confirmed: list[str] = []
        """Changes that have happened, to be confirmed with the next transaction."""
        self._connect()

    @property
    def folder(self) -> str | None:
        """Where it stands on the disk; None: in memory alone."""
        return self._folder

    @property
    def most_bytes(self) -> int:
        """The most one change may add: with more, it would push all others out."""
        return int(self._limit_bytes * PRUNED_SHARE)

    def _connect(self) -> None:
        try:
            self._connect_to_write()
        except ToolFailure as problem:
            self.unwritable = str(problem)
            try:
                self._use(connect_to_read(self._folder))
            except (OSError, sqlite3.Error) as unread:
                text = f"{problem}; nor can it be read: {unread}"
                raise ToolFailure(text, hint=problem.hint, details=problem.details) from unread

    def _connect_to_write(self) -> None:
        try:
            if self._folder is not None:
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
            database, trouble = connect(self._folder)
        except (OSError, sqlite3.Error) as problem:
            raise unusable(problem, _explain_disk(self._folder)) from problem
        self.unwritable = ""
        self._use(database)
        if trouble:
            self._note(trouble)

    def _use(self, database: sqlite3.Connection) -> None:
        folder = self._folder
        self._database, self._version = database, 0
        self._identity = self._find_identity()
        self.contents = Contents(database, None if folder is None else os.path.join(folder, "contents"))
        self.log = Log(database)

    @contextmanager
    def _hold_database(self) -> Generator[None]:
        """Hold the database; what it cannot do is a failure that says so, and a damaged one gives way to a new one."""
        with self._lock:
            try:
                yield
            except (sqlite3.Error, OSError) as problem:
                if self._folder is None or self.unwritable or not is_damaged(self._folder, problem):
                    raise unusable(problem) from problem
                aside = set_aside(self._folder)
                self._confirmed.clear()
                self._connect()
                self._note(f"the history was damaged ({problem}); it was set aside as {aside}, and a new one begins")
                raise ToolFailure(
                    f"the history was damaged ({problem}); it was set aside, and a new one begins",
                    hint=f"Try again. The old one is kept as {aside}.",
                ) from problem

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Hold the database for one step that happens whole or not at all; inside another one it is part of that."""
        with self._hold_database():
            if self._database.in_transaction:
                yield
                return
            if self.unwritable:
                self._reconnect()
            elif self._identity != self._find_identity():
                self._begin_anew()
            self._database.execute("BEGIN IMMEDIATE")
            try:
                self._catch_up()
                before = self.contents.added
                yield
                if self.contents.added - before > self.most_bytes:
                    raise self._too_large(self.contents.added - before)
                self._database.execute("COMMIT")
            except BaseException:
                self.contents.rolled_back()
                if self._database.in_transaction:  # a full disk has rolled it back already
                    self._database.execute("ROLLBACK")
                raise
            self._confirmed.clear()
            if self.contents.committed():
                self._remove_unneeded()

    def _reconnect(self) -> None:
        """Open it for writing, which could not be done before; raise ToolFailure where it still cannot."""
        reading = self._database
        self._connect_to_write()
        reading.close()

    def _find_identity(self) -> tuple[int, int] | None:
        """Return which file the database's name leads to; None where there is none."""
        if self._folder is None:
            return None
        try:
            found = os.stat(os.path.join(self._folder, "history.db"))
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _begin_anew(self) -> None:
        """Reopen the database by its path: what is written to one that was removed is lost with this process."""
        removed = self._database
        self._connect_to_write()
        removed.close()
        self._confirmed.clear()
        self._note(
            "the history was removed or set aside by somebody else; what was changed before is not in the new one"
        )

    def _too_large(self, size: int) -> ToolFailure:
        return ToolFailure(
            f"this change would need {-(-size >> 20):,} MB in the history, which keeps {self._limit_bytes >> 20:,} MB "
            "in all: it would displace every older change",
            code="precondition_failed",
            hint="Raise `history.limit_mb`, or make the change with a command, which says what of it is not covered.",
            details={"bytes": size, "limit_bytes": self._limit_bytes},
        )

    def _remove_unneeded(self) -> None:
        """Remove files of the store that are not needed any more; where that cannot be now, recovery finds them."""
        try:
            self._database.execute("BEGIN IMMEDIATE")  # so that nobody begins to need one meanwhile
            self.contents.remove_unneeded()
            self._database.execute("COMMIT")
        except sqlite3.Error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")

    def _catch_up(self) -> None:
        """Write down what is confirmed so far, and forget what another process may have changed."""
        version: int = self._database.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._version = version
            self.contents.known.clear()
        if self._confirmed:
            self.log.confirm(self._confirmed)

    def flush(self) -> None:
        """Write down what is confirmed only in memory."""
        if self._confirmed:
            with self.transaction():
                pass

    @contextmanager
    def _hold_to_read(self) -> Generator[None]:
        """Hold the database with all that is confirmed in it; on a full disk, in a transaction that never happens."""
        try:
            self.flush()
        except ToolFailure:
            with self._hold_database():
                self._database.execute("BEGIN IMMEDIATE")
                try:
                    self.log.confirm(self._confirmed)
                    yield
                finally:
                    self._database.execute("ROLLBACK")
            return
        with self._hold_database():
            yield

    def keep_bytes(self, data: bytes) -> str:
        """Keep a content and return its digest."""
        digest = digest_of(data)
        with self.transaction():
            self.contents.keep(digest, [data])
        return digest

    def content(self, digest: str) -> bytes | None:
        """Return a kept content, or None when it is not (or no longer) there."""
        with self._hold_database():
            return self.contents.get(digest)

    def source(self, state: FileState) -> bytes | Stream | None:
        """Return what a file or link is to be made of: its content, or of a large one a way to read it."""
        with self._hold_database():
            if state.size > HELD_BYTES:
                return self.contents.stream(state.digest)
            return self.contents.get(state.digest)

    def holds(self, digest: str) -> bool:
        """Say whether a content is kept, without reading it."""
        with self._hold_database():
            return self.contents.holds(digest)

    def keep_file(self, state: FileState, folder: int, name: str) -> None:
        """Keep the content of a large file in an open folder; the caller holds a transaction."""
        file = open_in(folder, name)
        try:
            self.contents.keep_open(state.digest, state.size, file)
        finally:
            os.close(file)

    def read_seen(self, digest: str) -> bytes | None:
        """Return a content that a session has read or written here, also in an earlier process."""
        with self._hold_database():
            row = self._database.execute("SELECT body FROM seen WHERE digest=?", (digest,)).fetchone()
            return zlib.decompress(row[0]) if row else self.contents.get(digest)

    def write_seen(self, contents: Mapping[str, bytes]) -> None:
        """Keep what a session has read, for the processes that continue it; the oldest make room."""
        rows = [(digest, time.time(), zlib.compress(data, 1)) for digest, data in contents.items()]
        with self.transaction():
            self._database.executemany("INSERT OR REPLACE INTO seen(digest, at, body) VALUES(?,?,?)", rows)
            prune_seen(self._database)

    def size_bytes(self) -> int:
        """Return how much the contents of all changes take."""
        with self._hold_database():
            return self.contents.total()


def unusable(problem: Exception, because: str = "") -> ToolFailure:
    """Return the failure of a history that cannot be written."""
    if getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF == sqlite3.SQLITE_BUSY:
        return ToolFailure(
            "the history cannot be written: another process has been writing to it for too long",
            hint="Try again; a change of very many files takes a while to record.",
        )
    number = getattr(problem, "errno", None)
    return ToolFailure(
        f"the history cannot be written: {because or problem}",
        hint="Free some space or check the state folder (`surehand config path` names it).",
        details={"errno": errno.errorcode.get(number, str(number))} if number else None,
    )


def _explain_disk(folder: str | None) -> str:
    """Say what keeps a folder's disk from being written, where SQLite only says that a file cannot be opened."""
    try:
        found = os.statvfs(folder or "/")
    except OSError:
        return ""
    if found.f_flag & os.ST_RDONLY:
        return "its disk is read-only"
    return "" if found.f_bavail else "its disk is full"
