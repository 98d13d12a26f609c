"""A session's private temporary folder, and the abandoned ones of killed processes.

Its owner holds a lock on a folder in it, which the kernel releases when the process dies. So a private folder that can
be locked has no owner any more, whichever session, state folder or container made it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

from surehand.core.errors import ToolFailure
from surehand.core.text import lazy_pattern
from surehand.files.atomic import try_lock
from surehand.files.trees import remove_tree

SCRATCH: Final = ".scratch"
"""Where the launcher builds the mounts of a session; the folder that is locked."""
DRY_RUNS: Final = "dry_runs"
"""Holds the copies of dry runs; made first, so that no command can create it."""
_NAME: Final = lazy_pattern(r"surehand-[0-9a-f]{12}")
_UNLOCKED: Final = ".new"
_OLD_S: Final = 3600.0
_AT_ONCE: Final = 5


class PrivateFolder:
    """A folder of this process alone, until it is closed."""

    def __init__(self, path: str, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def make(cls) -> PrivateFolder:
        """Make one, of a short name: sockets in it must fit their 108 bytes."""
        base = _base()
        for _ in range(100):
            path = os.path.join(base, f"surehand-{os.urandom(6).hex()}")
            try:
                os.mkdir(path, 0o700)
                os.mkdir(os.path.join(path, DRY_RUNS), 0o700)
                return cls(path, _make_locked(path))
            except FileExistsError:
                continue
            except OSError as problem:
                raise ToolFailure(
                    f"no private temporary folder can be created in {base}: {problem.strerror}",
                    hint="Commands need a folder for temporary files: name one that can be written in TMPDIR.",
                ) from problem
        raise ToolFailure(f"no private temporary folder can be created in {base}: every name is taken")

    def remove(self) -> None:
        """Remove it with its contents."""
        remove_tree(self.path)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _base() -> str:
    """Return where temporary files go; a `TMPDIR` that is missing or not writable is ignored."""
    wanted = os.path.realpath(os.environ.get("TMPDIR") or "/tmp")
    return wanted if os.path.isdir(wanted) and os.access(wanted, os.W_OK | os.X_OK) else os.path.realpath("/tmp")


def _make_locked(path: str) -> int:
    """Make the folder and lock it; it gets its final name only then, so that nobody takes it for abandoned."""
    made, place = os.path.join(path, _UNLOCKED), os.path.join(path, SCRATCH)
    os.mkdir(made, 0o700)
    lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try_lock(lock)
    os.rename(made, place)
    return lock


def find_abandoned() -> Iterator[str]:
    """Yield the private folders of ours that no process uses any more."""
    base, user = _base(), os.geteuid()
    try:
        names = [name for name in os.listdir(base) if _NAME.fullmatch(name)]
    except OSError:
        return
    for name in names:
        path = os.path.join(base, name)
        try:
            status = os.lstat(path)
            if status.st_uid == user and os.path.isdir(path) and not os.path.islink(path) and _is_free(path, status):
                yield path
        except OSError:
            continue  # it went away meanwhile


def _is_free(path: str, status: os.stat_result) -> bool:
    try:
        lock = os.open(os.path.join(path, SCRATCH), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return time.time() - status.st_mtime > _OLD_S  # killed while it was made, or a command removed it
    try:
        return try_lock(lock)
    finally:
        os.close(lock)


def clear_abandoned() -> None:
    """Remove a few abandoned folders, beside whatever goes on: they may hold much."""
    found = [path for path, _ in zip(find_abandoned(), range(_AT_ONCE), strict=False)]
    if found:
        import threading

        threading.Thread(target=lambda: [remove_tree(path) for path in found], daemon=True).start()
