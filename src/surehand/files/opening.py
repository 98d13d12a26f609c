"""Opening a file or folder for reading, with a clear failure for everything that is not one."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from surehand.core.errors import ToolFailure
from surehand.core.session import SETTLED_NS, Kept
from surehand.files.paths import (
    missing_failure,
    open_at_hand,
    open_beneath,
    os_failure,
    readable_roots,
    refuse_special,
    root_of,
)
from surehand.files.protected_paths import Says, look

if TYPE_CHECKING:
    from surehand.core.context import ToolContext
    from surehand.core.session import Session

# Hard links to secrets: a file with a harmless name and a second name that is a secret's.
#
# Only files with several names need a search for the secrets of the workspace and the home. It is made once: a new
# name changes a file's ctime, so the answer holds for all files that have not changed since.

FOLDER_LIMIT: Final = 5_000
"""The most files searched in one folder of secrets."""
UNKNOWN: Final = "?"
"""Stands for the name of a secret if there are more files than were searched."""


class SecretLinks:
    """Which files with several names are secrets; `roots` and `keeps_out` are called for every search."""

    def __init__(self, roots: Callable[[], Sequence[str]], keeps_out: Callable[[], Says]) -> None:
        self._roots = roots
        self._keeps_out = keeps_out
        self._names: dict[tuple[int, int], str] = {}
        self._whole = True
        self._looked_ns = -1

    def secret_name(self, status: os.stat_result, path: str) -> str:
        """Return the other name by which the file at `path` is a secret, UNKNOWN if that is not known, or ""."""
        if status.st_nlink < 2 or not stat.S_ISREG(status.st_mode) or self._keeps_out()(path):
            return ""  # the name itself is protected, and was judged by that
        if status.st_ctime_ns + SETTLED_NS >= self._looked_ns:
            self._look()
        return self._names.get((status.st_dev, status.st_ino), "" if self._whole else UNKNOWN)

    def holds_secrets(self, status: os.stat_result, path: str) -> bool:
        """Return whether the file opened at `path` is known to be a secret by another name."""
        return self.secret_name(status, path) not in ("", UNKNOWN)

    def refuse(self, status: os.stat_result, path: str) -> None:
        """Raise ToolFailure for a hard link to a secret."""
        if not self.holds_secrets(status, path):
            return
        raise ToolFailure(
            f"{path} was not opened: it is a hard link to a file that holds secrets",
            code="permission_denied",
            hint="Leave it, or ask the user.",
            details={"path": path, "reason": "secret_link"},
        )

    def _look(self) -> None:
        self._looked_ns = time.time_ns()
        found = look([*map(os.path.realpath, self._roots())], self._keeps_out())
        self._names = dict(_links_among(found.hidden))
        self._whole = found.whole


def _links_among(paths: Iterable[str]) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield (device, inode) and name of the files with several names at these paths or in these folders."""
    for path in paths:
        for name in _files_at(path):
            try:
                status = os.lstat(name)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                yield (status.st_dev, status.st_ino), name


