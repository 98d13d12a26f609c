"""The client of the launcher: starts it, and has it run commands.

    launcher = await Launcher.start(profile)
    run = launcher.run(Command(("/bin/bash", "-c", text), cwd, environment), stdout.feed, stderr.feed)
    ended = await run.finish(timeout_s=120)

A run ends when its command ends: processes the command left behind are killed, and one that keeps its output pipe open
delays nobody.
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
"""Idle supervisors that are kept for good."""
MOST_IDLE_SUPERVISORS: Final = 16
IDLE_S: Final = 2.0
"""How long more idle ones are kept: after many commands at once, more are likely to follow."""


class Launcher:
    """A launcher process with its supervisors and runs."""

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
        self._idle_timer: asyncio.TimerHandle | None = None
        self._fewest_idle = 0
        """The fewest idle supervisors since the timer began: so many have not been needed."""
        self._waiting: deque[Run] = deque()
        self._coming = 1
        """Supervisors the launcher has been asked for; it starts the first one unasked."""
        self._dry_runs: deque[Run] = deque()
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Mapping[str, Any]] = self._loop.create_future()

    @classmethod
    async def start(cls, profile: SandboxProfile, ahead: LauncherProcess | None = None) -> Launcher:
        """Start a launcher that enforces `profile`; raise SandboxFailure when this system cannot."""
        process = ahead or LauncherProcess()
        launcher = cls(process.pid, process.control, profile)
        await launcher._send_profile()
        return launcher

    async def _send_profile(self) -> None:
        """Send the launcher its profile and wait until that is enforced."""
        os.makedirs(os.path.join(self.profile.private_dir, ".scratch"), mode=0o700, exist_ok=True)
        filters = {"seccomp": self.profile.contained and seccomp.supported()}
        profile_fd = in_memory(marshal.dumps(self.profile.encode() | filters))
        own_pidfd = os.pidfd_open(os.getpid())
        try:
            messages.send(self._control, ("profile",), [profile_fd, own_pidfd])
        except BrokenPipeError:
            pass  # it has ended already: reading from the socket reports that
        os.close(profile_fd)
        os.close(own_pidfd)
        self._control.setblocking(False)
        self._loop.add_reader(self._control.fileno(), self._receive)
        try:
            facts = await self._ready
        except BaseException:
            await self.close()
            raise
        means = {
            "namespaces": facts["namespaces"],
            f"landlock {facts['landlock']}": facts["landlock"],
            "seccomp": facts["seccomp"],
            "cgroup": facts["cgroup"],
        }
        self.means = (
            [*(name for name, in_force in means.items() if in_force), "limits"] if self.profile.contained else ()
        )
        self.problems = facts["problems"]

    @property
    def records(self) -> bool:
        """Whether changes of files are recorded: the kernel must report each call that changes one (seccomp)."""
        return probe.abilities().seccomp

    @property
    def busy(self) -> bool:
        """Whether commands are under way."""
        return bool(self._waiting or self._dry_runs) or any(
            supervisor.run or supervisor.next_run for supervisor in self._supervisors
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
            self._send(("supervisor", dict(overlay)))
        elif self._idle:
            supervisor = self._idle.pop()
            self._fewest_idle = min(self._fewest_idle, len(self._idle))
            self._assign(supervisor, run)
        else:
            self._waiting.append(run)
            self._ask_for_supervisors()
        return run

    def _ask_for_supervisors(self) -> None:
        """Ask the launcher for a supervisor for each waiting run, however soon another one may be idle."""
        while self._coming < len(self._waiting):
            self._coming += 1
            self._send(("supervisor", None))

    def _assign(self, supervisor: Supervisor, run: Run) -> None:
        try:
            supervisor.give(run)
        except OSError:  # the process forked for the command was killed while it waited
            supervisor.close()
            self._supervisors.discard(supervisor)
            self._waiting.appendleft(run)
            self._ask_for_supervisors()

    def offer(self, supervisor: Supervisor) -> None:
        """Give a supervisor that is ready the run that has waited longest, or keep it idle."""
        if supervisor.single_use:
            if supervisor.next_run is None:
                self.lose(supervisor)
            else:
                supervisor.give(supervisor.next_run)
        elif self._waiting:
            self._assign(supervisor, self._waiting.popleft())
        elif len(self._idle) < MOST_IDLE_SUPERVISORS:
            self._idle.append(supervisor)
            self._start_idle_timer()
        else:
            self.lose(supervisor)

    def _start_idle_timer(self) -> None:
        if len(self._idle) > IDLE_SUPERVISORS and self._idle_timer is None:
            self._fewest_idle = len(self._idle)
            self._idle_timer = self._loop.call_later(IDLE_S, self._end_idle)

    def _end_idle(self) -> None:
        """End the supervisors that were not needed since the timer began, except for a few."""
        self._idle_timer = None
        for supervisor in self._idle[: max(min(self._fewest_idle, len(self._idle) - IDLE_SUPERVISORS), 0)]:
            self.lose(supervisor)
        self._start_idle_timer()

    def take_waiting(self) -> Run | None:
        """Return the waiting run for which no supervisor is coming, after one died before it was ready; else None."""
        return self._waiting.popleft() if len(self._waiting) > self._coming else None

    def lose(self, supervisor: Supervisor) -> None:
        """Forget a supervisor that is gone or not needed, and close its socket."""
        self._supervisors.discard(supervisor)
        if supervisor in self._idle:
            self._idle.remove(supervisor)
        supervisor.close()

    def kill(self, supervisor: Supervisor) -> None:
        """Kill a supervisor, and with it every process of its call."""
        self._send(("kill", supervisor.pid))

    def _send(self, message: object) -> None:
        if self.closed:
            return
        try:
            messages.send(self._control, message)
        except OSError:
            self._note_death()

    def _receive(self) -> None:
        """Receive one message of the launcher and act on it."""
        try:
            received = messages.receive(self._control)
        except BlockingIOError:
            return
        match received:
            case None:
                self._note_death()
            case ("ready", facts), _:
                self._ready.set_result(facts)
            case ("failed", str(why)), _:
                self._ready.set_exception(SandboxFailure(why))
            case ("supervisor", int(pid), bool(single_use)), [socket_fd]:
                self._coming -= not single_use
                # They come in the order they were asked for, so each dry run gets the one with its own layers.
                run = self._dry_runs.popleft() if single_use and self._dry_runs else None
                self._supervisors.add(Supervisor(self, pid, socket_fd, single_use, run))
            case ("no supervisor", int(code)), _:
                self._coming = max(self._coming - 1, 0)
                self._fail_waiting(f"the system could not start it: {os.strerror(code)}")
            case _:
                pass

    def _fail_waiting(self, why: str) -> None:
        for queue in (self._waiting, self._dry_runs):
            while queue:
                queue.popleft().fail(why)

    def _note_death(self) -> None:
        """Fail all runs: the launcher is gone, and with it all its processes."""
        if self.closed:
            return
        self._shut_down("the process that ran it was killed")
        _reap(self.pid)
        if not self._ready.done():
            self._ready.set_exception(SandboxFailure(f"the launcher ended while it started ({sys.executable})"))

    def _shut_down(self, why: str) -> None:
        """Close all sockets, and fail all runs with `why`."""
        self.closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        self._fail_waiting(why)
        for supervisor in list(self._supervisors):
            if (run := supervisor.run or supervisor.next_run) is not None:
                run.fail(why)
            supervisor.close()
        self._supervisors.clear()
        self._idle.clear()

    async def close(self) -> None:
        """End the launcher and everything it runs."""
        if self.closed:
            return
        self._send(("bye",))  # so that it does not clean up as after our death
        if self.closed:
            return
        self._shut_down("the session was closed")
        deadline = time.monotonic() + KILL_S + TERM_S
        while not _reap(self.pid):
            if time.monotonic() > deadline:
                os.kill(self.pid, KILL)
            await asyncio.sleep(0.0005)


class Supervisor:
    """A supervisor as the client sees it: the sockets to it and to the process it has forked for the next command."""

    def __init__(
        self, launcher: Launcher, pid: int, socket_fd: int, single_use: bool, next_run: Run | None = None
    ) -> None:
        self.pid = pid
        self.single_use = single_use
        self.run: Run | None = None
        self.next_run = next_run
        """The dry run it was started for, until that is handed over."""
        self._launcher = launcher
        self._socket = messages.open_socket(socket_fd)
        self._command_socket: Any = None
        self._was_ready = False
        self._closed = False
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(socket_fd, self._receive)

    def give(self, run: Run) -> None:
        """Hand over a run: the change log to the supervisor, the rest to the process that becomes the command."""
        self.run, self.next_run = run, None
        run.supervisor = self
        if self._command_socket is None:  # the supervisor starts the command on demand
            messages.send(self._socket, ("run", run.order), [*run.for_supervisor, *run.for_command])
        else:
            messages.send(self._socket, ("run", run.order), run.for_supervisor)
            messages.send(self._command_socket, run.order, run.for_command)
            self._command_socket.close()
            self._command_socket = None
        run.note_handover()

    def send(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """Send the supervisor a message about the current run."""
        messages.send(self._socket, message, list(descriptors))

    def kill(self) -> None:
        """End the command and everything it started."""
        self._launcher.kill(self)

    def _receive(self) -> None:
        """Receive one message of the supervisor and act on it."""
        try:
            received = messages.receive(self._socket)
        except BlockingIOError:
            return
        run = self.run or self.next_run
        match received:
            case ("ready",), commands:
                self._command_socket = messages.open_socket(commands[0]) if commands else None
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
                    run.note_waiting(name)
            case ("no layer", int(code)), _:
                self.next_run = None
                if run is not None:
                    run.fail(NO_LAYER + os.strerror(code))
            case _:
                self.run = self.next_run = None
                self._launcher.lose(self)
                if run is None and not self._was_ready:
                    run = self._launcher.take_waiting()
                if run is not None:
                    run.fail("the process that watched over it was killed")

    def close(self) -> None:
        """Close the socket; the supervisor then ends."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        if self._command_socket is not None:
            self._command_socket.close()


