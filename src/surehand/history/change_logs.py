"""Change logs: folders in which supervisors record what commands change, until that is in the history.

The program that made a folder and the supervisor that writes to it both hold a shared lock on it. When both are gone
(`kill -9`), the next opening of the history finds it unlocked and records its entries as an interrupted change, or as
one recorded late if the command had ended (its list is read-only then). A folder is filled under another name first, so
that a new one is never taken for abandoned.
"""

from __future__ import annotations

import errno
import fcntl
import marshal
import mmap
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.files.atomic import try_lock
from surehand.files.trees import remove_tree
from surehand.state import locations

if TYPE_CHECKING:
    from surehand.history.words import Author

ABOUT: Final = "about"
LIST: Final = "list"
RESERVE: Final = "reserve"
UNFINISHED: Final = ".new"
"""Suffix of a folder that no command uses yet."""
RECORD_HEAD: Final = Struct("<II")
"""Precedes each record of the list: the lengths of the record and of the content after it."""
_ENCODING: Final = sys.getfilesystemencoding()
_ERRORS: Final = sys.getfilesystemencodeerrors()
RESERVED_BYTES: Final = 1 << 20
"""Disk space reserved before a command runs, for its list and for recording it in the history."""


def make(
    base: str, who: Author, forbidden: Sequence[str], limit_bytes: int, spare: tuple[str, int] | None = None
) -> tuple[str, int]:
    """Make the folder of one command; return it and its locked descriptor. Raises ToolFailure on a full disk.

    `spare` is what `empty` returned for the folder of an earlier command.
    """
    about = {
        "limit": limit_bytes,
        "forbidden": list(forbidden),
        "who": [who.tool, who.call_id, who.session_id, who.description, who.main_session_id, who.turn],
    }
    folder = os.path.join(base, who.call_id)
    unfinished, lock = spare or (f"{folder}{UNFINISHED}", -1)
    try:
        try:
            if lock < 0:
                locations.private_dir(unfinished)
                lock = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                _share(lock)
                _reserve(lock)
            _fill(lock, ABOUT, marshal.dumps(about))
            os.rename(unfinished, folder)
        except BaseException:
            if lock >= 0:
                os.close(lock)
            raise
    except OSError as problem:
        remove_tree(unfinished)
        raise ToolFailure(
            f"it was not run: its changes could not be recorded for undo ({problem.strerror})",
            code="precondition_failed",
            hint=f"Free some space or check {base}. Commands that only read still run.",
            details={"errno": errno.errorcode.get(problem.errno or 0, "")},
        ) from problem
    return folder, lock


def empty(folder: str, lock: int) -> tuple[str, int] | None:
    """Empty the folder of a command whose changes are recorded, for the next command; None if that fails.

    Its reserve stays: allocating and freeing a megabyte takes longer than recording a small change.
    """
    spare = f"{folder}{UNFINISHED}"
    try:
        names = os.listdir(lock)
        if RESERVE not in names:
            return None
        os.rename(folder, spare)  # from here on it is not recovered
        for name in names:
            if name != RESERVE:
                os.unlink(name, dir_fd=lock)
    except OSError:
        return None
    return spare, lock


def _share(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as problem:
        if problem.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF):
            raise


def _fill(folder: int, name: str, data: bytes) -> None:
    descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=folder)
    with open(descriptor, "wb") as file:
        file.write(data)


def _reserve(folder: int) -> None:
    descriptor = os.open(RESERVE, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        os.posix_fallocate(descriptor, 0, RESERVED_BYTES)
    except OSError as problem:
        if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise
    finally:
        os.close(descriptor)


def free_reserve(folder: str) -> None:
    """Delete the reserve of a change log's folder."""
    try:
        os.unlink(os.path.join(folder, RESERVE))
    except OSError:
        pass


@frozen
class Entry:
    """The state of one path before the command first changed it, as its supervisor recorded it."""

    kind: str
    """`absent`, `file`, `folder`, `link` or `other`."""
    mode: int
    target: str
    kept: str | bool | None
    """The name of the content's file in the folder; True: it is in the list; None: the command could not change it;
    "": it could not be kept."""
    begin: int = 0
    end: int = 0
    """The content's position in the list."""

    @property
    def in_list(self) -> bool:
        """Whether the content is in the list itself."""
        return self.kept is True


class ChangeLog:
    """The change log of one command: its entries, and the contents of the files it changed.

    The list is mapped into memory, so that the contents of many files take none of the heap.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.entries: dict[str, Entry] = {}
        """By path; a record that was cut off is left out."""
        self.ended = False
        """Whether the command had ended when its supervisor closed the list."""
        self._list: mmap.mmap | bytes = b""
        try:
            self._map()
        except OSError:  # a fault that passes (no descriptor left) must not cost the undo
            self._map()
        self._read()

    def _map(self) -> None:
        try:
            with open(os.path.join(self.folder, LIST), "rb") as file:
                self.ended = not os.fstat(file.fileno()).st_mode & stat.S_IWUSR
                self._list = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (FileNotFoundError, ValueError):  # there is no list, or an empty one
            pass

    def _read(self) -> None:
        data, position, size = self._list, 0, len(self._list)
        while position + RECORD_HEAD.size <= size:
            record, content = RECORD_HEAD.unpack_from(data, position)
            begin = position + RECORD_HEAD.size + record
            position = begin + content
            if position > size:
                return
            path, kind, mode, target, kept = marshal.loads(data[begin - record : begin])
            led = os.fsdecode(target) if target else ""
            self.entries[path.decode(_ENCODING, _ERRORS)] = Entry(kind, mode, led, kept, begin, position)

    @property
    def began_ns(self) -> int:
        """When the command began; whatever it changed has a later ctime."""
        return os.stat(os.path.join(self.folder, ABOUT)).st_mtime_ns

    def free_reserve(self) -> None:
        """Delete the reserve."""
        free_reserve(self.folder)

    def small_content(self, entry: Entry) -> bytes:
        """Return a content that is in the list."""
        return self._list[entry.begin : entry.end]

    def path_of(self, entry: Entry) -> str:
        """Return the path of the file that holds an entry's content."""
        return os.path.join(self.folder, str(entry.kept or ""))


def find_abandoned_logs(base: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the folders whose program and supervisor are gone, each locked meanwhile, with the facts in ABOUT."""
    try:
        names = os.listdir(base)
    except OSError:
        return
    for name in names:
        folder = os.path.join(base, name)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if not try_lock(descriptor):
                continue
            try:
                about = _read_about(folder)
            except OSError:  # it may be readable later
                continue
            if about is None or name.endswith(UNFINISHED):
                remove_tree(folder)  # no command had run yet
            else:
                yield folder, about
        finally:
            os.close(descriptor)


def _read_about(folder: str) -> dict[str, Any] | None:
    """Return what a change log says of its command; None if that was never completely written."""
    try:
        with open(os.path.join(folder, ABOUT), "rb") as file:
            return marshal.load(file)
    except (FileNotFoundError, EOFError, ValueError, TypeError):
        return None
