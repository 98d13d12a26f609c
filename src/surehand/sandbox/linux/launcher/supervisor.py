"""The supervisor: starts one command at a time, waits for it, ends what is left of it, reports.

It is PID 1 of its own namespace (or a subreaper where there are none), so that whoever is orphaned becomes its
child. Before each call it forks the command-to-be, which gives everything up and waits; the program then speaks to
both directly, and the launcher has no part in a call.
"""

from __future__ import annotations

import _socket
import os
import select
import time

from surehand.sandbox.linux import landlock, limits, namespaces, seccomp, system
from surehand.sandbox.linux.launcher import command, messages, tree
from surehand.sandbox.linux.launcher.change_recorder import ChangeRecorder

TYPE_CHECKING = False  # `typing` itself would double the time the launcher takes to start
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any
else:
    import _signal

_KILL = 9
_LET_GO = "the program let go of it"
_WATCH_S, _WATCH_MS = 0.25, 250
_LOOKS_A_SECOND = 4
_MOST_LOOKED_AT = 64
# System calls in which a process waits for input: read and readv; poll, select, epoll and their variants.
_READS = {"x86_64": {0, 19}, "aarch64": {63, 65}}.get(system.MACHINE, set[int]())
_WAITS = {"x86_64": {7, 23, 232, 270, 271, 281}, "aarch64": {22, 72, 73}}.get(system.MACHINE, set[int]())


def make(profile: dict[str, Any], overlay: dict[str, Any] | None = None, group: int = -1) -> tuple[int, _socket.socket]:
    """Fork a supervisor, whose commands join a cgroup; return its process id and our end of the line to it."""
    line, end = messages.pair()
    flags = system.CLONE_NEWPID | system.CLONE_NEWNS if profile["namespaces"] else 0
    pid = system.clone(flags) if flags else os.fork()
    if pid == 0:
        try:
            close_all_but(end.fileno(), *profile["root_folders"].values(), *((group,) if group >= 0 else ()))
            Supervisor(profile, end, overlay, group).serve()
        finally:
            os._exit(70)
    end.close()
    return pid, line


def close_all_but(*kept: int) -> None:
    """Let go of inherited descriptors: held here, they would keep the lines and pipes of others open."""
    below = 3
    for number in sorted(kept):
        os.closerange(below, number)
        below = number + 1
    os.closerange(below, os.sysconf("SC_OPEN_MAX"))


def nothing(number: int, frame: object) -> None:
    """A signal handler that only wakes the poll."""