class LauncherProcess:
    """A launcher process that waits for its profile; it ends if its socket is closed before."""

    def __init__(self) -> None:
        if not sys.executable:
            raise SandboxFailure("the launcher needs the path of this Python, which is not known")
        try:
            self.control, launcher_end = messages.pair()
            self.pid = _spawn(launcher_end.fileno())
        except OSError as problem:
            raise SandboxFailure(f"the launcher could not start: {problem.strerror}") from problem
        launcher_end.close()

    async def enforce(self, profile: SandboxProfile) -> Launcher:
        """Have it enforce `profile`; return it as a launcher."""
        return await Launcher.start(profile, self)

    def has_ended(self) -> bool:
        """Tell whether the process has ended; reaps it, so that a later call would not know it."""
        ended = _reap(self.pid)
        if ended:
            self.control.close()
        return ended

    def end(self) -> None:
        """Kill the process; without a profile it has no children."""
        if not self.has_ended():
            self.control.close()
            os.kill(self.pid, KILL)
            os.waitpid(self.pid, 0)


def _spawn(control: int) -> int:
    """Start the launcher process; asyncio's subprocess would start a thread as well and take three times as long."""
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


# One run of a command by a supervisor.

_ENCODING: Final = sys.getfilesystemencoding()
_ERRORS: Final = sys.getfilesystemencodeerrors()


