"""The reaper: runs a program without a sandbox, and kills all its processes in the end.

    python -I -S reaper.py CONTROL UNSET COMMAND [ARG ...]

It adopts the program's orphans (as subreaper), also those that called `setsid` or forked twice. When the program ends,
or the pipe whose reading end is CONTROL is closed (by our parent or by its death), it kills all that are left. UNSET
names, separated by commas, variables that this interpreter needs and the program does not get. The program has our
standard streams and our process group, so that it handles the group's signals.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 5.0
"""How long to wait for killed processes; another user's cannot be killed."""
CANNOT_START = 127


def main(words: list[str]) -> int:
    """Run the program to its end; return its exit code."""
    control, unset, command = int(words[0]), words[1], words[2:]
    os.set_inheritable(control, False)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakeup_fd, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(wakeup_fd, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _ignore_signal)  # SIG_IGN would be inherited by the program
    environment = {name: value for name, value in os.environ.items() if name not in unset.split(",")}
    try:
        program = os.posix_spawnp(command[0], command, environment)
    except OSError as problem:
        sys.stderr.write(f"{command[0]} cannot be started: {problem.strerror}\n")
        return CANNOT_START
    _close_streams()
    status = _wait(program, control, wakeup_fd)
    _end_all()
    return _exit_as(status)


def _ignore_signal(number: int, frame: object) -> None:
    """Do nothing: signals to the group are the program's, and SIGCHLD wakes the poll."""


def _close_streams() -> None:
    """Replace our standard streams by /dev/null, so that readers see the end when the program closes them."""
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)


def _wait(program: int, control: int, wakeup_fd: int) -> int:
    """Return the program's wait status, or SIGKILL if control is closed first. Reaps adopted processes."""
    poll = select.poll()
    poll.register(wakeup_fd, select.POLLIN)
    poll.register(control, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if wakeup_fd in ready:
            os.read(wakeup_fd, 4096)
        while (ended := _reap()) is not None:
            if ended[0] == program:
                return ended[1]
        if control in ready:
            return signal.SIGKILL


def _reap() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _end_all() -> None:
    """Kill all descendants: orphans of a killed process become our children and are killed next."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for pid in _children():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.002)
        except ChildProcessError:
            return


def _children() -> list[int]:
    """Return our child processes."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()  # a name may hold anything
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.append(int(name))
    return found


def _exit_as(status: int) -> int:
    """Return the program's exit code; if a signal ended it, end by the same signal."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
