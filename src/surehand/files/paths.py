"""Paths: opened beneath allowed roots by the kernel itself, so that nothing can change between check and use.

    fd = open_beneath(path, roots, os.O_RDONLY)      # links inside the roots work, a way out is refused
    refuse_special(fd, path)                         # FIFOs, sockets, devices, /proc: an error at once

On Linux `openat2` walks the path under `RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS`. What that refuses although it may
be harmless (an absolute link, a link from one root into another) is resolved by name first and the resolved name is
then opened with links forbidden altogether: a link put there in between makes the open fail, never leak. Where there
is no `openat2`, the resolved name is walked one component at a time with `O_NOFOLLOW`, which holds just as well.

A path outside the session's roots is judged by the policy before a tool runs. `readable_roots` then returns the folder
the path leads to, and only that. For a path inside the roots by name it returns the roots only, so a link swapped in
after the judgement cannot lead out of them.

Only regular names are opened: `O_NONBLOCK` (a FIFO never blocks) and `O_CLOEXEC` are always set.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from surehand.core.errors import ToolFailure

if TYPE_CHECKING:
    from surehand.core.context import ToolContext

NO_MAGIC_LINKS: Final = 0x02
NO_SYMLINKS: Final = 0x04
BENEATH: Final = 0x08
CACHED: Final = 0x20
"""Fail with EAGAIN unless every name on the way is in memory (Linux 5.12)."""
PATH_ONLY: Final = getattr(os, "O_PATH", os.O_RDONLY)
"""Opens a folder as a base for other paths, not for reading; O_RDONLY on other systems than Linux."""
_NUMBER: Final = 437  # the same on every Linux architecture
AT_FDCWD: Final = -100
"""Stands for no folder: the path is absolute."""
_SYNC_FILE_RANGE_WRITE: Final = 2

ATTEMPTS: Final = 16
"""How often a path that changes while it is opened is tried again."""
ALWAYS: Final = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY

_LINKS_INSIDE: Final = BENEATH | NO_MAGIC_LINKS
_NO_LINKS: Final = BENEATH | NO_SYMLINKS
_CHANGED: Final = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EAGAIN, errno.EXDEV})
# procfs, tracefs and debugfs: files that stat as regular, and block, never end or hold the memory of a process.
_TRAPS: Final = frozenset({0x9FA0, 0x74726163, 0x64626720})
_KINDS: Final[tuple[tuple[Callable[[int], bool], str], ...]] = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class OutsideRoots(ToolFailure):
    """The path leads outside the allowed roots."""

    def __init__(self, path: str, real: str = "") -> None:
        leads = f" (it leads to {real})" if real and real != path else ""
        super().__init__(
            f"{path} is outside the folders this session may use{leads}",
            code="permission_denied",
            hint="Use a path inside the workspace, or name the real path so that it can be asked about.",
            details={"layer": 2, "number": 2, "path": path},
        )


def open_beneath(path: str, roots: Sequence[str], flags: int, mode: int = 0o666) -> int:
    """Open `path` and return its descriptor, never one of a file outside `roots`.

    Raises OutsideRoots for a way out and OSError as `os.open` does. `O_NOFOLLOW` refuses a link as last component.
    """
    plain_name(path)
    flags |= ALWAYS
    mode = mode if flags & os.O_CREAT else 0
    try:
        return _open_by_kernel(path, roots, flags, mode, _LINKS_INSIDE)
    except OSError as problem:
        if problem.errno not in _CHANGED:
            raise
    return _open_resolved(path, roots, flags, mode)


def open_at_hand(path: str, roots: Sequence[str]) -> tuple[int, str]:
    """Open `path` for reading as `open_beneath` does, without waiting for a disk; raises OSError if that is impossible.

    Returns the descriptor and the real path, or "" for the latter if the path has links.
    """
    plain_name(path)
    flags, inside = os.O_RDONLY | ALWAYS, root_of(path, roots) is not None
    if inside and (fd := _open_without_links(path, flags, CACHED)) >= 0:
        return fd, path
    return _open_by_kernel(path, roots, flags, 0, _LINKS_INSIDE | CACHED), ""


def _open_without_links(path: str, flags: int, resolve: int = 0) -> int:
    """Open an absolute path without links and `..`, which is its own real path; return -1 for any other."""
    if not path.startswith("/") or path.startswith("//") or os.path.normpath(path) != path or not can_openat2():
        return -1
    try:
        return openat2(AT_FDCWD, path, flags, 0, NO_SYMLINKS | resolve)
    except OSError as problem:
        if problem.errno != errno.ELOOP:
            raise
        return -1


def real_path(path: str) -> str:
    """Return the absolute path without links and `..`; components that do not exist are kept.

    Only a name: an open by it is checked again by the kernel. Two or three system calls instead of one per folder.
    """
    plain_name(path)
    if sys.platform == "linux" and not path.startswith("/proc"):
        try:
            if (fd := _open_without_links(path, os.O_PATH | os.O_CLOEXEC)) >= 0:
                os.close(fd)
                return path
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            folder, name = os.path.split(path)
            if name in ("", ".", "..") or not folder.startswith("/"):
                return os.path.realpath(path)
            found = os.path.join(real_path(folder), name)
            return os.path.realpath(found) if os.path.islink(found) else found
        except OSError:
            return os.path.realpath(path)
        try:
            real = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            real = ""
        finally:
            os.close(fd)
        if real.startswith("/") and not real.endswith(" (deleted)"):
            return real
    return os.path.realpath(path)


def root_of(path: str, roots: Sequence[str]) -> str | None:
    """Return the root that `path` is beneath by name (the longest), or None."""
    found: str | None = None
    for root in roots:  # a plain loop: asked several times a call, mostly of one root
        if is_beneath(path, root) and (found is None or len(root) > len(found)):
            found = root
    return found


def is_beneath(path: str, root: str) -> bool:
    """Return whether `path` is `root` or beneath it, by name."""
    return path == root or path.startswith(root if root.endswith("/") else root + "/")


def readable_roots(ctx: ToolContext, path: str) -> tuple[str, ...]:
    """Return the roots to open the absolute `path` beneath: the session's, or the folder an outside path leads to.

    For reading and writing. An outside path has been judged as an effect before a tool runs.
    """
    roots = ctx.session.roots
    name = os.path.normpath(path)
    if root_of(name, roots) is not None:
        return roots
    real_roots = tuple(os.path.realpath(root) for root in roots)
    real = real_path(path)
    if root_of(name, real_roots) is not None or root_of(real, real_roots) is not None:
        return (*roots, *real_roots)
    folder = os.path.dirname(real)
    while not os.path.isdir(folder):  # a folder that does not exist yet has no contents to protect
        folder = os.path.dirname(folder)
    return (folder,)


def open_folder(path: str, roots: Sequence[str], *, make: bool = False) -> tuple[int, list[str]]:
    """Open the folder `path` (a resolved name) without following any link; return its descriptor and what was made.

    With `make`, missing folders are created on the way, beneath the roots only.
    """
    made: list[str] = []
    root = root_of(path, roots) or root_of(path, [os.path.realpath(root) for root in roots])
    if root is None:
        raise OutsideRoots(path)
    try:
        if path == root:
            return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), made
        return _with_root(root, lambda top: open_strict(top, path[len(root) :], os.O_RDONLY | os.O_DIRECTORY, 0)), made
    except FileNotFoundError:
        if not make:
            raise
    for attempt in range(ATTEMPTS):
        try:
            return _make_folders(root, path, made), list(dict.fromkeys(made))
        except FileNotFoundError:  # somebody removed a folder between its making and its opening
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _make_folders(root: str, path: str, made: list[str]) -> int:
    current, fd = root, os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in filter(None, path[len(root) :].split("/")):
        current = os.path.join(current, name)
        fd = _step(fd, name, current, made)
    return fd


def refuse_special(fd: int, path: str, status: os.stat_result | None = None) -> os.stat_result:
    """Return the status of `fd`; raise ToolFailure unless it is a regular file or a folder."""
    status = status or os.fstat(fd)
    if status.st_size and stat.S_ISREG(status.st_mode):
        return status
    for is_kind, kind in _KINDS:
        if is_kind(status.st_mode):
            raise special_failure(path, kind)
    if status.st_size == 0 and file_system_type(fd) in _TRAPS:
        raise special_failure(path, "a file of the kernel, not of a disk")
    return status


def special_failure(path: str, kind: str) -> ToolFailure:
    """Return the failure for something that is neither a regular file nor a folder."""
    return ToolFailure(
        f"{path} is {kind}; only regular files can be read or written",
        hint="Use Bash for it if you really need it.",
        details={"path": path},
    )


def plain_name(path: str) -> str:
    """Return `path`, or raise ToolFailure if it cannot be a file name."""
    if "\0" in path:
        raise ToolFailure("the path contains a NUL character", code="invalid_args", details={"path": path})
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolFailure(
            f"the path {path!r} contains a character no file name can have", code="invalid_args"
        ) from None
    return path


def near_names(path: str, ctx: ToolContext, limit: int = 3) -> list[str]:
    """Return full paths beside the missing `path` with similar names, best first.

    None outside the session's roots (a permission for one path does not cover its neighbours), and no secrets.
    """
    import difflib

    folder, name = os.path.split(path)
    try:
        fd = open_beneath(folder, ctx.session.roots, os.O_RDONLY | os.O_DIRECTORY)
    except (OSError, ToolFailure):
        return []
    try:
        listed = [each for each in os.listdir(fd)[:5000] if each != name]  # the name itself may be a broken link
    finally:
        os.close(fd)
    hides = ctx.session.keeps_out
    names = [each for each in listed if not hides(full := os.path.join(folder, each)) and not hides(f"{full}/")]
    plain, wanted = {each: _plain_name(each) for each in sorted(names, reverse=True)}, _plain_name(name)
    by_plain = {each: original for original, each in plain.items()}
    exact = [each for each in sorted(names) if plain[each] == wanted]
    same_stem = [each for each in sorted(names) if plain[each].split(".")[0] == wanted.split(".")[0]]
    close = [by_plain[each] for each in difflib.get_close_matches(wanted, by_plain, limit, 0.6)]
    return [os.path.join(folder, each) for each in dict.fromkeys((*exact, *close, *same_stem))][:limit]


def _plain_name(name: str) -> str:
    """Return a name for comparison: lower case, with composed accents (some systems store them decomposed)."""
    if name.isascii():
        return name.lower()
    import unicodedata

    return unicodedata.normalize("NFC", name).lower()


def workspace_failure(workspace: str) -> ToolFailure:
    """Return the failure for a path in a workspace that was removed meanwhile."""
    return ToolFailure(
        f"the workspace {workspace} no longer exists",
        hint="Create the folder again, or start a session in another one.",
        details={"path": workspace, "reason": "workspace_gone"},
    )


def missing_failure(path: str, ctx: ToolContext) -> ToolFailure:
    """Return the failure for a file that does not exist, with similar names."""
    workspace = ctx.session.workspace
    if is_beneath(path, workspace) and not os.path.isdir(workspace):
        return workspace_failure(workspace)
    near = near_names(path, ctx)
    hint = f"Did you mean {' or '.join(near)}?" if near else "Check the path; Glob finds files by pattern."
    return ToolFailure(missing_message(path), hint=hint, details={"path": path, "near": near})


def missing_message(path: str) -> str:
    """Return the message that a file, or the target of a link, does not exist."""
    try:
        return f"File does not exist: {path} is a link to {os.readlink(path)}, and nothing is there"
    except (OSError, ValueError):
        return f"File does not exist: {path}"


_MEANINGS: Final[dict[int, tuple[str, str]]] = {
    errno.ENOSPC: ("no space is left on the disk", "Free some space, then try again; the file is as it was."),
    errno.EDQUOT: ("the disk quota is used up", "Free some space, then try again; the file is as it was."),
    errno.EROFS: ("the file system is read-only", "Write somewhere else; the file is as it was."),
    errno.EFBIG: (
        "the file would be larger than the system allows",
        "The file is as it was; raise the limit (`ulimit -f`).",
    ),
    errno.EIO: ("the disk reported an error", "The file is as it was; check the disk."),
    errno.EACCES: ("the operating system denies access", "Check owner and mode of the file and its folders."),
    errno.EPERM: ("the operating system does not permit it", "Check owner, mode and flags of the file."),
    errno.ELOOP: ("its links lead in a circle or keep changing", "Name the file itself."),
    errno.ENAMETOOLONG: ("the name is too long", "Use a shorter name."),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "Check the path."),
    errno.EEXIST: ("something else is there", "Move it away, then try again."),
    errno.EISDIR: ("it is a folder", "Name a file; `ls` or Glob lists a folder."),
    errno.EMFILE: ("this process has too many open files", "Close something, then try again."),
    errno.ENXIO: ("it is a FIFO or a socket nobody listens to", "Only regular files can be used."),
    errno.ETXTBSY: ("it is a program that runs at the moment", "Stop it first."),
}


def os_failure(problem: OSError, path: str, doing: str) -> ToolFailure:
    """Return the failure for an OSError; `doing` is a verb such as "read" or "write to"."""
    number = problem.errno or 0
    meaning, hint = _MEANINGS.get(number, (problem.strerror or str(problem), ""))
    name = errno.errorcode.get(number, str(number))
    return ToolFailure(f"cannot {doing} {path}: {meaning} ({name})", hint=hint, details={"path": path, "errno": name})


def _open_by_kernel(path: str, roots: Sequence[str], flags: int, mode: int, resolve: int) -> int:
    """Have the kernel itself walk the path beneath the root it lies in by name; ELOOP where it cannot."""
    root = root_of(path, roots)
    if root is None or root != root_of(os.path.normpath(path), roots) or not can_openat2():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    below = path[len(root) :].lstrip("/") or "."
    return _with_root(root, lambda top: openat2(top, below, flags, mode, resolve))


def _open_resolved(path: str, roots: Sequence[str], flags: int, mode: int) -> int:
    """Resolve by name, then open the result with links forbidden; tried again when somebody changes it meanwhile."""
    real_roots = [os.path.realpath(root) for root in roots]
    last = OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    for _ in range(ATTEMPTS):
        real = _resolve_link(path, flags)
        root = root_of(real, real_roots)
        if root is None:
            raise OutsideRoots(path, real)
        below = real[len(root) :]
        try:
            return _with_root(root, lambda top, below=below: open_strict(top, below, flags, mode))
        except OSError as problem:
            if problem.errno not in _CHANGED:
                raise
            last = problem
    raise last


def _resolve_link(path: str, flags: int) -> str:
    if not flags & os.O_NOFOLLOW:
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name) if name not in ("", ".", "..") else os.path.realpath(path)


def _with_root(root: str, use: Callable[[int], int]) -> int:
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return use(top)
    finally:
        os.close(top)


def open_strict(top: int, below: str, flags: int, mode: int) -> int:
    """Open `below` the folder `top`, following no link at all."""
    below = below.strip("/") or "."
    if can_openat2():
        return openat2(top, below, flags, mode, _NO_LINKS)
    *folders, name = below.split("/")
    current = os.dup(top)
    try:
        for folder in folders:
            deeper = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            os.close(current)
            current = deeper
        return os.open(name, flags | ALWAYS | os.O_NOFOLLOW, mode, dir_fd=current)
    finally:
        os.close(current)


def _step(fd: int, name: str, current: str, made: list[str]) -> int:
    try:
        try:
            os.mkdir(name, dir_fd=fd)
            made.append(current)
        except FileExistsError:
            pass
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    finally:
        os.close(fd)


# What Python has no name for: `openat2`, the type of the file system a descriptor is on, and a head start for a flush.
# `ctypes` is loaded on first use. Off Linux, on old kernels and where a sandbox forbids it, `can_openat2()` is false.


@cache
def can_openat2() -> bool:
    """Say whether the kernel answers `openat2`."""
    if sys.platform != "linux":
        return False
    try:
        os.close(openat2(AT_FDCWD, "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0, 0))
    except OSError:
        return False
    return True


def openat2(top: int, name: str, flags: int, mode: int, resolve: int) -> int:
    """Open `name` relative to the folder `top` under the `resolve` rules; raises OSError as `os.open` does."""
    encoded = os.fsencode(name)
    while True:
        fd, number = _calls()[0](top, encoded, flags, mode, resolve)
        if fd >= 0:
            return fd
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number), name)


def start_flush(fd: int) -> None:
    """Have the system begin to write what it holds of a file, without a wait: `fsync` has the less to wait for."""
    if sys.platform == "linux":
        _calls()[2](fd)


def file_system_type(fd: int) -> int:
    """Return the magic number of the file system `fd` is on, 0 where that cannot be told."""
    return _calls()[1](fd) if sys.platform == "linux" else 0


# File systems whose times are as fine as their changes since Linux 6.13: ext4, xfs, btrfs, tmpfs.
_FINE: Final = frozenset({0xEF53, 0x58465342, 0x9123683E, 0x01021994})


def exact_times(fd: int) -> bool:
    """Say whether every change of a file after a look at its status moves its change time, however soon."""
    return _fine_kernel() and file_system_type(fd) in _FINE


@cache
def _fine_kernel() -> bool:
    if sys.platform != "linux":
        return False
    major, _, rest = os.uname().release.partition(".")
    minor = rest.partition(".")[0]
    return major.isdigit() and minor.isdigit() and (int(major), int(minor)) >= (6, 13)


@cache
def _calls() -> tuple[
    Callable[[int, bytes, int, int, int], tuple[int, int]], Callable[[int], int], Callable[[int], None]
]:
    import ctypes

    class OpenHow(ctypes.Structure):
        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    size = ctypes.sizeof(OpenHow)

    @cache
    def how(flags: int, mode: int, resolve: int) -> Any:
        return ctypes.byref(OpenHow(flags, mode, resolve))  # the kernel only reads it

    def call_openat2(top: int, name: bytes, flags: int, mode: int, resolve: int) -> tuple[int, int]:
        return library.syscall(_NUMBER, top, name, how(flags, mode, resolve), size), ctypes.get_errno()

    def call_fstatfs(fd: int) -> int:
        answer = (ctypes.c_long * 32)()  # larger than any struct statfs; its first word is the type
        return answer[0] if library.fstatfs(fd, ctypes.byref(answer)) == 0 else 0

    zero, known = ctypes.c_int64(0), hasattr(library, "sync_file_range")

    def call_sync_file_range(fd: int) -> None:
        if known:
            library.sync_file_range(fd, zero, zero, _SYNC_FILE_RANGE_WRITE)

    return call_openat2, call_fstatfs, call_sync_file_range
