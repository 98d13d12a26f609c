"""Files of the state: small private ones, JSON or text, written the one way; databases read where none can be written.

A reader of a small file finds the old content or the new one, whole, and nobody else can read either.

A database is written through a write-ahead log, and whoever opens one wants to make an index of that log beside it,
even to read. On a full or a read-only disk three ways follow each other:

1. As a reader among others. Where a process writes, its index is there, and its commits are seen as they come.
2. With an index in memory, where none can be made: then nobody writes, and a log that a killed process left is read.
3. As a file that nobody changes, where there is no log and none can be made.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import sqlite3

PRIVATE: Final = 0o600
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_private(path: str, data: str | bytes, *, mode: int = PRIVATE, flush: bool = True) -> None:
    """Replace a file in one step; when this fails, the old one stays and nothing is left beside it.

    `flush` waits until the disk has the bytes: leave it out only for what may be lost in a power cut.
    """
    fresh = f"{path}.{os.urandom(4).hex()}.new"
    content = data.encode("utf-8") if isinstance(data, str) else data
    try:
        with open(os.open(fresh, _FLAGS, PRIVATE), "wb") as file:
            file.write(content)
            file.flush()
            if mode != PRIVATE:
                os.fchmod(file.fileno(), mode)
            if flush:
                os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        if os.path.lexists(fresh):
            os.unlink(fresh)
        raise


def write_private_json(path: str, value: Any, *, flush: bool = True) -> None:
    """Replace a JSON file in one step, for this user alone."""
    write_private(path, json.dumps(value, indent=1, sort_keys=True) + "\n", flush=flush)


def mode_of(path: str) -> int:
    """Return the mode of a file to be replaced, such as settings a person may share; private where there is none."""
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        return PRIVATE


_WAYS: Final = ("mode=ro", "mode=ro&vfs=unix-none", "immutable=1")
_OWN_INDEX: Final = "unix-none"


def open_to_read(path: str, timeout_s: float = 15.0) -> sqlite3.Connection:
    """Open an existing database read-only, whether or not its directory is writable."""
    import sqlite3

    # SQLite's errors if it cannot create the log or its index.
    unmade = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL)
    for way in _WAYS[:-1]:
        try:
            return _open(path, way, timeout_s)
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode & 0xFF not in unmade:
                raise
    return _open(path, _WAYS[-1], timeout_s)


def _open(path: str, way: str, timeout_s: float) -> sqlite3.Connection:
    import sqlite3
    from urllib.parse import quote

    database = sqlite3.connect(
        f"file:{quote(path)}?{way}", uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False
    )
    try:
        if _OWN_INDEX in way:
            database.execute("PRAGMA locking_mode=EXCLUSIVE")
        database.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()  # nothing is opened before it is read
    except BaseException:
        database.close()
        raise
    return database
