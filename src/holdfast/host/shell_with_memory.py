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

from holdfast.core.frozen import frozen
from holdfast.host.process import Command, Ended, Feed, Launcher, Run, bash

_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")

# 10 says that there is an order, 11 takes reports, 12 holds the order; all are closed while a command runs.
# The order is no line itself: bash reads a pipe byte by byte, and a file in blocks.
# Output that a command redirects or closes for good (`exec >log`) is the shell's own again for the next: it goes
# through 250, so that bash puts it back.
_LOOP: Final = """
while read -r -N 1 -u 10 && mapfile -d '' -n 1 -u 12 REPLY; do
  eval "$REPLY" 12<&- 11>&- 10<&- 250>&1 1>&250 250>&2 2>&250 250>&-
  printf '%s\\0%s\\0' "$?" "$PWD" >&11
done
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
        self._reported: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        orders, self._orders = os.pipe()
        self._reader, reports = os.pipe()
        os.set_blocking(self._reader, False)
        self._order = os.memfd_create("order", os.MFD_CLOEXEC)
        command = Command((bash(), "-c", _LOOP), cwd, environment, descriptors=(orders, reports, self._order))
        self._run: Run = launcher.run(command, self._out, self._err, journal=folder)
        self._run.told_waiting = self._waits
        self.told_waiting: Callable[[str], None] | None = None
        """Called with the name of a program that begins to wait for somebody to type."""
        os.close(orders)
        os.close(reports)
        self._loop.add_reader(self._reader, self._hear)
        self._ended = self._loop.create_task(self._run.finish())
        self._ended.add_done_callback(self._over)
        self._status = -1
        self._used = 0.0
        self._quiet = False

    @property
    def alive(self) -> bool:
        return self._run.ended is None and not self._run.stopped

    def _out(self, data: bytes) -> None:
        self._outlets[0](data)

    def _err(self, data: bytes) -> None:
        self._outlets[1](data)

    def _waits(self, name: str) -> None:
        if self.told_waiting is not None:
            self.told_waiting(name)

    async def run(
        self, text: str, cwd: str, stdout: Feed, stderr: Feed, timeout_s: float, journal: str | None = None
    ) -> Step:
        """Run one command in the shell, in `cwd`."""
        began = time.monotonic()
        self._outlets = (stdout, stderr)
        self._reported = self._loop.create_future()
        self._reports = b""
        self._write(text if cwd == self._cwd else f"cd -- {_quoted(cwd)}\n{text}")
        if journal is not None:
            await self._begin_journal(journal)
        elif not self._quiet:
            await self._run.ask(("journalled",))  # nothing is to be kept of what it does unasked
        self._quiet = True
        timer = self._loop.call_later(timeout_s, self._run.stop, "timeout")
        try:
            os.write(self._orders, b"x")
            self._hear()  # a short command has often ended by now: the shell is woken while we still write
            await self._reported
        except BrokenPipeError:
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
        if self._run.ended is not None:
            return Step(_with_wall(self._run.ended, wall), "")
        facts = await self._run.ask(("journalled",)) if journal is not None else None
        before, self._used = self._used, self._cpu_s()
        return self._step(wall, self._used - before, facts)

    def _write(self, text: str) -> None:
        """Put down what the shell is to evaluate."""
        view = memoryview(text.encode("utf-8", "surrogateescape") + b"\0")
        os.lseek(self._order, 0, os.SEEK_SET)
        while view:
            view = view[os.write(self._order, view) :]
        os.lseek(self._order, 0, os.SEEK_SET)  # the shell reads from where we are: the file is one

    def _step(self, wall_s: float, cpu_s: float, facts: Mapping[str, Any] | None) -> Step:
        code, cwd, _ = self._reports.split(b"\0", 2)
        self._cwd = os.fsdecode(cwd)
        return Step(Ended(exit_code=int(code), cpu_s=max(cpu_s, 0.0), wall_s=wall_s, journal=facts), self._cwd)

    async def _begin_journal(self, folder: str) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            await self._run.ask(("journal",), [descriptor])
        finally:
            os.close(descriptor)

    def _hear(self) -> None:
        try:
            data = os.read(self._reader, 65536)
        except BlockingIOError:
            return
        self._reports += data
        if not data:
            self._loop.remove_reader(self._reader)
        elif self._reports.count(b"\0") >= 2 and self._reported is not None and not self._reported.done():
            self._reported.set_result(None)

    def _over(self, ended: asyncio.Task[Ended]) -> None:
        if self._reported is not None and not self._reported.done():
            self._reported.set_result(None)

    def _cpu_s(self) -> float:
        """Return the processor time of the shell and of what it waited for."""
        try:
            if self._status < 0:
                self._status = _open_status(self._run.keeper)
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


def _open_status(keeper: int) -> int:
    """Open what the kernel says of a keeper's only child; a file kept open is read four times as fast as a new one."""
    with open(f"/proc/{keeper}/task/{keeper}/children", encoding="ascii") as children:
        pid = children.read().split()[0]
    return os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)


def _with_wall(ended: Ended, wall_s: float) -> Ended:
    from dataclasses import replace

    return replace(ended, wall_s=wall_s)


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"


def _nobody(data: bytes) -> None:
    """Output between two commands belongs to nobody."""
