"""Seccomp filters, assembled here: one takes dangerous calls away, one reports changes of files before they happen."""

import ctypes
import os

from surehand.sandbox.linux.system import MACHINE, syscall

_ALLOW = 0x7FFF0000
_NOTIFY = 0x7FC00000
_ERRNO = 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# fmt: off
_X86_64 = {
    "open": 2, "creat": 85, "truncate": 76, "unlink": 87, "rmdir": 84, "rename": 82, "link": 86, "symlink": 88,
    "mkdir": 83, "mknod": 133, "chmod": 90, "fchmod": 91, "openat": 257, "mkdirat": 258, "mknodat": 259,
    "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266, "fchmodat": 268, "renameat2": 316,
    "openat2": 437, "fchmodat2": 452,
    "socket": 41, "clone": 56, "clone3": 435, "unshare": 272, "setns": 308, "ioctl": 16, "mount": 165,
    "umount2": 166, "pivot_root": 155, "chroot": 161, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
    "keyctl": 250, "add_key": 248, "request_key": 249, "kexec_load": 246, "kexec_file_load": 320,
    "init_module": 175, "finit_module": 313, "delete_module": 176, "open_by_handle_at": 304, "swapon": 167,
    "swapoff": 168, "reboot": 169, "settimeofday": 164, "clock_settime": 227, "acct": 163, "quotactl": 179,
    "process_vm_writev": 311, "vhangup": 153, "iopl": 172, "ioperm": 173, "shmget": 29, "semget": 64, "msgget": 68,
    "mq_open": 240, "prlimit64": 302,
}
_AARCH64 = {
    "truncate": 45, "fchmod": 52, "openat": 56, "mkdirat": 34, "mknodat": 33, "unlinkat": 35, "renameat": 38,
    "linkat": 37, "symlinkat": 36, "fchmodat": 53, "renameat2": 276, "openat2": 437, "fchmodat2": 452,
    "socket": 198, "clone": 220, "clone3": 435, "unshare": 97, "setns": 268, "ioctl": 29, "mount": 40,
    "umount2": 39, "pivot_root": 41, "chroot": 51, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282,
    "keyctl": 219, "add_key": 217, "request_key": 218, "kexec_load": 104, "kexec_file_load": 294,
    "init_module": 105, "finit_module": 273, "delete_module": 106, "open_by_handle_at": 265, "swapon": 224,
    "swapoff": 225, "reboot": 142, "settimeofday": 170, "clock_settime": 112, "acct": 89, "quotactl": 60,
    "process_vm_writev": 271, "vhangup": 58, "shmget": 194, "semget": 190, "msgget": 186, "mq_open": 180,
    "prlimit64": 261,
}
_NEW = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442,
}
# fmt: on
NUMBERS: dict[str, int] = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(MACHINE, {}) | _NEW

