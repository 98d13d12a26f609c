"""Change recorder of one call: what every file the command is about to change held before, kept at the moment before.

The kernel holds the changing system call until we have answered, so a copy made here is exact; the command itself
writes the real file at once, and everybody sees it. Nothing is paid by calls that only read.

The list grows on the disk, a record before each change (`list`; the last record of a path counts): whoever finds the
folder after a crash knows what the command had changed. A record is its length, that of the content that follows it,
the marshalled record and that content: a small file costs one read and one write, and no file of its own. `about` says
how much of it may be kept, `reserve` is room that the list may take when the disk is full.
"""

from __future__ import annotations

import errno
import fcntl
import marshal
import os
import stat
from struct import Struct

from surehand.sandbox.linux import system
from surehand.sandbox.linux.seccomp import NUMBERS

TYPE_CHECKING = False  # `typing` itself would double the time the launcher takes to start
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    _Place: TypeAlias = tuple[int | None, int, bool]
    _Call: TypeAlias = tuple[int | None, int, bool, bool, bool, int]
    _Entry: TypeAlias = tuple[str, int, bytes, str | bool | None]
    """Kind, mode, target of a link, and the kept content."""

_RECEIVE = 0xC0502100
_ANSWER = 0xC0182101
_SET_FLAGS = 0x40082104
_SYNC_WAKE_UP = 1
_CONTINUE = 1
_REQUEST = Struct("<QI4xi12x6Q")  # id, process, number of the call, six arguments
_REPLY = Struct("<QqiI")
_reply = bytearray(_REPLY.size)  # one that can be written to: `ioctl` tries that first, and to fail costs as much again
RECORD_HEAD = Struct("<II")
SMALL_BYTES = 64 * 1024
"""A content up to this size stands in the list itself."""
IN_LIST = True
"""In an entry, in the place of the name of a kept content: it stands in the list, behind its record."""
_AT_CWD = 0xFFFFFF9C
_FILES, _BYTES = 100_000, 1 << 30
_ALWAYS_KEPT = 16 << 20
"""Bytes up to which a content of git's that no command may change is kept, whatever else was."""
_MOST_FORBIDDEN = 1000
_HOOKS = (
    b"applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg "
    b"post-commit pre-rebase post-checkout post-merge pre-push pre-receive update proc-receive post-receive "
    b"post-update reference-transaction push-to-checkout pre-auto-gc post-rewrite sendemail-validate "
    b"fsmonitor-watchman p4-changelist p4-prepare-changelist p4-post-changelist p4-pre-submit post-index-change"
).split()
"""The names under which git looks for hooks."""
_NAMED = 5
_UNKEPT = ""
_ABSENT = ("absent", 0, b"", None)
_FICLONE = 0x40049409
_DOTS = (b"", b".", b"..")
_EBUSY = 16
_NOTHING_THERE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG))
"""Errors with which the command does not get at a path either; any other says nothing of what is there."""
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNNOTICED = _READING | os.O_NOATIME
"""How a file is read that is ours: its time of access is not ours to move, and would be written to the disk."""
_CLONES = (NUMBERS.get("clone"), NUMBERS.get("clone3"))

