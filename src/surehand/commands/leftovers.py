"""Leftovers: what the commands of all sessions run now, and ending and removing what dead sessions left behind.

A process counts as ours when it descends from a launcher that is written down, or when its environment names a
session that is. Its id is held by a descriptor while it is judged and signalled: ids are given out again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

from surehand.core.frozen import frozen
from surehand.files.trees import remove_tree
from surehand.sandbox.records import Record, records, started_at
from surehand.state.private_folder import find_abandoned

_KILL = 9


@frozen
class Process:
    """One process of a session."""

    pid: int
    started: int
    session_id: str
    call_id: str
    command: str
    seconds: float
    ours: bool
    """Whether it is a part of Surehand itself: a launcher or a supervisor."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        shown = {
            "pid": self.pid,
            "started": self.started,
            "session_id": self.session_id,
            "call_id": self.call_id,
            "command": self.command,
        }
        return shown | {"seconds": round(self.seconds, 1), "kind": "launcher" if self.ours else "command"}


def running(record: Record) -> list[Process]:
    """Return every process of one record: the launcher's descendants, and those that only name the session."""
    from surehand.sandbox.linux.launcher import tree  # lazy: tree, 1 ms; a record is written on Linux alone

    pids = dict.fromkeys([record.launcher, *tree.descendants(record.launcher)]) if record.launcher_alive else {}
    pids |= dict.fromkeys(_naming(record.session_id))
    return [process for pid in pids if (process := _look(pid, record.session_id)) is not None]


def _naming(session_id: str) -> Iterator[int]:
    marker = f"SUREHAND_SESSION={session_id}\0".encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and marker in _read(f"/proc/{name}/environ") + b"\0":
            yield int(name)


def _look(pid: int, session_id: str) -> Process | None:
    started = started_at(pid)
    if started is None:
        return None
    words = _read(f"/proc/{pid}/cmdline").rstrip(b"\0").split(b"\0")
    text = " ".join(os.fsdecode(word) for word in words)
    age = _uptime() - started / os.sysconf("SC_CLK_TCK")
    ours = len(words) > 3 and words[3].endswith(b"launcher/main.py")
    return Process(pid, started, session_id, _call(pid), "launcher" if ours else text, max(age, 0.0), ours)


def _call(pid: int) -> str:
    for variable in _read(f"/proc/{pid}/environ").split(b"\0"):
        if variable.startswith(b"SUREHAND_CALL="):
            return os.fsdecode(variable[14:])
    return ""


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _uptime() -> float:
    return float(_read("/proc/uptime").split()[0] or 0)


def reap(among: Iterable[Record] | None = None) -> list[Process]:
    """End everything of sessions whose program is gone; return what was ended. Live sessions are not touched."""
    ended: list[Process] = []
    for record in list(records() if among is None else among):
        if record.owner_alive:
            continue
        found = running(record)
        ended += [process for process in found if _end(process)]
        remove_tree(record.private_dir)
        record.remove()
    return ended


def end_command(pid: int, started: int) -> Process | None:
    """End one command of any session, if it is still the one that was seen; None where it is not there any more."""
    for record in records():
        for process in running(record):
            if (process.pid, process.started) == (pid, started) and not process.ours and _end(process):
                return process
    return None


def clear() -> list[str]:
    """Remove every private temp no process uses any more, also of sessions nothing was written down about."""
    removed = list(find_abandoned())
    for path in removed:
        remove_tree(path)
    return removed


def _end(process: Process, within_s: float = 2.0) -> bool:
    """Kill one process, if it is still the one that was seen."""
    import signal

    try:
        held = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if started_at(process.pid) != process.started:
            return False
        signal.pidfd_send_signal(held, _KILL)
    except OSError:
        return False
    finally:
        os.close(held)
    deadline = time.monotonic() + within_s
    while started_at(process.pid) == process.started and time.monotonic() < deadline:
        time.sleep(0.005)
    return True
