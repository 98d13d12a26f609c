"""Kill a child process before its Nth system call: a tracer of a few lines (`ptrace`), no tool needed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable

_TRACEME, _CONT, _SYSCALL, _SETOPTIONS = 0, 7, 24, 0x4200
_SYSGOOD, _EXITKILL = 0x1, 0x100000
_SYSCALL_STOP = signal.SIGTRAP | 0x80


def available() -> bool:
    """Say whether a child can be traced here."""
    if sys.platform != "linux":
        return False
    try:
        return run_killed(lambda: None, None) is not None
    except OSError:
        return False


def run_killed(action: Callable[[], None], before_call: int | None) -> int | None:
    """Run `action` in a forked child and kill it before its system call number `before_call` (from 1).

    Returns the number of calls made when it ran to its end, None when it was killed. A child that fails raises.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    child = os.fork()
    if child == 0:
        _child(libc, action)
    os.waitpid(child, 0)
    if libc.ptrace(_SETOPTIONS, child, None, _SYSGOOD | _EXITKILL) < 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise OSError(ctypes.get_errno(), "ptrace")
    return _follow(libc, child, before_call)


def _child(libc: ctypes.CDLL, action: Callable[[], None]) -> None:
    try:
        libc.ptrace(_TRACEME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        action()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _follow(libc: ctypes.CDLL, child: int, before_call: int | None) -> int | None:
    stops, forward = 0, 0
    while True:
        libc.ptrace(_SYSCALL, child, None, forward)
        _, status = os.waitpid(child, 0)
        if not os.WIFSTOPPED(status):
            assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0, f"the child ended with {status}"  # noqa: PT018
            return (stops + 1) // 2
        stopped_by = os.WSTOPSIG(status)
        if stopped_by != _SYSCALL_STOP:
            forward = stopped_by
            continue
        forward = 0
        stops += 1
        if before_call is not None and stops == 2 * before_call - 1:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
