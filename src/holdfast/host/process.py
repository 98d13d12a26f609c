"""Running commands: the program's end of the talk with the launcher.

    launcher = await Launcher.start(plan)
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.core.errors import ToolFailure
from holdfast.host.launcher import wire
from holdfast.host.sandbox.plan import Plan

TERM_S: Final = 5.0
"""How long a command may take to end after SIGTERM."""
KILL_S: Final = 2.0
"""How long the kernel may take to end it after SIGKILL."""
CANCEL_S: Final = 1.5
"""The same as TERM_S for a call that was cancelled: the engine waits two seconds for it."""

_TERM, _KILL = 15, 9
_CHUNK: Final = 1 << 16
_PIPE: Final = 1 << 20
_F_SETPIPE_SZ: Final = 1031
_MAIN: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher", "main.py")
LONG_ARGUMENT: Final = 100_000
"""Bytes above which a script is handed over in a file: the kernel takes no argument over 128 KiB."""

Feed = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Command:
    """A program to start; `script` (when given) is readable by it as /dev/fd/10, `descriptors` follow from there."""

    argv: Sequence[str]
    cwd: str
    environment: Mapping[str, str]
    script: bytes | None = None
    descriptors: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run came to its end. `stopped` is why we ended it: `timeout`, `cancelled`, or a broken limit in words."""

    exit_code: int
    signal: int = 0
    cpu_s: float = 0.0
    max_rss: int = 0
    wall_s: float = 0.0
    left_behind: int = 0
    stopped: str = ""
    journal: Mapping[str, Any] | None = None

    def usage(self) -> dict[str, Any]:
        """Return what the command used, as plain data."""
        return {"cpu_s": round(self.cpu_s, 4), "max_rss": self.max_rss, "wall_s": round(self.wall_s, 4)}


class LauncherFailure(Exception):
    """The launcher could not do what the plan asks; the message says why."""


def bash() -> str:
    """Return the path of bash; raise ToolFailure where there is none."""
    for path in ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"):
        if os.access(path, os.X_OK):
            return path
    import shutil

    if found := shutil.which("bash"):
        return found
    raise ToolFailure("there is no bash on this machine", code="tool_unavailable", hint="Install bash.")


