"""Bring what a command changed into the history, from the change log that its supervisor wrote.

It is then undone like any edit. What could not be kept (a file above the limit, a full disk) is no part of the change;
the change's note and the call's result say so.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from surehand.core.frozen import frozen
from surehand.core.session import digest_of
from surehand.files.protected_paths import within
from surehand.files.trees import remove_tree
from surehand.history import change_logs
from surehand.history.change_logs import ChangeLog, Entry
from surehand.history.contents import SMALL_BYTES
from surehand.history.disk import put, state_at
from surehand.history.words import ABSENT, Author, FileChange, FileState

if TYPE_CHECKING:
    from surehand.history.history import History

KEPT_FILE: Final = 16 * 1024 * 1024
"""The largest new content that is kept for a redo."""
KEPT_TOTAL: Final = 128 * 1024 * 1024
LOOKED_AT: Final = 50_000
"""The most files checked for changes that the recorder missed, after a program with several threads."""
INTERRUPTED: Final = "interrupted"
"""The note of a change whose command was killed with its program or its supervisor."""
LATE: Final = "recorded late"
"""The note of a change recorded long after its command had ended: it may include what others did since."""
_BLOCK: Final = 1 << 20
_READING: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNNOTICED: Final = getattr(os, "O_NOATIME", 0)
"""Updating a file's access time takes longer than reading a small file."""
_AT_ONCE: Final = 1 << 20
"""Bytes of small contents that are inserted together."""


TOLD_EVERY: Final = 1000
"""Progress is reported after this many paths."""
Tell: TypeAlias = Callable[[int, int], None]


def _say_nothing(done: int, total: int) -> None:
    pass


@frozen
class Recorded:
    """What was recorded: the change's id, the files, and what could not be kept."""

    change_id: str
    files: tuple[FileChange, ...]
    lost: str = ""
    put_back: tuple[str, ...] = ()
    """Paths that no command may change, restored to what they were."""

    def to_dict(self, limit: int = 100) -> list[dict[str, str]]:
        """Return the first `limit` paths with what happened to each."""
        return [{"path": each.path, "action": action(each)} for each in self.files[:limit]]


def action(change: FileChange) -> str:
    """Return what happened to a path, in a word."""
    after = change.after or ABSENT
    if change.before.kind == "absent":
        return "created"
    if after.kind == "absent":
        return "deleted"
    return "changed" if not change.before.same_content(after) else "mode changed"


def put_back(log: ChangeLog, forbidden: Callable[[str], bool]) -> tuple[str, ...]:
    """Restore the `forbidden` paths that the command of a change log changed; return them."""
    entries = [(path, entry) for path, entry in log.entries.items() if entry.kind != "other" and forbidden(path)]
    # Folders are made before their files; what did not exist is removed with everything in it.
    entries.sort(key=lambda each: (each[1].kind == "absent", each[0]))
    return tuple(sorted(path for path, entry in entries if _restored(log, path, entry)))


def _restored(log: ChangeLog, path: str, entry: Entry) -> bool:
    """Restore one path from its entry in the log; return False if it is unchanged."""
    now, _ = state_at(path)
    if entry.kind == "absent":
        there = os.path.lexists(path)
        remove_tree(path)
        return there
    wanted, data = _read_before(log, now, entry)
    if now == wanted:
        return False
    if now.kind != wanted.kind:
        remove_tree(path)
        now = ABSENT
    os.makedirs(os.path.dirname(path), exist_ok=True)
    parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    name = os.path.basename(path)
    try:
        put(parent, name, now, wanted, data, f".{name[:200]}.{os.urandom(4).hex()}")
    finally:
        os.close(parent)
    return True


def _read_before(log: ChangeLog, now: FileState, entry: Entry) -> tuple[FileState, bytes | None]:
    """Return the state before the command, and its content."""
    if entry.kind == "folder":
        return FileState("directory", "", entry.mode), None
    if entry.kind == "link":
        data = os.fsencode(entry.target)
        return FileState("symlink", digest_of(data), entry.mode, len(data)), data
    if entry.kept is None:  # only its mode can have changed
        return replace(now, mode=entry.mode), b""
    data = log.small_content(entry) if entry.in_list else _content(log.path_of(entry), 0, whole=True)[2]
    return FileState("file", digest_of(data), entry.mode, len(data)), data


