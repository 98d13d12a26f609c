"""The client of the launcher: the program's end of the talk with the launcher.

    launcher = await Launcher.start(plan)
    run = launcher.run(Command(("/bin/bash", "-c", text), cwd, environment), stdout.feed, stderr.feed)
    ended = await run.finish(timeout_s=120)

A run ends when its command ends: whatever the command left behind is ended with it, and a child that keeps the pipe
open holds nobody up.
"""

from __future__ import annotations

import asyncio
import marshal
import os
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from surehand.core import installation
from surehand.files.protected_paths import PRIVATE, homes, inside
from surehand.sandbox.command import KILL_S, NO_LAYER, TERM_S, Command, Feed, SandboxFailure
from surehand.sandbox.linux import probe
from surehand.sandbox.linux.command_run import Run, in_memory
from surehand.sandbox.linux.launcher import wire
from surehand.sandbox.plan import Plan
from surehand.sandbox.view import EMPTY, HARMLESS_DEVICES, readable_by_rules

_KILL = 9
_MAIN: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher", "main.py")
IDLE_SEATS: Final = 3
"""Seats that are kept though no command uses them."""
MOST_IDLE_SEATS: Final = 16
REST_S: Final = 2.0
"""How long more of them are kept: who runs many commands at once runs the next ones in the same seats."""


class Launcher:
    """A launcher process, its seats and the runs they carry."""

    kind = "linux"
    keeps_shell = True

    def __init__(self, pid: int, control: Any, plan: Plan) -> None:
        self.pid = pid
        self.plan = plan
        self.means: Sequence[str] = ()
        self.problems: Sequence[str] = ()
        self.closed = False
        self._control = control
        self._seats: set[Seat] = set()
        self._idle: list[Seat] = []
        self._resting: asyncio.TimerHandle | None = None
        self._fewest_idle = 0
        """The fewest seats without a command since the last look: so many nobody has needed meanwhile."""
        self._waiting: deque[Run] = deque()
        self._coming = 1
        self._dry_runs: deque[Run] = deque()
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Mapping[str, Any]] = self._loop.create_future()

    @classmethod
    async def start(cls, plan: Plan, ahead: LauncherProcess | None = None) -> Launcher:
        """Start a launcher that enforces `plan`; raise SandboxFailure when this system cannot."""
        process = ahead or LauncherProcess()
        launcher = cls(process.pid, process.control, plan)
        await launcher._introduce()
        return launcher

    async def _introduce(self) -> None:
        os.makedirs(os.path.join(self.plan.private_dir, ".scratch"), mode=0o700, exist_ok=True)
        content = in_memory(marshal.dumps(_encode_plan(self.plan)))
        owner = os.pidfd_open(os.getpid())
        try:
            wire.send(self._control, ("plan",), [content, owner])
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
        self.means = [*(name for name, there in layers.items() if there), "limits"] if self.plan.contained else ()
        self.problems = facts["problems"]

    @property
    def records(self) -> bool:
        """Whether what a command changes is written down: the kernel must stop it at each call that changes a file."""
        return probe.abilities().seccomp

    @property
    def busy(self) -> bool:
        """Whether commands are under way."""
        return bool(self._waiting or self._dry_runs) or any(seat.run or seat.meant for seat in self._seats)

    def run(
        self,
        command: Command,
        stdout: Feed,
        stderr: Feed,
        *,
        journal: str | None = None,
        overlay: Mapping[str, Any] | None = None,
    ) -> Run:
        """Start a command; its output goes to the two feeds as it comes."""
        if self.closed:
            raise SandboxFailure("the launcher has ended")
        run = Run(self.plan, command, stdout, stderr, journal)
        if overlay is not None:
            self._dry_runs.append(run)
            self._order(("seat", dict(overlay)))
        elif self._idle:
            seat = self._idle.pop()
            self._fewest_idle = min(self._fewest_idle, len(self._idle))
            self._assign(seat, run)
        else:
            self._waiting.append(run)
            self._ask_for_seats()
        return run

    def _ask_for_seats(self) -> None:
        """Ask for as many seats as runs wait for; a seat that is about to be free again does not count."""
        while self._coming < len(self._waiting):
            self._coming += 1
            self._order(("seat", None))

    def _assign(self, seat: Seat, run: Run) -> None:
        try:
            seat.give(run)
        except OSError:  # its command-to-be was killed while it waited
            seat.close()
            self._seats.discard(seat)
            self._waiting.appendleft(run)
            self._ask_for_seats()

    def offer(self, seat: Seat) -> None:
        """A seat is ready: give it the run that waits longest, or let it wait."""
        if seat.once:
            if seat.meant is None:
                self.lose(seat)
            else:
                seat.give(seat.meant)
        elif self._waiting:
            self._assign(seat, self._waiting.popleft())
        elif len(self._idle) < MOST_IDLE_SEATS:
            self._idle.append(seat)
            if len(self._idle) > IDLE_SEATS and self._resting is None:
                self._fewest_idle = len(self._idle)
                self._resting = self._loop.call_later(REST_S, self._rest)
        else:
            self.lose(seat)

    def _rest(self) -> None:
        """Let go of the seats that nobody has needed for a while, but for a few."""
        self._resting = None
        for seat in self._idle[: max(min(self._fewest_idle, len(self._idle) - IDLE_SEATS), 0)]:
            self.lose(seat)
        if len(self._idle) > IDLE_SEATS:
            self._fewest_idle = len(self._idle)
            self._resting = self._loop.call_later(REST_S, self._rest)

    def lose(self, seat: Seat) -> None:
        """A seat is gone, or not needed any more."""
        self._seats.discard(seat)
        if seat in self._idle:
            self._idle.remove(seat)
        seat.close()

    def kill(self, seat: Seat) -> None:
        """End a keeper, and with it every process of its call."""
        self._order(("kill", seat.pid))

    def _order(self, message: object) -> None:
        if self.closed:
            return
        try:
            wire.send(self._control, message)
        except OSError:
            self._lost()

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
                self._ready.set_exception(SandboxFailure(why))
            case ("seat", int(pid), bool(once)), [line]:
                self._coming -= not once
                # Seats come in the order they were asked for, so that each dry run gets the one with its own layers.
                meant = self._dry_runs.popleft() if once and self._dry_runs else None
                self._seats.add(Seat(self, pid, line, once, meant))
            case ("no seat", int(code)), _:
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
        for seat in list(self._seats):
            if (run := seat.run or seat.meant) is not None:
                run.fail(why)
            seat.close()
        self._seats.clear()
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
                os.kill(self.pid, _KILL)
            await asyncio.sleep(0.0005)


