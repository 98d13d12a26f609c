"""git's index, read as far as its names and kinds: which paths are tracked, and which are other repositories."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from typing import Final, TypeAlias

from surehand.core.frozen import frozen
from surehand.git.config import read_plain

_GITLINK: Final = 0o160000
_LIMIT: Final = 256 << 20
_EXTENDED: Final = 0x4000
_ASSUMED: Final = 0x8000
_PACK_NAME: Final = 80
"""Bytes of the name of a pack, at most."""


@frozen
class TrackedFile:
    """One entry: its path, its mode and the name of its object."""

    path: str
    mode: int
    object: str
    assumed: bool = False
    """Whether git was told to take the file for unchanged."""

    @property
    def is_folder(self) -> bool:
        """Whether it stands for all files of a folder, none of which is checked out."""
        return self.mode & 0o170000 == 0o040000


def gitlinks(git_dir: str) -> tuple[str, ...]:
    """Return the paths that stand for commits of other repositories."""
    return tuple(each.path for each in read_tracked(git_dir) if each.mode & 0o170000 == _GITLINK)


def read_tracked(git_dir: str) -> tuple[TrackedFile, ...]:
    """Return the entries of a repository's index; none where it has none, or one that cannot be read.

    Of an index that is kept in two files, those of both: some of the first may have been replaced or removed since.
    """
    return _read_index(git_dir)[0]


def find_index_problem(git_dir: str) -> str:
    """Return why what git takes for tracked is not known here, or lies outside; nothing where all is well."""
    return _read_index(git_dir)[1]


_Index: TypeAlias = tuple[tuple[TrackedFile, ...], str]
_UNREADABLE: Final = "index, which cannot be read"


def tracked_folders(git_dir: str) -> tuple[str, ...]:
    """Return the folders that tracked files lie in, and those around them."""
    mark = _mark_index(git_dir)
    return _folders_of(*mark) if mark else ()


@lru_cache(maxsize=8)
def _folders_of(path: str, changed: int, size: int, inode: int) -> tuple[str, ...]:
    found: set[str] = set()
    for folder in {each.path.rpartition("/")[0] for each in _read(path, changed, size, inode)[0]}:
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return tuple(sorted(found))


def _read_index(git_dir: str) -> _Index:
    try:
        mark = _mark_index(git_dir)
    except OSError:
        return (), _UNREADABLE
    return _read(*mark) if mark else ((), "")


def _mark_index(git_dir: str) -> tuple[str, int, int, int] | None:
    """Return what tells one state of an index from another; None where there is none."""
    path = os.path.join(git_dir, "index")
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return path, status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(maxsize=32)
def _read(path: str, changed: int, size: int, inode: int) -> _Index:
    found = _parse(path)
    if found is None:
        return (), _UNREADABLE
    tracked, shared = found
    if shared:
        base = _parse(os.path.join(os.path.dirname(path), f"sharedindex.{shared}"))
        if base is None or base[1]:
            return tracked, _UNREADABLE
        tracked += base[0]
    tracked = tuple(each for each in tracked if each.path)  # of one that replaces an entry of the other file only that
    # git reads a path as it stands: no command of its own would have written these.
    outside = next((each.path for each in tracked if each.path.startswith("/") or ".." in each.path.split("/")), "")
    return tracked, f"index, which tracks {outside}" if outside else ""


def _parse(path: str) -> tuple[tuple[TrackedFile, ...], str] | None:
    """Return the entries of a file and which other one it adds to; None where that is not certain.

    How long the names of objects are is told by the checksum at the end. git itself does not compare that, so that a
    file with a wrong one is read by git as nobody can say here.
    """
    data = read_plain(os.fsencode(path), _LIMIT) or b""
    read: list[tuple[tuple[TrackedFile, ...], str]] = []
    for width, make_hash in ((20, hashlib.sha1), (32, hashlib.sha256)):
        if any(data[-20:]) and data[-width:] != make_hash(data[:-width]).digest():
            continue
        try:
            entries, at = _entries(data, width)
            read.append((entries, _shared_index(data, at, width)))
        except (ValueError, IndexError):
            continue
    return read[0] if len(read) == 1 else None


def _entries(data: bytes, width: int) -> tuple[tuple[TrackedFile, ...], int]:
    """Return the entries and where they end."""
    version, count = int.from_bytes(data[4:8]), int.from_bytes(data[8:12])
    if data[:4] != b"DIRC" or version not in (2, 3, 4):
        raise ValueError
    found: list[TrackedFile] = []
    at, previous = 12, b""
    for _ in range(count):
        begin, mode = at, int.from_bytes(data[at + 24 : at + 28])
        name = data[at + 40 : at + 40 + width]
        flags = int.from_bytes(data[at + 40 + width : at + 42 + width])
        at += 42 + width + (2 if version > 2 and flags & _EXTENDED else 0)
        if version == 4:
            drop, at = _number(data, at)
            end = data.index(b"\0", at)
            path = previous[: len(previous) - drop] + data[at:end]
            previous, at = path, end + 1
        else:
            end = data.index(b"\0", at)
            path = data[at:end]
            at = begin + ((end - begin) // 8 + 1) * 8
        found.append(TrackedFile(os.fsdecode(path), mode, name.hex(), bool(flags & _ASSUMED)))
    return tuple(found), at


def _shared_index(data: bytes, at: int, width: int) -> str:
    """Return the name of the file whose entries these add to, out of what stands behind them; usually there is none."""
    shared = ""
    while at < len(data) - width:
        size = int.from_bytes(data[at + 4 : at + 8])
        if data[at : at + 4] == b"link":
            shared = data[at + 8 : at + 8 + width].hex()
        at += 8 + size
    if at != len(data) - width:
        raise ValueError
    return shared if shared.strip("0") else ""


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Read the number of bytes that a name shares not with the one before it."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1


def read_pack_names(path: str) -> list[bytes]:
    """Return the names of packs in an index over several of them; none where it cannot be read.

    git takes as many as the file says from where they begin, wherever they are said to end.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            head = os.pread(file, 12, 0)
            rows = os.pread(file, 12 * head[6], 12)
            begin = next(at for at in range(0, len(rows), 12) if rows.startswith(b"PNAM", at))
            count = int.from_bytes(head[8:12])
            names = os.pread(file, min(count * _PACK_NAME, _LIMIT), int.from_bytes(rows[begin + 4 : begin + 12]))
        finally:
            os.close(file)
    except (OSError, IndexError, StopIteration, OverflowError):
        return []
    found = names.split(b"\0")[:count]
    return found if len(found) == count else []
