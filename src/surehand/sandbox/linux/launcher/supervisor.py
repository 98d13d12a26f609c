"""The supervisor: starts one command at a time, waits for it, kills what is left of it, and reports how it ended.

It is PID 1 of its own PID namespace (a subreaper where there are no namespaces), so orphaned processes become its
children. Before each call it forks the process that will become the command, which drops its privileges and waits for
its order. The client talks to both directly; the launcher takes no part in a call.
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
_CLIENT_GONE = "the program let go of it"
_CHECK_S, _CHECK_MS = 0.25, 250
_CHECKS_A_SECOND = 4
_MOST_EXAMINED = 64
"""Processes examined for a wait for input at most; a command may have thousands."""
# System calls in which a process waits for input: read and readv; poll, select, epoll and their variants.
_READ_CALLS = {"x86_64": {0, 19}, "aarch64": {63, 65}}.get(system.MACHINE, set[int]())
_POLL_CALLS = {"x86_64": {7, 23, 232, 270, 271, 281}, "aarch64": {22, 72, 73}}.get(system.MACHINE, set[int]())


def fork_supervisor(
    profile: dict[str, Any], overlay: dict[str, Any] | None = None, group_fd: int = -1
) -> tuple[int, _socket.socket]:
    """Fork a supervisor; return its process id and the client's socket to it. Its commands join the cgroup."""
    client_end, supervisor_end = messages.pair()
    flags = system.CLONE_NEWPID | system.CLONE_NEWNS if profile["namespaces"] else 0
    pid = system.clone(flags) if flags else os.fork()
    if pid == 0:
        try:
            group_fds = (group_fd,) if group_fd >= 0 else ()
            close_all_but(supervisor_end.fileno(), *profile["root_folders"].values(), *group_fds)
            Supervisor(profile, supervisor_end, overlay, group_fd).serve()
        finally:
            os._exit(70)
    supervisor_end.close()
    return pid, client_end


def close_all_but(*kept_fds: int) -> None:
    """Close inherited descriptors; kept open here they would hold other calls' sockets and pipes open."""
    first = 3
    for descriptor in sorted(kept_fds):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def ignore_signal(number: int, frame: object) -> None:
    """Do nothing: the signal has already woken the poll through the wakeup descriptor."""


def open_wakeup_pipe() -> int:
    """Return a descriptor that becomes readable when a child ends."""
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    _signal.set_wakeup_fd(writer)
    _signal.signal(_signal.SIGCHLD, ignore_signal)
    return reader


