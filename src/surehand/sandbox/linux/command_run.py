"""One command under way: its output as it comes, its end, and how to bring that about."""

from __future__ import annotations

import asyncio
import fcntl
import marshal
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen

if TYPE_CHECKING:
    from surehand.sandbox.linux.client import Seat
    from surehand.sandbox.plan import Plan

TERM_S: Final = 5.0
"""How long a command may take to end after SIGTERM."""
KILL_S: Final = 2.0
"""How long the kernel may take to end it after SIGKILL."""

_TERM, _KILL = 15, 9
_PIPE: Final = 1 << 20
_F_SETPIPE_SZ: Final = 1031
_MUCH: Final = 1 << 18
"""Bytes after which a stream counts as a flood: it gets a larger pipe, and is looked at when that has filled."""
_PAUSE_S: Final = 0.001

Feed = Callable[[bytes], None]


@frozen
class Command:
    """A program to start; `script` (when given) is readable by it as /dev/fd/10, `descriptors` follow from there."""

    argv: Sequence[str]
    cwd: str
    environment: Mapping[str, str]
    script: bytes | None = None
    descriptors: Sequence[int] = ()


@frozen
class Ended:
    """How a run came to its end. `stopped` is why we ended it: `timeout`, `cancelled`, or a broken limit in words."""

    exit_code: int
    signal: int = 0
    cpu_s: float = 0.0
    max_rss: int = 0
    wall_s: float = 0.0
    left_behind: int = 0
    stopped: str = ""
    waiting: str = ""
    """The program that waited for somebody to type when it ended."""
    journal: Mapping[str, Any] | None = None

    def usage(self) -> dict[str, Any]:
        """Return what the command used, as plain data."""
        return {"cpu_s": round(self.cpu_s, 4), "max_rss": self.max_rss, "wall_s": round(self.wall_s, 4)}


class LauncherFailure(ToolFailure):
    """The launcher could not do what was asked; the message says why."""