def record(history: History, log: ChangeLog, who: Author, lost: str = "", tell: Tell = _say_nothing) -> Recorded | None:
    """Compare a change log with the disk and record the differences; None if there are none.

    `tell` is called now and then with the number of paths compared so far and of all.
    """
    kept = _Keeping(history, log, tell)
    changes: list[FileChange] = []

    def find() -> tuple[Author, Sequence[FileChange]]:
        nonlocal lost
        changes.extend(kept.compare_all())
        changes.sort(key=lambda each: each.path)
        lost = "; ".join(filter(None, (lost, kept.describe_gaps())))
        note = "; ".join(filter(None, (who.note, f"not covered: {lost}" if lost else "")))
        return replace(who, note=note), changes

    id = history.record_found(find)
    return Recorded(id, tuple(changes), lost) if changes or lost else None


def find_recorded(history: History, log: ChangeLog, who: Author) -> Recorded | None:
    """Return what an earlier try has recorded of a change log, or None.

    A process that fails between recording and deleting a change log leaves both; it must not be recorded twice.
    """
    began = os.stat(os.path.join(log.folder, change_logs.ABOUT)).st_mtime
    same = [each for each in history.changes(call_id=who.call_id, session_id=who.session_id) if each.at >= began]
    found = next((each for each in same if each.kind == "change" and each.tool == who.tool), None)
    return None if found is None else Recorded(found.id, found.files)


def changed_unrecorded(log: ChangeLog, roots: Sequence[str]) -> str:
    """Name the files below the roots that changed since the change log began and are not in it; a bounded search.

    A thread of the program can change a system call's path after the recorder has read it and before the kernel does.
    """
    known = log.entries
    began = log.began_ns
    files = islice(_files_below(roots), LOOKED_AT)
    found = sorted(path for path in files if path not in known and _changed_at(path) > began)
    if not found:
        return ""
    named = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
    return f"{named} changed while it ran, past the recorder (by one of its threads, or by somebody else)"


def _files_below(roots: Sequence[str]) -> Iterator[str]:
    for root in roots:
        for place, folders, names in os.walk(root):
            folders[:] = [each for each in folders if each != ".git"]  # what git keeps is git's to take back
            yield from (os.path.join(place, name) for name in names)


def _changed_at(path: str) -> int:
    try:
        return os.lstat(path).st_ctime_ns
    except OSError:
        return 0


def recover_commands(history: History, base: str) -> list[str]:
    """Record what commands changed whose program was killed; return the ids of those changes."""
    found: list[str] = []
    for folder, about in change_logs.find_abandoned_logs(base):
        log = ChangeLog(folder)
        change_logs.free_reserve(folder)
        who = Author(*about["who"], note=LATE if log.ended else INTERRUPTED)
        if find_recorded(history, log, who) is None:
            if about["forbidden"]:
                put_back(log, within(about["forbidden"]))
            recorded = record(history, log, who)
            found += [recorded.change_id] if recorded is not None and recorded.change_id else []
        remove_tree(folder)
    return found


