"""The journal of one call: what every file the command is about to change held before, kept at the moment before.

The kernel holds the changing system call until we have answered, so a copy made here is exact; the command itself
writes the real file at once, and everybody sees it. Nothing is paid by calls that only read.

The list grows on the disk, a record before each change (`list`, one marshalled record after the other; the last of a
path counts): whoever finds the folder after a crash knows what the command had changed. `about` says how much of it
may be kept, `reserve` is room that the list may take when the disk is full.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import stat

from surehand.sandbox.linux.seccomp import NUMBERS

TYPE_CHECKING = False  # `typing` itself would double the time the launcher takes to start
if TYPE_CHECKING:
    from typing import Any

_RECEIVE = 0xC0502100
_ANSWER = 0xC0182101
_CONTINUE = 1
_PAGE = 4096
_AT_CWD = 0xFFFFFF9C
_FILES, _BYTES = 100_000, 1 << 30
_NAMED = 5
_UNKEPT = ""
_FICLONE = 0x40049409
_EBUSY = 16

# Which arguments of a call name files: (folder's descriptor or None, path, whether the last link is followed).
_FOLLOW, _SELF = True, False
_NAMES: dict[str, tuple[tuple[int | None, int, bool], ...]] = {
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
_BY_NUMBER = {NUMBERS[name]: name for name in (*_NAMES, "fchmod") if name in NUMBERS}
_KEEPS_CONTENT = {"chmod", "fchmod", "fchmodat", "fchmodat2", "mkdir", "mkdirat", "rmdir"}
_MOVES_FOLDERS = {"rename", "renameat", "renameat2", "rmdir", "symlink", "symlinkat", "unlink", "unlinkat"}
_RENAMES = {"rename", "renameat", "renameat2"}
_UNLINKS = {"unlink", "unlinkat"}


class Journal:
    """Path → what was there before the call, content kept as numbered files in a folder the program gave us."""

    def __init__(self, roots: dict[str, int], folder: int, forbidden: list[str]) -> None:
        self.roots = tuple(root.rstrip("/") + "/" for root in roots)
        self._roots = roots
        # What git keeps for itself is git's to take back, but not what no command may make there.
        self._forbidden = tuple(path + "/" for path in forbidden if "/.git/" in path + "/")
        self._folders: dict[str, str] = {}
        self._git: set[str] = set()
        self.begin(folder)

    def begin(self, folder: int) -> None:
        """Start a new list, kept in `folder`."""
        self.folder = folder
        self.entries: dict[str, list[Any]] = {}
        self.bytes = 0
        self.limit = _limit(folder)
        self.lost = ""
        self._unkept: dict[str, str] = {}
        self._unwritten: dict[str, list[Any]] = {}
        self.threads = False  # whether a program with several threads changed something
        self._list = os.open("list", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600, dir_fd=folder)
        self._git.clear()

    def finish(self) -> dict[str, Any]:
        """Close the list; return how it went. Changes that follow belong to no list."""
        if self.folder < 0:
            return {"count": 0, "lost": "", "git": [], "threads": False}
        for path in list(self._unwritten):
            self._write_down(path)
        for path in self._unwritten:
            self._unkept[path] = "no room for the list of changes"
        os.close(self._list)
        os.close(self.folder)
        self.folder, count, self.entries = -1, len(self.entries), {}
        git = [os.fsencode(path) for path in self._git]
        return {"count": count, "lost": self._told(), "git": git, "threads": self.threads}

    def _told(self) -> str:
        """Say what is not covered, and why."""
        named = [f"{path} ({why})" for path, why in list(self._unkept.items())[:_NAMED]]
        more = [f"{len(self._unkept) - _NAMED} more files"] if len(self._unkept) > _NAMED else []
        return "; ".join([*([self.lost] if self.lost else []), *named, *more])

    def _write_down(self, path: str) -> None:
        """Add what is known of a path to the list on the disk, before the change may happen."""
        record = marshal.dumps([os.fsencode(path), *self.entries[path]])
        for _ in range(2):
            size = os.fstat(self._list).st_size
            try:
                if os.write(self._list, record) == len(record):
                    self._unwritten.pop(path, None)
                    return
            except OSError:
                pass
            os.ftruncate(self._list, size)  # half a record would hide those after it
            try:
                os.unlink("reserve", dir_fd=self.folder)
            except OSError:
                break
        self._unwritten[path] = self.entries[path]

    def answer(self, listener: int) -> bool:
        """Take one report, keep what it endangers, let it go on; False when nobody is left to report."""
        request = bytearray(80)
        try:
            fcntl.ioctl(listener, _RECEIVE, request)
        except OSError as problem:
            return problem.errno == 2  # the process was killed while it waited
        refused = 0
        try:
            if self.folder >= 0:
                refused = self._keep(request)
        except OSError as problem:
            self._unkept.setdefault(str(problem.filename or "a file"), f"{problem.strerror} while it was being kept")
        finally:
            flags = 0 if refused else _CONTINUE
            reply = (
                request[0:8] + bytes(8) + (-refused).to_bytes(4, "little", signed=True) + flags.to_bytes(4, "little")
            )
            try:
                fcntl.ioctl(listener, _ANSWER, reply)
            except OSError:
                pass  # it was interrupted or killed; it will report again if it still wants to
        return True

    def _keep(self, request: bytearray) -> int:
        """Keep what a call endangers; return the error it is refused with, 0 when it may go on."""
        pid = int.from_bytes(request[8:12], "little")
        name = _BY_NUMBER.get(int.from_bytes(request[16:20], "little"), "")
        # Another thread can change the text of the path after we have read it and before the kernel does.
        self.threads = self.threads or os.stat(f"/proc/{pid}/task").st_nlink > 3
        arguments = [int.from_bytes(request[32 + 8 * index : 40 + 8 * index], "little") for index in range(6)]
        if name == "fchmod":
            self._note(os.readlink(f"/proc/{pid}/fd/{arguments[0] & 0xFFFFFFFF}"), content=False)
            return 0
        found_paths: list[str] = []
        for position, (folder, path, follow) in enumerate(_NAMES.get(name, ())):
            at = _AT_CWD if folder is None else arguments[folder] & 0xFFFFFFFF
            place = self._place(pid, at, _text(pid, arguments[path]), follow)
            if name in _RENAMES and self._holds_forbidden(place):
                return _EBUSY
            if not (found := self._own(place)):
                continue
            found_paths.append(found)
            moved = name in _RENAMES and position == 0
            self._note(
                found, content=name not in _KEEPS_CONTENT, link=name in _UNLINKS or (name in _RENAMES and not moved)
            )
        if name in _RENAMES and found_paths:
            self._note_below(found_paths[0], found_paths[-1])
        if name in _MOVES_FOLDERS:
            self._folders.clear()
        return 0

    def _holds_forbidden(self, path: str) -> bool:
        """Tell whether a repository's folder would be moved with what stays as it is in it; mounts refuse that too."""
        return any(each.startswith(path + "/") and each != path + "/" for each in self._forbidden) if path else False

    def _place(self, pid: int, at: int, path: str, follow: bool) -> str:
        """Return the real path that a call names, below one of the roots; an empty text for any other."""
        if not path:
            return ""
        if not path.startswith("/"):
            place = "cwd" if at == _AT_CWD else f"fd/{at}"
            path = f"{os.readlink(f'/proc/{pid}/{place}')}/{path}"
        folder, _, name = path.rstrip("/").rpartition("/")
        real = self._folders.get(folder)
        if real is None:
            real = self._folders[folder] = os.path.realpath(folder or "/")
        if name in ("", ".", ".."):
            found = os.path.realpath(path)
        else:
            found = f"{real.rstrip('/')}/{name}"
            if follow and os.path.islink(found):
                found = os.path.realpath(found)
        return found if found.startswith(self.roots) else ""

    def _own(self, found: str) -> str:
        """Return a path whose change is kept here: none of git's own, but what no command may change there."""
        if "/.git/" in found + "/":
            self._git.add(f"{found}/"[: f"{found}/".index("/.git/") + 5])
            return found if self._forbidden and f"{found}/".startswith(self._forbidden) else ""
        return found

    def _note(self, path: str, *, content: bool, link: bool = False) -> None:
        """Remember what is at `path` unless it is known already; its content too when that is about to go."""
        if not path.startswith(self.roots):
            return
        entry = self.entries.get(path)
        if entry is None:
            if len(self.entries) >= _FILES and not f"{path}/".startswith(self._forbidden):
                self.lost = f"it changed more than {_FILES} files"
                return
            entry = self.entries[path] = _look(path)
            known = False
        else:
            known = True
        if content and entry[0] == "file" and entry[3] is None:
            entry[3] = self._kept(path, link and entry[4] == 1)
            known = False
        if not known:
            self._write_down(path)

    def _kept(self, path: str, may_link: bool) -> str:
        """Keep the content of a file; empty where that cannot be, which is told at the end."""
        try:
            return self._copy(path, may_link)
        except OSError as problem:
            self._unkept[path] = problem.strerror or str(problem)
            return _UNKEPT

    def _note_below(self, path: str, target: str) -> None:
        """Remember everything in a folder that is about to be moved, where it is and where it will be."""
        if not os.path.isdir(path) or os.path.islink(path):
            return
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                self._note(f"{folder}/{name}", content=True)
                if target != path:
                    self._note(f"{target}{folder[len(path) :]}/{name}", content=True)
            if self.lost:
                return

    def _copy(self, path: str, may_link: bool) -> str:
        """Keep the content: by a second name where the first is about to go, by a clone, otherwise by a copy."""
        kept = str(len(self.entries)) + "-" + str(self.bytes)
        if may_link:
            try:
                self._link(path, kept)
                return kept
            except OSError:
                pass  # another file system, or a file of somebody else
        source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        target = -1
        try:
            size = os.fstat(source).st_size
            target = os.open(kept, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=self.folder)
            if _clone(source, target):
                return kept
            if self.bytes + size > self.limit:
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

    def _link(self, path: str, kept: str) -> None:
        """Give a file a second name, through the mounts outside the sandbox: no link goes from mount to mount."""
        root = next(each for each in self._roots if path.startswith(each.rstrip("/") + "/"))
        os.link(
            os.path.relpath(path, root),
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


def _clone(source: int, target: int) -> bool:
    """Let two files share their blocks until one of them changes, where the file system can."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
        return True
    except OSError:
        return False


def _look(path: str) -> list[Any]:
    """Return [kind, mode, link target, kept content, names of the file, mtime]."""
    try:
        found = os.lstat(path)
    except OSError:
        return ["absent", 0, "", None, 0, 0]
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISREG(found.st_mode):
        return ["file", mode, "", None, found.st_nlink, found.st_mtime_ns]
    if stat.S_ISLNK(found.st_mode):
        return ["link", mode, os.readlink(path), None, 1, found.st_mtime_ns]
    return ["folder" if stat.S_ISDIR(found.st_mode) else "other", mode, "", None, 1, found.st_mtime_ns]


def _text(pid: int, address: int) -> str:
    """Read a path out of the memory of the process."""
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while len(text) <= _PAGE:
            part = os.pread(memory, _PAGE - (address + len(text)) % _PAGE, address + len(text))
            before, end, _ = part.partition(b"\0")
            text += before
            if end or not part:
                return os.fsdecode(text)
        return ""
    finally:
        os.close(memory)