# Which arguments of a call name files: (folder's descriptor or None, path, whether the last link is followed).
_FOLLOW, _SELF = True, False
_NAMES: dict[str, tuple[_Place, ...]] = {
    "open": ((None, 0, _FOLLOW),),
    "creat": ((None, 0, _FOLLOW),),
    "truncate": ((None, 0, _FOLLOW),),
    "chmod": ((None, 0, _FOLLOW),),
    "unlink": ((None, 0, _SELF),),
    "rmdir": ((None, 0, _SELF),),
    "mkdir": ((None, 0, _SELF),),
    "mknod": ((None, 0, _SELF),),
    "symlink": ((None, 1, _SELF),),
    "link": ((None, 1, _SELF),),
    "rename": ((None, 0, _SELF), (None, 1, _SELF)),
    "openat": ((0, 1, _FOLLOW),),
    "openat2": ((0, 1, _FOLLOW),),
    "fchmodat": ((0, 1, _FOLLOW),),
    "fchmodat2": ((0, 1, _FOLLOW),),
    "unlinkat": ((0, 1, _SELF),),
    "mkdirat": ((0, 1, _SELF),),
    "mknodat": ((0, 1, _SELF),),
    "symlinkat": ((1, 2, _SELF),),
    "linkat": ((2, 3, _SELF),),
    "renameat": ((0, 1, _SELF), (2, 3, _SELF)),
    "renameat2": ((0, 1, _SELF), (2, 3, _SELF)),
}
_KEEPS_CONTENT = {"chmod", "fchmodat", "fchmodat2", "mkdir", "mkdirat", "rmdir"}
_RELINKS = {"rmdir", "symlink", "symlinkat", "link", "linkat"}
_NAMES_AGAIN = {"link", "linkat"}
_UNLINKS = {"unlink", "unlinkat"}
# By number, calls that name one file: where, and whether it endangers content, unlinks, makes paths lead elsewhere (2:
# by another name of a file).
_CALLS: dict[int, _Call] = {
    NUMBERS[name]: (
        *places[0],
        name not in _KEEPS_CONTENT,
        name in _UNLINKS,
        (name in _RELINKS) + (name in _NAMES_AGAIN),
    )
    for name, places in _NAMES.items()
    if len(places) == 1 and name in NUMBERS
}
_RENAMES = {NUMBERS[name]: places for name, places in _NAMES.items() if len(places) == 2 and name in NUMBERS}


