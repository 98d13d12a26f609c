"""One run of a command by a supervisor of the launcher: what it is handed, what it is asked and tells."""

from __future__ import annotations

import asyncio
import fcntl
import marshal
import os
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from surehand.sandbox.command import Command, Ended, Feed, SandboxFailure, start_failure
from surehand.sandbox.command_run import KILL, CommandRun

if TYPE_CHECKING:
    from surehand.sandbox.linux.client import Supervisor
    from surehand.sandbox.profile import SandboxProfile

_ENCODING: Final = sys.getfilesystemencoding()
_ERRORS: Final = sys.getfilesystemencodeerrors()


class Run(CommandRun):
    """One command under way, or waiting for a supervisor."""

    def __init__(
        self, profile: SandboxProfile, command: Command, stdout: Feed, stderr: Feed, change_log: str | None
    ) -> None:
        super().__init__()
        self.supervisor: Supervisor | None = None
        self.order = {"records": change_log is not None, "contained": profile.contained}
        self._assigned = asyncio.Event()
        self._answers: deque[asyncio.Future[Any]] = deque()
        self.for_supervisor: list[int] = []
        self.for_command: list[int] = []
        try:
            self._open(command, stdout, stderr, change_log)
        except OSError as problem:
            self.set_ended(Ended(exit_code=-1, stopped="it was never started"))
            raise SandboxFailure(f"the system could not start it: {problem.strerror}") from problem

    def _open(self, command: Command, stdout: Feed, stderr: Feed, change_log: str | None) -> None:
        """Open all that is handed over; `set_ended` closes it again when the last does not open."""
        if change_log is not None:
            self.for_supervisor.append(open_change_log(change_log))
        self.for_command.append(in_memory(marshal.dumps(_payload(command))))
        for feed in (stdout, stderr):
            self.for_command.append(self.open_pipe(feed))
        if command.script is not None:
            self.for_command.append(in_memory(command.script))
        for each in command.descriptors:
            self.for_command.append(os.dup(each))

    @property
    def supervisor_pid(self) -> int:
        """The process id of its supervisor; 0 while it waits for one."""
        return self.supervisor.pid if self.supervisor else 0

    def handed_over(self) -> None:
        """Take note that a supervisor has all of it now."""
        self.let_go()
        if self.stopped:
            self.signal(KILL)  # it was stopped before it began

    def let_go(self) -> None:
        """Close our copies of what was handed over: held here, they would keep the command's pipes open."""
        for descriptor in (*self.for_supervisor, *self.for_command):
            os.close(descriptor)
        self.for_supervisor, self.for_command = [], []
        self._assigned.set()

    def signal(self, number: int) -> None:
        """Have the supervisor signal the command and all it started."""
        if self._ended.done() or self.supervisor is None:
            return
        try:
            self.supervisor.tell(("signal", number))
        except OSError:
            self.kill()

    def kill(self) -> None:
        """End the supervisor, and with it all that is below it."""
        if self.supervisor is not None and not self._ended.done():
            self.supervisor.kill()

    async def ask(self, message: object, descriptors: Sequence[int] = ()) -> Any:
        """Ask the supervisor something and return its answer."""
        await self._assigned.wait()
        if self.supervisor is None or self._ended.done():
            raise SandboxFailure("the command has ended")
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._answers.append(answer)
        self.supervisor.tell(message, descriptors)
        return await answer

    async def begin_change_log(self, folder: str) -> Mapping[str, Any] | None:
        """Have what it changes from now on written down in another folder; return the facts of the log before."""
        descriptor = open_change_log(folder)
        try:
            return await self.ask(("begin log",), [descriptor])
        finally:
            os.close(descriptor)

    def take_answer(self, answer: Any) -> None:
        """Take the answer of the launcher."""
        if self._answers:
            self._answers.popleft().set_result(answer)

    def waits(self, name: str) -> None:
        """Take note that a program waits for somebody to type; an empty name: none does any more."""
        self.waiting = name
        if name and self.told_waiting is not None:
            self.told_waiting(name)

    def close(self, report: dict[str, Any]) -> None:
        """Take the supervisor's report of how it ended."""
        if error := report["error"]:
            self.fail(start_failure(*error))
            return
        status = report["status"]
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        self.set_ended(
            Ended(
                exit_code=128 + number if number else os.WEXITSTATUS(status),
                signal=number,
                cpu_s=report["cpu_s"],
                max_rss=report["max_rss"],
                wall_s=self.wall_s,
                left_behind=report["left"],
                stopped=self.stopped or report["reason"],
                waiting=self.waiting,
                change_log=report["change_log"],
            )
        )

    def set_ended(self, ended: Ended) -> None:
        """End it for all who wait: for its end, or for an answer of its supervisor."""
        self.supervisor = None
        super().set_ended(ended)
        for answer in self._answers:
            answer.set_exception(SandboxFailure("the command has ended"))


def open_change_log(folder: str) -> int:
    """Open a change log for its supervisor, with a lock of its own: while it lives, nobody takes it for abandoned."""
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
        "env": {_encode(name): _encode(value) for name, value in command.environment.items()},
    }


@lru_cache(maxsize=1024)
def _encode(text: str) -> bytes:
    """Do as `os.fsencode` does; a command has some hundred names and values, nearly all those of the one before."""
    return text.encode(_ENCODING, _ERRORS)


def in_memory(content: bytes) -> int:
    """Return a descriptor of a file that is in memory only and has this content."""
    descriptor = os.memfd_create("surehand", os.MFD_CLOEXEC)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