def _files_at(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
        return
    seen = 0
    for folder, _, names in os.walk(path):
        for name in names:
            yield os.path.join(folder, name)
        seen += len(names)
        if seen > FOLDER_LIMIT:
            return


def _links_of(session: Session) -> SecretLinks:
    return SecretLinks(lambda: session.roots, lambda: session.keeps_out)


SECRET_LINKS: Final = Kept("secret links", make=_links_of)


CHUNK: Final = 1 << 20


class Source:
    """An open file or folder: reads go through `fd`, whatever happens to the name.

    `with open_file(path, ctx) as source:` closes it, and turns an OSError of a read into a message.
    """

    __slots__ = ("fd", "outside", "path", "real", "stat")

    def __init__(self, fd: int, path: str, real: str, status: os.stat_result, outside: bool) -> None:
        self.fd = fd
        self.path = path
        """The absolute path as named by the caller."""
        self.real = real
        """The real path."""
        self.stat = status
        self.outside = outside
        """Whether it is in none of the session's roots."""

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        os.close(self.fd)
        if isinstance(problem, OSError):
            raise os_failure(problem, self.path, "read") from None

    @property
    def size(self) -> int:
        """The number of bytes of the file."""
        return self.stat.st_size

    @property
    def origin(self) -> str:
        """Where its text comes from, for the result."""
        return "outside" if self.outside else "workspace"


def open_file(path: str, ctx: ToolContext) -> Source:
    """Open the regular file at the absolute `path`; raise ToolFailure for a folder, a device, a missing name."""
    source = _open_source(path, ctx)
    if stat.S_ISDIR(source.stat.st_mode):
        os.close(source.fd)
        raise ToolFailure(
            f"{path} is a directory, not a file",
            hint="List it with fs.list_dir or Bash `ls`, then read a file in it.",
            details={"path": path, "reason": "directory"},
        )
    return source


def open_folder(path: str, ctx: ToolContext) -> Source:
    """Open the folder at the absolute `path`; raise ToolFailure for anything else."""
    source = _open_source(path, ctx)
    if not stat.S_ISDIR(source.stat.st_mode):
        os.close(source.fd)
        raise ToolFailure(
            f"{path} is a file, not a directory",
            hint="Read it with Read or fs.read_file.",
            details={"path": path, "reason": "not_a_directory"},
        )
    return source


def _open_source(path: str, ctx: ToolContext) -> Source:
    roots = readable_roots(ctx, path)
    try:
        fd = open_beneath(path, roots, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        raise missing_failure(path, ctx) from None
    except OSError as problem:
        raise os_failure(problem, path, "open") from None
    try:
        status, real = refuse_special(fd, path), _where(fd, path)
        if status.st_nlink > 1:
            ctx.session.keep(SECRET_LINKS).refuse(status, real)
    except BaseException:
        os.close(fd)
        raise
    # A file opened beneath the session's own roots cannot be outside them.
    outside = roots is not ctx.session.roots and root_of(real, [*map(os.path.realpath, ctx.session.roots)]) is None
    return Source(fd, path, real, status, outside)


def _where(fd: int, path: str) -> str:
    """Return the real path of an open file, from the kernel if possible: the name may have been swapped."""
    if sys.platform == "linux":
        try:
            return os.readlink(f"/proc/self/fd/{fd}").removesuffix(" (deleted)")
        except OSError:  # a container without /proc
            pass
    return os.path.realpath(path)


def open_at_once(path: str, ctx: ToolContext) -> Source | None:
    """Open a regular file of the session's roots if its path and status are cached in memory, or return None.

    For callers that must not wait for a disk. Failures are not reported: the caller tries again in a thread.
    """
    try:
        fd, real = open_at_hand(path, ctx.session.roots)
    except (OSError, ToolFailure):
        return None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:  # searching for its other names may take long
        os.close(fd)
        return None
    return Source(fd, path, real or _where(fd, path), status, outside=False)


def read_at_once(fd: int, size: int) -> bytes | None:
    """Return the first `size` bytes if all of them are in the page cache; None if not, or if there are fewer."""
    if sys.platform != "linux":
        return None
    buffer = bytearray(size)
    try:
        count = os.preadv(fd, [buffer], 0, os.RWF_NOWAIT)
    except OSError:  # EAGAIN: on the disk; EOPNOTSUPP: this file system cannot tell
        return None
    return bytes(buffer) if count == size else None


def digest_of_file(fd: int) -> str:
    """Return the digest of a whole file (the same as `digest_of` its content) without holding it."""
    import hashlib

    digest = hashlib.sha256()
    position = 0
    while part := os.pread(fd, CHUNK, position):
        digest.update(part)
        position += len(part)
    return digest.hexdigest()


def read_up_to(fd: int, limit: int) -> bytes:
    """Return at most `limit` bytes from the start, whatever size the file's status says."""
    parts: list[bytes] = []
    position = 0
    while position < limit and (part := os.pread(fd, min(limit - position, CHUNK), position)):
        parts.append(part)
        position += len(part)
    return b"".join(parts)


def read_to_end(fd: int, size: int) -> bytes:
    """Read to the end of a file whose status says `size`; asking for one more byte saves a second read."""
    data = os.read(fd, size + 1)
    if len(data) == size:
        return data
    parts = [data]
    while part := os.read(fd, CHUNK):
        parts.append(part)
    return b"".join(parts)