class Seat:
    """A place for one command at a time: the line to its keeper, and the way to its command-to-be."""

    def __init__(self, launcher: Launcher, pid: int, line: int, once: bool, meant: Run | None = None) -> None:
        self.pid = pid
        self.once = once
        self.run: Run | None = None
        self.meant = meant
        """The dry run it was made for, until that is handed over."""
        self._launcher = launcher
        self._line = wire.end(line)
        self._command: Any = None
        self._closed = False
        self._line.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(line, self._hear)

    def give(self, run: Run) -> None:
        """Hand a run over: the journal to the keeper, everything else to the command-to-be."""
        self.run, self.meant = run, None
        run.seat = self
        if self._command is None:  # the keeper starts it itself
            wire.send(self._line, ("run", run.order), [*run.for_keeper, *run.for_command])
        else:
            wire.send(self._line, ("run", run.order), run.for_keeper)
            wire.send(self._command, run.order, run.for_command)
            self._command.close()
            self._command = None
        run.handed_over()

    def tell(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """Send the keeper a message about the run under way."""
        wire.send(self._line, message, list(descriptors))

    def kill(self) -> None:
        """End the command and everything it started."""
        self._launcher.kill(self)

    def _hear(self) -> None:
        try:
            received = wire.receive(self._line)
        except BlockingIOError:
            return
        run = self.run or self.meant
        match received:
            case ("ready",), commands:
                self._command = wire.end(commands[0]) if commands else None
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
                if run is not None:
                    run.fail("the process that watched over it was killed")

    def close(self) -> None:
        """Let go of it; its keeper ends when it notices."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._line.fileno())
        self._line.close()
        if self._command is not None:
            self._command.close()


class LauncherProcess:
    """The process of a launcher; it waits for its plan, and ends when our end of the line is closed before that."""

    def __init__(self) -> None:
        if not sys.executable:
            raise SandboxFailure("the launcher needs the path of this Python, which is not known")
        try:
            self.control, theirs = wire.pair()
            self.pid = _spawn(theirs.fileno())
        except OSError as problem:
            raise SandboxFailure(f"the launcher could not start: {problem.strerror}") from problem
        theirs.close()

    async def enforce(self, plan: Plan) -> Launcher:
        """Have it enforce `plan`; return the launcher it is from then on."""
        return await Launcher.start(plan, self)

    def has_ended(self) -> bool:
        """Tell whether it is gone; then it is not asked again."""
        ended = _reap(self.pid)
        if ended:
            self.control.close()
        return ended

    def end(self) -> None:
        """End it; it has no plan and so nothing below it."""
        if not self.has_ended():
            self.control.close()
            os.kill(self.pid, _KILL)
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


def _encode_plan(plan: Plan) -> dict[str, Any]:
    """Return a plan as the launcher reads it."""
    from surehand.sandbox.linux import seccomp  # lazy: seccomp, 5 ms

    return {
        "workspace": plan.workspace,
        "roots": list(plan.roots),
        "contained": plan.contained,
        "limited": plan.contained,
        "namespaces": plan.namespaces,
        "network": plan.network,
        "writable": list(plan.writable),
        "closed": [path for path in plan.closed if path not in EMPTY],
        "empty": [path for path in EMPTY if path in plan.closed],
        "homes": [path for path in homes() if os.path.isdir(path)],
        "shown": [path for path in plan.shown if not inside(path, plan.writable)],
        "private": [path for path in PRIVATE if path not in EMPTY and _is_plain_folder(path)],
        "read_only": list(plan.read_only),
        "instead": dict(plan.instead),
        "pinned": list(plan.pinned),
        "masked": [*plan.masked, *plan.sockets, *plan.hidden],
        "forbidden": list(plan.refused),
        "landlock": _list_writable(plan),
        "landlock_reads": _list_readable(plan),
        "seccomp": plan.contained and seccomp.supported(),
        "limits": plan.limits,
        "scratch": os.path.join(plan.private_dir, ".scratch"),
        "capabilities": 0,
    }


def _list_writable(plan: Plan) -> list[str]:
    """Return the folders Landlock lets commands write."""
    if not plan.contained:
        return []
    return [*plan.writable, *((*PRIVATE, "/dev") if plan.namespaces else HARMLESS_DEVICES)]


def _list_readable(plan: Plan) -> list[str] | None:
    """Return what Landlock lets commands read where there are no mounts to hide the rest; None: everything."""
    if not plan.contained or plan.namespaces:
        return None
    return readable_by_rules(plan.closed, plan.shown, plan.masked) + list(plan.writable)


def _is_plain_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
