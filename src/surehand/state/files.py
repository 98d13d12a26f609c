"""State files: writing small private files atomically, and opening SQLite databases on a full or read-only disk.

A reader of a small file sees the complete old or the complete new content, and other users can read neither.

The databases use a write-ahead log. SQLite creates an index file beside the log even to read, which fails on a full or
read-only disk. So `open_to_read` tries three ways:

1. As an ordinary reader: if another process writes, its index exists, and its commits are seen.
2. With the index in memory, if none can be created: then nobody writes, and the log of a killed process is read.
3. As an immutable file, if there is no log and none can be created.
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
    """Replace a file atomically; on failure the old one stays and no temporary file is left.

    `flush` waits until the data is on disk: pass False only for data that may be lost in a power failure.
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
    """Replace a JSON file atomically; only this user can read it."""
    write_private(path, json.dumps(value, indent=1, sort_keys=True) + "\n", flush=flush)


def mode_of(path: str) -> int:
    """Return the mode of a file that is to be replaced; private if it does not exist."""
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        return PRIVATE


_OPEN_OPTIONS: Final = ("mode=ro", "mode=ro&vfs=unix-none", "immutable=1")
_OWN_INDEX: Final = "unix-none"


def open_to_read(path: str, timeout_s: float = 15.0) -> sqlite3.Connection:
    """Open an existing database read-only, whether or not its directory is writable."""
    import sqlite3

    # SQLite's errors if it cannot create the log or its index.
    cannot_create = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL)
    for options in _OPEN_OPTIONS[:-1]:
        try:
            return _open(path, options, timeout_s)
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode & 0xFF not in cannot_create:
                raise
    return _open(path, _OPEN_OPTIONS[-1], timeout_s)


def _open(path: str, options: str, timeout_s: float) -> sqlite3.Connection:
    import sqlite3
    from urllib.parse import quote

    database = sqlite3.connect(
        f"file:{quote(path)}?{options}", uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False
    )
    try:
        if _OWN_INDEX in options:
            database.execute("PRAGMA locking_mode=EXCLUSIVE")
        database.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()  # connect alone opens nothing
    except BaseException:
        database.close()
        raise
    return database