class Run:
    """One command under way, or waiting for a seat."""

    def __init__(self, plan: Plan, command: Command, stdout: Feed, stderr: Feed, journal: str | None) -> None:
        self.seat: Seat | None = None
        self.stopped = ""
        self.waiting = ""
        """The program that waits for somebody to type, while one does."""
        self.told_waiting: Callable[[str], None] | None = None
        """Called with its name when one begins to."""
        self.order = {"journal": journal is not None, "contained": plan.contained}
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[int, Feed] = {}
        self._taken: dict[int, int] = {}
        self._began = time.monotonic()
        self._ended: asyncio.Future[Ended] = self._loop.create_future()
        self._seated = asyncio.Event()
        self._answers: deque[asyncio.Future[Any]] = deque()
        self._timers: list[asyncio.TimerHandle] = []
        self.for_keeper: list[int] = []
        self.for_command: list[int] = []
        try:
            self._open(command, stdout, stderr, journal)
        except OSError as problem:
            self._settle(Ended(exit_code=-1, stopped="it was never started"))
            raise LauncherFailure(f"the system could not start it: {problem.strerror}") from problem

    def _open(self, command: Command, stdout: Feed, stderr: Feed, journal: str | None) -> None:
        """Open all that is handed over; `_settle` closes it again when the last does not open."""
        if journal is not None:
            self.for_keeper.append(open_journal(journal))
        self.for_command.append(in_memory(marshal.dumps(_payload(command))))
        for feed in (stdout, stderr):
            reader, writer = os.pipe()
            self._feeds[reader], self._taken[reader] = feed, 0
            self.for_command.append(writer)
            os.set_blocking(reader, False)
            self._loop.add_reader(reader, self._read, reader)
        if command.script is not None:
            self.for_command.append(in_memory(command.script))
        for each in command.descriptors:
            self.for_command.append(os.dup(each))

    @property
    def keeper(self) -> int:
        """The process id of its keeper; 0 while it waits for a seat."""
        return self.seat.pid if self.seat else 0

    @property
    def ended(self) -> Ended | None:
        """How it ended, once it has."""
        return self._ended.result() if self._ended.done() else None

    def handed_over(self) -> None:
        """Close our copies of what was handed over: held here, they would keep the command's pipes open."""
        for descriptor in (*self.for_keeper, *self.for_command):
            os.close(descriptor)
        self.for_keeper, self.for_command = [], []
        self._seated.set()
        if self.stopped:
            self._signal(_KILL)  # it was stopped before it began

    async def finish(self, timeout_s: float | None = None) -> Ended:
        """Wait for the end; at the time-out, or when cancelled, bring it about."""
        if timeout_s is not None:
            self._timers.append(self._loop.call_later(timeout_s, self.stop, "timeout"))
        try:
            return await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            if self._ended.done():
                raise
            self.stop("cancelled")
            try:
                await asyncio.shield(self._ended)
            except asyncio.CancelledError:
                self._signal(_KILL)  # whoever waits wants no grace at all
                raise
            raise

    def stop(self, why: str, grace_s: float = TERM_S) -> None:
        """Begin to end it: SIGTERM, then SIGKILL, then the keeper with all that is below it."""
        if self.stopped or self._ended.done():
            return
        self.stopped = why
        # TERM first: git leaves index.lock behind on KILL.
        self._signal(_TERM)
        self._timers.append(self._loop.call_later(grace_s, self._signal, _KILL))
        self._timers.append(self._loop.call_later(grace_s + KILL_S / 2, self._kill_keeper))

    def _signal(self, number: int) -> None:
        if self._ended.done() or self.seat is None:
            return
        try:
            self.seat.tell(("signal", number))
        except OSError:
            self._kill_keeper()

    def _kill_keeper(self) -> None:
        if self.seat is not None and not self._ended.done():
            self.seat.kill()

    async def ask(self, message: object, descriptors: Sequence[int] = ()) -> Any:
        """Ask the keeper something and return its answer."""
        await self._seated.wait()
        if self.seat is None or self._ended.done():
            raise LauncherFailure("the command has ended")
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._answers.append(answer)
        self.seat.tell(message, descriptors)
        return await answer

    def answered(self, answer: Any) -> None:
        """Take the answer of the launcher."""
        if self._answers:
            self._answers.popleft().set_result(answer)

    def waits(self, name: str) -> None:
        """Take note that a program waits for somebody to type; an empty name: none does any more."""
        self.waiting = name
        if name and self.told_waiting is not None:
            self.told_waiting(name)

    def close(self, report: dict[str, Any]) -> None:
        """Take the keeper's report of how it ended."""
        if error := report["error"]:
            self.fail(_start_failure(*error))
            return
        status = report["status"]
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        self._settle(
            Ended(
                exit_code=128 + number if number else os.WEXITSTATUS(status),
                signal=number,
                cpu_s=report["cpu_s"],
                max_rss=report["max_rss"],
                wall_s=time.monotonic() - self._began,
                left_behind=report["left"],
                stopped=self.stopped or report["reason"],
                waiting=self.waiting,
                journal=report["journal"],
            )
        )

    def fail(self, why: str) -> None:
        """End it without an exit code, because of `why`."""
        if not self._ended.done():
            self._settle(Ended(exit_code=-1, wall_s=time.monotonic() - self._began, stopped=self.stopped or why))

    def _settle(self, ended: Ended) -> None:
        for timer in self._timers:
            timer.cancel()
        self.seat = None
        self._seated.set()
        self.handed_over()
        self.drain()
        for reader in list(self._feeds):
            self._forget(reader)
        for answer in self._answers:
            answer.set_exception(LauncherFailure("the command has ended"))
        if not self._ended.done():
            self._ended.set_result(ended)

    def drain(self) -> None:
        """Take everything that has been printed so far."""
        for reader in list(self._feeds):
            while reader in self._feeds and self._read(reader):
                pass

    def _read(self, reader: int) -> bool:
        """Take what is there to read; False when there is nothing."""
        try:
            data = os.read(reader, _PIPE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._forget(reader)
            return False
        self._feeds[reader](data)
        if self._taken[reader] < _MUCH:
            self._taken[reader] += len(data)
            if self._taken[reader] >= _MUCH:
                _widen(reader)
        elif len(data) < _MUCH:
            self._pause(reader)
        return True

    def _pause(self, reader: int) -> None:
        """Look away for a moment: taking a flood page by page costs more than what it is made of."""
        self._loop.remove_reader(reader)
        self._loop.call_later(_PAUSE_S, self._resume, reader)

    def _resume(self, reader: int) -> None:
        if reader in self._feeds:
            self._loop.add_reader(reader, self._read, reader)

    def _forget(self, reader: int) -> None:
        if self._feeds.pop(reader, None) is not None:
            self._loop.remove_reader(reader)
            os.close(reader)


def open_journal(folder: str) -> int:
    """Open a journal for its keeper, with a lock of its own: while it lives, nobody takes it for abandoned."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        pass  # a file system without locks
    return descriptor


def _payload(command: Command) -> dict[str, Any]:
    return {
        "argv": list(command.argv),
        "cwd": command.cwd,
        "env": {os.fsencode(name): os.fsencode(value) for name, value in command.environment.items()},
    }


def _widen(reader: int) -> None:
    """Give a pipe that fills up more room: fewer turns for the same bytes."""
    try:
        fcntl.fcntl(reader, _F_SETPIPE_SZ, _PIPE)
    except OSError:
        pass  # the user's pipes have all the room they may have


def _start_failure(path: str, number: int) -> str:
    """Say why a command could not start, from the path and the error the kernel named."""
    return f"it could not start: {path + ': ' if path else ''}{os.strerror(number)}"


def in_memory(content: bytes) -> int:
    """Return a descriptor of a file that is in memory only and has this content."""
    descriptor = os.memfd_create("surehand", os.MFD_CLOEXEC)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
