"""The folders in which supervisors write down what commands change, until that is in the history.

A folder belongs to the program that made it and to the supervisor that writes in it; both hold a shared lock on it.
When both are gone (`kill -9`), the next look at the history finds it unlocked and records what is there as an
interrupted change, or as one recorded late where the command had ended (its list is read-only then). A folder is made
whole under another name first, so that nobody takes a new one for abandoned.
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
"""How the name of a folder ends in which nothing is written down yet."""
RECORD_HEAD: Final = Struct("<II")
"""Before each record of the list: its length, and that of the content that follows it."""
_ENCODING: Final = sys.getfilesystemencoding()
_ERRORS: Final = sys.getfilesystemencodeerrors()
RESERVED_BYTES: Final = 1 << 20
"""Room set aside before a command runs, for the list of what it changes and for bringing that in."""


def make(
    base: str, who: Author, forbidden: Sequence[str], limit_bytes: int, spare: tuple[str, int] | None = None
) -> tuple[str, int]:
    """Make the folder of one command; return it and a descriptor that holds it. Refused where there is no room.

    `spare` is what `empty` left of the folder of an earlier command.
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
    """Make the folder of a command whose changes are in the history a spare one; None where that cannot be.

    The room set aside in it is kept for the next command: to have and to free a megabyte costs more than the record.
    """
    spare = f"{folder}{UNFINISHED}"
    try:
        names = os.listdir(lock)
        if RESERVE not in names:
            return None
        os.rename(folder, spare)  # nothing in it counts from here on
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
    """Give back the room that was set aside."""
    try:
        os.unlink(os.path.join(folder, RESERVE))
    except OSError:
        pass


@frozen
class Entry:
    """What a command's supervisor wrote down of one path before its first change."""

    kind: str
    """`absent`, `file`, `folder`, `link` or `other`."""
    mode: int
    target: str
    kept: str | bool | None
    """The name of the kept content in the folder, True where it stands in the list; None: its content was never in
    danger, "": it could not be kept."""
    begin: int = 0
    end: int = 0
    """Where in the list the content stands."""

    @property
    def in_list(self) -> bool:
        """Whether the content stands in the list itself."""
        return self.kept is True


class ChangeLog:
    """The list of one command as it stands on the disk: what it says of each path, and the contents in it.

    The list is mapped, not read: contents of many files cost no memory of their own.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.entries: dict[str, Entry] = {}
        """By path; a record that was cut off in the middle is none."""
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
        except (FileNotFoundError, ValueError):  # there is none, or nothing in it
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
        """When the command began: nothing that it changed has an earlier time of change."""
        return os.stat(os.path.join(self.folder, ABOUT)).st_mtime_ns

    def free_reserve(self) -> None:
        """Give back the room that was set aside."""
        free_reserve(self.folder)

    def small_content(self, entry: Entry) -> bytes:
        """Return a content that stands in the list."""
        return self._list[entry.begin : entry.end]

    def path_of(self, entry: Entry) -> str:
        """Return the file that holds a content which stands in none."""
        return os.path.join(self.folder, str(entry.kept or ""))


def find_abandoned_logs(base: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the change logs whose program and supervisor are gone, each locked while it is read, with its facts."""
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
                remove_tree(folder)  # nothing had run yet
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
