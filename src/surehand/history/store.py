"""`Store`: the database of a history with its contents: opening, locking, transactions.

If it cannot be written (a full or read-only disk) it is opened for reading, `unwritable` says why, and every
transaction tries again to open it for writing.
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
    """Why it can only be read; empty if it can be written."""

    def __init__(self, folder: str | None, limit_bytes: int, note: Callable[[str], None]) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes if folder is not None else min(limit_bytes, MEMORY_LIMIT_BYTES)
        self._note = note
        self._lock = threading.RLock()
        self._confirmed: list[str] = []
        """Ids of changes that have happened, to be confirmed with the next transaction."""
        self._connect()

    @property
    def folder(self) -> str | None:
        """The history's folder; None: in memory."""
        return self._folder

    @property
    def most_bytes(self) -> int:
        """The most that one change may add; more would push out all others."""
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
        """Hold the lock; turn database errors into ToolFailure, and replace a damaged database by a new one."""
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
        """Run one transaction under the lock; a nested one joins the outer one."""
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
                if self._database.in_transaction:  # SQLite rolls back by itself on a full disk
                    self._database.execute("ROLLBACK")
                raise
            self._confirmed.clear()
            if self.contents.committed():
                self._remove_unneeded()

    def _reconnect(self) -> None:
        """Open for writing a database that was read-only before; raise ToolFailure if it still is."""
        reading = self._database
        self._connect_to_write()
        reading.close()

    def _find_identity(self) -> tuple[int, int] | None:
        """Return device and inode of the database's file; None if it does not exist."""
        if self._folder is None:
            return None
        try:
            found = os.stat(os.path.join(self._folder, "history.db"))
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _begin_anew(self) -> None:
        """Reopen the database by its path: the open file was removed, and writes to it would be lost."""
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
        """Delete files of the store that are no longer needed; `remove_strays` finds those that stay."""
        try:
            self._database.execute("BEGIN IMMEDIATE")  # so that no other process begins to use one meanwhile
            self.contents.remove_unneeded()
            self._database.execute("COMMIT")
        except sqlite3.Error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")

    def _catch_up(self) -> None:
        """Write pending confirmations, and drop caches if another process has changed the database."""
        version: int = self._database.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._version = version
            self.contents.known.clear()
        if self._confirmed:
            self.log.confirm(self._confirmed)

    def flush(self) -> None:
        """Write the confirmations that are pending in memory."""
        if self._confirmed:
            with self.transaction():
                pass

    @contextmanager
    def _hold_to_read(self) -> Generator[None]:
        """Hold the lock with all confirmations written; on a full disk, in a transaction that is rolled back."""
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
        """Store a content and return its digest."""
        digest = digest_of(data)
        with self.transaction():
            self.contents.keep(digest, [data])
        return digest

    def content(self, digest: str) -> bytes | None:
        """Return a stored content, or None if it is not (or no longer) there."""
        with self._hold_database():
            return self.contents.get(digest)

    def source(self, state: FileState) -> bytes | Stream | None:
        """Return the content of a state, as a stream if it is large; None if it is not there."""
        with self._hold_database():
            if state.size > HELD_BYTES:
                return self.contents.stream(state.digest)
            return self.contents.get(state.digest)

    def holds(self, digest: str) -> bool:
        """Return whether a content is stored, without reading it."""
        with self._hold_database():
            return self.contents.holds(digest)

    def keep_file(self, state: FileState, folder: int, name: str) -> None:
        """Store the content of a large file in an open folder; the caller holds a transaction."""
        file = open_in(folder, name)
        try:
            self.contents.keep_open(state.digest, state.size, file)
        finally:
            os.close(file)

    def read_seen(self, digest: str) -> bytes | None:
        """Return a content that a session has read or written, in this process or an earlier one."""
        with self._hold_database():
            row = self._database.execute("SELECT body FROM seen WHERE digest=?", (digest,)).fetchone()
            return zlib.decompress(row[0]) if row else self.contents.get(digest)

    def write_seen(self, contents: Mapping[str, bytes]) -> None:
        """Store what a session has read, for processes that resume it; drop the oldest above the limit."""
        rows = [(digest, time.time(), zlib.compress(data, 1)) for digest, data in contents.items()]
        with self.transaction():
            self._database.executemany("INSERT OR REPLACE INTO seen(digest, at, body) VALUES(?,?,?)", rows)
            prune_seen(self._database)

    def size_bytes(self) -> int:
        """Return the size of all stored contents."""
        with self._hold_database():
            return self.contents.total()


def unusable(problem: Exception, because: str = "") -> ToolFailure:
    """Return the ToolFailure for a history that cannot be written."""
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
    """Return why a folder's disk cannot be written; SQLite only says that it cannot open the file."""
    try:
        found = os.statvfs(folder or "/")
    except OSError:
        return ""
    if found.f_flag & os.ST_RDONLY:
        return "its disk is read-only"
    return "" if found.f_bavail else "its disk is full"
