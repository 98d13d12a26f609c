"""The launcher's own loop: `python -I -S main.py CONTROL`, where CONTROL is the descriptor it talks through."""

from __future__ import annotations

import os
import select
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))

import _socket

from holdfast.host.launcher import seat as seats
from holdfast.host.launcher import tree, wire
from holdfast.host.sandbox import landlock, namespaces, seccomp, system

TYPE_CHECKING = False  # `typing` itself would double the time the launcher takes to start
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any
else:
    import _signal


class Launcher:
    """Holds the session's namespaces and its seats."""

    def __init__(self, control: _socket.socket, plan: dict[str, Any], owner: int) -> None:
        self.control = control
        self.plan = plan
        self.owner = owner
        self.seats: dict[int, seats.Seat] = {}
        self.spare: seats.Seat | None = None

    def prepare(self) -> dict[str, Any]:
        """Enter the namespaces of the plan; return what is in force."""
        plan = self.plan
        facts: dict[str, Any] = {"namespaces": False, "problems": []}
        # Held from before the namespaces: these lead to the folders as the program sees them.
        plan["root_folders"] = {root: os.open(root, os.O_PATH | os.O_CLOEXEC) for root in plan["roots"]}
        if plan["namespaces"]:
            plan["capabilities"] = namespaces.kept_capabilities(plan["workspace"])
            namespaces.enter(network=bool(plan["network"]))
            facts["problems"] = namespaces.furnish(plan, plan["scratch"])
            facts["namespaces"] = True
        else:
            system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
        facts["landlock"] = landlock.version() if plan["landlock"] else 0
        facts["seccomp"] = bool(plan["seccomp"]) and seccomp.supported()
        return facts

    def serve(self) -> None:
        """Start commands until the program closes its end or is gone."""
        wake, wake_end = os.pipe()
        for end in (wake, wake_end):
            os.set_blocking(end, False)
        _signal.set_wakeup_fd(wake_end)
        _signal.signal(_signal.SIGCHLD, seats.nothing)
        poll = select.poll()
        for end in (self.control.fileno(), self.owner, wake):
            poll.register(end, select.POLLIN)
        self.spare = seats.make(self.plan)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == wake:
                    os.read(wake, 512)
                    self._collect()
                elif descriptor == self.owner or not self._take_order():
                    self._close()
                    return

    def _take_order(self) -> bool:
        received = wire.receive(self.control)
        if received is None:
            return False
        message, descriptors = received
        match message:
            case ("run", order):
                self._start(order, descriptors)
                self._make_ready()
            case ("kill", int(pid)) if pid in self.seats:
                os.kill(pid, 9)
            case _:
                pass
        return True

    def _start(self, order: dict[str, Any], descriptors: list[int]) -> None:
        try:
            if order["overlay"]:
                seat = seats.make(self.plan, order["overlay"])
            else:
                seat, self.spare = self.spare or seats.make(self.plan), None
            seat.give(order, descriptors)
        except OSError as problem:
            wire.send(self.control, ("refused", order["id"], problem.errno or 0))
            return
        finally:
            # Before the next seat is forked: a copy there would keep the command's pipes open.
            for descriptor in descriptors:
                os.close(descriptor)
        self.seats[seat.pid] = seat
        wire.send(self.control, ("started", order["id"], seat.pid))

    def _make_ready(self) -> None:
        if self.spare is None:
            try:
                self.spare = seats.make(self.plan)
            except OSError:
                self.spare = None  # out of processes just now; the next call tries again

    def _collect(self) -> None:
        try:
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                if self.spare and self.spare.pid == pid:
                    self.spare = None
                if seat := self.seats.pop(pid, None):
                    seat.close()
                    self._end_strays()
        except ChildProcessError:
            pass

    def _end_strays(self) -> None:
        """Without namespaces, what a killed keeper leaves behind becomes ours: end it."""
        if self.plan["namespaces"]:
            return
        known = {*self.seats, self.spare.pid if self.spare else 0}
        for pid in tree.descendants(os.getpid()):
            if tree.parent_of(pid) == os.getpid() and pid not in known:
                tree.end(pid)
                tree.signal_all([pid], 9)

    def _close(self) -> None:
        """End every call; a keeper ends its own processes when its line to us closes."""
        for seat in (*self.seats.values(), *([self.spare] if self.spare else [])):
            seat.close()
            if self.plan["namespaces"]:
                tree.signal_all([seat.pid], 9)
        if not self.plan["namespaces"]:
            tree.end(os.getpid(), 4.0)


def main() -> None:
    number = int(sys.argv[1])
    os.closerange(3, number)  # whatever the program left open is no business of a command
    os.closerange(number + 1, os.sysconf("SC_OPEN_MAX"))
    control = _socket.socket(fileno=number)
    os.set_inheritable(number, False)
    first = wire.receive(control)
    if first is None:
        return
    import marshal

    (content, owner) = first[1]
    plan = marshal.loads(os.pread(content, os.fstat(content).st_size, 0))
    os.close(content)
    launcher = Launcher(control, plan, owner)
    try:
        facts = launcher.prepare()
    except OSError as problem:
        wire.send(control, ("failed", f"{problem.strerror or problem}"))
        return
    wire.send(control, ("ready", facts))
    launcher.serve()


if __name__ == "__main__":
    main()
