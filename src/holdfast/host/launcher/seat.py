"""A seat: the processes that serve one call, made ready before it comes.

The keeper is PID 1 of the call's namespace (or a subreaper where there are none). Its child has already given up
everything the plan takes away and waits to become the command.
"""

from __future__ import annotations

import _socket
import os
import select

from holdfast.host.launcher import tree, wire
from holdfast.host.launcher.journal import Journal
from holdfast.host.sandbox import landlock, limits, namespaces, seccomp, system

TYPE_CHECKING = False  # `typing` itself would double the time the launcher takes to start
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any
else:
    import _signal

_TERM, _KILL = 15, 9
_WATCH_MS = 250
_EXTRA = 10
"""The first descriptor a command gets beside its three: a script too long for an argument, lines of a shell."""


class Seat:
    """The launcher's hold on a seat."""

    def __init__(self, pid: int, keeper: _socket.socket, command: _socket.socket) -> None:
        self.pid = pid
        self._keeper = keeper
        self._command = command

    def give(self, order: dict[str, Any], descriptors: list[int]) -> None:
        """Hand the call over: payload, stdout, stderr, status, then a journal and a script where they are used."""
        payload, out, err, status, *others = descriptors
        journal, script = others[: int(order["journal"])], others[int(order["journal"]) :]
        wire.send(self._keeper, order, [status, *journal])
        wire.send(self._command, order, [payload, out, err, *script])
        self._command.close()

    def close(self) -> None:
        self._command.close()
        self._keeper.close()


def make(plan: dict[str, Any], overlay: dict[str, str] | None = None) -> Seat:
    """Fork a keeper, which forks the command-to-be."""
    keeper, keeper_end = wire.pair()
    command, command_end = wire.pair()
    flags = system.CLONE_NEWPID | system.CLONE_NEWNS if plan["namespaces"] else 0
    pid = system.clone(flags) if flags else os.fork()
    if pid == 0:
        try:
            _close_all_but(keeper_end.fileno(), command_end.fileno(), *plan["root_folders"].values())
            _Keeper(plan, overlay).serve(keeper_end, command_end)
        finally:
            os._exit(70)
    keeper_end.close()
    command_end.close()
    return Seat(pid, keeper, command)


def _close_all_but(*kept: int) -> None:
    """Let go of the launcher's descriptors: held here, they would keep the lines of other seats open."""
    below = 3
    for number in sorted(kept):
        os.closerange(below, number)
        below = number + 1
    os.closerange(below, os.sysconf("SC_OPEN_MAX"))


