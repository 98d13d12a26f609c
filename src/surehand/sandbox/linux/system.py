"""Linux system calls that Python does not have, by ctypes. Imported by the launcher: no heavy imports here."""

import ctypes
import os

MACHINE = os.uname().machine

# Numbers differ by machine only for calls older than 2019.
_OLD_NUMBERS = {
    "x86_64": {"clone": 56, "capset": 126, "seccomp": 317},
    "aarch64": {"clone": 220, "capset": 91, "seccomp": 277},
}
NUMBERS: dict[str, int] = {
    **_OLD_NUMBERS.get(MACHINE, {}),
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
SIGCHLD = 17

PR_SET_PDEATHSIG = 1
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 2

_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 0x1

# PyDLL keeps the GIL: after `clone` the child must hold it.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _check_result(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(name: str, *args: "int | bytes | ctypes.Array[ctypes.c_char] | None") -> int:
    """Make the named system call; raise OSError when it fails or this machine has no number for it."""
    if (number := NUMBERS.get(name)) is None:
        raise OSError(38, f"{name} is not known on {MACHINE}")
    wrapped = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return _check_result(_libc.syscall(ctypes.c_long(number), *wrapped), name)


def prctl(option: int, argument: int = 0, third: int = 0) -> int:
    """Change a property of this process."""
    numbers = [ctypes.c_ulong(value) for value in (argument, third, 0, 0)]
    return _check_result(_libc.prctl(ctypes.c_int(option), *numbers), f"prctl {option}")


_PAGE, _SHORT = 4096, 256
_read_buffer = ctypes.create_string_buffer(_PAGE)
_read_view = memoryview(_read_buffer).cast("B")
_read_places = (ctypes.c_size_t * 4)(ctypes.addressof(_read_buffer))
# Built once: converting them for each call takes a quarter of its time.
_read_arguments = (
    ctypes.c_void_p(ctypes.addressof(_read_places)),
    ctypes.c_ulong(1),
    ctypes.c_void_p(ctypes.addressof(_read_places) + 2 * ctypes.sizeof(ctypes.c_size_t)),
    ctypes.c_ulong(1),
    ctypes.c_ulong(0),
)
_readv = _libc.process_vm_readv
_readv.restype = ctypes.c_ssize_t


def read_text(pid: int, address: int) -> bytes:
    """Return a NUL-ended text from the memory of a process; empty if it is longer than a path can be."""
    size = _PAGE - address % _PAGE
    _read_places[1] = _read_places[3] = size = size if size < _SHORT else _SHORT
    _read_places[2] = address
    read = _readv(pid, *_read_arguments)
    text = _read_buffer.value
    return text if len(text) < read else _read_parts(pid, address, size)


def _read_parts(pid: int, address: int, size: int) -> bytes:
    """Read a text that is longer than `size`, or that `process_vm_readv` may not read."""
    text = b""
    while len(text) <= _PAGE:
        _read_places[1] = _read_places[3] = size
        _read_places[2] = address
        read = _readv(pid, *_read_arguments)
        read = read if read > 0 else _read_slowly(pid, address, size)
        part, end, _ = _read_view[:read].tobytes().partition(b"\0")
        text += part
        if end or not part:
            return text
        address += read
        size = _PAGE - address % _PAGE
    return b""


def _read_slowly(pid: int, address: int, size: int) -> int:
    """Read memory through /proc, where `process_vm_readv` is not permitted."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.readinto(_read_view[:size]) or 0


def unshare(flags: int) -> None:
    """Move this process into new namespaces of the kinds in `flags`."""
    _check_result(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount `source` on `target`; the error names the target."""
    parts = [os.fsencode(text) or None for text in (source, target, kind)]
    data = os.fsencode(options) or None
    _check_result(_libc.mount(*parts, ctypes.c_ulong(flags), data), f"mount on {target}")


def bind(source: str, target: str) -> None:
    """Make `source` (and what is mounted below it) appear at `target`."""
    mount(source, target, flags=MS_BIND | MS_REC)


def set_read_only(path: str, read_only: bool, *, recursive: bool = True) -> None:
    """Set or clear read-only on the mount at `path`; works on mounts of this namespace only."""
    attr_set, attr_clear = (_MOUNT_ATTR_RDONLY, 0) if read_only else (0, _MOUNT_ATTR_RDONLY)
    attributes = ctypes.create_string_buffer(32)
    attributes[0:16] = attr_set.to_bytes(8, "little") + attr_clear.to_bytes(8, "little")
    flags = _AT_RECURSIVE if recursive else 0
    syscall("mount_setattr", _AT_FDCWD, os.fsencode(path) + b"\0", flags, attributes, 32)


def unmount(path: str) -> None:
    """Unmount what is mounted at `path`; processes that use it keep it (lazy unmount)."""
    _check_result(_libc.umount2(os.fsencode(path), ctypes.c_int(MNT_DETACH)), f"unmount {path}")


def clone(flags: int) -> int:
    """Fork into new namespaces: 0 in the child, its process id in the parent. Only for a process with one thread."""
    python, pid = ctypes.pythonapi, -1
    python.PyOS_BeforeFork()  # takes the locks that the two calls below release, which is fatal without since 3.13
    try:
        pid = syscall("clone", flags | SIGCHLD, 0, 0, 0, 0)
    finally:
        (python.PyOS_AfterFork_Parent if pid else python.PyOS_AfterFork_Child)()
    return pid


def bound_capabilities(kept: int) -> None:
    """Remove capabilities outside the bit mask `kept` from the bounding set: no program started here can gain them."""
    for number in range(64):
        if not kept >> number & 1:
            try:
                prctl(PR_CAPBSET_DROP, number)
            except OSError:
                break  # past the last capability this kernel knows, or not ours to take away


def keep_capabilities(kept: int) -> None:
    """Drop every capability outside the bit mask `kept`, here and in all children; see also `bound_capabilities`."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    low, high = (kept & 0xFFFFFFFF).to_bytes(4, "little"), (kept >> 32).to_bytes(4, "little")
    header = (0x20080522).to_bytes(4, "little") + bytes(4)
    syscall("capset", header, low + low + bytes(4) + high + high + bytes(4))