class Supervisor:
    """Runs one command after another; with an overlay only one, because the overlay belongs to that call."""

    def __init__(
        self, profile: dict[str, Any], client: _socket.socket, overlay: dict[str, Any] | None, group_fd: int = -1
    ) -> None:
        self.profile = profile
        self.group_fd = group_fd
        self.client = client
        self.single_use = overlay is not None
        self.namespaced = bool(profile["namespaces"])
        self.limits: dict[str, int] = profile["limits"]
        # Without namespaces /dev/shm is the machine's own; what the command puts there counts all the same.
        own = profile["empty"] if self.namespaced else ()
        self.tmpfs_folders: list[str] = [*own, "/dev/shm"] if profile["contained"] else []
        self.wakeup_fd = open_wakeup_pipe()
        if self.namespaced:
            system.prctl(system.PR_SET_PDEATHSIG, _KILL)
            self._set_up_mounts(overlay)
        else:
            system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
            os.setsid()
        if profile["contained"]:  # once, for all commands: forty system calls, and a filter that the kernel compiles
            system.bound_capabilities(profile["capabilities"])
            system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
            if profile["seccomp"]:
                seccomp.contain(profile["seccomp"])
        self.ruleset_fd = landlock.ruleset(
            profile["landlock"], profile["landlock_reads"], tcp_off=not self.namespaced and not profile["network"]
        )

    def _set_up_mounts(self, overlay: dict[str, Any] | None) -> None:
        if overlay:
            try:
                namespaces.lay_over(overlay, self.profile)
            except OSError as problem:
                self._send(("no layer", problem.errno or 0))
                raise
        if namespaces.mount_processes():
            limits.cap_process_ids(self.limits["processes"])
            system.set_read_only("/proc", True)

    def serve(self) -> None:
        """Serve calls until the client closes its socket."""
        while self._serve_call() and not self.single_use:
            pass

    def _serve_call(self) -> bool:
        """Run one command and report how it ended; False when no further call will come."""
        self.recorder: ChangeRecorder | None = None
        self.listener_fd = -1
        self.status: int | None = None
        self.user_s = self.system_s = 0.0
        self.max_rss_kb = 0
        self.stop_reason = ""
        self.start_error: tuple[str, int] | None = None
        self.checks = 0
        self.tmpfs_before = limits.used_in_tmpfs(self.tmpfs_folders)
        self.oom_kills_before = limits.count_oom_kills(self.group_fd) if self.group_fd >= 0 else 0
        self.limit_hits = 0
        self.waiting: dict[int, tuple[str, int]] = {}
        self.reported_waiting = ""
        command_socket = self._fork_command()
        received = self._receive_order()
        if received is None:
            self._kill_remaining()
            return False
        order, descriptors = received
        if order["records"]:
            self.recorder = ChangeRecorder(self.profile["root_folders"], descriptors.pop(0), self.profile["forbidden"])
        if command_socket is None:
            command_socket = self._start_command(order, descriptors)
        self._wait_for_end(command_socket)
        while self._receive_from_command(command_socket, None):
            pass  # it may have ended before its messages were read
        command_socket.close()
        if self.listener_fd >= 0:
            os.close(self.listener_fd)
        return self._send_report(self._kill_remaining())

    def _fork_command(self) -> _socket.socket | None:
        """Fork the next command ahead of its order; return our socket to it, and send the client's socket to it.

        Where no privileges are dropped nothing is forked ahead: starting on demand costs less.
        """
        if not self.profile["contained"]:
            self._send(("ready",))
            return None
        orders, command_orders = messages.pair()
        ours, command_end = messages.pair()
        self.child = os.fork()
        if self.child == 0:
            try:
                self._join_group()
                ruleset_fds = () if self.ruleset_fd < 0 else (self.ruleset_fd,)
                close_all_but(command_orders.fileno(), command_end.fileno(), *ruleset_fds)
                command.become(self.profile, command_orders, command_end, self.ruleset_fd)
            finally:
                os._exit(71)
        command_orders.close()
        command_end.close()
        self._send(("ready",), [orders.fileno()])
        orders.close()
        return ours

    def _join_group(self) -> None:
        if self.group_fd >= 0:
            try:
                limits.join(self.group_fd)
            except OSError:
                pass  # its usage is checked by polling all the same

    def _send(self, message: Any, descriptors: list[int] | tuple[int, ...] = ()) -> bool:
        """Send the client a message; False when it is gone, which receiving its next order will show as well."""
        try:
            messages.send(self.client, message, descriptors)
            return True
        except OSError:
            return False

    def _receive_order(self) -> tuple[dict[str, Any], list[int]] | None:
        """Return the order of the next call and its descriptors; None when no call will come."""
        while (received := messages.receive(self.client)) is not None:
            match received:
                case ("run", order), descriptors:
                    return order, descriptors
                case _:
                    pass  # about a call that has ended in the meantime
        return None

    def _start_command(self, order: dict[str, Any], descriptors: list[int]) -> _socket.socket:
        """Start the command of an order on demand; return our socket to it."""
        ours, command_end = messages.pair()
        payload, *outputs = descriptors
        try:
            if order["records"]:
                self.child = os.fork()
                if self.child == 0:
                    command.become_now(self.profile, order, payload, tuple(outputs), command_end)
            else:
                self.child = command.spawn(payload, outputs)
        except OSError as problem:
            self.child, self.status = 0, 127 << 8
            self.start_error = (str(problem.filename or ""), problem.errno or 0)
        command_end.close()
        for descriptor in descriptors:
            os.close(descriptor)
        return ours

    def _wait_for_end(self, command_socket: _socket.socket) -> None:
        """Wait for the command's end; meanwhile serve the client and answer reported system calls."""
        # No epoll: it wakes us on another core, if one is idle, whatever the listener asks for; that doubles the time
        # of a command that changes many files.
        poll = select.poll()
        # The command's socket is polled only for the listener of a recorded command. Its close, at the exec, would wake
        # us for nothing; an error that kept it from the exec is read after its end.
        command_fds = (command_socket.fileno(),) if self.recorder else ()
        for descriptor in (self.client.fileno(), self.wakeup_fd, *command_fds):
            poll.register(descriptor, select.POLLIN)
        self._reap()
        next_check = time.monotonic() + _CHECK_S
        recorder = self.recorder
        while self.status is None:
            events = poll.poll(_CHECK_MS)
            if time.monotonic() >= next_check:
                self._check_limits()
                self._reap()  # in case the wakeup for SIGCHLD was lost
                next_check = time.monotonic() + _CHECK_S
            for descriptor, event in events:
                if descriptor == self.listener_fd:
                    # When no process is left to report, the listener is ready without end until the last one is reaped.
                    if recorder is None or not event & select.POLLIN or not recorder.answer(descriptor):
                        poll.unregister(descriptor)
                elif descriptor == self.wakeup_fd:
                    os.read(self.wakeup_fd, 512)
                    self._reap()
                elif descriptor == command_socket.fileno():
                    self._receive_from_command(command_socket, poll)
                else:
                    self._handle_request(poll)

    def _handle_request(self, poll: select.poll) -> None:
        """Receive one message of the client and act on it."""
        match messages.receive(self.client):
            case None:
                poll.unregister(self.client.fileno())
                self.stop_reason = _CLIENT_GONE
                self._signal(_KILL)
            case ("signal", int(number)), _:
                self._signal(number)
            case ("begin log",), [folder_fd]:
                facts = self.recorder.start_new_log(folder_fd) if self.recorder else None
                messages.send(self.client, ("answer", facts))
            case ("finish log",), _:
                messages.send(self.client, ("answer", self.recorder.finish() if self.recorder else None))
            case _:
                pass

    def _receive_from_command(self, command_socket: _socket.socket, poll: select.poll | None) -> bool:
        """Receive the listener of the command's system calls, or why it could not be executed; False at the end."""
        match messages.receive(command_socket):
            case None:
                if poll:
                    poll.unregister(command_socket.fileno())
                return False
            case ("listen",), [listener_fd]:
                self.listener_fd = listener_fd
                if self.recorder:
                    self.recorder.listen(listener_fd)
                if poll:
                    poll.unregister(command_socket.fileno())
                    poll.register(listener_fd, select.POLLIN)
            case ("failed", str(path), int(number)), _:
                self.start_error = (path, number)
            case _:
                pass
        return True

    def _check_limits(self) -> None:
        """Enforce the limits that no cgroup enforces, and once a second look for a process that waits for input."""
        self.checks += 1
        looks_for_input = self.checks % _CHECKS_A_SECOND == 0
        if not self.profile["limited"] and not looks_for_input:
            return
        pids = _list_other_processes() if self.namespaced else tree.descendants(os.getpid())
        grown = limits.used_in_tmpfs(self.tmpfs_folders) - self.tmpfs_before
        if self.profile["limited"] and (
            exceeded := self._find_starvation() or limits.find_exceeded(pids, self.limits, grown)
        ):
            self.stop_reason = f"ended because {exceeded}"
            self._signal(_KILL)
        if looks_for_input:
            self._report_waiting(pids)

    def _find_starvation(self) -> str:
        """Return the memory limit as text if the command keeps running into it without being killed."""
        if self.group_fd < 0:
            return ""
        before, self.limit_hits = self.limit_hits, limits.count_limit_hits(self.group_fd, self.limits["memory"])
        return limits.describe_memory(self.limits) if 0 < before < self.limit_hits else ""

    def _report_waiting(self, pids: list[int]) -> None:
        """Tell the client which process waits for input: one that has used no CPU time since the last check."""
        before, self.waiting = self.waiting, _find_waiting(pids)
        names = [name for pid, (name, ticks) in self.waiting.items() if before.get(pid) == (name, ticks)]
        name = names[-1] if names else ""
        if name != self.reported_waiting:
            self.reported_waiting = name
            self._send(("waiting", name))

    def _signal(self, number: int) -> None:
        if not self.namespaced:
            tree.terminate(os.getpid(), number)
            return
        for each in (number, _signal.SIGCONT):
            try:
                os.kill(-1, each)
            except ProcessLookupError:
                return

    def _reap(self) -> None:
        """Reap children that have ended, and add up what they used."""
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                self.user_s += usage.ru_utime
                self.system_s += usage.ru_stime
                self.max_rss_kb = max(self.max_rss_kb, usage.ru_maxrss)
                if pid == self.child:
                    self.status = status
        except ChildProcessError:
            return

    def _kill_remaining(self) -> int:
        """Kill every process left of the call; return how many there were."""
        if not _has_children():
            return 0  # orphans become our children, so nobody is left
        count = len(_list_other_processes() if self.namespaced else tree.descendants(os.getpid()))
        if not self.namespaced:
            tree.end(os.getpid())
            return count
        try:
            os.kill(-1, _KILL)
            while True:
                os.waitpid(-1, 0)
        except (ProcessLookupError, ChildProcessError):
            return count

    def _send_report(self, left: int) -> bool:
        """Send the client how the command ended; False when it is gone."""
        if (
            self.group_fd >= 0
            and not self.stop_reason
            and limits.count_oom_kills(self.group_fd) > self.oom_kills_before
        ):
            self.stop_reason = f"ended because {limits.describe_memory(self.limits)}"
        report = {
            "status": self.status,
            "cpu_s": self.user_s + self.system_s,
            "max_rss": self.max_rss_kb * 1024,
            "left": left,
            "reason": self.stop_reason,
            "error": self.start_error,
            "change_log": self.recorder.finish(ended=self.stop_reason != _CLIENT_GONE) if self.recorder else None,
        }
        return self._send(("ended", report))


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    except ChildProcessError:
        return False