class ChangeRecorder:
    """Path → what was there before the call, contents kept in the list or in a folder the program gave us.

    Paths are bytes here, as the kernel has them: nothing is decoded and encoded again ten thousand times.
    """

    def __init__(self, roots: dict[str, int], folder: int, forbidden: list[str]) -> None:
        self._roots = {os.fsencode(root).rstrip(b"/") + b"/": descriptor for root, descriptor in roots.items()}
        self.roots = tuple(self._roots)
        # What git keeps for itself is git's to take back, but not what no command may make there.
        self._forbidden = tuple(os.fsencode(path) + b"/" for path in forbidden if "/.git/" in path + "/")
        self._folders: dict[bytes, bytes] = {}
        self._git: set[bytes] = set()
        self._forbidden_kept = False
        self._threads_begun = False
        """Whether any process of the call may ever have begun a second thread; until then none is looked for."""
        self.begin(folder)

    def begin(self, folder: int) -> None:
        """Start a new list, kept in `folder`."""
        self.folder = folder
        self.entries: dict[bytes, _Entry] = {}
        self.bytes = 0
        self.limit = _limit(folder)
        self.lost = ""
        self._unkept: dict[bytes, str] = {}
        self._unwritten: set[bytes] = set()
        self.threads = False  # whether a program with several threads changed something
        self._list = os.open("list", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600, dir_fd=folder)
        self._written = os.fstat(self._list).st_size
        self._git.clear()
        self._forbidden_kept = False

    def finish(self, *, ended: bool = True) -> dict[str, Any]:
        """Close the list; return how it went. Changes that follow belong to no list.

        The list of a command that has `ended` is made read-only: whoever brings it in later knows that it is whole.
        """
        if self.folder < 0:
            return {"count": 0, "lost": "", "git": [], "threads": False}
        for path in list(self._unwritten):
            self._write_down(path, self.entries[path])
        for path in self._unwritten:
            self._unkept[path] = "no room for the list of changes"
        if ended and self.entries:
            _seal(self._list)
        os.close(self._list)
        os.close(self.folder)
        self.folder, count, self.entries = -1, len(self.entries), {}
        return {"count": count, "lost": self._explain_uncovered(), "git": list(self._git), "threads": self.threads}

    def change(self, folder: int) -> dict[str, Any]:
        """Close the list and start another; no change falls between them. Return how the first went."""
        facts = self.finish()
        self.begin(folder)
        return facts

    def _explain_uncovered(self) -> str:
        """Say what is not covered, and why."""
        named = [f"{os.fsdecode(path)} ({why})" for path, why in list(self._unkept.items())[:_NAMED]]
        more = [f"{len(self._unkept) - _NAMED} more files"] if len(self._unkept) > _NAMED else []
        return "; ".join([*([self.lost] if self.lost else []), *named, *more])

    def _write_down(self, path: bytes, entry: _Entry, content: bytes = b"") -> bool:
        """Add what is known of a path to the list on the disk, before the change may happen; False: there is no room.

        A content of its own is not tried again later: the file has another by then.
        """
        record = marshal.dumps((path, *entry))
        record = RECORD_HEAD.pack(len(record), len(content)) + record + content
        try:
            written = os.write(self._list, record)
        except OSError:
            written = 0
        if written != len(record) and not self._write_again(record):
            if not content:
                self._unwritten.add(path)
            return False
        self._written += len(record)
        if self._unwritten:
            self._unwritten.discard(path)
        return True

    def _write_again(self, record: bytes) -> bool:
        """Write a record for which there was no room where room was set aside; False: there is still none."""
        os.ftruncate(self._list, self._written)  # half a record would hide those after it
        try:
            os.unlink("reserve", dir_fd=self.folder)
            if os.write(self._list, record) == len(record):
                return True
        except OSError:
            pass
        os.ftruncate(self._list, self._written)
        return False

    def listen(self, listener: int) -> None:
        """Let command and supervisor take turns on one core, where the kernel knows how: that saves a wait each way."""
        try:
            fcntl.ioctl(listener, _SET_FLAGS, _SYNC_WAKE_UP)
        except OSError:
            pass

    def answer(self, listener: int) -> bool:
        """Take one report, keep what it endangers, let it go on; False when nobody is left to report."""
        request = bytearray(_REQUEST.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, request)
        except OSError as problem:
            return problem.errno == 2  # the process was killed while it waited
        id, pid, number, *arguments = _REQUEST.unpack(request)
        refused = 0
        try:
            if self.folder >= 0 and number not in _CLONES:
                if self._threads_begun and not self.threads:
                    self._look_for_threads(pid)
                if number in _CALLS:
                    self._keep(pid, _CALLS[number], arguments)
                else:
                    refused = self._keep_rarely(pid, number, arguments)
            elif number in _CLONES:
                self._threads_begun = True
        except OSError as problem:
            named = os.fsencode(problem.filename or "a file")
            self._unkept.setdefault(named, f"{problem.strerror} while it was being kept")
        finally:
            try:
                _REPLY.pack_into(_reply, 0, id, 0, -refused, 0 if refused else _CONTINUE)
                fcntl.ioctl(listener, _ANSWER, _reply)
            except OSError:
                pass  # it was interrupted or killed; it will report again if it still wants to
        return True

    # Every step from here to the record in the list is made for each of ten thousand files: these functions are long
    # rather than many.

    def _keep(self, pid: int, call: _Call, arguments: list[int]) -> None:
        """Keep what a call endangers that names one file."""
        folder, position, follow, content, unlinks, relinks = call
        at = _AT_CWD if folder is None else arguments[folder] & 0xFFFFFFFF
        path, status = self._resolve(pid, at, system.read_text(pid, arguments[position]), follow)
        if path and (b"/.git" not in path or self._is_own(path)):
            self._note(path, status, content, unlinks)
        if relinks or (unlinks and self._folders and not (path and _is_file(status))):
            self._folders.clear()  # a path may lead elsewhere afterwards, as no file's going or coming makes it
            if relinks > 1:
                self._keep_forbidden()

    def _look_for_threads(self, pid: int) -> None:
        # Another thread can change the text of the path after we have read it and before the kernel does.
        self.threads = os.stat(b"/proc/%d/task" % pid).st_nlink > 3
        if self.threads:
            self._keep_forbidden()

    def _keep_rarely(self, pid: int, number: int, arguments: list[int]) -> int:
        """Keep what another call endangers; return the error it is refused with, 0 when it may go on."""
        if number in _RENAMES:
            return self._keep_renamed(pid, _RENAMES[number], arguments)
        if number == NUMBERS["fchmod"]:
            path = os.readlink(b"/proc/%d/fd/%d" % (pid, arguments[0] & 0xFFFFFFFF))
            if path.startswith(self.roots):
                self._note(path, _status(path), False)
        return 0

    def _keep_renamed(self, pid: int, places: tuple[_Place, ...], arguments: list[int]) -> int:
        """Keep what stands where a name comes from and where it goes; return the error it is refused with, or 0."""
        found: list[bytes] = []
        relinks = False
        for folder, position, follow in places:
            at = _AT_CWD if folder is None else arguments[folder] & 0xFFFFFFFF
            path, status = self._resolve(pid, at, system.read_text(pid, arguments[position]), follow)
            relinks = relinks or not (path and _is_file(status))
            if not path:
                continue
            if self._forbidden and self._holds_forbidden(path):
                return _EBUSY
            if b"/.git" not in path or self._is_own(path):
                self._note(path, status, True, position != places[0][1])
                found.append(path)
        if found:
            self._note_below(found[0], found[-1])
        if relinks:
            self._folders.clear()
        return 0

    def _holds_forbidden(self, path: bytes) -> bool:
        """Tell whether a repository's folder would be moved with what stays as it is in it; mounts refuse that too."""
        return any(each.startswith(path + b"/") and each != path + b"/" for each in self._forbidden)

    def _resolve(self, pid: int, at: int, path: bytes, follow: bool) -> tuple[bytes, os.stat_result | None]:
        """Return the real path that a call names, below one of the roots, and what is there; no text for any other."""
        if path[:1] == b"/" or not path:
            folder, _, name = path.rstrip(b"/").rpartition(b"/")
            real = self._real(folder)
        else:
            real = os.readlink(b"/proc/%d/cwd" % pid if at == _AT_CWD else b"/proc/%d/fd/%d" % (pid, at))
            name, path = path, real + b"/" + path
            if b"/" in name:  # otherwise: what the kernel says of an open folder is its real path already
                folder, _, name = path.rstrip(b"/").rpartition(b"/")
                real = real if folder == real else self._real(folder)
        if name in _DOTS:
            found = os.path.realpath(path) if path else b""
        else:
            found = real + b"/" + name if real != b"/" else b"/" + name
        if not follow and not found.startswith(self.roots):
            return b"", None
        try:
            status = os.lstat(found)
        except OSError:
            status = _status(found)
        if follow:
            if status is not None and stat.S_ISLNK(status.st_mode):
                found = os.path.realpath(found)
                status = _status(found)
            if not found.startswith(self.roots):
                return b"", None
        return found, status

    def _real(self, folder: bytes) -> bytes:
        real = self._folders.get(folder)
        if real is None:
            real = self._folders[folder] = os.path.realpath(folder or b"/")
        return real

    def _is_own(self, path: bytes) -> bool:
        """Tell whether a change is kept here: none of git's own, but what no command may change there."""
        inner = path + b"/"
        if b"/.git/" not in inner:
            return True
        self._git.add(inner[: inner.index(b"/.git/") + 5])
        return bool(self._forbidden) and inner.startswith(self._forbidden)

    def _note(self, path: bytes, status: os.stat_result | None, content: bool, may_link: bool = False) -> None:
        """Remember what is at a path of the roots unless it is known; its content too when that is about to go.

        Of a name that is about to go `may_link` says that a second one may be given to the file.
        """
        entry = self.entries.get(path)
        if entry is None:
            if len(self.entries) >= _FILES and not (path + b"/").startswith(self._forbidden):
                self.lost = f"it changed more than {_FILES} files"
                return
            entry = _describe(path, status)
        elif not content or entry[3] is not None or entry[0] != "file":
            return
        kind, mode, target, kept = entry
        if content and kind == "file":
            if status is not None and status.st_nlink > 1:
                self._keep_forbidden()
            size = -1 if status is None else status.st_size
            fits = 0 <= size <= SMALL_BYTES and (self.bytes + size <= self.limit or self._must_be_kept(path, size))
            if fits and (data := _read_small(path, size)) is not None:
                self.entries[path] = entry = ("file", mode, b"", IN_LIST)
                if self._write_down(path, entry, data):
                    self.bytes += size
                    return
            try:
                kept = self._copy(path, may_link and status is not None and status.st_nlink == 1)
            except OSError as problem:  # it is told at the end
                self._unkept[path] = problem.strerror or str(problem)
                kept = _UNKEPT
        self.entries[path] = entry = (kind, mode, target, kept)
        self._write_down(path, entry)

    def _keep_forbidden(self) -> None:
        """Keep all that no command may change in folders of git, as long as nobody can have changed it past us.

        That can be done by a thread, and by another name of the same file.
        """
        if self._forbidden_kept:
            return
        self._forbidden_kept = True
        for each in self._forbidden:
            path = each[:-1]
            if not path.startswith(self.roots):
                continue
            self._note(path, _status(path), True)
            if os.path.islink(path) or not os.path.isdir(path):
                continue
            inner = dict.fromkeys((*_HOOKS, b"attributes", *os.listdir(path)[:_MOST_FORBIDDEN]))
            for name in inner:
                self._note(each + name, _status(each + name), True)

    def _must_be_kept(self, path: bytes, size: int) -> bool:
        """Tell whether a content is kept beyond the limit: without it, what no command may change could not go back."""
        return size <= _ALWAYS_KEPT and bool(self._forbidden) and (path + b"/").startswith(self._forbidden)

    def _note_below(self, path: bytes, target: bytes) -> None:
        """Remember everything in a folder that is about to be moved, where it is and where it will be."""
        if not os.path.isdir(path) or os.path.islink(path):
            return
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                inner = folder + b"/" + name
                self._note(inner, _status(inner), True)
                if target != path:
                    there = target + folder[len(path) :] + b"/" + name
                    self._note(there, _status(there), True)
            if self.lost:
                return

    def _copy(self, path: bytes, may_link: bool) -> str:
        """Keep the content: by a second name where the first is about to go, by a clone, otherwise by a copy."""
        kept = str(len(self.entries)) + "-" + str(self.bytes)
        if may_link:
            try:
                self._link(path, kept)
                return kept
            except OSError:
                pass  # another file system, or a file of somebody else
        source = _open_unnoticed(path)
        target = -1
        try:
            size = os.fstat(source).st_size
            target = os.open(kept, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=self.folder)
            if _clone(source, target):
                return kept
            if self.bytes + size > self.limit and not self._must_be_kept(path, size):
                raise OSError(27, f"{size >> 20:,} MB; of one command {self.limit >> 20:,} MB are kept")
            while size > 0 and (sent := os.sendfile(target, source, None, size)) > 0:
                size -= sent
                self.bytes += sent
            self.bytes += 1
        except OSError:
            os.unlink(kept, dir_fd=self.folder)
            raise
        finally:
            os.close(source)
            if target >= 0:
                os.close(target)
        return kept

    def _link(self, path: bytes, kept: str) -> None:
        """Give a file a second name, through the mounts outside the sandbox: no link goes from mount to mount."""
        root = next(each for each in self._roots if path.startswith(each))
        os.link(
            path[len(root) :],
            kept,
            src_dir_fd=self._roots[root],
            dst_dir_fd=self.folder,
            follow_symlinks=False,
        )


