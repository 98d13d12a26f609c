"""The journal of one call: what every file the command is about to change held before, kept at the moment before.

The kernel holds the changing system call until we have answered, so a copy made here is exact; the command itself
writes the real file at once, and everybody sees it. Nothing is paid by calls that only read.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import stat

from surehand.host.sandbox.seccomp import NUMBERS

TYPE_CHECKING = False  # `typing` itself would double the time the launcher takes to start
if TYPE_CHECKING:
    from typing import Any

_RECEIVE = 0xC0502100
_ANSWER = 0xC0182101
_CONTINUE = 1
_PAGE = 4096
_AT_CWD = 0xFFFFFF9C
_FILES, _BYTES = 100_000, 1 << 30

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
        self._forbidden = tuple(path + "/" for path in forbidden if "/.git/" in path)
        self._folders: dict[str, str] = {}
        self._git: set[str] = set()
        self.begin(folder)

    def begin(self, folder: int) -> None:
        """Start a new list, kept in `folder`."""
        self.folder = folder
        self.entries: dict[str, list[Any]] = {}
        self.bytes = 0
        self.lost = ""
        self._git.clear()

    def finish(self) -> dict[str, Any]:
        """Write the list where the content is; return how it went. Changes that follow belong to no list."""
        if self.folder < 0:
            return {"count": 0, "lost": "", "git": []}
        listing = [[os.fsencode(path), *entry] for path, entry in self.entries.items()]
        descriptor = os.open("list", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=self.folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(marshal.dumps(listing))
        os.close(self.folder)
        self.folder, count, self.entries = -1, len(self.entries), {}
        return {"count": count, "lost": self.lost, "git": [os.fsencode(path) for path in self._git]}

    def answer(self, listener: int) -> bool:
        """Take one report, keep what it endangers, let it go on; False when nobody is left to report."""
        request = bytearray(80)
        try:
            fcntl.ioctl(listener, _RECEIVE, request)
        except OSError as problem:
            return problem.errno == 2  # the process was killed while it waited
        try:
            if self.folder >= 0 and not self.lost:
                self._keep(request)
        except OSError as problem:
            self.lost = self.lost or f"{problem.strerror} while {problem.filename} was being kept"
        finally:
            reply = request[0:8] + bytes(12) + _CONTINUE.to_bytes(4, "little")
            try:
                fcntl.ioctl(listener, _ANSWER, reply)
            except OSError:
                pass  # it was interrupted or killed; it will report again if it still wants to
        return True

    def _keep(self, request: bytearray) -> None:
        pid = int.from_bytes(request[8:12], "little")
        name = _BY_NUMBER.get(int.from_bytes(request[16:20], "little"), "")
        arguments = [int.from_bytes(request[32 + 8 * index : 40 + 8 * index], "little") for index in range(6)]
        if name == "fchmod":
            self._note(os.readlink(f"/proc/{pid}/fd/{arguments[0] & 0xFFFFFFFF}"), content=False)
            return
        found_paths: list[str] = []
        for position, (folder, path, follow) in enumerate(_NAMES.get(name, ())):
            at = _AT_CWD if folder is None else arguments[folder] & 0xFFFFFFFF
            if not (found := self._resolve(pid, at, _text(pid, arguments[path]), follow)):
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

    def _resolve(self, pid: int, at: int, path: str, follow: bool) -> str:
        """Return the real path below one of the roots, or an empty text for any other place."""
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
        if not found.startswith(self.roots):
            return ""
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
            entry = self.entries[path] = _look(path)
            if len(self.entries) > _FILES:
                self.lost = f"it changed more than {_FILES} files"
                return
        if content and entry[0] == "file" and entry[3] is None:
            entry[3] = self._copy(path, link and entry[4] == 1)

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

    def _copy(self, path: str, may_link: bool) -> str | None:
        """Keep the content: by a second name where the first is about to go, otherwise by a copy."""
        kept = str(len(self.entries)) + "-" + str(self.bytes)
        if may_link:
            try:
                self._link(path, kept)
                return kept
            except OSError:
                pass  # another file system, or a file of somebody else
        source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            size = os.fstat(source).st_size
            self.bytes += size + 1
            if self.bytes > _BYTES:
                self.lost = f"it changed more than {_BYTES >> 20} MB"
                return None
            target = os.open(kept, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=self.folder)
            try:
                while size > 0 and (sent := os.sendfile(target, source, None, size)) > 0:
                    size -= sent
            finally:
                os.close(target)
        finally:
            os.close(source)
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