def _list_other_processes() -> list[int]:
    own = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own and _is_alive(name)]


def _is_alive(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def _find_waiting(pids: list[int]) -> dict[int, tuple[str, int]]:
    """Return the processes that wait for somebody to type: process id → its name and CPU time in ticks.

    A process waits for input when it blocks on a terminal whose foreground group it is in, or on an input that is the
    same pipe as its output (editors ask there when their input has ended).
    """
    found: dict[int, tuple[str, int]] = {}
    for pid in pids[:_MOST_EXAMINED]:
        try:
            if (waiting := _find_wait(pid)) is not None:
                found[pid] = waiting
        except (OSError, ValueError, IndexError):
            continue  # it has ended, or we may not examine it
    return found


def _find_wait(pid: int) -> tuple[str, int] | None:
    """Return name and CPU time of a process that waits for input; None when it does not."""
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
    if call in _READ_CALLS and terminal:
        link = os.readlink(f"/proc/{pid}/fd/{int(first, 16)}")
    elif call not in _POLL_CALLS:
        return None
    if terminal and not link.startswith(("/dev/pts/", "/dev/tty")):
        return None
    return name.decode("utf-8", "replace"), int(fields[11]) + int(fields[12])


def _outputs(pid: int) -> list[str]:
    return [os.readlink(f"/proc/{pid}/fd/{number}") for number in (1, 2)]