class Launcher:
    """A launcher process and the runs it carries. `facts` says what is in force."""

    def __init__(self, pid: int, control: Any, plan: Plan) -> None:
        self.pid = pid
        self.plan = plan
        self.facts: Mapping[str, Any] = {}
        self.closed = False
        self._control = control
        self._runs: dict[int, Run] = {}
        self._next = 0
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Mapping[str, Any]] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def start(cls, plan: Plan) -> Launcher:
        """Start a launcher that enforces `plan`; raise LauncherFailure when this system cannot."""
        if sys.platform != "linux" or not sys.executable:
            raise LauncherFailure(f"commands need Linux and a Python of their own, not {sys.platform}")
        ours, theirs = wire.pair()
        os.set_inheritable(theirs.fileno(), True)
        actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), theirs.fileno())]
        for number, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
            actions.append((os.POSIX_SPAWN_OPEN, number, "/dev/null", flags, 0))  # type: ignore[arg-type]
        argv = [sys.executable, "-I", "-S", _MAIN, str(theirs.fileno())]
        # Not by asyncio: its subprocess starts a thread to watch the child, and needs three times as long.
        pid = os.posix_spawn(  # noqa: ASYNC221  (a spawn returns at once)
            sys.executable, argv, {"PATH": "/usr/bin:/bin"}, file_actions=actions, setsid=True
        )
        theirs.close()
        launcher = cls(pid, ours, plan)
        await launcher._introduce()
        return launcher

    async def _introduce(self) -> None:
        os.makedirs(os.path.join(self.plan.private_dir, ".scratch"), mode=0o700, exist_ok=True)
        content = _in_memory(marshal.dumps(self.plan.to_wire()))
        owner = os.pidfd_open(os.getpid())
        wire.send(self._control, ("plan",), [content, owner])
        os.close(content)
        os.close(owner)
        self._control.setblocking(False)
        self._loop.add_reader(self._control.fileno(), self._hear)
        try:
            self.facts = await self._ready
        except BaseException:
            await self.close()
            raise

    def _hear(self) -> None:
        """Take one message of the launcher."""
        try:
            received = wire.receive(self._control)
        except BlockingIOError:
            return
        match received:
            case None:
                self._lost()
            case ("ready", facts), _:
                self._ready.set_result(facts)
            case ("failed", str(why)), _:
                self._ready.set_exception(LauncherFailure(why))
            case ("started", int(number), int(pid)), _:
                if run := self._runs.get(number):
                    run.keeper = pid
            case ("refused", int(number), int(code)), _:
                if run := self._runs.get(number):
                    run.fail(f"the system could not start it: {os.strerror(code)}")
            case _:
                pass

    def _lost(self) -> None:
        """The launcher is gone, and with it all it ran."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        _reap(self.pid)
        if not self._ready.done():
            self._ready.set_exception(LauncherFailure("the launcher ended while it started"))
        for run in list(self._runs.values()):
            run.fail("the process that ran it was killed")
        if not self._gone.done():
            self._gone.set_result(None)

    def run(
        self,
        command: Command,
        stdout: Feed,
        stderr: Feed,
        *,
        journal: str | None = None,
        overlay: Mapping[str, str] | None = None,
    ) -> Run:
        """Start a command; its output goes to the two feeds as it comes."""
        if self.closed:
            raise LauncherFailure("the launcher has ended")
        self._next += 1
        run = Run(self, self._next, stdout, stderr)
        self._runs[self._next] = run
        run.begin(command, journal, overlay)
        return run

    def order(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """Send the launcher an order."""
        try:
            wire.send(self._control, message, list(descriptors))
        except OSError as problem:
            raise LauncherFailure(f"the launcher does not answer: {problem.strerror}") from problem

    @property
    def busy(self) -> bool:
        """Whether commands are under way."""
        return bool(self._runs)

    def forget(self, run: Run) -> None:
        self._runs.pop(run.number, None)

    async def close(self) -> None:
        """End the launcher and everything it runs."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        for run in list(self._runs.values()):
            run.fail("the session was closed")
        deadline = time.monotonic() + KILL_S + TERM_S
        while not _reap(self.pid):
            if time.monotonic() > deadline:
                os.kill(self.pid, _KILL)
            await asyncio.sleep(0.002)


