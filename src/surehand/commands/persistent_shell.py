"""A shell with memory: one bash for many commands, so that `cd` and exported variables carry over.

The shell takes a command from a file in memory when a byte on a line of its own says so, runs it in itself, and
reports its exit code and directory on another line; no command sees these. Nothing is forked for it, which makes it an
order of magnitude faster than a new shell.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from surehand.commands.shell_state import TELLS, Memory
from surehand.core.frozen import frozen
from surehand.sandbox.command import Command, Ended, Feed, SandboxFailure, bash
from surehand.sandbox.linux.client import Launcher
from surehand.sandbox.linux.command_run import Run

_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")

# 10 says that there is an order, 11 takes reports, 12 holds the order; all are closed while a command runs.
# The order is no line itself: bash reads a pipe byte by byte, and a file in blocks. It is the directory to go to first
# (empty: stay), the command, and whether to tell what the shell remembers after it, which goes into the same file.
# Output that a command redirects or closes for good (`exec >log`) is the shell's own again for the next: it goes
# through 250, so that bash puts it back. `builtin` goes before functions of the same names, and what the loop itself
# does is kept from `set -x` (by 251: to open a file costs more than a command does). What the last command came to is
# told before the next is read, so that a `continue` or `break` outside of any loop of its own does not skip that.
_LOOP: Final = f"""
exec 251>/dev/null
{{ {TELLS}; }} >&12 2>&251 || [[ 1 ]]
while [[ 1 ]]; do
  while {{
    builtin printf -v REPLY '%s\\t' "$?"; [[ -z ${{REPLY[2]-}} ]] || {{ {TELLS}; }} >&12
    {{ builtin printf %s "$REPLY"; builtin pwd; builtin printf '\\0'; }} >&11
    builtin read -r -N 1 -u 10 && builtin mapfile -d '' -n 3 -u 12 REPLY || builtin exit 1
  }} 2>&251; do
    if {{ [[ -z $REPLY ]]; }} 2>&251 || builtin cd -- "$REPLY"; then
      builtin eval "${{REPLY[1]}}" 12<&- 11>&- 10<&- 250>&1 1>&250 250>&2 2>&250 250>&- 251>&-
    else
      [[ -z x ]]
    fi
  done
