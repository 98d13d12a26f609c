"""The journal of a session: JSON lines with everything a later process needs to continue it.

Each line is appended in one write, so several processes may share a journal and a crash loses at most the line being
written. Unreadable lines are skipped. A checkpoint beside it spares the next process reading the whole; it is ignored
if it is damaged or does not fit the journal.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from threading import Lock
from typing import Any, Final, cast

from surehand.core.errors import StateError, ToolFailure
from surehand.core.events import Event
from surehand.core.frozen import frozen, names_of
from surehand.core.model import Usage
from surehand.core.session import Seen, Session, name_problem
from surehand.state.files import write_private

_KEPT: Final = frozenset(
    {
        "session_started",
        "call_started",
        "call_finished",
        "file_read",
        "file_changed",
        "permission_asked",
        "permission_decided",
        "dry_run_made",
        "dry_run_applied",
        "dry_run_discarded",
        "tool_activated",
        "tuning_changed",
        "task_changed",
        "subagent_start",
        "subagent_end",
        "turn_started",
        "rewind_started",
        "rewind_ended",
        "message",
        "note",
    }
)

LIMIT_BYTES: Final = 256 << 20
_REWINDABLE: Final = frozenset({"turn_started", "message", "task_changed", "rewind_started", "rewind_ended"})


class Journal:
    """An append-only file of one session's events; a listener of the bus.

    If it cannot be written, `problem` says why; it can still be read, and nothing is appended.
    """

    def __init__(self, path: str, session_id: str, limit_bytes: int = LIMIT_BYTES) -> None:
        self.path = path
        self.session_id = session_id
        self._writing = Lock()
        self._descriptor = -1
        self._cut_off = False
        """Whether the last line was written only in part."""
        self.problem = ""
        """Why the journal cannot be written; empty if it can."""
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            self._descriptor = _open_shared(path)
            if os.fstat(self._descriptor).st_size > limit_bytes:
                self._drop_oldest(limit_bytes)
            self._end_partial_line()
        except OSError as problem:
            self.problem = f"the session cannot be kept in {path}: {problem.strerror}"

    def _drop_oldest(self, limit_bytes: int) -> None:
        """Replace the older half of a journal by one record of its state; not while another process has it open."""
        try:
            flock(self._descriptor, LOCK_EX | LOCK_NB)
        except OSError:
            flock(self._descriptor, LOCK_SH)
            return
        past, fresh = read_past(self.path), f"{self.path}.new"
        with open(self.path, "rb") as old, open(fresh, "wb", opener=_private) as new:
            new.write(_line({"kind": PAST, "session_id": self.session_id, "at": time.time(), "data": past.to_dict()}))
            old.seek(max(0, os.fstat(old.fileno()).st_size - limit_bytes // 2))
            old.readline()
            while block := old.read(1 << 20):
                new.write(block)
        os.replace(fresh, self.path)
        os.close(self._descriptor)  # a process waiting for the lock finds another file at the path, and opens that
        self._descriptor = _open_shared(self.path)

    def __call__(self, event: Event) -> None:
        if event.session_id == self.session_id and event.kind in _KEPT:
            self.append(event.to_dict())

    def append(self, record: dict[str, Any]) -> None:
        """Append a record as one line, in one system call; does nothing once closed."""
        line = _line(record)
        with self._writing:
            if self._descriptor < 0:
                return
            if self._cut_off:
                line = b"\n" + line
            written = os.write(self._descriptor, line)
            self._cut_off = written < len(line)
            if self._cut_off:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def close(self) -> None:
        """Close the file, and with it the lock that marks the session as open."""
        with self._writing:  # an abandoned thread may be writing, to a descriptor that may soon be another file's
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the records so far, oldest first."""
        return records(self.path)

    @contextmanager
    def hold_alone(self) -> Generator[bool]:
        """Keep other processes from opening the session meanwhile; yields False if one has it open already."""
        if self._descriptor < 0:  # nothing can be written, so nothing needs protection
            yield True
            return
        try:
            flock(self._descriptor, LOCK_EX | LOCK_NB)
            alone = True
        except OSError:  # the shared lock is lost in the attempt
            alone = False
        try:
            yield alone
        finally:
            flock(self._descriptor, LOCK_SH)

    def check_branch(self, name: str) -> None:
        """Raise ToolFailure if a session of that name exists."""
        if os.path.lexists(self._beside(name)):
            raise ToolFailure(
                f"the session {name!r} exists already", code="precondition_failed", hint="Choose another name."
            )

    def start_branch(self, name: str, turn: str) -> None:
        """Write the journal of a new session: this one's records before a turn."""
        try:
            descriptor = _private(self._beside(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            self.check_branch(name)
            raise
        try:
            with open(descriptor, "wb") as file:
                for record in _until_turn(self.records(), turn):
                    file.write(_line(record))
        except OSError as error:
            self.drop_branch(name)
            raise ToolFailure(
                f"the session {name!r} could not be written: {error.strerror}", hint="Nothing was changed."
            ) from error

    def drop_branch(self, name: str) -> None:
        """Delete the journal of a branch that failed."""
        os.unlink(self._beside(name))

    def _beside(self, name: str) -> str:
        return os.path.join(os.path.dirname(self.path), f"{name}.jsonl")

    def _end_partial_line(self) -> None:
        """End a line that a crash left unfinished, so that the next record has its own."""
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _open_shared(path: str) -> int:
    """Open a journal with a shared lock; waits while another process rewinds or shortens it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        flock(descriptor, LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        os.close(descriptor)


class MemoryJournal:
    """The turns and messages of a session without a journal, kept in memory so that it can be rewound."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.problem = ""
        self._events: list[Event] = []

    def __call__(self, event: Event) -> None:
        if event.session_id == self.session_id and event.kind in _REWINDABLE:
            self._events.append(event)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the records so far, oldest first."""
        return (event.to_dict() for event in list(self._events))

    @contextmanager
    def hold_alone(self) -> Generator[bool]:
        """Yield True: no other process can open it."""
        yield True

    def check_branch(self, name: str) -> None:
        """Raise ToolFailure: another session could not read this one."""
        raise ToolFailure(
            "this session is not saved, so it cannot be forked",
            code="precondition_failed",
            hint="Give it a name (`Surehand(..., session=NAME)`, `--session NAME`).",
        )

    def start_branch(self, name: str, turn: str) -> None:
        """Raise ToolFailure, as `check_branch` does."""
        self.check_branch(name)

    def drop_branch(self, name: str) -> None:
        """Do nothing: there is no branch."""


def find_session(folder: str, name: str, *, exists: bool = True) -> str:
    """Return the path of a session's journal; raise StateError if the name is invalid, or unknown and must exist."""
    if problem := name_problem(name):
        raise StateError(problem)
    path = os.path.join(folder, f"{name}.jsonl")
    if exists and not os.path.exists(path):
        raise StateError(f"there is no session {name!r} here; `surehand sessions list` lists them")
    return path


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"


def _until_turn(found: Iterable[dict[str, Any]], turn: str) -> Iterator[dict[str, Any]]:
    for record in found:
        if record["kind"] == "turn_started" and record.get("data", {}).get("turn") == turn:
            return
        yield record


def last_records(path: str, count: int) -> tuple[list[dict[str, Any]], bool]:
    """Return the last readable records of a journal, oldest first, and whether there are earlier ones."""
    lines, more = last_lines(path, count)
    parsed = (_parse(line.decode("utf-8", "replace")) for line in lines)
    return [record for record in parsed if record is not None], more


def _parse(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if _is_record(record) else None


def records(path: str, kinds: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """Yield the readable records of a journal, oldest first, of all kinds or of `kinds`; none if there is no file."""
    if not os.path.exists(path):
        return
    marks = [f'"{kind}"' for kind in kinds]
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if marks and not any(mark in line for mark in marks):
                continue  # of another kind: spare parsing it
            record = _parse(line)
            if record is not None and (not kinds or record["kind"] in kinds):
                yield record


@frozen
class SessionSummary:
    """A session as listed, read from its journal."""

    name: str
    updated: float
    calls: int
    first: str
    """The first prompt."""
    workspace: str
    """Its workspace; empty if the journal does not say."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {name: getattr(self, name) for name in names_of(self)}


def list_sessions(folder: str) -> list[SessionSummary]:
    """Return the sessions whose journals are in a folder, the latest first."""
    try:
        paths = [entry.path for entry in os.scandir(folder) if entry.name.endswith(".jsonl")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(map(_summarize, paths), key=lambda each: each.updated, reverse=True)


def _summarize(path: str) -> SessionSummary:
    past = read_past(path)
    name = os.path.basename(path).removesuffix(".jsonl")
    return SessionSummary(name, os.path.getmtime(path), past.calls, past.first, past.workspace)


def list_turns(folder: str, since: float = 0.0) -> Iterator[tuple[str, Usage]]:
    """Yield model and usage of every turn since a time, from the journals in a directory.

    Turns that a branch shares with its session count once.
    """
    known = set[tuple[str, float]]()
    try:
        paths = [entry.path for entry in os.scandir(folder) if entry.name.endswith(".jsonl")]
    except (FileNotFoundError, NotADirectoryError):
        return
    for path in sorted(paths):
        if os.path.getmtime(path) < since:
            continue
        for record in records(path, ("message",)):
            data: dict[str, Any] = record.get("data") or {}
            model, usage, at = data.get("model"), data.get("usage"), float(record.get("at") or 0.0)
            turn = (str(record.get("session_id")), at)
            if isinstance(model, str) and isinstance(usage, dict) and at >= since and turn not in known:
                known.add(turn)
                used = cast("dict[str, Any]", usage)
                yield model, Usage(**{key: used[key] for key in Usage().to_dict() if type(used.get(key)) is int})


def drop_empty(path: str) -> bool:
    """Delete the journal of a session without a model's message or a call; return whether it was one."""
    if any(map(_says_something, records(path))):
        return False
    for each in (path, checkpoint_path(path)):
        with suppress(OSError):
            os.unlink(each)
    return True


def _says_something(record: dict[str, Any]) -> bool:
    if record["kind"] == "message":
        return bool(record.get("data", {}).get("message", {}).get("role") != "user")
    return record["kind"] in ("call_started", "call_finished")


def _is_record(record: Any) -> bool:
    """Whether a parsed line has the form of a record; readers still have to validate its data."""
    if not isinstance(record, dict):
        return False
    fields = cast("dict[str, Any]", record)
    return isinstance(fields.get("kind"), str) and isinstance(fields.get("data", {}), dict)


WRITTEN_AFTER: Final = 64 * 1024
"""Bytes of new records after which a new checkpoint is written."""
PAST: Final = "past"
"""The kind of a journal's first record if older ones were dropped: it holds the state they led to."""
_VERSION: Final = 1
_MARK_BYTES: Final = 512
_BLOCK: Final = 64 * 1024
_LISTS: Final = ("grants", "activated", "origins")
_TABLES: Final = ("read", "tasks")


class Past:
    """The state a journal describes: what is needed to continue the session, and what listings show."""

    def __init__(self) -> None:
        self.read: dict[str, dict[str, Any]] = {}
        """Real path → fields of `Seen`."""
        self.grants: list[str] = []
        self.tasks: dict[str, dict[str, Any]] = {}
        self.activated: list[str] = []
        self.origins: list[str] = []
        self.calls = 0
        self.first = ""
        """The first prompt."""
        self.workspace = ""

    def take_up(self, record: dict[str, Any]) -> None:
        """Apply one record; raises KeyError, TypeError or AttributeError if it is damaged or of another version."""
        data: dict[str, Any] = record.get("data") or {}
        match record["kind"]:
            case "file_read":
                seen = {name: value for name, value in data.items() if name != "path"}
                Seen(**seen)
                self.read[data["path"]] = seen
            case "permission_decided" if data.get("answer") in ("session", "always"):
                _add_new(self.grants, data.get("rules", ()))
            case "task_changed" if "task" in data:
                self.tasks[data["task"]["id"]] = data["task"]
            case "tool_activated":
                _add_new(self.activated, [record["tool"]])
            case "call_finished":
                self.calls += 1
                result: dict[str, Any] = data.get("result") or {}
                meta: dict[str, Any] = result.get("meta") or {}
                origin = meta.get("origin")
                _add_new(self.origins, [origin] if origin and origin != "workspace" else [])
            case "session_started":
                self.workspace = str(data.get("workspace") or self.workspace)
            case "message" if not self.first and data["message"]["role"] == "user":
                self.first = str(data["message"]["text"])
            case kind if kind == PAST:
                self.__dict__.update(past_from_dict(data).__dict__)
            case _:
                pass

    def resume(self, session: Session) -> None:
        """Restore a session: files read, approvals granted, tools activated."""
        for path, seen in self.read.items():
            session.read_state.put(path, Seen(**seen))
        session.grants += [rule for rule in self.grants if rule not in session.grants]
        session.tasks_before.update(self.tasks)
        session.activated.update(self.activated)
        session.origins.update(self.origins)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return dict(self.__dict__)


def _add_new(known: list[str], new: Any) -> None:
    known += [each for each in new if each not in known]


def past_from_dict(data: dict[str, Any]) -> Past:
    """Decode plain data; TypeError where it has another shape."""
    past = Past()
    for name, value in data.items():
        kind = list if name in _LISTS else dict if name in _TABLES else int if name == "calls" else str
        if name not in past.__dict__ or not isinstance(value, kind):
            raise TypeError(name)
        setattr(past, name, value)
    for seen in past.read.values():
        Seen(**seen)
    return past


def checkpoint_path(journal: str) -> str:
    """Return where the checkpoint of a journal stands."""
    return journal.removesuffix(".jsonl") + ".checkpoint"


def read_past(journal: str) -> Past:
    """Return the state a journal describes: its checkpoint, updated by the records written since."""
    past, begin = _load_checkpoint(journal)
    end = begin
    for line in complete_lines(journal, begin):
        end += len(line)
        try:
            record = json.loads(line.decode("utf-8", "replace"))
            if isinstance(record, dict):
                past.take_up(cast("dict[str, Any]", record))
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            continue  # damaged, or written by another version: skip it
    if end - begin > WRITTEN_AFTER:
        _save_checkpoint(journal, past, end)
    return past


def complete_lines(path: str, begin: int = 0) -> Iterator[bytes]:
    """Yield the complete lines of a file from an offset on; the last may still be being written."""
    try:
        file = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError:
        return
    with file:
        file.seek(begin)
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield line


def last_lines(path: str, count: int) -> tuple[list[bytes], bool]:
    """Return the last lines of a file, and whether there are earlier ones."""
    with open(path, "rb") as file:
        begin, tail = file.seek(0, os.SEEK_END), b""
        while begin > 0 and tail.count(b"\n") <= count:
            size = min(begin, _BLOCK)
            begin -= size
            file.seek(begin)
            tail = file.read(size) + tail
    lines = tail.splitlines(keepends=True)
    return lines[-count:], begin > 0 or len(lines) > count


def _load_checkpoint(journal: str) -> tuple[Past, int]:
    try:
        with open(checkpoint_path(journal), "rb") as file:
            kept = json.load(file)
        if kept["version"] == _VERSION and kept["mark"] == _mark_checkpoint(journal, kept["end"]):
            return past_from_dict(kept["past"]), kept["end"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        pass
    return Past(), 0


def _save_checkpoint(journal: str, past: Past, end: int) -> None:
    try:
        mark = _mark_checkpoint(journal, end)
        kept = {"version": _VERSION, "end": end, "mark": mark, "past": past.to_dict()}
        write_private(checkpoint_path(journal), json.dumps(kept), flush=False)
    except (OSError, TypeError, ValueError):  # disk full, or no permission: the journal suffices
        pass


def _mark_checkpoint(journal: str, end: int) -> str:
    """Return a digest of the bytes before an offset; it differs in another journal of the same name."""
    begin = max(0, end - _MARK_BYTES)
    with open(journal, "rb") as file:
        file.seek(begin)
        data = file.read(end - begin)
    if len(data) != end - begin or not data.endswith(b"\n"):
        raise ValueError("the journal is shorter by now")
    return hashlib.sha256(data).hexdigest()
