"""Atomic writes: replace a file in one step; a crash leaves the old bytes or the new ones, never a mixture.

The new bytes go to a temporary file in the same folder, are flushed to the disk, and take the name by `rename`. Mode,
owner, extended attributes and access lists of the old file are kept; where the owner cannot be kept, nothing is
replaced. A new file takes its name by `link`, which refuses to overwrite one that appeared meanwhile. The folder is not
flushed: after a power cut the old file may be back, whole.

Hard links: the file gets new bytes under this one name; other names of the old file keep the old bytes. Writing
through them would tear on a crash, and would reach files outside the workspace (package stores link everything).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from surehand.core.errors import ToolFailure
from surehand.core.session import Kept
from surehand.files.paths import start_flush
from surehand.files.streamed import Part, Streamed

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from surehand.core.session import Session

T = TypeVar("T")

_PARTS_AT_ONCE: Final = 512
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS, errno.EACCES})
_NO_ATTRIBUTES: Final = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EPERM, errno.EACCES})


def _always() -> None:
    """Do nothing: the change cannot be cancelled, and there is nothing to do meanwhile."""


def temporary_name(change_id: str) -> str:
    """Return the name of a change's temporary file."""
    return f".surehand-{change_id}.tmp"


def replace_file(
    folder: int,
    name: str,
    temporary: str,
    parts: Iterable[Part],
    like: int,
    mode: int | None = None,
    *,
    flush: bool = True,
    check_wanted: Callable[[], None] = _always,
    meanwhile: Callable[[], object] = _always,
) -> os.stat_result:
    """Replace the file `name` (open as `like`) by `parts`, keeping its attributes; `mode`, if given, replaces its mode.

    `meanwhile` is called while the bytes are written to the disk, `check_wanted` just before the rename; if one of them
    raises, the old file stays.
    """
    fd = _create(folder, temporary, 0o600)
    try:
        write_all(fd, parts)
        if flush:
            start_flush(fd)
        keep_attributes(like, fd)
        if mode is not None:
            os.fchmod(fd, mode)
        meanwhile()
        if flush:
            os.fsync(fd)
        written = os.fstat(fd)
        check_wanted()
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return _after(written, fd)
    except BaseException:
        discard(folder, temporary)
        raise
    finally:
        os.close(fd)


def create_file(
    folder: int,
    name: str,
    temporary: str,
    parts: Iterable[Part],
    mode: int | None,
    *,
    flush: bool = True,
    check_wanted: Callable[[], None] = _always,
    meanwhile: Callable[[], object] = _always,
) -> os.stat_result:
    """Create a file with `parts`; FileExistsError if the name is taken. `mode` None is the user's default."""
    fd = _create(folder, temporary, 0o666)
    try:
        write_all(fd, parts)
        if flush:
            start_flush(fd)
        if mode is not None:
            os.fchmod(fd, mode)
        meanwhile()
        if flush:
            os.fsync(fd)
        written = os.fstat(fd)
        check_wanted()
        _take_name(folder, temporary, name)
        return _after(written, fd)
    except BaseException:
        discard(folder, temporary)
        raise
    finally:
        os.close(fd)


def _after(written: os.stat_result, fd: int) -> os.stat_result:
    """Return the file's status after the rename; the one before it if somebody has written since."""
    status = os.fstat(fd)
    return status if (status.st_mtime_ns, status.st_size) == (written.st_mtime_ns, written.st_size) else written


def write_all(fd: int, parts: Iterable[Part]) -> None:
    """Write all parts, despite short writes; those of an iterator one by one."""
    if not isinstance(parts, list | tuple):
        for part in parts:
            write_all(fd, [part])
        return
    if any(isinstance(part, Streamed) for part in parts):
        for part in parts:
            if isinstance(part, Streamed):
                part.write_to(fd)
            else:
                write_held(fd, [part])
        return
    write_held(fd, [part for part in parts if not isinstance(part, Streamed)])


def write_held(fd: int, parts: Iterable[bytes | memoryview]) -> None:
    """Write parts that are in memory."""
    left = [memoryview(part).cast("B") for part in parts]
    while left:
        written = os.writev(fd, left[:_PARTS_AT_ONCE])
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if written:
            left[0] = left[0][written:]


def keep_attributes(source: int, target: int) -> None:
    """Copy owner, extended attributes, access lists and mode from `source` to `target`, or raise ToolFailure."""
    old, new = os.fstat(source), os.fstat(target)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        _keep_owner(target, old, new)
    _keep_xattrs(source, target)
    os.fchmod(target, stat.S_IMODE(old.st_mode))