class Run(CommandRun):
    """One command that runs, or waits for a supervisor."""

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
        """Open all that is handed over; if one fails to open, `set_ended` closes the others."""
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

    def note_handover(self) -> None:
        """Close our descriptors: a supervisor has them now."""
        self.close_handed_over()
        if self.stopped:
            self.signal(KILL)  # it was stopped before it began

    def close_handed_over(self) -> None:
        """Close our copies of what was handed over: open here, they would keep the command's pipes open."""
        for descriptor in (*self.for_supervisor, *self.for_command):
            os.close(descriptor)
        self.for_supervisor, self.for_command = [], []
        self._assigned.set()

    def signal(self, number: int) -> None:
        """Have the supervisor signal the command and all it started."""
        if self._ended.done() or self.supervisor is None:
            return
        try:
            self.supervisor.send(("signal", number))
        except OSError:
            self.kill()

    def kill(self) -> None:
        """Kill the supervisor, and with it every process of the call."""
        if self.supervisor is not None and not self._ended.done():
            self.supervisor.kill()

    async def ask(self, message: object, descriptors: Sequence[int] = ()) -> Any:
        """Ask the supervisor something and return its answer."""
        await self._assigned.wait()
        if self.supervisor is None or self._ended.done():
            raise SandboxFailure("the command has ended")
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._answers.append(answer)
        self.supervisor.send(message, descriptors)
        return await answer

    async def begin_change_log(self, folder: str) -> Mapping[str, Any] | None:
        """Record what it changes from now on in another folder; return the facts of the log before."""
        descriptor = open_change_log(folder)
        try:
            return await self.ask(("begin log",), [descriptor])
        finally:
            os.close(descriptor)

    def take_answer(self, answer: Any) -> None:
        """Pass an answer of the supervisor to whoever asked first."""
        if self._answers:
            self._answers.popleft().set_result(answer)

    def note_waiting(self, name: str) -> None:
        """Note which program waits for somebody to type; an empty name: none any more."""
        self.waiting = name
        if name and self.told_waiting is not None:
            self.told_waiting(name)

    def close(self, report: dict[str, Any]) -> None:
        """End the run as the supervisor's report says."""
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
        """Resolve all waits: those for its end, and those for an answer of its supervisor."""
        self.supervisor = None
        super().set_ended(ended)
        for answer in self._answers:
            answer.set_exception(SandboxFailure("the command has ended"))


def open_change_log(folder: str) -> int:
    """Open a change log for its supervisor, with a shared lock that shows it is in use while the supervisor lives."""
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
    """Cached `os.fsencode`: a command has about a hundred names and values, nearly all the same as the one before."""
    return text.encode(_ENCODING, _ERRORS)


def in_memory(content: bytes) -> int:
    """Return the descriptor of a memory file with this content."""
    descriptor = os.memfd_create("surehand", os.MFD_CLOEXEC)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