_REFUSED = [
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "setns",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "keyctl",
    "add_key",
    "request_key",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "open_by_handle_at",
    "swapon",
    "swapoff",
    "reboot",
    "settimeofday",
    "clock_settime",
    "acct",
    "quotactl",
    "vhangup",
    "iopl",
    "ioperm",
]
# What stays in the kernel when its maker has ended, in memory that nothing counts, where no namespace ends with it.
_LASTING = ["shmget", "semget", "msgget", "mq_open"]
# Answered "no such call": programs then take the older way, which the filter can read (or do without).
_ABSENT = ["clone3", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register"]

# What would leave a program behind that runs as its owner or group, whoever starts it: the argument with the mode.
_SET_MODE = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
_MAKES_FILE = {"open": (1, 2), "openat": (2, 3)}  # flags and mode; the mode counts only where a file is made
_SET_USER_ID, _SET_GROUP_ID = 0o4000, 0o2000
_MAKES = os.O_CREAT | 0o20000000  # O_TMPFILE makes one without O_CREAT; of its bits only this is its own

_CLONE_THREAD = 0x00010000
_CLONE_NEWUSER = 0x10000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16

_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES = [
    "creat",
    "truncate",
    "unlink",
    "unlinkat",
    "rmdir",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "openat2",
]


def supported() -> bool:
    """Tell whether filters can be built for this architecture."""
    return MACHINE in _ARCHITECTURES


class _Program:
    """A BPF program under construction; every rule returns a verdict or falls through to the next."""

    def __init__(self, foreign: int) -> None:
        self.code: list[tuple[int, int, int, int]] = []
        self._add(0x20, 4)  # load the architecture
        self._add(0x15, _ARCHITECTURES[MACHINE], 1, 0)
        self._add(0x06, foreign)
        self._add(0x20, 0)  # load the number of the call
        if MACHINE == "x86_64":
            self._add(0x35, 0x40000000, 0, 1)  # the x32 calls have numbers of their own
            self._add(0x06, foreign)

    def _add(self, code: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        self.code.append((code, if_true, if_false, value & 0xFFFFFFFF))

    def refuse(self, names: list[str], verdict: int) -> None:
        """Answer each of these calls with `verdict`."""
        for name in names:
            if (number := NUMBERS.get(name)) is not None:
                self._add(0x15, number, 0, 1)
                self._add(0x06, verdict)

    def refuse_argument(self, name: str, index: int, values: list[int], verdict: int, *, bits: bool = False) -> None:
        """Answer the call with `verdict` when an argument is one of `values` (or has one of these bits)."""
        if (number := NUMBERS.get(name)) is None:
            return
        self._add(0x15, number, 0, 2 + 2 * len(values))
        self._add(0x20, 16 + 8 * index)
        for value in values:
            self._add(0x45 if bits else 0x15, value, 0, 1)
            self._add(0x06, verdict)
        self._add(0x06, _ALLOW)

    def refuse_others(self, name: str, index: int, values: list[int], verdict: int) -> None:
        """Answer the call with `verdict` unless an argument is one of `values`."""
        if (number := NUMBERS.get(name)) is None:
            return
        self._add(0x15, number, 0, 3 + len(values))
        self._add(0x20, 16 + 8 * index)
        for left, value in zip(range(len(values), 0, -1), values, strict=True):
            self._add(0x15, value, left, 0)
        self._add(0x06, verdict)
        self._add(0x06, _ALLOW)

    def refuse_mode(self, name: str, flags: int, mode: int, bits: int, verdict: int) -> None:
        """Answer a call that makes a file with `verdict` when its mode has one of these bits."""
        if (number := NUMBERS.get(name)) is None:
            return
        self._add(0x15, number, 0, 6)
        self._add(0x20, 16 + 8 * flags)
        self._add(0x45, _MAKES, 0, 3)
        self._add(0x20, 16 + 8 * mode)
        self._add(0x45, bits, 0, 1)
        self._add(0x06, verdict)
        self._add(0x06, _ALLOW)

    def pack(self) -> bytes:
        """Return the finished program in the kernel's format."""
        self._add(0x06, _ALLOW)
        return b"".join(
            code.to_bytes(2, "little") + bytes((if_true, if_false)) + value.to_bytes(4, "little")
            for code, if_true, if_false, value in self.code
        )


def _install(packed: bytes, flags: int = 0) -> int:
    instructions = ctypes.create_string_buffer(packed, len(packed))
    header = (len(packed) // 8).to_bytes(8, "little") + ctypes.addressof(instructions).to_bytes(8, "little")
    return syscall("seccomp", 1, flags, header)


def containing(*, network: bool, alone: bool) -> bytes:
    """Return the filter that refuses calls no command needs; `alone`: there are no namespaces.

    Without namespaces a Unix socket can reach servers outside (docker, key agents), so creating one is refused.
    `socketpair`, for communication within the command, is another call.
    """
    program = _Program(_ERRNO | _ENOSYS)
    program.refuse(_ABSENT, _ERRNO | _ENOSYS)
    program.refuse(_REFUSED, _ERRNO | _EPERM)
    program.refuse_argument("clone", 0, [_CLONE_NEWUSER], _ERRNO | _EPERM, bits=True)
    program.refuse_argument("unshare", 0, [_CLONE_NEWUSER], _ERRNO | _EPERM, bits=True)
    program.refuse_argument("ioctl", 1, [_TIOCSTI, _TIOCLINUX], _ERRNO | _EPERM)
    # Root can give a file any group, so that its bit counts as well; to others it is how folders are shared.
    bits = _SET_USER_ID | (_SET_GROUP_ID if os.geteuid() == 0 else 0)
    for name, mode in _SET_MODE.items():
        program.refuse_argument(name, mode, [bits], _ERRNO | _EPERM, bits=True)
    for name, (flags, mode) in _MAKES_FILE.items():
        program.refuse_mode(name, flags, mode, bits, _ERRNO | _EPERM)
    if alone:
        program.refuse(_LASTING, _ERRNO | _ENOSYS)
        # On other processes it needs only the same user: a limit on CPU time would kill the user's programs.
        program.refuse_others("prlimit64", 0, [0], _ERRNO | _EPERM)
    # An allow list: some families offer another one's connections under their own number (AF_SMC, AF_RXRPC).
    families = [_AF_NETLINK, *([_AF_INET, _AF_INET6] if network or not alone else []), *([] if alone else [_AF_UNIX])]
    program.refuse_others("socket", 0, families, _ERRNO | _EAFNOSUPPORT)
    return program.pack()


def reporting() -> bytes:
    """Return the filter that reports every call about to change a file or to start a thread."""
    program = _Program(_ALLOW)
    program.refuse(["clone3"], _NOTIFY)  # its arguments are in memory, where a filter cannot look
    program.refuse_argument("clone", 0, [_CLONE_THREAD], _NOTIFY, bits=True)
    program.refuse(_CHANGES, _NOTIFY)
    program.refuse_argument("open", 1, [_WRITING_FLAGS], _NOTIFY, bits=True)
    program.refuse_argument("openat", 2, [_WRITING_FLAGS], _NOTIFY, bits=True)
    return program.pack()


def contain(packed: bytes) -> None:
    """Enforce a filter on this process and its children; needs no_new_privs."""
    _install(packed)


def report_changes(packed: bytes) -> int:
    """Have coming changes of files reported; return the descriptor of the reports. Needs no_new_privs, or root.

    A reported call waits until it is answered, which leaves time to save what the file held before.
    """
    new_listener, wait_killable = 1 << 3, 1 << 5
    try:
        return _install(packed, new_listener | wait_killable)
    except OSError:
        return _install(packed, new_listener)  # kernels before 5.19 cannot restrict the wait to fatal signals
