"""Follow a program through every system call of all its threads and children (`ptrace`), in plain Python.

    seen = trace(main, lambda call: KILL if call.name == "rename" else None)
    opened = trace(main, note=lambda call: call.text(1) if call.name == "openat" else "").noted

`decide` is called before each system call and returns None (continue), KILL (kill -9 the program; its children live on
and are traced to their end), KILL_CALLER (kill the caller: the launcher, a supervisor, a command), SHORT (write only
half), or an errno, with which the call fails without being made. `Call` has the caller, number and arguments, and reads
strings and buffers from the caller's memory.

The tracer is a separate process, so that it only waits for what it traces. Nothing outlives it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pickle
import platform
import signal
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

_TRACEME, _SYSCALL, _GETREGSET, _SETREGSET = 0, 24, 0x4204, 0x4205
_SETOPTIONS, _GETEVENTMSG, _SYSCALL_INFO = 0x4200, 0x4201, 0x420E
_SYSGOOD, _FORK, _VFORK, _CLONE, _EXEC, _EXITKILL = 0x1, 0x2, 0x4, 0x8, 0x10, 0x100000
_OPTIONS: Final = _SYSGOOD | _FORK | _VFORK | _CLONE | _EXEC | _EXITKILL
_SYSCALL_STOP: Final = signal.SIGTRAP | 0x80
_WALL: Final = 0x40000000
_ENTRY = 1
_PRSTATUS, _ARM_SYSTEM_CALL = 1, 0x404

KILL: Final = "kill"
KILL_CALLER: Final = "kill caller"
SHORT: Final = "short"
"""The kernel writes only half of a buffer."""
Decision: TypeAlias = Literal["kill", "kill caller", "short"] | int | None

# System calls that tests use, by number. aarch64 lacks the old ones.
_X86_64: Final = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 9: "mmap", 17: "pread64",
    18: "pwrite64", 20: "writev", 21: "access", 22: "pipe", 32: "dup", 33: "dup2", 40: "sendfile", 41: "socket",
    42: "connect", 44: "sendto", 157: "prctl", 133: "mknod", 259: "mknodat",
    53: "socketpair", 56: "clone", 57: "fork", 58: "vfork", 59: "execve", 61: "wait4", 72: "fcntl", 73: "flock",
    74: "fsync", 75: "fdatasync", 76: "truncate", 77: "ftruncate", 78: "getdents", 82: "rename", 83: "mkdir",
    84: "rmdir", 85: "creat", 86: "link", 87: "unlink", 88: "symlink", 89: "readlink", 90: "chmod", 91: "fchmod",
    162: "sync", 202: "futex", 217: "getdents64", 230: "clock_nanosleep", 232: "epoll_wait", 257: "openat",
    258: "mkdirat", 262: "newfstatat", 263: "unlinkat", 264: "renameat", 265: "linkat", 266: "symlinkat",
    267: "readlinkat", 268: "fchmodat", 269: "faccessat", 281: "epoll_pwait", 285: "fallocate", 288: "accept4",
    290: "eventfd2", 291: "epoll_create1", 292: "dup3", 293: "pipe2", 316: "renameat2", 319: "memfd_create",
    326: "copy_file_range", 332: "statx", 435: "clone3", 437: "openat2", 439: "faccessat2",
}  # fmt: skip
_AARCH64: Final = {
    63: "read", 64: "write", 56: "openat", 57: "close", 80: "fstat", 222: "mmap", 67: "pread64", 68: "pwrite64",
    66: "writev", 23: "dup", 71: "sendfile", 198: "socket", 203: "connect",
    206: "sendto", 167: "prctl", 33: "mknodat", 199: "socketpair", 220: "clone", 221: "execve",
    260: "wait4", 25: "fcntl", 32: "flock", 82: "fsync", 83: "fdatasync", 45: "truncate", 46: "ftruncate",
    81: "sync", 98: "futex", 61: "getdents64", 115: "clock_nanosleep", 34: "mkdirat", 79: "newfstatat",
    35: "unlinkat", 38: "renameat", 37: "linkat", 36: "symlinkat", 78: "readlinkat", 53: "fchmodat", 52: "fchmod",
    48: "faccessat", 22: "epoll_pwait", 47: "fallocate", 242: "accept4", 19: "eventfd2", 20: "epoll_create1",
    24: "dup3", 59: "pipe2", 276: "renameat2", 279: "memfd_create", 285: "copy_file_range", 291: "statx",
    435: "clone3", 437: "openat2", 439: "faccessat2",
}  # fmt: skip
NAMES: Final = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(platform.machine(), {})

_ptrace = ctypes.CDLL(None, use_errno=True).ptrace if sys.platform == "linux" else None
if _ptrace is not None:
    _ptrace.restype = ctypes.c_long
    _ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


@dataclass(frozen=True)
class Call:
    """One system call about to be made."""

    thread: int
    number: int
    args: tuple[int, ...]
    count: int
    """How many calls all threads and children have made, this one included."""
    is_main: bool
    """Whether a thread of the program makes it, not one of its children."""

    @property
    def name(self) -> str:
        return NAMES.get(self.number, str(self.number))

    def text(self, index: int, limit: int = 4096) -> str:
        """Return the NUL-terminated string an argument points to; empty if there is none."""
        return os.fsdecode(self.memory(self.args[index], limit).partition(b"\0")[0])

    def file(self, index: int = 0) -> str:
        """Return the path of the descriptor in an argument; empty for a pipe, a socket or a memfd."""
        try:
            path = os.readlink(f"/proc/{self.thread}/fd/{self.args[index]}")
        except OSError:
            return ""
        return path if path.startswith("/") and not path.startswith(("/dev/", "/proc/", "/memfd:")) else ""

    def memory(self, address: int, size: int) -> bytes:
        """Return bytes of the caller's memory, up to the first unreadable page."""
        try:
            with open(f"/proc/{self.thread}/mem", "rb", buffering=0) as memory:
                return os.pread(memory.fileno(), min(size, 4096 - address % 4096), address) + (
                    self._next_page(memory.fileno(), address, size)
                )
        except (OSError, OverflowError):
            return b""

    def _next_page(self, memory: int, address: int, size: int) -> bytes:
        first = 4096 - address % 4096
        try:
            return os.pread(memory, size - first, address + first) if size > first else b""
        except OSError:
            return b""


