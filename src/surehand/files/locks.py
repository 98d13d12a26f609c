"""Locks that hold between processes: an advisory lock on the folder of a file, held while the file is replaced.

The folder itself is locked (`flock` on its descriptor), not a lock file: nothing is left behind, the kernel lets go
when a process dies, and two workspaces that share a folder exclude each other too. The section under the lock takes
milliseconds, so that one lock for a whole folder costs nobody anything.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from surehand.core.errors import ToolFailure

WAIT_S: Final = 15.0
_FIRST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.02


def try_lock(fd: int) -> bool:
    """Lock the folder `fd` unless somebody else has it; closing the descriptor unlocks it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        if problem.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EINTR):
            return False
        if problem.errno in (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL):
            return True  # a file system without locks (some network ones): the checks by content still hold
        raise
    return True


@contextmanager
def locked_now(fds: Sequence[int]) -> Generator[None]:
    """Hold the locks of folders from a thread that may wait."""
    taken: list[int] = []
    try:
        for fd in _sort_descriptors(fds):
            for pause in _pauses():
                if try_lock(fd):
                    break
                time.sleep(pause)
            taken.append(fd)
        yield
    finally:
        for fd in taken:
            _unlock(fd)


def _sort_descriptors(fds: Sequence[int]) -> list[int]:
    """Return one descriptor per folder, in an order that is the same in every process."""
    if len(fds) == 1:
        return list(fds)
    folders = {(status.st_dev, status.st_ino): fd for fd in fds for status in (os.fstat(fd),)}
    return [folders[key] for key in sorted(folders)]


def _pauses() -> Generator[float]:
    pause, deadline = _FIRST_PAUSE_S, time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        yield pause
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)
    raise ToolFailure(
        f"another process has held the folder's lock for {WAIT_S:g} s",
        hint="Nothing was changed. Find out which process writes there, then try again.",
    )


def _unlock(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        pass


def remove_empty_folders(paths: Sequence[str]) -> None:
    """Remove folders, the last first, that were made for a file that was not written; stop at one in use."""
    for path in reversed(paths):
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            with locked_now([folder]):  # a writer that is about to create a file there holds it
                os.rmdir(path)
        except (OSError, ToolFailure):
            return
        finally:
            os.close(folder)
