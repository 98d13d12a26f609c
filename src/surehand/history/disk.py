"""The state of a file on the disk, and restoring one: by its folder's descriptor, without following links."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterable
from typing import Final, TypeAlias

from surehand.core.errors import ToolFailure
from surehand.core.session import SETTLED_NS, digest_of
from surehand.files.atomic import create_file, replace_file
from surehand.files.paths import PATH_ONLY
from surehand.history.contents import Stream, read_blocks
from surehand.history.words import ABSENT, FileState

Data: TypeAlias = bytes | memoryview | Stream
"""A content, or a stream of its blocks."""
HELD_BYTES: Final = 4 << 20
"""The largest content that is held in memory to be shown or compared; a larger one is streamed."""
_DIGESTS: Final = 64


def state_at(path: str) -> tuple[FileState, bytes | None]:
    """Return the state of `path` and its content; FIFOs, sockets and devices count as absent."""
    try:
        folder = os.open(os.path.dirname(path) or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT, None
    try:
        return state_in(folder, os.path.basename(path))
    finally:
        os.close(folder)


def state_in(folder: int, name: str, held: int | None = None) -> tuple[FileState, bytes | None]:
    """Return the state of `name` in an open folder, and its content; None for a file above `held` bytes."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return ABSENT, None
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        data = os.fsencode(os.readlink(name, dir_fd=folder))
        return FileState("symlink", digest_of(data), mode, len(data)), data
    if stat.S_ISDIR(status.st_mode):
        return FileState("directory", "", mode), None
    if not stat.S_ISREG(status.st_mode):
        return ABSENT, None
    if held is not None and status.st_size > held:
        digest, size = _large_digest(folder, name)
        return FileState("file", digest, mode, size), None
    data = read_in(folder, name)
    return FileState("file", digest_of(data), mode, len(data)), data


def is_special(folder: int, name: str) -> bool:
    """Return whether `name` in an open folder is a pipe, a socket or a device."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


_known: Final[dict[tuple[int, ...], tuple[str, int]]] = {}
"""Digests of large files by status: an undo needs one four times, and reads the file once."""


def _large_digest(folder: int, name: str) -> tuple[str, int]:
    """Return digest and size of a large file, read again only if its status has changed."""
    file = open_in(folder, name)
    try:
        status = os.fstat(file)
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if (known := _known.get(key)) is not None:
            return known
        settled = time.time_ns() - status.st_ctime_ns > SETTLED_NS  # old enough that a later write changes the ctime
        hasher, size = hashlib.sha256(), 0
        for block in read_blocks(file):
            hasher.update(block)
            size += len(block)
    finally:
        os.close(file)
    found = hasher.hexdigest(), size
    if settled and size == status.st_size:
        if len(_known) >= _DIGESTS:
            _known.clear()
        _known[key] = found
    return found


def open_in(folder: int, name: str) -> int:
    """Open a regular file in an open folder for reading, without following a link."""
    return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)


def read_in(folder: int, name: str) -> bytes:
    """Return the bytes of a regular file in an open folder."""
    file = open_in(folder, name)
    try:
        return b"".join(read_blocks(file))
    finally:
        os.close(file)


def put(
    folder: int,
    name: str,
    now: FileState,
    wanted: FileState,
    data: Data | None,
    temporary: str,
    *,
    flush: bool = True,
) -> None:
    """Change `name` from the state `now` to the state `wanted`. A folder that is not empty stays."""
    if wanted.kind == "absent":
        _remove(folder, name, now)
    elif wanted.kind == "directory":
        _make_folder(folder, name, now, wanted)
    elif data is None:
        raise ToolFailure(f"the content of {name} is no longer in the history", hint="It was dropped or damaged.")
    elif wanted.kind == "symlink":
        _clear_way(folder, name, now)
        os.symlink(os.fsdecode(b"".join(_parts(data))), temporary, dir_fd=folder)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        _put_file(folder, name, now, wanted, data, temporary, flush)


def _put_file(
    folder: int, name: str, now: FileState, wanted: FileState, data: Data, temporary: str, flush: bool
) -> None:
    if now.kind != "file":
        if now.kind != "absent":
            _remove(folder, name, now)
        create_file(folder, name, temporary, _parts(data), _mode_of_new(wanted.mode), flush=flush)
        return
    old = open_in(folder, name)
    try:
        if now.digest != wanted.digest:
            replace_file(folder, name, temporary, _parts(data), old, wanted.mode, flush=flush)
        elif now.mode != wanted.mode:
            os.fchmod(old, wanted.mode)
    finally:
        os.close(old)


def _parts(data: Data) -> Iterable[bytes | memoryview]:
    return data if isinstance(data, Stream) else (data,)


def _mode_of_new(mode: int) -> int:
    """Return the mode for a new file, as root without setuid and setgid: the file may have belonged to another user."""
    return mode if os.geteuid() else mode & ~(stat.S_ISUID | stat.S_ISGID)


def _make_folder(folder: int, name: str, now: FileState, wanted: FileState) -> None:
    if now.kind not in ("absent", "directory"):
        _remove(folder, name, now)
    if now.kind != "directory":
        os.mkdir(name, 0o700, dir_fd=folder)
    if now.kind != "directory" or wanted.mode != now.mode:
        # By descriptor, so that no link is followed.
        made = os.open(name, PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            # Linux does not allow fchmod on an O_PATH descriptor.
            os.chmod(f"/proc/self/fd/{made}" if PATH_ONLY else made, wanted.mode)
        finally:
            os.close(made)


def _clear_way(folder: int, name: str, now: FileState) -> None:
    if now.kind == "directory":
        _remove(folder, name, now)


def _remove(folder: int, name: str, now: FileState) -> None:
    if now.kind == "absent":
        return
    if now.kind != "directory":
        os.unlink(name, dir_fd=folder)
        return
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as problem:
        if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
