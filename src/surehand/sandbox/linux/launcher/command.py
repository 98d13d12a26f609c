"""The process that becomes a command: it drops its privileges, receives its order, and executes the command."""

from __future__ import annotations

import _socket
import fcntl
import marshal
import os

from surehand.sandbox.linux import landlock, limits, seccomp, system
from surehand.sandbox.linux.launcher import messages

TYPE_CHECKING = False  # `typing` itself would double the time the launcher takes to start
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any
else:
    import _signal

_KILL = 9
_RESET = (_signal.SIGCHLD, _signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGINT)
_EXTRA = 10
"""The first descriptor a command gets besides its three: a script too long for an argument, pipes of a shell."""


def become(profile: dict[str, Any], orders: _socket.socket, supervisor: _socket.socket, ruleset_fd: int) -> None:
    """Drop privileges, wait for the order and execute its command. Does not return."""
    _start_session(profile)
    _drop_privileges(profile, ruleset_fd)
    received = messages.receive(orders)
    if received is None:
        os._exit(0)
    order, (payload_fd, *output_fds) = received
    try:
        _exec(order, payload_fd, tuple(output_fds), supervisor, profile["reporting"])
    except OSError as problem:
        messages.send(supervisor, ("failed", str(problem.filename or ""), problem.errno or 0))
        os._exit(127)


def become_now(
    profile: dict[str, Any],
    order: dict[str, Any],
    payload_fd: int,
    output_fds: tuple[int, ...],
    supervisor: _socket.socket,
) -> None:
    """Execute an order at once, with all privileges. Does not return."""
    try:
        _start_session(profile)
        _exec(order, payload_fd, output_fds, supervisor, profile["reporting"])
    except OSError as problem:
        messages.send(supervisor, ("failed", str(problem.filename or ""), problem.errno or 0))
    finally:
        os._exit(127)


def spawn(payload_fd: int, output_fds: list[int]) -> int:
    """Spawn an order's command without a fork of this process, which moves into the command's directory for it."""
    payload = _read_payload(payload_fd)
    os.chdir(payload["cwd"])
    actions: list[Any] = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
    targets = _assign_descriptors(output_fds)
    actions += [(os.POSIX_SPAWN_DUP2, source, target) for source, target in targets]
    argv, environment = payload["argv"], payload["env"]
    try:
        return os.posix_spawn(argv[0], argv, environment, file_actions=actions, setsid=True, setsigdef=_RESET)
    finally:
        for source, _ in targets:
            if source not in output_fds:
                os.close(source)


def _read_payload(descriptor: int) -> dict[str, Any]:
    """Return the argv, environment and directory of a command from its memory file."""
    return marshal.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))


def _assign_descriptors(output_fds: list[int] | tuple[int, ...]) -> list[tuple[int, int]]:
    """Return (source, target) for each descriptor; a source within the range of targets is duplicated above it."""
    above = _EXTRA + len(output_fds)
    sources = [
        fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above) if _EXTRA <= descriptor < above else descriptor
        for descriptor in output_fds
    ]
    return [(source, at + 1 if at < 2 else _EXTRA + at - 2) for at, source in enumerate(sources)]


def _start_session(profile: dict[str, Any]) -> None:
    """Restore the default signal handling, and start a session (setsid)."""
    for number in _RESET:
        _signal.signal(number, _signal.SIG_DFL)
    _signal.set_wakeup_fd(-1)
    os.setsid()
    if not profile["namespaces"]:
        system.prctl(system.PR_SET_PDEATHSIG, _KILL)


def _drop_privileges(profile: dict[str, Any], ruleset_fd: int) -> None:
    """Drop what the supervisor itself still needs; its seccomp filter is inherited."""
    if profile["limited"]:
        limits.apply(profile["limits"])
    if not profile["contained"]:
        return
    system.keep_capabilities(profile["capabilities"])
    if ruleset_fd >= 0:
        landlock.restrict(ruleset_fd)


def _exec(
    order: dict[str, Any],
    payload_fd: int,
    output_fds: tuple[int, ...],
    supervisor: _socket.socket,
    report_filter: bytes,
) -> None:
    payload = _read_payload(payload_fd)
    os.chdir(payload["cwd"])
    if order["records"]:
        _report_changes(order, supervisor, report_filter)
    null_fd = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null_fd, 0)
    for source, target in _assign_descriptors(output_fds):
        os.dup2(source, target)
        os.set_inheritable(target, True)  # dup2 onto itself leaves close-on-exec set
    os.execve(payload["argv"][0], payload["argv"], payload["env"])


def _report_changes(order: dict[str, Any], supervisor: _socket.socket, report_filter: bytes) -> None:
    """Have the kernel report coming changes of files, and send the supervisor the descriptor of these reports."""
    if not order["contained"] and os.geteuid() != 0:
        system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    listener_fd = seccomp.report_changes(report_filter)
    messages.send(supervisor, ("listen",), [listener_fd])
    os.close(listener_fd)
