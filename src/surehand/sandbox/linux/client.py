"""The client of the launcher: the program's end of the talk with the launcher.

    launcher = await Launcher.start(profile)
    run = launcher.run(Command(("/bin/bash", "-c", text), cwd, environment), stdout.feed, stderr.feed)
    ended = await run.finish(timeout_s=120)

A run ends when its command ends: whatever the command left behind is ended with it, and a child that keeps the pipe
open holds nobody up.
"""

from __future__ import annotations

import asyncio
import fcntl
import marshal
import os
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from surehand.core import installation
from surehand.sandbox.command import (
    KILL,
    KILL_S,
    NO_LAYER,
    TERM_S,
    Command,
    CommandRun,
    Ended,
    Feed,
    SandboxFailure,
    start_failure,
)
from surehand.sandbox.linux import probe, seccomp
from surehand.sandbox.linux.launcher import messages
from surehand.sandbox.profile import SandboxProfile

if TYPE_CHECKING:
    from surehand.sandbox.profile import SandboxProfile

_MAIN: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher", "main.py")
IDLE_SUPERVISORS: Final = 3
"""Supervisors that are kept though no command uses them."""
MOST_IDLE_SUPERVISORS: Final = 16
REST_S: Final = 2.0
"""How long more of them are kept: who runs many commands at once runs the next ones with the same supervisors."""


