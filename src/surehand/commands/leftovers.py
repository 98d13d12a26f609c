"""Leftovers: list the processes of all sessions, and kill and remove what dead sessions have left.

A process is ours if it descends from a recorded launcher, or if its environment names a recorded session. A pidfd holds
it while it is checked and signalled, because process ids are reused.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen, names_of
from surehand.core.text import lazy_pattern
from surehand.files.atomic import try_lock
from surehand.files.trees import remove_tree
from surehand.state import locations
from surehand.state.files import write_private_json

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
    """Whether it is a launcher or a supervisor."""

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
    """Return all processes of a record: the launcher's descendants, and those whose environment names the session."""
    from surehand.sandbox.linux.launcher import tree  # lazy: tree, 1 ms; a record is written on Linux alone

    pids = dict.fromkeys([record.launcher, *tree.descendants(record.launcher)]) if record.launcher_alive else {}
    pids |= dict.fromkeys(_find_by_environment(record.session_id))
    return [process for pid in pids if (process := _describe(pid, record.session_id)) is not None]


def _find_by_environment(session_id: str) -> Iterator[int]:
    """Yield the processes whose environment names a session."""
    marker = f"SUREHAND_SESSION={session_id}\0".encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and marker in _read(f"/proc/{name}/environ") + b"\0":
            yield int(name)


def _describe(pid: int, session_id: str) -> Process | None:
    started = started_at(pid)
    if started is None:
        return None
    words = _read(f"/proc/{pid}/cmdline").rstrip(b"\0").split(b"\0")
    text = " ".join(os.fsdecode(word) for word in words)
    age = _uptime() - started / os.sysconf("SC_CLK_TCK")
    ours = len(words) > 3 and words[3].endswith(b"launcher/main.py")
    return Process(pid, started, session_id, _find_call_id(pid), "launcher" if ours else text, max(age, 0.0), ours)


def _find_call_id(pid: int) -> str:
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
    """Kill all processes of sessions whose program is gone, and remove their folders; return what was killed."""
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
    """Kill one command of any session, if it is still the process that was listed; None if it is gone."""
    for record in records():
        for process in running(record):
            if (process.pid, process.started) == (pid, started) and not process.ours and _end(process):
                return process
    return None


def clear() -> list[str]:
    """Remove every private temp that no process uses, also those of unrecorded sessions."""
    removed = list(find_abandoned())
    for path in removed:
        remove_tree(path)
    return removed


def _end(process: Process, within_s: float = 2.0) -> bool:
    """Kill a process, if it is still the one that was listed."""
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


# Records of which processes belong to which session, kept so that another process can list and end them.
#
# A process is identified by its id and start time: the id alone may have been reused.


def started_at(pid: int) -> int | None:
    """Return when a live process started, in ticks since boot; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


@frozen
class Record:
    """One launcher of one session."""

    session_id: str
    workspace: str
    owner: int
    owner_started: int
    launcher: int
    launcher_started: int
    private_dir: str

    @classmethod
    def write(cls, session_id: str, workspace: str, launcher: int, private_dir: str) -> Record:
        """Write a record; if that fails, only the listing lacks it."""
        own = os.getpid()
        record = cls(session_id, workspace, own, started_at(own) or 0, launcher, started_at(launcher) or 0, private_dir)
        try:
            locations.private_dir(_folder())
            facts = {name: getattr(record, name) for name in names_of(record)}
            write_private_json(record._path, facts, flush=False)  # worthless after a power cut
        except OSError:
            pass
        return record

    @property
    def _path(self) -> str:
        return os.path.join(_folder(), f"{self.launcher}-{self.launcher_started}.json")

    def remove(self) -> None:
        """Delete it."""
        try:
            os.unlink(self._path)
        except OSError:
            pass

    @property
    def owner_alive(self) -> bool:
        """Whether the program that owns the session still runs."""
        return started_at(self.owner) == self.owner_started

    @property
    def launcher_alive(self) -> bool:
        """Whether the launcher still runs."""
        return started_at(self.launcher) == self.launcher_started


def clear_dead(most: int = 5) -> None:
    """Remove what killed sessions left on the disk, a few at a time; `reap` also kills their processes."""
    dead = [each for each in records() if not each.owner_alive and not each.launcher_alive]
    for record in dead[:most]:
        remove_tree(record.private_dir)
        record.remove()


def _folder() -> str:
    return os.path.join(locations.home(), "processes")


def records() -> Iterator[Record]:
    """Yield all records; unreadable ones are skipped."""
    try:
        names = sorted(os.listdir(_folder()))
    except OSError:
        return
    for name in names:
        if name.endswith(".json"):
            try:
                with open(os.path.join(_folder(), name), encoding="utf-8") as file:
                    yield Record(**json.load(file))
            except (OSError, ValueError, TypeError):
                continue


# A session's private temporary folder. Its owner holds a lock on a folder in it, which the kernel releases when the
# process dies: a private folder that can be locked is abandoned, whichever session, state folder or container made it.

SCRATCH: Final = ".scratch"
"""The folder that is locked; the launcher builds the session's mounts in it."""
DRY_RUNS: Final = "dry_runs"
"""For the copies of dry runs; made at once, so that no command can create it."""
_NAME: Final = lazy_pattern(r"surehand-[0-9a-f]{12}")
_UNLOCKED: Final = ".new"
_OLD_S: Final = 3600.0
_AT_ONCE: Final = 5


