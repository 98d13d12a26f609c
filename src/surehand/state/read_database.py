"""Read an SQLite database where nothing can be written: on a full or a read-only disk.

The databases of the state are written through a write-ahead log, and whoever opens one wants to make an index of that
log beside it, even to read. Three ways follow each other:

1. As a reader among others. Where a process writes, its index is there, and its commits are seen as they come.
2. With an index in memory, where none can be made: then nobody writes, and a log that a killed process left is read.
3. As a file that nobody changes, where there is no log and none can be made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3

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
