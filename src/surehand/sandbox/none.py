"""None: no sandbox, commands as plain processes, for systems that cannot contain them.

Each command has a session and a process group of its own, which is killed when it ends or at its timeout. Nothing keeps
it from files or the network, its changes are not recorded, and processes stay behind that leave the group (`setsid`) or
whose Surehand is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from surehand.sandbox.command import (
    KILL,
    SCRIPT,
    Abilities,
    Command,
    CommandRun,
    Ended,
    Feed,
    SandboxFailure,
    bash,
    start_failure,
)

if TYPE_CHECKING:
    from surehand.sandbox.profile import SandboxProfile

_RSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024


class PlainSandbox:
    """Runs commands as the user; `why_not` says why there is nothing better."""

    kind = "none"

    def __init__(self, why_not: str) -> None:
        self._why_not = why_not

    def abilities(self) -> Abilities:
        """Return that nothing can be enforced, and why."""
        return Abilities(why_not=self._why_not)

    def note_failure(self, why: str) -> None:
        """Remember why nothing can be enforced."""
        self._why_not = why

    async def start(self, profile: SandboxProfile) -> PlainRunner:
        """Return a runner; raise SandboxFailure for a profile that contains commands."""
        if profile.contained:
            raise SandboxFailure(f"nothing here contains a command: {self._why_not}")
        return PlainRunner(profile)

    def start_ahead(self) -> None:
        """Start nothing: there is no launcher."""

    def end_ahead(self) -> None:
        """End nothing."""


class PlainRunner:
    """Runs the commands of one session, each in a process group of its own."""

    kind = "none"
    pid = 0
    records = False
    means = ()
    problems = ()
    keeps_shell = False

    def __init__(self, profile: SandboxProfile) -> None:
        self.profile = profile
        self.closed = False
        self._runs: set[PlainRun] = set()

    @property
    def busy(self) -> bool:
        """Whether commands are under way."""
        return any(run.ended is None for run in self._runs)

    def run(
        self,
        command: Command,
        stdout: Feed,
        stderr: Feed,
        *,
        change_log: str | None = None,
        overlay: Mapping[str, Any] | None = None,
    ) -> PlainRun:
        """Start a command; its output goes to the two feeds as it comes."""
        if self.closed:
            raise SandboxFailure("the session was closed")
        if change_log is not None or overlay is not None or command.descriptors:
            raise SandboxFailure("without a sandbox, commands leave no change log, have no dry run and keep no shell")
        self._runs = {run for run in self._runs if run.ended is None}
        run = PlainRun(command, stdout, stderr)
        self._runs.add(run)
        return run

    async def close(self) -> None:
        """End every command."""
        self.closed = True
        for run in self._runs:
            run.stop("the session was closed", 0.0)
        for run in self._runs:
            await run.finish()


class PlainRun(CommandRun):
    """A running command: the leader of a process group, and a thread that waits for it."""

    def __init__(self, command: Command, stdout: Feed, stderr: Feed) -> None:
        super().__init__()
        self._pid = 0
        self._handed_over: list[int] = []
        try:
            for feed in (stdout, stderr):
                self._handed_over.append(self.open_pipe(feed))
            process = self._start(command)
        except OSError as problem:
            path = problem.filename if isinstance(problem.filename, str) else ""
            self.fail(start_failure(path, problem.errno or 0))
            return
        finally:
            self.close_handed_over()
        self._pid = process.pid
        threading.Thread(target=self._wait, args=(process,), name="wait for a command", daemon=True).start()

    def _start(self, command: Command) -> subprocess.Popen[bytes]:
        argv, passed = list(command.argv), ()
        if command.script is not None:
            passed = (_open_file_with(command.script),)
            self._handed_over.append(passed[0])
            argv = _move_to_script_number(argv, passed[0])
        out, err = self._handed_over[:2]
        return subprocess.Popen(
            argv,
            cwd=command.cwd,
            env=dict(command.environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            pass_fds=passed,
            start_new_session=True,
        )

    def close_handed_over(self) -> None:
        """Close our copies of what was handed over: open here, they would keep the command's pipes open."""
        for descriptor in self._handed_over:
            os.close(descriptor)
        self._handed_over = []

    def signal(self, number: int) -> None:
        """Signal the whole process group."""
        if self._pid and not self._ended.done():
            _signal_group(self._pid, number)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the end of the command, kill the rest of its group, and report; runs in a thread."""
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except ChildProcessError:  # other code in this process reaps every child
            status, usage = -1, None
        self._pid = 0  # the number may be reused
        left = _signal_group(process.pid, KILL)
        process.returncode = os.waitstatus_to_exitcode(status) if status >= 0 else -1
        number = max(-process.returncode, 0) if status >= 0 else 0
        ended = Ended(
            exit_code=128 + number if number else process.returncode,
            signal=number,
            cpu_s=usage.ru_utime + usage.ru_stime if usage else 0.0,
            max_rss=usage.ru_maxrss * _RSS_UNIT if usage else 0,
            wall_s=self.wall_s,
            left_behind=int(left),
            stopped="" if usage else "its end was not seen",
        )
        try:
            self._loop.call_soon_threadsafe(self._note_end, ended)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    def _note_end(self, ended: Ended) -> None:
        self.set_ended(replace(ended, stopped=self.stopped or ended.stopped))


def _signal_group(leader: int, number: int) -> bool:
    """Signal a process group; False when nobody is in it any more."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):  # macOS raises the latter for a group of zombies
        return False
    return True


def _open_file_with(content: bytes) -> int:
    """Return the descriptor of an unnamed file with this content."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        return os.dup(file.fileno())


def _move_to_script_number(argv: Sequence[str], descriptor: int) -> list[str]:
    """Return the command with a shell before it that moves the descriptor to the number of `SCRIPT`."""
    number = SCRIPT.rpartition("/")[2]
    moved = f'exec "$@" {number}<&{descriptor}' + (f" {descriptor}<&-" if str(descriptor) != number else "")
    return [bash(), "-c", moved, "bash", *argv]
