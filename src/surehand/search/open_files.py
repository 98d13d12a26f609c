"""Files of a tree opened beneath its root: no link on the way is followed, whatever happens to the names meanwhile.

`rg` is not given the names of files but what was opened of them (`/proc/self/fd/N`), so that it reads exactly that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from types import TracebackType
from typing import Final

from surehand.files.paths import open_strict

HELD: Final = 400
"""Files held open for one run of `rg`; a process may often have no more than 1,024."""
LARGE: Final = 1 << 20
"""Bytes from which on it pays to look closer at a file's beginning before it is searched."""
CHUNK: Final = 1 << 16
GLANCE: Final = 1 << 10
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Root:
    """The open root of a search, from which its files are opened."""

    def __init__(self, fd: int, hides: Callable[[os.stat_result, bytes], bool] | None = None) -> None:
        self._fd = fd
        self._hides = hides
        """Says of a file with several names whether one of them keeps it from being searched."""
        self._folder = b""
        self._folder_fd = fd
        """The folder the last file was in: the next one is mostly in the same."""

    def close(self) -> None:
        """Close the directory."""
        self._leave()
        os.close(self._fd)

    def open(self, path: bytes) -> tuple[int, int] | None:
        """Open a regular file, following no link on the way; return it and its size, None for anything else."""
        folder, _, name = path.rpartition(b"/")
        try:
            if folder != self._folder:
                self._enter(folder)
            fd = os.open(name, _READ, dir_fd=self._folder_fd)
        except OSError:
            return None
        status = os.fstat(fd)
        hidden = status.st_nlink > 1 and self._hides is not None and self._hides(status, path)
        if stat.S_ISREG(status.st_mode) and not hidden:
            return fd, status.st_size
        os.close(fd)
        return None

    def _enter(self, folder: bytes) -> None:
        self._leave()
        if folder:
            self._folder_fd = open_strict(self._fd, os.fsdecode(folder), _FOLDER, 0)
            self._folder = folder

    def _leave(self) -> None:
        if self._folder:
            os.close(self._folder_fd)
        self._folder, self._folder_fd = b"", self._fd


def has_monstrous_line(fd: int, size: int) -> bool:
    """Say whether a large file seems to have lines of megabytes: `rg` would keep every match in one of them."""
    if size < LARGE:
        return False
    places = {0, size // 2, max(0, size - LARGE)}
    return any(b"\n" not in os.pread(fd, LARGE, place) for place in places)


class Held:
    """Files held open for `rg`, under the names it is given; large binary files are left out, like what is no file."""

    def __init__(self, root: Root, files: Sequence[bytes]) -> None:
        self.files: dict[bytes, bytes] = {}
        """The name `rg` is given → the path."""
        self.fds: dict[bytes, int] = {}
        try:
            for path in files:
                if opened := root.open(path):
                    self._add(path, *opened)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Held:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every open file."""
        for fd in self.fds.values():
            os.close(fd)
        self.fds = {}

    def monstrous(self) -> list[bytes]:
        """Return the names `rg` is given of files with lines of megabytes."""
        fds = ((name, self.fds[path]) for name, path in self.files.items())
        return [name for name, fd in fds if has_monstrous_line(fd, os.fstat(fd).st_size)]

    def is_binary(self, path: bytes) -> bool:
        """Whether an open file is binary."""
        return is_binary(self.fds[path])

    def _add(self, path: bytes, fd: int, size: int) -> None:
        # A file that is named `rg` reads to its end, binary or not. Most binary files have a NUL soon.
        if begins_binary(fd, CHUNK if size > LARGE else GLANCE):
            os.close(fd)
            return
        self.fds[path] = fd
        self.files[_name(path, fd)] = path


def _name(path: bytes, fd: int) -> bytes:
    place = _descriptors()
    return b"./" + path if place is None else place + str(fd).encode()


@cache
def _descriptors() -> bytes | None:
    """Return where a process finds its own descriptors by name; None in a container that shows them nowhere."""
    return next((place for place in (b"/proc/self/fd/", b"/dev/fd/") if os.path.isdir(place)), None)


def begins_binary(fd: int, within: int = CHUNK) -> bool:
    """Return whether there is a NUL near the beginning of a file that is not UTF-16."""
    try:
        beginning = os.pread(fd, within, 0)
    except OSError:
        return False
    return b"\0" in beginning and not is_utf16(beginning)


def is_binary(fd: int) -> bool:
    """Return whether a file has a NUL anywhere and is not UTF-16 with its mark; what cannot be read counts as such."""
    at = 0
    with suppress(OSError):
        while chunk := os.pread(fd, 1 << 20, at):
            if at == 0 and is_utf16(chunk):
                return False
            if b"\0" in chunk:
                return True
            at += len(chunk)
        return False
    return True


def is_utf16(data: bytes) -> bool:
    """Return whether data begins with a mark of UTF-16."""
    return data.startswith((b"\xff\xfe", b"\xfe\xff"))