done
builtin exit 1
"""


@frozen
class Step:
    """How one command ended, and where the shell is now; `cwd` is empty when the shell is gone."""

    ended: Ended
    cwd: str


class ShellWithMemory:
    """One bash of a session. `alive` turns false when it exits or has to be ended."""

    def __init__(self, launcher: Launcher, folder: str, cwd: str, environment: Mapping[str, str]) -> None:
        self.launcher = launcher
        self._cwd = cwd
        self._outlets: tuple[Feed, Feed] = (_nobody, _nobody)
        self._reports = b""
        self._loop = asyncio.get_running_loop()
        self._reported: asyncio.Future[None] = self._loop.create_future()
        self._at_first: frozenset[str] | None = None
        self.memory = Memory()
        """The state of the shell that changes what later commands mean."""
        self.may_lie = False
        """Whether a function may stand in for what the shell tells its memory by."""
        orders, self._orders = os.pipe()
        self._reader, reports = os.pipe()
        os.set_blocking(self._reader, False)
        self._order = os.memfd_create("order", os.MFD_CLOEXEC)
        command = Command((bash(), "-c", _LOOP), cwd, environment, descriptors=(orders, reports, self._order))
        self._run: Run = launcher.run(command, self._out, self._err, change_log=folder)
        self._run.told_waiting = self._waits
        self.told_waiting: Callable[[str], None] | None = None
        """Called with the name of a program that begins to wait for somebody to type."""
        os.close(orders)
        os.close(reports)
        self._loop.add_reader(self._reader, self._read_reports)
        self._ended = self._loop.create_task(self._run.finish())
        self._ended.add_done_callback(self._over)
        self._length = 0
        self._status = -1
        self._used = 0.0
        self._quiet = False

    @property
    def alive(self) -> bool:
        """Whether the shell still runs."""
        return self._run.ended is None and not self._run.stopped

    def _out(self, data: bytes) -> None:
        self._outlets[0](data)

    def _err(self, data: bytes) -> None:
        self._outlets[1](data)

    def _waits(self, name: str) -> None:
        if self.told_waiting is not None:
            self.told_waiting(name)

    async def run(
        self,
        text: str,
        cwd: str,
        stdout: Feed,
        stderr: Feed,
        timeout_s: float,
        change_log: str | None = None,
        *,
        remembers: bool = False,
    ) -> Step:
        """Run one command in the shell, in `cwd`; where it may leave something in the memory, that is found out."""
        remembers = remembers or self.memory.acts
        began = time.monotonic()
        self._outlets = (stdout, stderr)
        ordered = False
        timer = self._loop.call_later(timeout_s, self._run.stop, "timeout")
        try:
            await self._prepare(change_log)
            self._write("" if cwd == self._cwd else cwd, text, "m" if remembers else "")
            ordered = os.write(self._orders, b"x") > 0
            self._read_reports()  # a short command has often ended by now: the shell is woken while we still write
            await self._reported
        except (BrokenPipeError, SandboxFailure):
            await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            self._run.stop("cancelled", 1.5)
            await asyncio.shield(self._ended)
            raise
        finally:
            timer.cancel()
            self._run.drain()
            self._outlets = (_nobody, _nobody)
        wall = time.monotonic() - began
        if (ended := self._run.ended) is not None:
            return Step(_of_command(ended, wall, ordered), "")
        facts = await self._run.ask(("finish log",)) if change_log is not None else None
        before, self._used = self._used, self._cpu_s()
        return self._step(wall, self._used - before, facts, remembers)

    async def _prepare(self, change_log: str | None) -> None:
        """Wait for the shell to be there, and for its supervisor to begin a new change log."""
        if self._at_first is None:
            await self._reported
            self._at_first = frozenset(self._read_report(0).split("\n"))
        self._reported, self._reports = self._loop.create_future(), b""
        if change_log is not None:
            await self._run.begin_change_log(change_log)
        elif not self._quiet:
            await self._run.ask(("finish log",))  # nothing is to be kept of what it does unasked
        self._quiet = True
        if self._run.ended is not None:
            raise SandboxFailure("the shell has ended")

    def _write(self, *fields: str) -> None:
        """Put down what the shell is to do."""
        view = memoryview(b"".join(field.encode("utf-8", "surrogateescape") + b"\0" for field in fields))
        self._length = len(view)
        if fields[-1]:
            os.ftruncate(self._order, 0)  # what it tells is all that follows the order
        os.lseek(self._order, 0, os.SEEK_SET)
        while view:
            view = view[os.write(self._order, view) :]
        os.lseek(self._order, 0, os.SEEK_SET)  # the shell reads from where we are: the file is one

    def _step(self, wall_s: float, cpu_s: float, facts: Mapping[str, Any] | None, remembers: bool) -> Step:
        code, _, cwd = self._reports.removesuffix(b"\n\0").partition(b"\t")
        if not code.isdigit():  # a trace that was sent to standard output is among what it tells
            why = "the shell could not tell how the command ended"
            self._run.stop(why, 0.5)
            return Step(Ended(exit_code=-1, wall_s=wall_s, stopped=why, change_log=facts), "")
        self._cwd = os.fsdecode(cwd)
        if remembers:
            told = "" if self.may_lie else self._read_report(self._length)
            self.memory = Memory.parse_report(told, self._at_first or frozenset())
        return Step(Ended(exit_code=int(code), cpu_s=max(cpu_s, 0.0), wall_s=wall_s, change_log=facts), self._cwd)

    def _read_report(self, begin: int) -> str:
        """Return what the shell put down after its order."""
        return os.fsdecode(os.pread(self._order, os.fstat(self._order).st_size - begin, begin))

    def _read_reports(self) -> None:
        try:
            data = os.read(self._reader, 65536)
        except BlockingIOError:
            return
        self._reports += data
        if not data:
            self._loop.remove_reader(self._reader)
        elif data.endswith(b"\0") and not self._reported.done():
            self._reported.set_result(None)

    def _over(self, ended: asyncio.Task[Ended]) -> None:
        if not self._reported.done():
            self._reported.set_result(None)

    def _cpu_s(self) -> float:
        """Return the processor time of the shell and of what it waited for."""
        try:
            if self._status < 0:
                self._status = _open_status(self._run.supervisor_pid)
            ticks = os.pread(self._status, 1024, 0).rpartition(b")")[2].split(None, 15)[11:15]
        except (OSError, IndexError, ValueError):
            return 0.0
        return sum(map(int, ticks)) / _TICKS_A_SECOND

    async def close(self) -> None:
        """End the shell and what runs in it."""
        self._run.stop("the session was closed", 0.5)
        await asyncio.gather(self._ended, return_exceptions=True)
        self._loop.remove_reader(self._reader)
        for descriptor in (self._reader, self._orders, self._order, *([self._status] if self._status >= 0 else [])):
            os.close(descriptor)


def _open_status(supervisor: int) -> int:
    """Open the `stat` of a supervisor's only child; a file kept open is read four times as fast as a new one."""
    with open(f"/proc/{supervisor}/task/{supervisor}/children", encoding="ascii") as children:
        pid = children.read().split()[0]
    return os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)


def _of_command(ended: Ended, wall_s: float, ordered: bool) -> Ended:
    """Return the end of a shell as that of its command; one that was never ordered has no exit code."""
    from dataclasses import replace

    if ordered or ended.stopped:
        return replace(ended, wall_s=wall_s)
    return replace(ended, wall_s=wall_s, exit_code=-1, stopped="the shell had ended before it began")


def _nobody(data: bytes) -> None:
    """Output between two commands belongs to nobody."""