@dataclass
class Traced:
    """The result of a traced run."""

    calls: int = 0
    """System calls of all threads and children."""
    child_calls: int = 0
    """Those of children among them."""
    status: int | None = None
    """The exit status of the program; None if `decide` had it killed."""
    hit: str = ""
    """The call at which it was killed or failed."""
    children: int = 0
    left: int = 0
    """Number of processes that still ran `patience_s` after the program had ended, and were killed."""
    names: Counter[str] = field(default_factory=Counter[str])
    noted: list[str] = field(default_factory=list[str])
    """What `note` returned, if not empty."""


def available() -> bool:
    """True if this system allows tracing a child."""
    if sys.platform != "linux" or not NAMES:
        return False
    try:
        return trace(lambda: None).status == 0
    except OSError:
        return False


def _go_on(call: Call) -> Decision:
    del call


def _say_nothing(call: Call) -> str:
    del call
    return ""


def trace(
    action: Callable[[], object],
    decide: Callable[[Call], Decision] = _go_on,
    *,
    note: Callable[[Call], str] = _say_nothing,
    lasting: bool = False,
    patience_s: float = 120.0,
) -> Traced:
    """Run `action` in a forked process, calling `decide` before each system call of it and of its children.

    After its first decision, `decide` is no longer called, unless `lasting`. Both functions run in the tracer process:
    their changes of variables are lost, and what `note` returns is in `noted`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    tracer = os.fork()
    if tracer == 0:
        os.close(reader)
        try:
            answer: Traced | str = _Tracer(action, decide, note, lasting, patience_s).run()
        except BaseException:
            answer = traceback.format_exc()
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(tracer, 0)
    answer = pickle.loads(data) if data else "the tracer died"
    if isinstance(answer, str):
        raise OSError(f"the trace failed:\n{answer}")
    return answer


class _Tracer:
    def __init__(
        self,
        action: Callable[[], object],
        decide: Callable[[Call], Decision],
        note: Callable[[Call], str],
        lasting: bool,
        patience_s: float,
    ) -> None:
        self._decide = decide
        self._lasting = lasting
        self._note = note
        self._patience_s = patience_s
        self._seen = Traced()
        self._groups: dict[int, int] = {}
        """The process of every traced thread."""
        self._failing: dict[int, int] = {}
        """The errno for threads in a call that is to fail."""
        self._shortened: dict[int, int] = {}
        """The original size for threads in a shortened write."""
        self._started: set[int] = set()
        """Threads past their first stop, which is not a signal for them."""
        self._inside: set[int] = set()
        """Threads inside a call; their next stop is its end."""
        self._info = (ctypes.c_ubyte * 96)()
        self._ended_at: float | None = None
        self._main = os.fork()
        if self._main == 0:
            self._become(action)

    def _become(self, action: Callable[[], object]) -> None:
        code = 1
        try:
            _request(_TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            action()
            code = 0
        except SystemExit as asked:
            code = asked.code if isinstance(asked.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def run(self) -> Traced:
        os.waitpid(self._main, _WALL)
        _request(_SETOPTIONS, self._main, _OPTIONS)
        self._groups[self._main] = self._main
        _request(_SYSCALL, self._main)
        while self._groups:
            thread, status = self._wait()
            if thread == 0:
                self._seen.left = len(set(self._groups.values()))
                break  # the rest dies with the tracer
            self._take(thread, status)
        return self._seen

    def _wait(self) -> tuple[int, int]:
        """Wait for the next stop; (0, 0) if `patience_s` is over after the end of the program."""
        if self._ended_at is None:
            return os.waitpid(-1, _WALL)
        while time.monotonic() < self._ended_at + self._patience_s:
            try:
                thread, status = os.waitpid(-1, _WALL | os.WNOHANG)
            except ChildProcessError:
                self._groups.clear()
                return 0, 0
            if thread:
                return thread, status
            time.sleep(0.002)
        return 0, 0

    def _take(self, thread: int, status: int) -> None:
        if not os.WIFSTOPPED(status):
            self._gone(thread, status)
            return
        if thread not in self._groups:  # a new thread may stop before its creation is reported
            self._groups[thread] = _process_of(thread)
        stopped_by, event = os.WSTOPSIG(status), status >> 16
        forward = 0
        if stopped_by == _SYSCALL_STOP:
            self._at_call(thread)
        elif stopped_by == signal.SIGTRAP and event:
            self._born(thread, event)
        elif stopped_by != signal.SIGSTOP or thread in self._started:
            forward = stopped_by
        self._started.add(thread)
        _request(_SYSCALL, thread, forward, may_be_gone=True)

    def _born(self, thread: int, event: int) -> None:
        message = ctypes.c_ulong()
        _request(_GETEVENTMSG, thread, ctypes.addressof(message), may_be_gone=True)
        if event == 4:  # exec: other threads are gone, and the caller now has the process id
            if (former := message.value) != thread:
                self._groups.pop(former, None)
                self._inside.discard(former)
                self._inside.add(thread)
            return
        child = message.value
        if child:
            group = _process_of(child)
            self._groups[child] = group
            if group == child:
                self._seen.children += 1

    def _gone(self, thread: int, status: int) -> None:
        self._groups.pop(thread, None)
        self._failing.pop(thread, None)
        self._shortened.pop(thread, None)
        self._inside.discard(thread)
        if thread == self._main:
            self._ended_at = time.monotonic()
            if self._seen.status is None and self._seen.hit.partition(" ")[0] != KILL:
                self._seen.status = os.waitstatus_to_exitcode(status)

    def _at_call(self, thread: int) -> None:
        if thread in self._inside:
            self._inside.discard(thread)
            if (number := self._failing.pop(thread, 0)) != 0:
                _set_register(thread, _RESULT, -number)
            if (given := self._shortened.pop(thread, 0)) != 0:  # the caller relies on its registers
                _set_register(thread, _COUNT, given)
            return
        info = self._info
        if _request(_SYSCALL_INFO, thread, ctypes.addressof(info), size=96, may_be_gone=True) <= 0 or info[0] != _ENTRY:
            return
        self._inside.add(thread)
        number, *args = struct.unpack_from("<7Q", info, 24)
        self._seen.calls += 1
        call = Call(thread, number, tuple(args), self._seen.calls, self._groups.get(thread) == self._main)
        self._seen.child_calls += not call.is_main
        self._seen.names[call.name] += 1
        if noted := self._note(call):
            self._seen.noted.append(noted)
        decision = self._decide(call) if self._lasting or not self._seen.hit else None
        if decision is None:
            return
        where = "the program" if call.is_main else "a child"
        what = decision if isinstance(decision, str) else errno.errorcode[decision]
        self._seen.hit = self._seen.hit or f"{what} {where} at {call.name}"
        if decision == SHORT:
            self._shortened[thread] = args[2]
            _set_register(thread, _COUNT, max(1, args[2] // 2))
            return
        if isinstance(decision, str):
            os.kill(self._main if decision == KILL else self._groups.get(thread, thread), signal.SIGKILL)
            return
        self._failing[thread] = decision
        _skip_call(thread)


def _request(
    request: int, thread: int, data: int = 0, *, address: int = 0, size: int = 0, may_be_gone: bool = False
) -> int:
    assert _ptrace is not None
    answer = _ptrace(request, thread, address or size, data)
    if answer < 0 and not (may_be_gone and ctypes.get_errno() == errno.ESRCH):
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")
    return answer


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def _registers(thread: int) -> tuple[ctypes.Array[ctypes.c_ulong], _Vector]:
    space = (ctypes.c_ulong * 64)()
    vector = _Vector(ctypes.addressof(space), ctypes.sizeof(space))
    _request(_GETREGSET, thread, ctypes.addressof(vector), address=_PRSTATUS, may_be_gone=True)
    return space, vector


def _skip_call(thread: int) -> None:
    """Cancel the system call that is about to begin."""
    if platform.machine() == "aarch64":
        none = ctypes.c_int(-1)
        vector = _Vector(ctypes.addressof(none), ctypes.sizeof(none))
        _request(_SETREGSET, thread, ctypes.addressof(vector), address=_ARM_SYSTEM_CALL, may_be_gone=True)
        return
    space, vector = _registers(thread)
    space[15] = ctypes.c_ulong(-1).value  # orig_rax
    _request(_SETREGSET, thread, ctypes.addressof(vector), address=_PRSTATUS, may_be_gone=True)


_RESULT, _COUNT = (0, 2) if platform.machine() == "aarch64" else (10, 12)  # x0 and x2, rax and rdx


def _set_register(thread: int, register: int, value: int) -> None:
    space, vector = _registers(thread)
    space[register] = ctypes.c_ulong(value).value
    _request(_SETREGSET, thread, ctypes.addressof(vector), address=_PRSTATUS, may_be_gone=True)


def _process_of(thread: int) -> int:
    try:
        with open(f"/proc/{thread}/status", "rb") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(b"Tgid:"))
    except (OSError, StopIteration):
        return thread
