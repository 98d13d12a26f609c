"""The change recorder: saves what files hold just before a command changes them.

The kernel reports each system call that changes files and holds it until it is answered, so a copy made here is exact.
The command writes the real files at once, visible to everybody. Calls that only read are not reported and cost nothing.

The change log is a directory made by the client. Its `list` has a record for each path, written before the change (the
last record of a path counts), so it is complete after a crash. A record is a head (the lengths of the other two), the
marshalled entry, and the content of a small file: one read and one write, and no file of its own. `about` says how many
bytes may be saved; `reserve` is space that the list may use when the disk is full.
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

    _PathArgument: TypeAlias = tuple[int | None, int, bool]
    """Index of the argument with the directory's descriptor (or None), of the path's, and whether to follow links."""
    _Call: TypeAlias = tuple[int | None, int, bool, bool, bool, int]
    _Entry: TypeAlias = tuple[str, int, bytes, str | bool | None]
    """Kind, mode, target of a link, and the saved content: a file name, IN_LIST, _UNSAVED, or None (not in danger)."""

_IOCTL_RECEIVE = 0xC0502100
_IOCTL_SEND = 0xC0182101
_IOCTL_SET_FLAGS = 0x40082104
_SYNC_WAKE_UP = 1
_CONTINUE = 1
_REQUEST = Struct("<QI4xi12x6Q")  # id, process, number of the call, six arguments
_REPLY = Struct("<QqiI")  # id, result, error, flags
_reply = bytearray(_REPLY.size)  # writable: `ioctl` tries that first, and falling back doubles its cost
RECORD_HEAD = Struct("<II")
SMALL_BYTES = 64 * 1024
"""A content of at most this size is written to the list itself."""
IN_LIST = True
"""Instead of the name of a saved content: it follows its record in the list."""
_AT_CWD = 0xFFFFFF9C
_MOST_FILES, _MOST_BYTES = 100_000, 1 << 30
_ALWAYS_SAVED_BYTES = 16 << 20
"""A forbidden file of git of at most this size is saved even when the limit is reached."""
_MOST_FORBIDDEN = 1000
_HOOKS = (
    b"applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg "
    b"post-commit pre-rebase post-checkout post-merge pre-push pre-receive update proc-receive post-receive "
    b"post-update reference-transaction push-to-checkout pre-auto-gc post-rewrite sendemail-validate "
    b"fsmonitor-watchman p4-changelist p4-prepare-changelist p4-post-changelist p4-pre-submit post-index-change"
).split()
"""The names under which git looks for hooks."""
_MOST_NAMED = 5
_UNSAVED = ""
_ABSENT = ("absent", 0, b"", None)
_FICLONE = 0x40049409
_DOTS = (b"", b".", b"..")
_NOTHING_THERE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG))
"""Errors with which the path does not exist for the command either; any other says nothing about what is there."""
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ_NOATIME = _READ_FLAGS | os.O_NOATIME
"""For the user's own files: an updated access time would have to be written to the disk."""
_CLONES = (NUMBERS.get("clone"), NUMBERS.get("clone3"))

