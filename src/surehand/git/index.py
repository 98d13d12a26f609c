"""git's index, read as far as its names and kinds: which paths are tracked, and which are other repositories."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from surehand.core.frozen import frozen
from surehand.git.config import read_plain

_GITLINK: Final = 0o160000
_LIMIT: Final = 256 << 20
_EXTENDED: Final = 0x4000


@frozen
class TrackedFile:
    """One entry: its path, its mode and the name of its object."""

    path: str
    mode: int
    object: str


def gitlinks(git_dir: str) -> tuple[str, ...]:
    """Return the paths that stand for commits of other repositories."""
    return tuple(each.path for each in read_tracked(git_dir) if each.mode & 0o170000 == _GITLINK)


def read_tracked(git_dir: str) -> tuple[TrackedFile, ...]:
    """Return the entries of a repository's index; none where it has none, or one that cannot be read."""
    path = os.path.join(git_dir, "index")
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return _read(path, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=32)
def _read(path: str, changed: int, size: int, inode: int) -> tuple[TrackedFile, ...]:
    data = read_plain(os.fsencode(path), _LIMIT) or b""
    for width in (20, 32):
        try:
            return tuple(_entries(data, width))
        except (ValueError, IndexError):
            continue
    return ()


def _entries(data: bytes, width: int) -> Iterator[TrackedFile]:
    if data[:4] != b"DIRC":
        return
    version, count = int.from_bytes(data[4:8]), int.from_bytes(data[8:12])
    if version not in (2, 3, 4) or not _ends_well(data, width):
        raise ValueError
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
        yield TrackedFile(os.fsdecode(path), mode, name.hex())


def _ends_well(data: bytes, width: int) -> bool:
    """Tell by the checksum at the end how long the names of objects are; a file without one is taken for the usual."""
    if not any(data[-20:]):
        return width == 20
    return data[-width:] == (hashlib.sha1 if width == 20 else hashlib.sha256)(data[:-width]).digest()


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Read the number of bytes that a name shares not with the one before it."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1
