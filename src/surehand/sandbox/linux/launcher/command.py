"""The command-to-be: gives everything up that the profile takes away, waits for its order, becomes the command."""

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
"""The first descriptor a command gets beside its three: a script too long for an argument, lines of a shell."""


def become(profile: dict[str, Any], orders: _socket.socket, supervisor: _socket.socket, ruleset: int) -> None:
    """Wait for the order and exec it. Does not return."""
    _stand_alone(profile)
    _give_up(profile, ruleset)
    received = messages.receive(orders)
    if received is None:
        os._exit(0)
    order, (payload, out, err, *others) = received
    try:
        _exec(order, payload, (out, err, *others), supervisor, profile["reporting"])
    except OSError as problem:
        messages.send(supervisor, ("failed", str(problem.filename or ""), problem.errno or 0))
        os._exit(127)


def become_now(
    profile: dict[str, Any], order: dict[str, Any], payload: int, outlets: tuple[int, ...], supervisor: _socket.socket
) -> None:
    """Exec an order that is already there, with nothing given up. Does not return."""
    try:
        _stand_alone(profile)
        _exec(order, payload, outlets, supervisor, profile["reporting"])
    except OSError as problem:
        messages.send(supervisor, ("failed", str(problem.filename or ""), problem.errno or 0))
    finally:
        os._exit(127)


def spawn(payload: int, outlets: list[int]) -> int:
    """Start an order from the supervisor itself, which moves into the command's directory for it."""
    command = marshal.loads(os.pread(payload, os.fstat(payload).st_size, 0))
    os.chdir(command["cwd"])
    actions: list[Any] = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
    places = _assign_descriptors(outlets)
    actions += [(os.POSIX_SPAWN_DUP2, source, target) for source, target in places]
    argv, environment = command["argv"], command["env"]
    try:
        return os.posix_spawn(argv[0], argv, environment, file_actions=actions, setsid=True, setsigdef=_RESET)
    finally:
        for source, _ in places:
            if source not in outlets:
                os.close(source)


def _assign_descriptors(outlets: list[int] | tuple[int, ...]) -> list[tuple[int, int]]:
    """Return where each descriptor goes; one that stands where another will go is moved out of the way first."""
    beyond = _EXTRA + len(outlets)
    sources = [
        fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, beyond) if _EXTRA <= descriptor < beyond else descriptor
        for descriptor in outlets
    ]
    return [(source, at + 1 if at < 2 else _EXTRA + at - 2) for at, source in enumerate(sources)]


def _stand_alone(profile: dict[str, Any]) -> None:
    """Take back Python's signal handling, and be a session of one's own."""
    for number in _RESET:
        _signal.signal(number, _signal.SIG_DFL)
    _signal.set_wakeup_fd(-1)
    os.setsid()
    if not profile["namespaces"]:
        system.prctl(system.PR_SET_PDEATHSIG, _KILL)


def _give_up(profile: dict[str, Any], ruleset: int) -> None:
    """Give up what the supervisor itself still needs; it is under the filter already."""
    if profile["limited"]:
        limits.apply(profile["limits"])
    if not profile["contained"]:
        return
    system.keep_capabilities(profile["capabilities"])
    if ruleset >= 0:
        landlock.restrict(ruleset)


def _exec(
    order: dict[str, Any], payload: int, outlets: tuple[int, ...], supervisor: _socket.socket, reporting: bytes
) -> None:
    command = marshal.loads(os.pread(payload, os.fstat(payload).st_size, 0))
    os.chdir(command["cwd"])
    if order["records"]:
        _report_changes(order, supervisor, reporting)
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    for source, target in _assign_descriptors(outlets):
        os.dup2(source, target)
        os.set_inheritable(target, True)  # a copy onto itself copies nothing, and would close with the exec
    os.execve(command["argv"][0], command["argv"], command["env"])


def _report_changes(order: dict[str, Any], supervisor: _socket.socket, reporting: bytes) -> None:
    if not order["contained"] and os.geteuid() != 0:
        system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    listener = seccomp.report_changes(reporting)
    messages.send(supervisor, ("listen",), [listener])
    os.close(listener)