class PrivateFolder:
    """A locked temporary folder of this process."""

    def __init__(self, path: str, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def make(cls) -> PrivateFolder:
        """Make one with a short path: that of a socket in it is limited to 108 bytes."""
        base = _base()
        for _ in range(100):
            path = os.path.join(base, f"surehand-{os.urandom(6).hex()}")
            try:
                os.mkdir(path, 0o700)
                os.mkdir(os.path.join(path, DRY_RUNS), 0o700)
                return cls(path, _make_locked(path))
            except FileExistsError:
                continue
            except OSError as problem:
                raise ToolFailure(
                    f"no private temporary folder can be created in {base}: {problem.strerror}",
                    hint="Commands need a folder for temporary files: name one that can be written in TMPDIR.",
                ) from problem
        raise ToolFailure(f"no private temporary folder can be created in {base}: every name is taken")

    def remove(self) -> None:
        """Remove it with its contents."""
        remove_tree(self.path)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _base() -> str:
    """Return where temporary files go; a `TMPDIR` that is missing or not writable is ignored."""
    wanted = os.path.realpath(os.environ.get("TMPDIR") or "/tmp")
    return wanted if os.path.isdir(wanted) and os.access(wanted, os.W_OK | os.X_OK) else os.path.realpath("/tmp")


def _make_locked(path: str) -> int:
    """Make the folder, lock it, and only then give it its name, so that it is never taken for abandoned."""
    made, place = os.path.join(path, _UNLOCKED), os.path.join(path, SCRATCH)
    os.mkdir(made, 0o700)
    lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try_lock(lock)
    os.rename(made, place)
    return lock


def find_abandoned() -> Iterator[str]:
    """Yield our private folders that no process uses any more."""
    base, user = _base(), os.geteuid()
    try:
        names = [name for name in os.listdir(base) if _NAME.fullmatch(name)]
    except OSError:
        return
    for name in names:
        path = os.path.join(base, name)
        try:
            status = os.lstat(path)
            if status.st_uid == user and os.path.isdir(path) and not os.path.islink(path) and _is_free(path, status):
                yield path
        except OSError:
            continue  # removed in the meantime


def _is_free(path: str, status: os.stat_result) -> bool:
    try:
        lock = os.open(os.path.join(path, SCRATCH), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return time.time() - status.st_mtime > _OLD_S  # its owner was killed while making it, or a command removed it
    try:
        return try_lock(lock)
    finally:
        os.close(lock)


def clear_abandoned() -> None:
    """Remove a few abandoned folders, in a thread: they may be large."""
    found = [path for path, _ in zip(find_abandoned(), range(_AT_ONCE), strict=False)]
    if found:
        import threading

        threading.Thread(target=lambda: [remove_tree(path) for path in found], daemon=True).start()