class Supervisor:
    """Runs one command after another; with an overlay only one, because the layer belongs to that call."""

    def __init__(
        self, profile: dict[str, Any], line: _socket.socket, overlay: dict[str, Any] | None, group: int = -1
    ) -> None:
        self.profile = profile
        self.group = group
        self.line = line
        self.once = overlay is not None
        self.namespaced = bool(profile["namespaces"])
        self.limits: dict[str, int] = profile["limits"]
        # Without namespaces the memory that programs share by name is the machine's, and counts all the same.
        own = profile["empty"] if self.namespaced else ()
        self.temps: list[str] = [*own, "/dev/shm"] if profile["contained"] else []
        self.wake, wake_end = os.pipe()
        for end in (self.wake, wake_end):
            os.set_blocking(end, False)
        _signal.set_wakeup_fd(wake_end)
        _signal.signal(_signal.SIGCHLD, nothing)
        if self.namespaced:
            system.prctl(system.PR_SET_PDEATHSIG, _KILL)
            self._furnish(overlay)
        else:
            system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
            os.setsid()
        if profile["contained"]:  # once, for all commands: forty system calls, and a filter that the kernel compiles
            system.bound_capabilities(profile["capabilities"])
            system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
            if profile["seccomp"]:
                seccomp.contain(profile["seccomp"])
        self.ruleset = landlock.ruleset(
            profile["landlock"], profile["landlock_reads"], tcp_off=not self.namespaced and not profile["network"]
        )

    def _furnish(self, overlay: dict[str, Any] | None) -> None:
        if overlay:
            try:
                namespaces.lay_over(overlay, self.profile)
            except OSError as problem:
                self._tell(("no layer", problem.errno or 0))
                raise
        if namespaces.mount_processes():
            limits.cap_process_ids(self.limits["processes"])
            system.set_read_only("/proc", True)

    def serve(self) -> None:
        """Serve calls until the program closes its end."""
        while self._one_call() and not self.once:
            pass

    def _one_call(self) -> bool:
        self.recorder: ChangeRecorder | None = None
        self.listener = -1
        self.ended: int | None = None
        self.used = [0.0, 0.0, 0]
        self.reason = ""
        self.error: tuple[str, int] | None = None
        self.looks = 0
        self.in_temps = limits.in_temps(self.temps)
        self.kills = limits.count_kills(self.group) if self.group >= 0 else 0
        self.pushes = 0
        self.asking: dict[int, tuple[str, int]] = {}
        self.told = ""
        words = self._get_ready()
        received = self._wait_for_order()
        if received is None:
            self._end_all()
            return False
        order, descriptors = received
        if order["records"]:
            self.recorder = ChangeRecorder(self.profile["root_folders"], descriptors.pop(0), self.profile["forbidden"])
        if words is None:
            words = self._start(order, descriptors)
        self._watch(words)
        while self._hear(words, None):
            pass  # it may have ended before we looked
        words.close()
        if self.listener >= 0:
            os.close(self.listener)
        return self._report(self._end_all())

    def _get_ready(self) -> _socket.socket | None:
        """Fork the command-to-be and tell the program where to reach it; return our own line to it.

        Where nothing is to be given up there is none: a spawn on demand costs less than a fork ahead of time.
        """
        if not self.profile["contained"]:
            self._tell(("ready",))
            return None
        orders, order_end = messages.pair()
        words, word_end = messages.pair()
        self.child = os.fork()
        if self.child == 0:
            try:
                self._join_group()
                ruleset = () if self.ruleset < 0 else (self.ruleset,)
                close_all_but(order_end.fileno(), word_end.fileno(), *ruleset)
                command.become(self.profile, order_end, word_end, self.ruleset)
            finally:
                os._exit(71)
        order_end.close()
        word_end.close()
        self._tell(("ready",), [orders.fileno()])
        orders.close()
        return words

    def _join_group(self) -> None:
        if self.group >= 0:
            try:
                limits.join(self.group)
            except OSError:
                pass  # what it uses is looked at all the same

    def _tell(self, message: Any, descriptors: list[int] | tuple[int, ...] = ()) -> bool:
        try:
            messages.send(self.line, message, descriptors)
            return True
        except OSError:
            return False  # the program is gone; waiting for its order will tell

    def _wait_for_order(self) -> tuple[dict[str, Any], list[int]] | None:
        """Return the order of the next call and its descriptors; None when no call will come."""
        while (received := messages.receive(self.line)) is not None:
            match received:
                case ("run", order), descriptors:
                    return order, descriptors
                case _:
                    pass  # meant for a call that has ended in the meantime
        return None

    def _start(self, order: dict[str, Any], descriptors: list[int]) -> _socket.socket:
        """Start the command right now; return our line to it."""
        words, word_end = messages.pair()
        payload, *outlets = descriptors
        try:
            if order["records"]:
                self.child = os.fork()
                if self.child == 0:
                    command.become_now(self.profile, order, payload, tuple(outlets), word_end)
            else:
                self.child = command.spawn(payload, outlets)
        except OSError as problem:
            self.child, self.ended, self.error = 0, 127 << 8, (str(problem.filename or ""), problem.errno or 0)
        word_end.close()
        for descriptor in descriptors:
            os.close(descriptor)
        return words

    def _watch(self, words: _socket.socket) -> None:
        """Wait for the command's end, doing what the program and the change_log ask meanwhile."""
        # No epoll: it wakes us on another core, if one is idle, whatever the listener asks for; that doubles the time
        # of a command that changes many files.
        poll = select.poll()
        # Only the first word of a recorded command is waited for; the end of the line, when it becomes the command,
        # would wake us for nothing, and why it could not is heard after its end.
        spoken = (words.fileno(),) if self.recorder else ()
        for end in (self.line.fileno(), self.wake, *spoken):
            poll.register(end, select.POLLIN)
        self._collect()
        next_look = time.monotonic() + _WATCH_S
        recorder = self.recorder
        while self.ended is None:
            events = poll.poll(_WATCH_MS)
            if time.monotonic() >= next_look:
                self._look()
                next_look = time.monotonic() + _WATCH_S
            for descriptor, event in events:
                if descriptor == self.listener:
                    # Once nobody is left to report it says so without end, while the last of them is on its way out.
                    if recorder is None or not event & select.POLLIN or not recorder.answer(descriptor):
                        poll.unregister(descriptor)
                elif descriptor == self.wake:
                    os.read(self.wake, 512)
                    self._collect()
                elif descriptor == words.fileno():
                    self._hear(words, poll)
                else:
                    self._obey(poll)

    def _obey(self, poll: select.poll) -> None:
        """Do what the program asks."""
        match messages.receive(self.line):
            case None:
                poll.unregister(self.line.fileno())
                self.reason = _LET_GO
                self._signal(_KILL)
            case ("signal", int(number)), _:
                self._signal(number)
            case ("begin log",), [folder]:
                messages.send(self.line, ("answer", self.recorder.change(folder) if self.recorder else None))
            case ("finish log",), _:
                messages.send(self.line, ("answer", self.recorder.finish() if self.recorder else None))
            case _:
                pass

    def _hear(self, words: _socket.socket, poll: select.poll | None) -> bool:
        """The child sends the descriptor of its change_log, or why it could not become the command."""
        match messages.receive(words):
            case None:
                if poll:
                    poll.unregister(words.fileno())
                return False
            case ("listen",), [listener]:
                self.listener = listener
                if self.recorder:
                    self.recorder.listen(listener)
                if poll:
                    poll.unregister(words.fileno())
                    poll.register(listener, select.POLLIN)
            case ("failed", str(what), int(number)), _:
                self.error = (what, number)
            case _:
                pass
        return True

    def _look(self) -> None:
        """In a quiet moment, look at the limits, and once a second at who waits for input."""
        self.looks += 1
        asks = self.looks % _LOOKS_A_SECOND == 0
        if not self.profile["limited"] and not asks:
            return
        pids = _all_but_us() if self.namespaced else tree.descendants(os.getpid())
        grown = limits.in_temps(self.temps) - self.in_temps
        if self.profile["limited"] and (broken := self._find_starvation() or limits.overrun(pids, self.limits, grown)):
            self.reason = f"ended because {broken}"
            self._signal(_KILL)
        if asks:
            self._look_for_input(pids)

    def _find_starvation(self) -> str:
        """Say that a command has used its memory up: since the last look the kernel found hardly any more for it."""
        if self.group < 0:
            return ""
        before, self.pushes = self.pushes, limits.count_pushes(self.group, self.limits["memory"])
        return limits.describe_memory(self.limits) if 0 < before < self.pushes else ""

    def _look_for_input(self, pids: list[int]) -> None:
        """Tell the program who waits for somebody to type: whoever has not moved since the last look."""
        before, self.asking = self.asking, _find_waiting(pids)
        names = [name for pid, (name, used) in self.asking.items() if before.get(pid) == (name, used)]
        said = names[-1] if names else ""
        if said != self.told:
            self.told = said
            self._tell(("waiting", said))

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
        if not _has_children():
            return 0  # whoever is orphaned becomes our child, so nobody is left
        left = len(_all_but_us() if self.namespaced else tree.descendants(os.getpid()))
        if not self.namespaced:
            tree.end(os.getpid())
            return left
        try:
            os.kill(-1, _KILL)
            while True:
                os.waitpid(-1, 0)
        except (ProcessLookupError, ChildProcessError):
            return left

    def _report(self, left: int) -> bool:
        if self.group >= 0 and not self.reason and limits.count_kills(self.group) > self.kills:
            self.reason = f"ended because {limits.describe_memory(self.limits)}"
        report = {
            "status": self.ended,
            "cpu_s": self.used[0] + self.used[1],
            "max_rss": self.used[2] * 1024,
            "left": left,
            "reason": self.reason,
            "error": self.error,
            "change_log": self.recorder.finish(ended=self.reason != _LET_GO) if self.recorder else None,
        }
        return self._tell(("ended", report))


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    except ChildProcessError:
        return False