class Launcher:
    """A launcher process, its supervisors and the runs they carry."""

    kind = "linux"
    keeps_shell = True

    def __init__(self, pid: int, control: Any, profile: SandboxProfile) -> None:
        self.pid = pid
        self.profile = profile
        self.means: Sequence[str] = ()
        self.problems: Sequence[str] = ()
        self.closed = False
        self._control = control
        self._supervisors: set[Supervisor] = set()
        self._idle: list[Supervisor] = []
        self._resting: asyncio.TimerHandle | None = None
        self._fewest_idle = 0
        """The fewest supervisors without a command since the last look: so many nobody has needed meanwhile."""
        self._waiting: deque[Run] = deque()
        self._coming = 1
        self._dry_runs: deque[Run] = deque()
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Mapping[str, Any]] = self._loop.create_future()

    @classmethod
    async def start(cls, profile: SandboxProfile, ahead: LauncherProcess | None = None) -> Launcher:
        """Start a launcher that enforces `profile`; raise SandboxFailure when this system cannot."""
        process = ahead or LauncherProcess()
        launcher = cls(process.pid, process.control, profile)
        await launcher._introduce()
        return launcher

    async def _introduce(self) -> None:
        os.makedirs(os.path.join(self.profile.private_dir, ".scratch"), mode=0o700, exist_ok=True)
        filters = {"seccomp": self.profile.contained and seccomp.supported()}
        content = in_memory(marshal.dumps(self.profile.encode() | filters))
        owner = os.pidfd_open(os.getpid())
        try:
            messages.send(self._control, ("profile",), [content, owner])
        except BrokenPipeError:
            pass  # it ended as soon as it began: the line says so below
        os.close(content)
        os.close(owner)
        self._control.setblocking(False)
        self._loop.add_reader(self._control.fileno(), self._hear)
        try:
            facts = await self._ready
        except BaseException:
            await self.close()
            raise
        layers = {
            "namespaces": facts["namespaces"],
            f"landlock {facts['landlock']}": facts["landlock"],
            "seccomp": facts["seccomp"],
            "cgroup": facts["cgroup"],
        }
        self.means = [*(name for name, there in layers.items() if there), "limits"] if self.profile.contained else ()
        self.problems = facts["problems"]

    @property
    def records(self) -> bool:
        """Whether what a command changes is written down: the kernel must stop it at each call that changes a file."""
        return probe.abilities().seccomp

    @property
    def busy(self) -> bool:
        """Whether commands are under way."""
        return bool(self._waiting or self._dry_runs) or any(
            supervisor.run or supervisor.meant for supervisor in self._supervisors
        )

    def run(
        self,
        command: Command,
        stdout: Feed,
        stderr: Feed,
        *,
        change_log: str | None = None,
        overlay: Mapping[str, Any] | None = None,
    ) -> Run:
        """Start a command; its output goes to the two feeds as it comes."""
        if self.closed:
            raise SandboxFailure("the launcher has ended")
        run = Run(self.profile, command, stdout, stderr, change_log)
        if overlay is not None:
            self._dry_runs.append(run)
            self._order(("supervisor", dict(overlay)))
        elif self._idle:
            supervisor = self._idle.pop()
            self._fewest_idle = min(self._fewest_idle, len(self._idle))
            self._assign(supervisor, run)
        else:
            self._waiting.append(run)
            self._ask_for_supervisors()
        return run

    def _ask_for_supervisors(self) -> None:
        """Ask for as many supervisors as runs wait for; one that is about to be free again does not count."""
        while self._coming < len(self._waiting):
            self._coming += 1
            self._order(("supervisor", None))

    def _assign(self, supervisor: Supervisor, run: Run) -> None:
        try:
            supervisor.give(run)
        except OSError:  # its command-to-be was killed while it waited
            supervisor.close()
            self._supervisors.discard(supervisor)
            self._waiting.appendleft(run)
            self._ask_for_supervisors()

    def offer(self, supervisor: Supervisor) -> None:
        """A supervisor is ready: give it the run that waits longest, or let it wait."""
        if supervisor.once:
            if supervisor.meant is None:
                self.lose(supervisor)
            else:
                supervisor.give(supervisor.meant)
        elif self._waiting:
            self._assign(supervisor, self._waiting.popleft())
        elif len(self._idle) < MOST_IDLE_SUPERVISORS:
            self._idle.append(supervisor)
            if len(self._idle) > IDLE_SUPERVISORS and self._resting is None:
                self._fewest_idle = len(self._idle)
                self._resting = self._loop.call_later(REST_S, self._rest)
        else:
            self.lose(supervisor)

    def _rest(self) -> None:
        """Let go of the supervisors that nobody has needed for a while, but for a few."""
        self._resting = None
        for supervisor in self._idle[: max(min(self._fewest_idle, len(self._idle) - IDLE_SUPERVISORS), 0)]:
            self.lose(supervisor)
        if len(self._idle) > IDLE_SUPERVISORS:
            self._fewest_idle = len(self._idle)
            self._resting = self._loop.call_later(REST_S, self._rest)

    def take_waiting(self) -> Run | None:
        """Return the run that would have had the supervisor that died while it got ready: no other one is coming."""
        return self._waiting.popleft() if len(self._waiting) > self._coming else None

    def lose(self, supervisor: Supervisor) -> None:
        """A supervisor is gone, or not needed any more."""
        self._supervisors.discard(supervisor)
        if supervisor in self._idle:
            self._idle.remove(supervisor)
        supervisor.close()

    def kill(self, supervisor: Supervisor) -> None:
        """End a supervisor, and with it every process of its call."""
        self._order(("kill", supervisor.pid))

    def _order(self, message: object) -> None:
        if self.closed:
            return
        try:
            messages.send(self._control, message)
        except OSError:
            self._lost()

    def _hear(self) -> None:
        """Take one message of the launcher."""
        try:
            received = messages.receive(self._control)
        except BlockingIOError:
            return
        match received:
            case None:
                self._lost()
            case ("ready", facts), _:
                self._ready.set_result(facts)
            case ("failed", str(why)), _:
                self._ready.set_exception(SandboxFailure(why))
            case ("supervisor", int(pid), bool(once)), [line]:
                self._coming -= not once
                # They come in the order they were asked for, so that each dry run gets the one with its own layers.
                meant = self._dry_runs.popleft() if once and self._dry_runs else None
                self._supervisors.add(Supervisor(self, pid, line, once, meant))
            case ("no supervisor", int(code)), _:
                self._coming = max(self._coming - 1, 0)
                self._refuse(f"the system could not start it: {os.strerror(code)}")
            case _:
                pass

    def _refuse(self, why: str) -> None:
        for queue in (self._waiting, self._dry_runs):
            while queue:
                queue.popleft().fail(why)

    def _lost(self) -> None:
        """The launcher is gone, and with it all it ran."""
        if self.closed:
            return
        self._let_go("the process that ran it was killed")
        _reap(self.pid)
        if not self._ready.done():
            self._ready.set_exception(SandboxFailure(f"the launcher ended while it started ({sys.executable})"))

    def _let_go(self, why: str) -> None:
        self.closed = True
        if self._resting is not None:
            self._resting.cancel()
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        self._refuse(why)
        for supervisor in list(self._supervisors):
            if (run := supervisor.run or supervisor.meant) is not None:
                run.fail(why)
            supervisor.close()
        self._supervisors.clear()
        self._idle.clear()

    async def close(self) -> None:
        """End the launcher and everything it runs."""
        if self.closed:
            return
        self._order(("bye",))  # what follows is no death of ours
        if self.closed:
            return
        self._let_go("the session was closed")
        deadline = time.monotonic() + KILL_S + TERM_S
        while not _reap(self.pid):
            if time.monotonic() > deadline:
                os.kill(self.pid, KILL)
            await asyncio.sleep(0.0005)


