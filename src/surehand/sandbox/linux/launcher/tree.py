"""The tree of processes below one, found and ended; for systems where a PID namespace cannot do it at once."""

from __future__ import annotations

import os
import time

_STOP, _KILL, _CONTINUE = 19, 9, 18


def descendants(root: int) -> list[int]:
    """Return every process below `root`, parents before children."""
    below = _by_parent()
    found: list[int] = []
    waiting = [root]
    while waiting:
        children = below.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def children(root: int) -> list[int]:
    """Return the processes right below `root`."""
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
    """Send a signal to each that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def terminate(root: int, number: int) -> None:
    """Ask every process below `root` to end; a stopped one must run to hear it."""
    found = descendants(root)
    signal_all(found, number)
    signal_all(found, _CONTINUE)


def end(root: int, within_s: float = 2.0) -> bool:
    """Kill every process below `root` until none is left; False when some outlive the time.

    Each is stopped before any is killed: a process that dies must not leave a sibling the time to fork again.
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
    """Collect children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
