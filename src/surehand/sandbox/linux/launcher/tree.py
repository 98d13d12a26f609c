"""The process tree: find and kill all descendants of a process where there are no PID namespaces."""

from __future__ import annotations

import os
import time

_STOP, _KILL, _CONTINUE = 19, 9, 18


def descendants(root: int) -> list[int]:
    """Return all descendants of `root`, parents before children."""
    below = _by_parent()
    found: list[int] = []
    waiting = [root]
    while waiting:
        children = below.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def children(root: int) -> list[int]:
    """Return the direct children of `root`."""
    return _by_parent().get(root, [])


def _by_parent() -> dict[int, list[int]]:
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (parent := parent_of(int(name))) is not None:
            below.setdefault(parent, []).append(int(name))
    return below


def parent_of(pid: int) -> int | None:
    """Return the parent of a live process; None for a zombie or one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            state, parent = stat.read().rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return None if state in (b"Z", b"X") else int(parent)


def signal_all(pids: list[int], number: int) -> None:
    """Signal each process that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def terminate(root: int, number: int) -> None:
    """Send a signal to all descendants of `root`, then SIGCONT: a stopped process handles no signal."""
    found = descendants(root)
    signal_all(found, number)
    signal_all(found, _CONTINUE)


def end(root: int, within_s: float = 2.0) -> bool:
    """Kill all descendants of `root`; False when some are left after `within_s`.

    All are stopped before any is killed, so that none forks while the others die.
    """
    deadline = time.monotonic() + within_s
    while found := descendants(root):
        signal_all(found, _STOP)
        signal_all(descendants(root), _KILL)
        reap()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    reap()
    return True


def reap() -> None:
    """Reap the children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