class Supervisor:
    """The program's end of the line to a supervisor, and to the command-to-be that it has forked."""

    def __init__(self, launcher: Launcher, pid: int, line: int, once: bool, meant: Run | None = None) -> None:
        self.pid = pid
        self.once = once
        self.run: Run | None = None
        self.meant = meant
        """The dry run it was made for, until that is handed over."""
        self._launcher = launcher
        self._line = messages.open_socket(line)
        self._command: Any = None
        self._was_ready = False
        self._closed = False
        self._line.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(line, self._hear)

    def give(self, run: Run) -> None:
        """Hand a run over: the change log to the supervisor, everything else to the command-to-be."""
        self.run, self.meant = run, None
        run.supervisor = self
        if self._command is None:  # the supervisor starts it itself
            messages.send(self._line, ("run", run.order), [*run.for_supervisor, *run.for_command])
        else:
            messages.send(self._line, ("run", run.order), run.for_supervisor)
            messages.send(self._command, run.order, run.for_command)
            self._command.close()
            self._command = None
        run.handed_over()

    def tell(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """Send the supervisor a message about the run under way."""
        messages.send(self._line, message, list(descriptors))

    def kill(self) -> None:
        """End the command and everything it started."""
        self._launcher.kill(self)

    def _hear(self) -> None:
        try:
            received = messages.receive(self._line)
        except BlockingIOError:
            return
        run = self.run or self.meant
        match received:
            case ("ready",), commands:
                self._command = messages.open_socket(commands[0]) if commands else None
                self._was_ready = True
                self._launcher.offer(self)
            case ("ended", report), _:
                self.run = None
                if run is not None:
                    run.close(report)
            case ("answer", answer), _:
                if run is not None:
                    run.take_answer(answer)
            case ("waiting", str(name)), _:
                if run is not None:
                    run.waits(name)
            case ("no layer", int(code)), _:
                self.meant = None
                if run is not None:
                    run.fail(NO_LAYER + os.strerror(code))
            case _:
                self.run = self.meant = None
                self._launcher.lose(self)
                if run is None and not self._was_ready:
                    run = self._launcher.take_waiting()
                if run is not None:
                    run.fail("the process that watched over it was killed")

    def close(self) -> None:
        """Close the line; the supervisor ends when it notices."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._line.fileno())
        self._line.close()
        if self._command is not None:
            self._command.close()


class LauncherProcess:
    """The process of a launcher; it waits for its profile, and ends when our end of the line is closed before that."""

    def __init__(self) -> None:
        if not sys.executable:
            raise SandboxFailure("the launcher needs the path of this Python, which is not known")
        try:
            self.control, theirs = messages.pair()
            self.pid = _spawn(theirs.fileno())
        except OSError as problem:
            raise SandboxFailure(f"the launcher could not start: {problem.strerror}") from problem
        theirs.close()

    async def enforce(self, profile: SandboxProfile) -> Launcher:
        """Have it enforce `profile`; return the launcher it is from then on."""
        return await Launcher.start(profile, self)

    def has_ended(self) -> bool:
        """Tell whether it is gone; then it is not asked again."""
        ended = _reap(self.pid)
        if ended:
            self.control.close()
        return ended

    def end(self) -> None:
        """End it; it has no profile and so nothing below it."""
        if not self.has_ended():
            self.control.close()
            os.kill(self.pid, KILL)
            os.waitpid(self.pid, 0)


def _spawn(control: int) -> int:
    """Start the launcher; asyncio's way would start a thread to watch it, and need three times as long."""
    os.set_inheritable(control, True)
    actions: list[Any] = [
        (os.POSIX_SPAWN_OPEN, number, "/dev/null", flags, 0)
        for number, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY))
    ]
    argv = [sys.executable, "-I", "-S", _MAIN, str(control)]
    environment = {"PATH": "/usr/bin:/bin", **installation.find_library_paths()}
    return os.posix_spawn(sys.executable, argv, environment, file_actions=actions, setsid=True)


def _reap(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


# One run of a command by a supervisor of the launcher: what it is handed, what it is asked and tells.

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