# The path arguments of each call.
_FOLLOW, _SELF = True, False
_PATH_ARGUMENTS: dict[str, tuple[_PathArgument, ...]] = {
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
# By number, calls with one path: its argument, and whether the call endangers content, unlinks, or changes where paths
# lead (2: by another name of a file).
_CALLS: dict[int, _Call] = {
    NUMBERS[name]: (
        *paths[0],
        name not in _KEEPS_CONTENT,
        name in _UNLINKS,
        (name in _RELINKS) + (name in _NAMES_AGAIN),
    )
    for name, paths in _PATH_ARGUMENTS.items()
    if len(paths) == 1 and name in NUMBERS
}
_RENAMES = {NUMBERS[name]: paths for name, paths in _PATH_ARGUMENTS.items() if len(paths) == 2 and name in NUMBERS}


class ChangeRecorder:
    """Records path → what was there before the call, with contents in the change log.

    Paths are bytes, as the kernel has them: decoding and encoding thousands of them costs time.
    """

    def __init__(self, roots: dict[str, int], log_fd: int, forbidden: list[str]) -> None:
        self._roots = {os.fsencode(root).rstrip(b"/") + b"/": descriptor for root, descriptor in roots.items()}
        self.roots = tuple(self._roots)
        # Changes inside .git are not recorded, except for paths there that no command may change.
        self._forbidden = tuple(os.fsencode(path) + b"/" for path in forbidden if "/.git/" in path + "/")
        self._real_folders: dict[bytes, bytes] = {}
        self._git: set[bytes] = set()
        self._forbidden_saved = False
        self._threads_seen = False
        """Whether any process of the call may have started a second thread; before that none is looked for."""
        self.begin(log_fd)

    def begin(self, log_fd: int) -> None:
        """Start a list in the change log directory `log_fd`."""
        self.log_fd = log_fd
        self.entries: dict[bytes, _Entry] = {}
        self.saved_bytes = 0
        self.limit_bytes = _read_limit(log_fd)
        self.lost = ""
        self._unsaved: dict[bytes, str] = {}
        self._unwritten: set[bytes] = set()
        self.threads = False
        """Whether a program with several threads changed something."""
        self._list_fd = os.open("list", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600, dir_fd=log_fd)
        self._list_size = os.fstat(self._list_fd).st_size
        self._git.clear()
        self._forbidden_saved = False

    def finish(self, *, ended: bool = True) -> dict[str, Any]:
        """Close the list and return the facts about it. Later changes belong to no list.

        If the command has `ended` the list is made read-only: recovery then knows that it is complete.
        """
        if self.log_fd < 0:
            return {"count": 0, "lost": "", "git": [], "threads": False}
        for path in list(self._unwritten):
            self._write_record(path, self.entries[path])
        for path in self._unwritten:
            self._unsaved[path] = "no room for the list of changes"
        if ended and self.entries:
            _make_read_only(self._list_fd)
        os.close(self._list_fd)
        os.close(self.log_fd)
        self.log_fd, count, self.entries = -1, len(self.entries), {}
        return {"count": count, "lost": self._describe_losses(), "git": list(self._git), "threads": self.threads}

    def start_new_log(self, log_fd: int) -> dict[str, Any]:
        """Continue in another change log, so that every change is in one of the two; return the facts of the first."""
        facts = self.finish()
        self.begin(log_fd)
        return facts

    def _describe_losses(self) -> str:
        """Say which changes cannot be undone, and why."""
        named = [f"{os.fsdecode(path)} ({why})" for path, why in list(self._unsaved.items())[:_MOST_NAMED]]
        more = [f"{len(self._unsaved) - _MOST_NAMED} more files"] if len(self._unsaved) > _MOST_NAMED else []
        return "; ".join([*([self.lost] if self.lost else []), *named, *more])

    def _write_record(self, path: bytes, entry: _Entry, content: bytes = b"") -> bool:
        """Append a record to the list, before the change may happen; False when there is no space.

        `finish` tries again to write a record without content; a content has changed by then.
        """
        record = marshal.dumps((path, *entry))
        record = RECORD_HEAD.pack(len(record), len(content)) + record + content
        try:
            written = os.write(self._list_fd, record)
        except OSError:
            written = 0
        if written != len(record) and not self._write_into_reserve(record):
            if not content:
                self._unwritten.add(path)
            return False
        self._list_size += len(record)
        if self._unwritten:
            self._unwritten.discard(path)
        return True

    def _write_into_reserve(self, record: bytes) -> bool:
        """Free the reserved space and write a record into it; False when that is not enough."""
        os.ftruncate(self._list_fd, self._list_size)  # a partial record would hide those after it
        try:
            os.unlink("reserve", dir_fd=self.log_fd)
            if os.write(self._list_fd, record) == len(record):
                return True
        except OSError:
            pass
        os.ftruncate(self._list_fd, self._list_size)
        return False

    def listen(self, listener_fd: int) -> None:
        """Have command and supervisor wake each other on one core, where the kernel can: it halves a report's cost."""
        try:
            fcntl.ioctl(listener_fd, _IOCTL_SET_FLAGS, _SYNC_WAKE_UP)
        except OSError:
            pass

    def answer(self, listener_fd: int) -> bool:
        """Receive one report, save what the call endangers, and let it continue; False when no process is left."""
        request = bytearray(_REQUEST.size)
        try:
            fcntl.ioctl(listener_fd, _IOCTL_RECEIVE, request)
        except OSError as problem:
            return problem.errno == errno.ENOENT  # the process was killed while it waited
        id, pid, number, *arguments = _REQUEST.unpack(request)
        refused = 0
        try:
            if self.log_fd >= 0 and number not in _CLONES:
                if self._threads_seen and not self.threads:
                    self._look_for_threads(pid)
                if number in _CALLS:
                    self._save_one(pid, _CALLS[number], arguments)
                else:
                    refused = self._save_rare(pid, number, arguments)
            elif number in _CLONES:
                self._threads_seen = True
        except OSError as problem:
            path = os.fsencode(problem.filename or "a file")
            self._unsaved.setdefault(path, f"{problem.strerror} while it was being kept")
        finally:
            try:
                _REPLY.pack_into(_reply, 0, id, 0, -refused, 0 if refused else _CONTINUE)
                fcntl.ioctl(listener_fd, _IOCTL_SEND, _reply)
            except OSError:
                pass  # interrupted or killed; an interrupted call is reported again
        return True

    # A command may change thousands of files: from here to the record, few long functions save the cost of many calls.

    def _save_one(self, pid: int, call: _Call, arguments: list[int]) -> None:
        """Save what a call with one path endangers."""
        folder, position, follow, content, unlinks, relinks = call
        at = _AT_CWD if folder is None else arguments[folder] & 0xFFFFFFFF
        path, status = self._resolve(pid, at, system.read_text(pid, arguments[position]), follow)
        if path and (b"/.git" not in path or self._is_recorded(path)):
            self._save(path, status, content, unlinks)
        if relinks or (unlinks and self._real_folders and not (path and _is_file_or_absent(status))):
            self._real_folders.clear()  # paths may lead elsewhere now; a plain file's coming or going changes no path
            if relinks > 1:
                self._save_forbidden()

    def _look_for_threads(self, pid: int) -> None:
        # Another thread can change the path in memory after it was read here and before the kernel reads it.
        self.threads = os.stat(b"/proc/%d/task" % pid).st_nlink > 3
        if self.threads:
            self._save_forbidden()

    def _save_rare(self, pid: int, number: int, arguments: list[int]) -> int:
        """Save what any other call endangers; return the error it is refused with, 0 if it may continue."""
        if number in _RENAMES:
            return self._save_renamed(pid, _RENAMES[number], arguments)
        if number == NUMBERS["fchmod"]:
            path = os.readlink(b"/proc/%d/fd/%d" % (pid, arguments[0] & 0xFFFFFFFF))
            if path.startswith(self.roots):
                self._save(path, _lstat(path), False)
        return 0

    def _save_renamed(self, pid: int, paths: tuple[_PathArgument, ...], arguments: list[int]) -> int:
        """Save the source and the target of a rename; return the error it is refused with, or 0."""
        found: list[bytes] = []
        relinks = False
        for folder, position, follow in paths:
            at = _AT_CWD if folder is None else arguments[folder] & 0xFFFFFFFF
            path, status = self._resolve(pid, at, system.read_text(pid, arguments[position]), follow)
            relinks = relinks or not (path and _is_file_or_absent(status))
            if not path:
                continue
            if self._forbidden and self._holds_forbidden(path):
                return errno.EBUSY
            if b"/.git" not in path or self._is_recorded(path):
                self._save(path, status, True, position != paths[0][1])
                found.append(path)
        if found:
            self._save_below(found[0], found[-1])
        if relinks:
            self._real_folders.clear()
        return 0

    def _holds_forbidden(self, path: bytes) -> bool:
        """Tell whether a rename would move a directory of git with forbidden paths in it; mounts refuse that too."""
        return any(each.startswith(path + b"/") and each != path + b"/" for each in self._forbidden)

    def _resolve(self, pid: int, at: int, path: bytes, follow: bool) -> tuple[bytes, os.stat_result | None]:
        """Return the real path that a call names and its status; an empty path if it is outside the roots."""
        if path[:1] == b"/" or not path:
            folder, _, name = path.rstrip(b"/").rpartition(b"/")
            real = self._resolve_folder(folder)
        else:
            real = os.readlink(b"/proc/%d/cwd" % pid if at == _AT_CWD else b"/proc/%d/fd/%d" % (pid, at))
            name, path = path, real + b"/" + path
            if b"/" in name:  # otherwise the folder is the one just read from /proc, which is a real path
                folder, _, name = path.rstrip(b"/").rpartition(b"/")
                real = real if folder == real else self._resolve_folder(folder)
        if name in _DOTS:
            found = os.path.realpath(path) if path else b""
        else:
            found = real + b"/" + name if real != b"/" else b"/" + name
        if not follow and not found.startswith(self.roots):
            return b"", None
        try:
            status = os.lstat(found)
        except OSError:
            status = _lstat(found)
        if follow:
            if status is not None and stat.S_ISLNK(status.st_mode):
                found = os.path.realpath(found)
                status = _lstat(found)
            if not found.startswith(self.roots):
                return b"", None
        return found, status

    def _resolve_folder(self, folder: bytes) -> bytes:
        real = self._real_folders.get(folder)
        if real is None:
            real = self._real_folders[folder] = os.path.realpath(folder or b"/")
        return real

    def _is_recorded(self, path: bytes) -> bool:
        """Tell whether a path is recorded: anything outside .git, and forbidden paths inside."""
        inner = path + b"/"
        if b"/.git/" not in inner:
            return True
        self._git.add(inner[: inner.index(b"/.git/") + 5])
        return bool(self._forbidden) and inner.startswith(self._forbidden)

    def _save(self, path: bytes, status: os.stat_result | None, content: bool, may_link: bool = False) -> None:
        """Record what is at a path below the roots, once; with its content if that is in danger.

        `may_link`: the path is about to go, so the file may be saved by a hard link.
        """
        entry = self.entries.get(path)
        if entry is None:
            if len(self.entries) >= _MOST_FILES and not (path + b"/").startswith(self._forbidden):
                self.lost = f"it changed more than {_MOST_FILES} files"
                return
            entry = _describe(path, status)
        elif not content or entry[3] is not None or entry[0] != "file":
            return
        kind, mode, target, saved = entry
        if content and kind == "file":
            if status is not None and status.st_nlink > 1:
                self._save_forbidden()
            size = -1 if status is None else status.st_size
            fits = 0 <= size <= SMALL_BYTES and (
                self.saved_bytes + size <= self.limit_bytes or self._exceeds_limit_freely(path, size)
            )
            if fits and (data := _read_small(path, size)) is not None:
                self.entries[path] = entry = ("file", mode, b"", IN_LIST)
                if self._write_record(path, entry, data):
                    self.saved_bytes += size
                    return
            try:
                saved = self._copy(path, may_link and status is not None and status.st_nlink == 1)
            except OSError as problem:  # reported at the end
                self._unsaved[path] = problem.strerror or str(problem)
                saved = _UNSAVED
        self.entries[path] = entry = (kind, mode, target, saved)
        self._write_record(path, entry)

    def _save_forbidden(self) -> None:
        """Save all forbidden paths of git, before a change can get past the recorder.

        Threads can do that (see `_look_for_threads`), and so can another name of the same file.
        """
        if self._forbidden_saved:
            return
        self._forbidden_saved = True
        for each in self._forbidden:
            path = each[:-1]
            if not path.startswith(self.roots):
                continue
            self._save(path, _lstat(path), True)
            if os.path.islink(path) or not os.path.isdir(path):
                continue
            names = dict.fromkeys((*_HOOKS, b"attributes", *os.listdir(path)[:_MOST_FORBIDDEN]))
            for name in names:
                self._save(each + name, _lstat(each + name), True)

    def _exceeds_limit_freely(self, path: bytes, size: int) -> bool:
        """Tell whether a content is saved beyond the limit: a forbidden one, which could not be restored otherwise."""
        return size <= _ALWAYS_SAVED_BYTES and bool(self._forbidden) and (path + b"/").startswith(self._forbidden)

    def _save_below(self, path: bytes, target: bytes) -> None:
        """Record everything in a directory about to be moved, at its old and at its new path."""
        if not os.path.isdir(path) or os.path.islink(path):
            return
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                inner = folder + b"/" + name
                self._save(inner, _lstat(inner), True)
                if target != path:
                    moved = target + folder[len(path) :] + b"/" + name
                    self._save(moved, _lstat(moved), True)
            if self.lost:
                return

    def _copy(self, path: bytes, may_link: bool) -> str:
        """Save a content in a file of the change log, by a hard link, a clone or a copy; return the file's name."""
        name = str(len(self.entries)) + "-" + str(self.saved_bytes)
        if may_link:
            try:
                self._link(path, name)
                return name
            except OSError:
                pass  # another file system, or another user's file
        source = _open_to_read(path)
        target = -1
        try:
            size = os.fstat(source).st_size
            target = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=self.log_fd)
            if _clone(source, target):
                return name
            if self.saved_bytes + size > self.limit_bytes and not self._exceeds_limit_freely(path, size):
                raise OSError(errno.EFBIG, f"{size >> 20:,} MB; of one command {self.limit_bytes >> 20:,} MB are kept")
            while size > 0 and (sent := os.sendfile(target, source, None, size)) > 0:
                size -= sent
                self.saved_bytes += sent
            self.saved_bytes += 1
        except OSError:
            if target >= 0:
                os.unlink(name, dir_fd=self.log_fd)
            raise
        finally:
            os.close(source)
            if target >= 0:
                os.close(target)
        return name

    def _link(self, path: bytes, name: str) -> None:
        """Hard-link a file into the change log, by the roots as they are mounted outside: no link crosses mounts."""
        root = next(each for each in self._roots if path.startswith(each))
        os.link(
            path[len(root) :],
            name,
            src_dir_fd=self._roots[root],
            dst_dir_fd=self.log_fd,
            follow_symlinks=False,
        )