class Run:
    """One command under way."""

    def __init__(self, launcher: Launcher, number: int, stdout: Feed, stderr: Feed) -> None:
        self.number = number
        self.keeper = 0
        self.stopped = ""
        self._launcher = launcher
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[int, Feed] = {}
        self._outlets = (stdout, stderr)
        self._began = time.monotonic()
        self._status: Any = None
        self._ended: asyncio.Future[Ended] = self._loop.create_future()
        self._answers: list[asyncio.Future[Any]] = []
        self._timers: list[asyncio.TimerHandle] = []

    def begin(self, command: Command, journal: str | None, overlay: Mapping[str, str] | None) -> None:
        """Hand the command over to the launcher."""
        self._status, theirs = wire.pair()
        sent = [_in_memory(marshal.dumps(_payload(command)))]
        for feed in self._outlets:
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            self._feeds[reader] = feed
            sent.append(writer)
            self._loop.add_reader(reader, self._read, reader)
        sent.append(theirs.fileno())
        if journal is not None:
            sent.append(os.open(journal, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        if command.script is not None:
            sent.append(_in_memory(command.script))
        sent += [os.dup(each) for each in command.descriptors]
        order = {
            "id": self.number,
            "journal": journal is not None,
            "contained": self._launcher.plan.contained,
            "overlay": dict(overlay) if overlay else None,
        }
        self._status.setblocking(False)
        self._loop.add_reader(self._status.fileno(), self._hear)
        try:
            self._launcher.order(("run", order), sent)
        except LauncherFailure as failure:
            self.fail(str(failure))
        finally:
            theirs.detach()
            for descriptor in sent:
                os.close(descriptor)

    async def finish(self, timeout_s: float | None = None) -> Ended:
        """Wait for the end; at the time-out, or when cancelled, bring it about."""
        if timeout_s is not None:
            self._timers.append(self._loop.call_later(timeout_s, self.stop, "timeout"))
        try:
            return await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            if self._ended.done():
                raise
            self.stop("cancelled", CANCEL_S)
            try:
                await asyncio.shield(self._ended)
            except asyncio.CancelledError:
                self._signal(_KILL)  # whoever waits wants no grace at all
                raise
            raise

    @property
    def ended(self) -> Ended | None:
        """How it ended, once it has."""
        return self._ended.result() if self._ended.done() else None

    def stop(self, why: str, grace_s: float = TERM_S) -> None:
        """Begin to end it: SIGTERM, then SIGKILL, then the whole seat."""
        if self.stopped or self._ended.done():
            return
        self.stopped = why
        # TERM first: git leaves index.lock behind on KILL.
        self._signal(_TERM)
        self._timers.append(self._loop.call_later(grace_s, self._signal, _KILL))
        self._timers.append(self._loop.call_later(grace_s + KILL_S / 2, self._kill_keeper))

    def _signal(self, number: int) -> None:
        if not self._ended.done():
            try:
                wire.send(self._status, ("signal", number))
            except OSError:
                self._kill_keeper()

    def _kill_keeper(self) -> None:
        if self.keeper and not self._launcher.closed:
            self._launcher.order(("kill", self.keeper))

    async def ask(self, message: object, descriptors: Sequence[int] = ()) -> Any:
        """Ask the keeper something and return its answer."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._answers.append(answer)
        wire.send(self._status, message, list(descriptors))
        return await answer

    def _hear(self) -> None:
        try:
            received = wire.receive(self._status)
        except BlockingIOError:
            return
        match received:
            case None:
                self.fail("the process that watched over it was killed")
            case ("ended", report), _:
                self._close(report)
            case message, _:
                if self._answers:
                    self._answers.pop(0).set_result(message)

    def _close(self, report: dict[str, Any]) -> None:
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
                journal=report["journal"],
            )
        )

    def fail(self, why: str) -> None:
        """End it without an exit code, because of `why`."""
        if self._ended.done():
            return
        stopped = self.stopped or why
        self._settle(Ended(exit_code=-1, wall_s=time.monotonic() - self._began, stopped=stopped))

    def _settle(self, ended: Ended) -> None:
        for timer in self._timers:
            timer.cancel()
        self._loop.remove_reader(self._status.fileno())
        self._status.close()
        self.drain()
        for reader in list(self._feeds):
            self._forget(reader)
        self._launcher.forget(self)
        for answer in self._answers:
            answer.cancel()
        if not self._ended.done():
            self._ended.set_result(ended)

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
        if len(data) == _CHUNK:
            _widen(reader)
        return True

    def drain(self) -> None:
        """Take everything that has been printed so far."""
        for reader in list(self._feeds):
            while reader in self._feeds and self._read(reader):
                pass

    def _forget(self, reader: int) -> None:
        if self._feeds.pop(reader, None) is not None:
            self._loop.remove_reader(reader)
            os.close(reader)


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


def _in_memory(content: bytes) -> int:
    descriptor = os.memfd_create("holdfast", os.MFD_CLOEXEC)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _reap(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _start_failure(path: str, number: int) -> str:
    """Say why a command could not start, from the path and the error the kernel named."""
    return f"it could not start: {path + ': ' if path else ''}{os.strerror(number)}"