def _all_but_us() -> list[int]:
    own = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own and _alive(name)]


def _alive(name: str) -> bool:
    try:
        with open(f"/proc/{name}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def _find_waiting(pids: list[int]) -> dict[int, tuple[str, int]]:
    """Return processes that wait for somebody to type: process id → its name and the CPU time it has used.

    A process waits when it is blocked on a terminal it is in the foreground of, or on an input that is its own output
    (an editor whose input has ended asks there). One that waits for another process is none of these.
    """
    found: dict[int, tuple[str, int]] = {}
    for pid in pids[:_MOST_LOOKED_AT]:
        try:
            if (waiting := _find_wait(pid)) is not None:
                found[pid] = waiting
        except (OSError, ValueError, IndexError):
            continue  # it has ended, or is not ours to look at
    return found


def _find_wait(pid: int) -> tuple[str, int] | None:
    with open(f"/proc/{pid}/stat", "rb") as stat:
        name, _, rest = stat.read().partition(b"(")[2].rpartition(b")")
    fields = rest.split()
    group, foreground = fields[2], fields[5]
    if fields[0] != b"S":
        return None
    link = os.readlink(f"/proc/{pid}/fd/0")
    terminal = foreground == group
    if not terminal and not (link.startswith("pipe:") and link in _outputs(pid)):
        return None
    with open(f"/proc/{pid}/syscall", "rb") as syscall:
        number, first, *_ = syscall.read().split()
    call = int(number)
    if call in _READS and terminal:
        link = os.readlink(f"/proc/{pid}/fd/{int(first, 16)}")
    elif call not in _WAITS:
        return None
    if terminal and not link.startswith(("/dev/pts/", "/dev/tty")):
        return None
    return name.decode("utf-8", "replace"), int(fields[11]) + int(fields[12])


def _outputs(pid: int) -> list[str]:
    return [os.readlink(f"/proc/{pid}/fd/{number}") for number in (1, 2)]