def _keep_owner(target: int, old: os.stat_result, new: os.stat_result) -> None:
    try:
        os.fchown(target, -1 if old.st_uid == new.st_uid else old.st_uid, old.st_gid)
    except PermissionError:
        raise ToolFailure(
            f"the file belongs to user {old.st_uid}, group {old.st_gid}, and the system does not allow preserving that",
            hint="Nothing was changed. Ask its owner, or change it with Bash.",
        ) from None


def _keep_xattrs(source: int, target: int) -> None:
    if not hasattr(os, "listxattr"):
        return
    try:
        names = os.listxattr(source)
    except OSError as problem:
        if problem.errno in _NO_ATTRIBUTES:
            return
        raise
    for name in names:
        try:
            os.setxattr(target, name, os.getxattr(source, name))
        except OSError as problem:
            # Security labels are set by the system; an attribute that the user set must not be lost.
            if not name.startswith(("security.", "trusted.", "system.nfs4")):
                raise ToolFailure(
                    f"the attribute {name} of the file cannot be preserved: {problem.strerror}",
                    hint="Nothing was changed.",
                ) from None


def _create(folder: int, temporary: str, mode: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(temporary, flags, mode, dir_fd=folder)


def _take_name(folder: int, temporary: str, name: str) -> None:
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as problem:
        if problem.errno not in _NO_LINKS:
            raise
        # A file system without hard links: check, then rename. The lock excludes other Surehand processes.
        if name in os.listdir(folder):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from None
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        os.unlink(temporary, dir_fd=folder)


def discard(folder: int, temporary: str) -> None:
    """Delete the temporary file of a change that is not made."""
    try:
        os.unlink(temporary, dir_fd=folder)
    except OSError:
        pass


# Work beside the write: in a thread for a large content, at once for a small one.

BESIDE_BYTES: Final = 900_000
"""From this size on the new bytes are hashed in a thread, while they are written."""


class Beside(Generic[T]):
    """Work begun in a thread for a large content, or done at once for a small one; calling it returns the result."""

    def __init__(self, session: Session, size: int, work: Callable[[], T]) -> None:
        self._future: Future[T] | None = None
        if size >= BESIDE_BYTES:
            try:
                self._future = session.keep(WRITE_THREAD).submit(work)
                return
            except (OSError, RuntimeError):  # no thread or descriptor left: do it at once
                pass
        self._outcome = work()

    @property
    def is_done(self) -> bool:
        """Whether the result is there."""
        return self._future is None or self._future.done()

    def __call__(self) -> T:
        return self._outcome if self._future is None else self._future.result()


def _make_thread(session: Session) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, "surehand-writes")


async def _close_thread(thread: ThreadPoolExecutor) -> None:
    thread.shutdown(wait=False)


WRITE_THREAD: Final = Kept("write_thread", make=_make_thread, close=_close_thread)
"""One thread per session for work beside writes; starting one for each write takes longer than the work."""


# Locks between processes: an advisory lock on the folder of a file, held while the file is replaced.
#
# The folder itself is locked (`flock` on its descriptor), not a lock file: nothing is left behind, the kernel releases
# it when a process dies, and two workspaces that share a folder exclude each other too. It is held for milliseconds,
# so one lock for a whole folder is fine.

WAIT_S: Final = 15.0
_FIRST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.02


def try_lock(fd: int) -> bool:
    """Lock the folder `fd`; return False if somebody else has the lock. Closing the descriptor unlocks it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        if problem.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EINTR):
            return False
        if problem.errno in (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL):
            return True  # a file system without locks (some network ones): the content checks still apply
        raise
    return True


def wait_for_lock(fd: int) -> None:
    """Lock the folder `fd`, waiting in this thread; raise ToolFailure after `WAIT_S`."""
    if try_lock(fd):
        return
    for pause in _pauses():
        time.sleep(pause)
        if try_lock(fd):
            return


@contextmanager
def locked_now(fds: Sequence[int]) -> Generator[None]:
    """Hold the locks of folders, waiting for them in this thread."""
    taken: list[int] = []
    try:
        for fd in _sort_descriptors(fds):
            wait_for_lock(fd)
            taken.append(fd)
        yield
    finally:
        for fd in taken:
            unlock(fd)


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


def unlock(fd: int) -> None:
    """Unlock a folder."""
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        pass


def remove_empty_folders(paths: Sequence[str]) -> None:
    """Remove folders made for a file that was not written, the last first; stop at one in use."""
    for path in reversed(paths):
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            with locked_now([folder]):  # held by a writer that is about to create a file there
                os.rmdir(path)
        except (OSError, ToolFailure):
            return
        finally:
            os.close(folder)