class _Keeping:
    """Turns the entries of a change log into changes; the caller holds the history's transaction.

    Made for many thousands of files: contents are inserted many at once, and a removed folder is looked for once.
    """

    def __init__(self, history: History, log: ChangeLog, tell: Tell) -> None:
        self._history = history
        self._tell = tell
        self._log = log
        self._room_before = history.most_bytes
        old = sum(map(self._old_size, log.entries.values()))
        self._room = min(KEPT_TOTAL, max(0, history.most_bytes - old))
        """Bytes of new contents that are kept; old ones come first, and all are one change to the history's limit."""
        self._uncovered: list[str] = []
        self._unread: list[str] = []
        self._small: dict[str, bytes] = {}
        self._waiting = 0
        self._folders: dict[str, bool] = {}

    def describe_gaps(self) -> str:
        """Name what is not covered: files above the limit, and files that could not be read."""
        large = f"{_some(self._uncovered)}: more than one change may take in the history (history.limit_mb)"
        unread = f"{_some(self._unread)}: what they hold now could not be read, so their undo needs force"
        return "; ".join([*([large] if self._uncovered else ()), *([unread] if self._unread else ())])

    def compare_all(self) -> list[FileChange]:
        """Return what differs from the log, with all contents stored."""
        found: list[FileChange] = []
        total = len(self._log.entries)
        for number, (path, entry) in enumerate(self._log.entries.items(), 1):
            if (change := self._compare(path, entry)) is not None:
                found.append(change)
            if number % TOLD_EVERY == 0:
                self._tell(number, total)
        self._keep_waiting()
        return found

    def _compare(self, path: str, entry: Entry) -> FileChange | None:
        if entry.kind == "other" or entry.kept == "":  # its supervisor has reported why it is not covered
            return None
        size = self._old_size(entry)
        if size > self._room_before:
            self._uncovered.append(path)
            return None
        self._room_before -= size
        after = self._after(path)
        if entry.kind == "file" and entry.kept is None:
            # The command could not change its content, only its mode.
            mode = entry.mode
            before = replace(after, mode=mode) if after.kind == "file" else FileState("file", "", mode)
        else:
            before = self._before(entry)
        return None if before == after else FileChange(path, before, after)

    def _old_size(self, entry: Entry) -> int:
        if entry.kind == "link":
            return len(os.fsencode(entry.target))
        if entry.kind != "file" or not entry.kept:
            return 0
        return entry.end - entry.begin if entry.in_list else os.path.getsize(self._log.path_of(entry))

    def _before(self, entry: Entry) -> FileState:
        if entry.kind == "absent":
            return ABSENT
        if entry.kind == "folder":
            return FileState("directory", "", entry.mode)
        if entry.kind == "link":
            return self._link(entry.target, entry.mode)
        if entry.in_list:
            data = self._log.small_content(entry)
            return FileState("file", self._keep(data), entry.mode, len(data))
        path = self._log.path_of(entry)
        expected = os.path.getsize(path)
        digest, size, data = _content(path, expected, whole=expected <= SMALL_BYTES)
        if size > SMALL_BYTES:
            self._history.contents.keep_file(digest, size, path)
        else:
            self._keep(data)
        return FileState("file", digest, entry.mode, size)

    def _after(self, path: str) -> FileState:
        try:
            found = self._status(path)
        except OSError:
            self._unread.append(path)
            return FileState("file", "", 0)
        if found is None:
            return ABSENT
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISDIR(found.st_mode):
            return FileState("directory", "", mode)
        if stat.S_ISLNK(found.st_mode):
            self._room -= found.st_size
            return self._link(os.readlink(path), mode, kept=self._room >= 0)
        if not stat.S_ISREG(found.st_mode):
            return ABSENT
        wanted = found.st_size <= min(KEPT_FILE, self._room)
        try:
            digest, size, data = _read_again(path, found.st_size, whole=wanted)
        except OSError:
            self._unread.append(path)
            return FileState("file", "", mode, found.st_size)
        if wanted:
            self._room -= size
            if size <= SMALL_BYTES:
                self._keep(data, digest)
            else:
                self._history.contents.keep(digest, [data])
        return FileState("file", digest, mode, size)

    def _status(self, path: str) -> os.stat_result | None:
        folder = path.rpartition("/")[0] or "/"
        if not self._folders.get(folder, True):
            return None
        found = _lstat(path)
        if found is None and folder not in self._folders:
            self._folders[folder] = _lstat(folder) is not None
        return found

    def _link(self, target: str, mode: int, *, kept: bool = True) -> FileState:
        data = os.fsencode(target)
        return FileState("symlink", self._keep(data) if kept else digest_of(data), mode, len(data))

    def _keep(self, data: bytes, digest: str = "") -> str:
        """Store a small content, with the next batch; return its digest."""
        digest = digest or digest_of(data)
        self._small[digest] = data
        self._waiting += len(data)
        if self._waiting > _AT_ONCE:
            self._keep_waiting()
        return digest

    def _keep_waiting(self) -> None:
        self._history.contents.keep_small(self._small)
        self._small.clear()
        self._waiting = 0


def _lstat(path: str) -> os.stat_result | None:
    """lstat a path; None if it does not exist. Retried once: a failing disk must not make a file look absent."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError:
        pass
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")


def _read_again(path: str, size: int, *, whole: bool) -> tuple[str, int, bytes]:
    """Call `_content`, twice if the first try fails, for example with too many open files."""
    try:
        return _content(path, size, whole=whole)
    except OSError as problem:
        if problem.errno in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP):
            raise
    return _content(path, size, whole=whole)


def _content(path: str, size: int, *, whole: bool) -> tuple[str, int, bytes]:
    """Return digest, size and (with `whole`) the bytes of a file.

    `size` is that of its status: a small file of that size takes a single read.
    """
    try:
        descriptor = os.open(path, _READING | _UNNOTICED)
    except PermissionError:  # a file of somebody else
        descriptor = os.open(path, _READING)
    try:
        block = os.read(descriptor, min(size, SMALL_BYTES) + 1)
        if len(block) == size:
            return digest_of(block), size, block
        hasher, count, parts = hashlib.sha256(), 0, list[bytes]()
        while block:
            hasher.update(block)
            count += len(block)
            if whole:
                parts.append(block)
            block = os.read(descriptor, _BLOCK)
        return hasher.hexdigest(), count, b"".join(parts)
    finally:
        os.close(descriptor)