class _Keeper:
    """Starts one command, waits for it, ends what is left, reports."""

    def __init__(self, plan: dict[str, Any], overlay: dict[str, str] | None) -> None:
        self.plan = plan
        self.namespaced = bool(plan["namespaces"])
        self.limits: dict[str, int] = plan["limits"]
        self.journal: Journal | None = None
        self.listener = -1
        self.child = 0
        self.ended: int | None = None
        self.used = [0.0, 0.0, 0]
        self.reason = ""
        self.error: tuple[str, int] | None = None
        self.wake, wake_end = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_end, False)
        _signal.set_wakeup_fd(wake_end)
        _signal.signal(_signal.SIGCHLD, nothing)
        if self.namespaced:
            system.prctl(system.PR_SET_PDEATHSIG, _KILL)
            self._furnish(overlay)
        else:
            system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
            os.setsid()

    def _furnish(self, overlay: dict[str, str] | None) -> None:
        if overlay:
            namespaces.lay_over(overlay, self.plan)
        if namespaces.mount_processes():
            limits.cap_process_ids(self.limits["processes"])
            system.set_read_only("/proc", True)

    def serve(self, orders: _socket.socket, command_end: _socket.socket) -> None:
        ours, theirs = wire.pair()
        self.child = os.fork()
        if self.child == 0:
            try:
                orders.close()
                ours.close()
                _become_the_command(self.plan, command_end, theirs)
            finally:
                os._exit(71)
        command_end.close()
        theirs.close()
        order = wire.receive(orders)
        if order is None:
            self._end_all()
            return
        status = _socket.socket(fileno=order[1][0])
        if len(order[1]) > 1:
            self.journal = Journal(self.plan["root_folders"], order[1][1])
        self._watch(orders, status, ours)
        left = self._end_all()
        self._report(status, left)

    def _watch(self, orders: _socket.socket, status: _socket.socket, child: _socket.socket) -> None:
        """Wait for the command's end, doing what the program and the journal ask meanwhile."""
        poll = select.poll()
        for end in (orders.fileno(), status.fileno(), child.fileno(), self.wake):
            poll.register(end, select.POLLIN)
        while self.ended is None:
            events = poll.poll(_WATCH_MS)
            if not events:
                self._look_at_limits()
            for descriptor, _ in events:
                if descriptor == self.listener:
                    self._answer(poll)
                elif descriptor == self.wake:
                    os.read(self.wake, 512)
                elif descriptor == status.fileno():
                    self._obey(status, poll)
                elif descriptor == child.fileno():
                    self._hear(child, poll)
                else:
                    self.reason = self.reason or "the program ended"
                    poll.unregister(descriptor)
                    self._signal(_KILL)
            self._collect()

    def _answer(self, poll: select.poll) -> None:
        assert self.journal is not None
        if not self.journal.answer(self.listener):
            poll.unregister(self.listener)

    def _obey(self, status: _socket.socket, poll: select.poll) -> None:
        message = wire.receive(status)
        match message:
            case None:
                poll.unregister(status.fileno())
                self.reason = self.reason or "the program let go of it"
                self._signal(_KILL)
            case ("signal", int(number)), _:
                self._signal(number)
            case ("journal",), [folder]:
                if self.journal:
                    self.journal.begin(folder)
                wire.send(status, ("began",))
            case ("journalled",), _:
                wire.send(status, ("journal", self.journal.finish() if self.journal else None))
            case _:
                pass

    def _hear(self, child: _socket.socket, poll: select.poll) -> None:
        """The child sends the descriptor of its journal, or why it could not become the command."""
        message = wire.receive(child)
        match message:
            case None:
                poll.unregister(child.fileno())
            case ("listen",), [listener]:
                self.listener = listener
                poll.register(listener, select.POLLIN)
            case ("failed", str(what), int(number)), _:
                self.error = (what, number)
            case _:
                pass

    def _look_at_limits(self) -> None:
        if not self.plan["limited"]:
            return
        pids = _all_but_us() if self.namespaced else tree.descendants(os.getpid())
        if broken := limits.overrun(pids, self.limits):
            self.reason = f"ended because {broken}"
            self._signal(_KILL)

    def _signal(self, number: int) -> None:
        if not self.namespaced:
            tree.terminate(os.getpid(), number)
            return
        for each in (number, _signal.SIGCONT):
            try:
                os.kill(-1, each)
            except ProcessLookupError:
                return

    def _collect(self) -> None:
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                self.used[0] += usage.ru_utime
                self.used[1] += usage.ru_stime
                self.used[2] = max(self.used[2], usage.ru_maxrss)
                if pid == self.child:
                    self.ended = status
        except ChildProcessError:
            return

    def _end_all(self) -> int:
        """End every process left of the call; return how many there were."""
        left = len(_all_but_us() if self.namespaced else tree.descendants(os.getpid()))
        if not left:
            return 0
        if not self.namespaced:
            tree.end(os.getpid())
            return left
        try:
            os.kill(-1, _KILL)
            while True:
                os.waitpid(-1, 0)
        except (ProcessLookupError, ChildProcessError):
            return left

    def _report(self, status: _socket.socket, left: int) -> None:
        report = {
            "status": self.ended,
            "cpu_s": self.used[0] + self.used[1],
            "max_rss": self.used[2] * 1024,
            "left": left,
            "reason": self.reason,
            "error": self.error,
            "journal": self.journal.finish() if self.journal else None,
        }
        try:
            wire.send(status, ("ended", report))
        except OSError:
            pass


def nothing(number: int, frame: object) -> None:
    """A handler that only wakes the poll."""


def _all_but_us() -> list[int]:
    own = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own and _alive(name)]


def _alive(name: str) -> bool:
    try:
        with open(f"/proc/{name}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def _become_the_command(plan: dict[str, Any], orders: _socket.socket, keeper: _socket.socket) -> None:
    """Give everything up, wait for the order, then exec. Does not return."""
    for number in (_signal.SIGCHLD, _signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGINT):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.set_wakeup_fd(-1)
    os.setsid()
    if not plan["namespaces"]:
        system.prctl(system.PR_SET_PDEATHSIG, _KILL)
    _give_up(plan)
    received = wire.receive(orders)
    if received is None:
        os._exit(0)
    order, (payload, out, err, *script) = received
    try:
        _exec(order, payload, out, err, script, keeper)
    except OSError as problem:
        wire.send(keeper, ("failed", str(problem.filename or ""), problem.errno or 0))
        os._exit(127)


def _give_up(plan: dict[str, Any]) -> None:
    if plan["limited"]:
        limits.apply(plan["limits"])
    if not plan["contained"]:
        return
    if plan["namespaces"]:
        system.keep_capabilities(plan["capabilities"])
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    if plan["landlock"]:
        alone = not plan["namespaces"]
        landlock.restrict(plan["landlock"], tcp_off=alone and not plan["network"], scoped=True)
    if plan["seccomp"]:
        seccomp.contain(network=bool(plan["network"]), network_namespace=bool(plan["namespaces"]))


def _exec(order: dict[str, Any], payload: int, out: int, err: int, script: list[int], keeper: _socket.socket) -> None:
    import marshal

    command = marshal.loads(os.pread(payload, os.fstat(payload).st_size, 0))
    os.chdir(command["cwd"])
    if order["journal"]:
        if not order["contained"] and os.geteuid() != 0:
            system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
        listener = seccomp.report_changes()
        wire.send(keeper, ("listen",), [listener])
        os.close(listener)
    nothing = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((nothing, 0), (out, 1), (err, 2), *((each, _EXTRA + at) for at, each in enumerate(script))):
        os.dup2(source, target)
        os.set_inheritable(target, True)  # a copy onto itself copies nothing, and would close with the exec
    os.execve(command["argv"][0], command["argv"], command["env"])
