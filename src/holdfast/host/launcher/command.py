"""The command-to-be: gives everything up that the plan takes away, waits for its order, becomes the command."""

from __future__ import annotations

import _socket
import os

from holdfast.host.launcher import wire
from holdfast.host.sandbox import landlock, limits, seccomp, system

TYPE_CHECKING = False  # `typing` itself would double the time the launcher takes to start
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any
else:
    import _signal

_KILL = 9
_EXTRA = 10
"""The first descriptor a command gets beside its three: a script too long for an argument, lines of a shell."""


def become(plan: dict[str, Any], orders: _socket.socket, keeper: _socket.socket, ruleset: int) -> None:
    """Wait for the order and exec it. Does not return."""
    for number in (_signal.SIGCHLD, _signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGINT):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.set_wakeup_fd(-1)
    os.setsid()
    if not plan["namespaces"]:
        system.prctl(system.PR_SET_PDEATHSIG, _KILL)
    _give_up(plan, ruleset)
    received = wire.receive(orders)
    if received is None:
        os._exit(0)
    order, (payload, out, err, *others) = received
    try:
        _exec(order, payload, (out, err, *others), keeper, plan["reporting"])
    except OSError as problem:
        wire.send(keeper, ("failed", str(problem.filename or ""), problem.errno or 0))
        os._exit(127)


def _give_up(plan: dict[str, Any], ruleset: int) -> None:
    if plan["limited"]:
        limits.apply(plan["limits"])
    if not plan["contained"]:
        return
    if plan["namespaces"]:
        system.keep_capabilities(plan["capabilities"])
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    if ruleset >= 0:
        landlock.restrict(ruleset)
    if plan["seccomp"]:
        seccomp.contain(plan["seccomp"])


def _exec(
    order: dict[str, Any], payload: int, outlets: tuple[int, ...], keeper: _socket.socket, reporting: bytes
) -> None:
    import marshal

    command = marshal.loads(os.pread(payload, os.fstat(payload).st_size, 0))
    os.chdir(command["cwd"])
    if order["journal"]:
        _report_changes(order, keeper, reporting)
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, descriptor in enumerate(outlets):
        os.dup2(descriptor, number + 1 if number < 2 else _EXTRA + number - 2)
    os.execve(command["argv"][0], command["argv"], command["env"])


def _report_changes(order: dict[str, Any], keeper: _socket.socket, reporting: bytes) -> None:
    if not order["contained"] and os.geteuid() != 0:
        system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    listener = seccomp.report_changes(reporting)
    wire.send(keeper, ("listen",), [listener])
    os.close(listener)