def _read_limit(log_fd: int) -> int:
    """Return how many bytes of old contents may be saved, from the client's `about`."""
    try:
        descriptor = os.open("about", os.O_RDONLY | os.O_CLOEXEC, dir_fd=log_fd)
    except OSError:
        return _MOST_BYTES
    with os.fdopen(descriptor, "rb") as file:
        return marshal.load(file)["limit"]


def _make_read_only(list_fd: int) -> None:
    """Mark a list as complete by its mode, which works on a full disk too."""
    try:
        os.fchmod(list_fd, 0o400)
    except OSError:
        pass  # it counts as incomplete


def _open_to_read(path: bytes) -> int:
    """Open a file for reading, without updating its access time if it is ours."""
    try:
        return os.open(path, _READ_NOATIME)
    except PermissionError:
        return os.open(path, _READ_FLAGS)


def _read_small(path: bytes, size: int) -> bytes | None:
    """Return the content of a file of at most this size; None if it cannot be read or has grown."""
    try:
        source = _open_to_read(path)
        try:
            data = os.read(source, size + 1)
        finally:
            os.close(source)
    except OSError:
        return None
    return data if len(data) <= size else None


def _clone(source: int, target: int) -> bool:
    """Let two files share their blocks, copy-on-write; False where the file system cannot."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
        return True
    except OSError:
        return False


def _lstat(path: bytes) -> os.stat_result | None:
    """lstat a path; None if it does not exist. Retried once on other errors: a failing disk must not hide a file."""
    try:
        return os.lstat(path)
    except OSError as problem:
        return None if problem.errno in _NOTHING_THERE else os.lstat(path)


def _is_file_or_absent(status: os.stat_result | None) -> bool:
    """Tell whether a name can come or go without changing where other paths lead."""
    return status is None or stat.S_ISREG(status.st_mode)


def _describe(path: bytes, found: os.stat_result | None) -> _Entry:
    """Return the entry of a path, without content."""
    if found is None:
        return _ABSENT
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISREG(found.st_mode):
        return "file", mode, b"", None
    if stat.S_ISLNK(found.st_mode):
        return "link", mode, os.readlink(path), None
    return "folder" if stat.S_ISDIR(found.st_mode) else "other", mode, b"", None
