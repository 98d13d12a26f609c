"""A program with no sandbox round it, and a sure end: `python -I -S reaper.py CONTROL UNSET COMMAND [ARG ...]`.

The reaper adopts whoever the program leaves behind, also what went into a session of its own (`setsid`) or forked
twice. When the program ends, or when CONTROL closes (whoever started us let go of it, or was killed), it ends all that
is left. CONTROL is the reading end of a pipe, UNSET names variables that this interpreter needs and the program does
not get, with commas between them. The program has our standard streams and our group: a signal to the group is its own.
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
"""How long what is left may take to die; a process of another user cannot be ended."""
CANNOT_START = 127


def main(words: list[str]) -> int:
    """Run the program to its end; return its exit code."""
    control, unset, command = int(words[0]), words[1], words[2:]
    os.set_inheritable(control, False)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _leave_to_program)  # a handler is not inherited, as ignoring is
    environment = {name: value for name, value in os.environ.items() if name not in unset.split(",")}
    try:
        program = os.posix_spawnp(command[0], command, environment)
    except OSError as problem:
        sys.stderr.write(f"{command[0]} cannot be started: {problem.strerror}\n")
        return CANNOT_START
    _let_go_of_streams()
    status = _wait(program, control, woken)
    _end_all()
    return _exit_as(status)


def _leave_to_program(number: int, frame: object) -> None:
    """Do nothing: a signal to the group is the program's, and one of a child wakes us by itself."""


def _let_go_of_streams() -> None:
    """Leave the streams to the program: their ends must show when it closes them."""
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)


def _wait(program: int, control: int, woken: int) -> int:
    """Return how the program ended; SIGKILL where it is to end now. Adopted processes that end are reaped."""
    waiting = select.poll()
    waiting.register(woken, select.POLLIN)
    waiting.register(control, select.POLLIN)
    while True:
        ready = dict(waiting.poll())
        if woken in ready:
            os.read(woken, 4096)
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
    """End every process below us: what a killed one leaves becomes ours, and is next."""
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
    """Return the processes whose parent we are."""
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
    """Return the program's exit code; where a signal ended it, end by the same one."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