def _limit(folder: int) -> int:
    """Return how many bytes of old contents may be copied, as the program says."""
    try:
        descriptor = os.open("about", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return _BYTES
    with os.fdopen(descriptor, "rb") as file:
        return marshal.load(file)["limit"]


def _seal(list: int) -> None:
    """Make a list read-only: that takes no room, so that it can also be done on a full disk."""
    try:
        os.fchmod(list, 0o400)
    except OSError:
        pass  # it counts as cut off


def _open_unnoticed(path: bytes) -> int:
    """Open a file for reading; its time of access stays, unless it is somebody else's."""
    try:
        return os.open(path, _UNNOTICED)
    except PermissionError:
        return os.open(path, _READING)


def _read_small(path: bytes, size: int) -> bytes | None:
    """Return the content of a file of this size; None where it cannot be read, or where somebody writes on."""
    try:
        source = _open_unnoticed(path)
        try:
            data = os.read(source, size + 1)
        finally:
            os.close(source)
    except OSError:
        return None
    return data if len(data) <= size else None


def _clone(source: int, target: int) -> bool:
    """Let two files share their blocks until one of them changes, where the file system can."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
        return True
    except OSError:
        return False


def _status(path: bytes) -> os.stat_result | None:
    """Return what is at a path, None for nothing. A disk that fails is asked twice: what is there is not absent."""
    try:
        return os.lstat(path)
    except OSError as problem:
        return None if problem.errno in _NOTHING_THERE else os.lstat(path)


def _is_file(status: os.stat_result | None) -> bool:
    """Tell whether a name that goes or comes makes no other path lead elsewhere: it is a file's, or nothing's."""
    return status is None or stat.S_ISREG(status.st_mode)


def _describe(path: bytes, found: os.stat_result | None) -> _Entry:
    """Return what stands at a path; no content is kept of it yet."""
    if found is None:
        return _ABSENT
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISREG(found.st_mode):
        return "file", mode, b"", None
    if stat.S_ISLNK(found.st_mode):
        return "link", mode, os.readlink(path), None
    return "folder" if stat.S_ISDIR(found.st_mode) else "other", mode, b"", None
