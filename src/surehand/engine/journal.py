"""The journal of a session: one JSON line for everything that a later process must know to go on.

Appended in one write each, so several processes may share it and a crash loses at most the line being written. A
line that cannot be read is skipped and counted; what can be read is kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from threading import Lock
from typing import Any, Final, cast

from surehand.core.errors import ToolFailure
from surehand.core.events import Event
from surehand.core.frozen import frozen, names_of
from surehand.core.read_state import Seen
from surehand.core.session import Session

_KEPT: Final = frozenset(
    {
        "session_started",
        "call_started",
        "call_finished",
        "file_read",
        "file_changed",
        "permission_asked",
        "permission_decided",
        "trial_made",
        "trial_applied",
        "trial_dropped",
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

_REWINDABLE: Final = frozenset({"turn_started", "message", "task_changed", "rewind_started", "rewind_ended"})


class Journal:
    """An append-only file of one session's events; a listener of the bus."""

    def __init__(self, path: str, session_id: str) -> None:
        self.path = path
        self.session_id = session_id
        self._writing = Lock()
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        flock(self._descriptor, LOCK_SH)  # waits while another process rewinds the session
        self._mend()

    def __call__(self, event: Event) -> None:
        if event.session_id == self.session_id and event.kind in _KEPT:
            self.append(event.to_dict())

    def append(self, record: dict[str, Any]) -> None:
        """Write one record as one line, in one system call; nothing once it is closed."""
        line = _line(record)
        with self._writing:
            if self._descriptor >= 0:
                os.write(self._descriptor, line)

    def close(self) -> None:
        """Let go of the file, and of being known as one that has the session open."""
        with self._writing:  # a thread that was left behind may be writing; the number may be another file's next
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield what the journal holds so far, oldest first."""
        return records(self.path)

    @contextmanager
    def hold_alone(self) -> Generator[bool]:
        """Keep other processes from opening the session meanwhile; say False where one has it open already."""
        try:
            flock(self._descriptor, LOCK_EX | LOCK_NB)
            alone = True
        except OSError:  # the shared lock is lost in the attempt
            alone = False
        try:
            yield alone
        finally:
            flock(self._descriptor, LOCK_SH)

    def start_branch(self, name: str, turn: str) -> None:
        """Write the journal of a new session that holds this one up to a turn."""
        path = os.path.join(os.path.dirname(self.path), f"{name}.jsonl")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise ToolFailure(
                f"the session {name!r} exists already", code="precondition_failed", hint="Choose another name."
            ) from None
        with open(descriptor, "wb") as file:
            for record in _until_turn(self.records(), turn):
                file.write(_line(record))

    def _mend(self) -> None:
        """End a line that a crash left open, so that the next one stands alone."""
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")


class MemoryJournal:
    """The turns and messages of a session that is kept nowhere: enough to rewind it while it lives."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self._events: list[Event] = []

    def __call__(self, event: Event) -> None:
        if event.session_id == self.session_id and event.kind in _REWINDABLE:
            self._events.append(event)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield what has been said so far, oldest first."""
        return (event.to_dict() for event in list(self._events))

    @contextmanager
    def hold_alone(self) -> Generator[bool]:
        """Nobody else has it."""
        yield True

    def start_branch(self, name: str, turn: str) -> None:
        """Refuse: there is nothing another session could go on from."""
        raise ToolFailure(
            "this session is kept nowhere, so none can branch off it",
            code="precondition_failed",
            hint="Give it a name (`Surehand(..., session=NAME)`, `--session NAME`).",
        )


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"


def _until_turn(found: Iterable[dict[str, Any]], turn: str) -> Iterator[dict[str, Any]]:
    for record in found:
        if record["kind"] == "turn_started" and record.get("data", {}).get("turn") == turn:
            return
        yield record


def records(path: str, kinds: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """Yield the readable records of a journal (of some kinds), oldest first; nothing when there is none."""
    if not os.path.exists(path):
        return
    marks = [f'"{kind}"' for kind in kinds]
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if marks and not any(mark in line for mark in marks):
                continue  # a record of another kind need not be read
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if _is_record(record) and (not kinds or record["kind"] in kinds):
                yield record


@frozen
class SessionSummary:
    """A session as its journal tells it."""

    name: str
    updated: float
    calls: int
    first: str
    """The first question."""
    workspace: str
    """Where it worked; empty where its journal does not say."""

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
    calls, first, workspace = 0, "", ""
    for record in records(path, ("call_finished", "message", "session_started")):
        calls += record["kind"] == "call_finished"
        data: dict[str, Any] = record.get("data") or {}
        if record["kind"] == "session_started":
            workspace = str(data.get("workspace") or workspace)
        if record["kind"] == "message" and not first:
            given: Any = data.get("message")
            message = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
            first = str(message.get("text", "")) if message.get("role") == "user" else ""
    name = os.path.basename(path).removesuffix(".jsonl")
    return SessionSummary(name, os.path.getmtime(path), calls, first, workspace)


def list_turns(folder: str) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the model and the tokens of every turn that the sessions in a folder kept."""
    for session in list_sessions(folder):
        for record in records(os.path.join(folder, f"{session.name}.jsonl"), ("message",)):
            data: dict[str, Any] = record.get("data") or {}
            model, usage = data.get("model"), data.get("usage")
            if isinstance(model, str) and isinstance(usage, dict):
                counts = {key: value for key, value in cast("dict[str, Any]", usage).items() if type(value) is int}
                yield model, counts


def drop_empty(path: str) -> bool:
    """Remove the journal of a session in which no model spoke and nothing was called; say whether it was one."""
    if any(map(_says_something, records(path))):
        return False
    with suppress(OSError):
        os.unlink(path)
    return True


def _says_something(record: dict[str, Any]) -> bool:
    if record["kind"] == "message":
        return bool(record.get("data", {}).get("message", {}).get("role") != "user")
    return record["kind"] in ("call_started", "call_finished")


def _is_record(record: Any) -> bool:
    """Tell whether a line is a record as to its form; what its data holds is for its readers to doubt."""
    if not isinstance(record, dict):
        return False
    fields = cast("dict[str, Any]", record)
    return isinstance(fields.get("kind"), str) and isinstance(fields.get("data", {}), dict)


def resume(session: Session, path: str) -> int:
    """Bring a session to where its journal ends: what was read, granted and activated. Returns how many records."""
    count = 0
    for record in records(path):
        try:
            _take_up(session, record)
        except (KeyError, TypeError, AttributeError):
            continue  # written by another version, or damaged: what can be read is kept
        count += 1
    return count


def _take_up(session: Session, record: dict[str, Any]) -> None:
    """Apply one record to a session."""
    data: dict[str, Any] = record.get("data") or {}
    match record["kind"]:
        case "file_read":
            session.read_state.put(data.pop("path"), Seen(**data))
        case "permission_decided" if data.get("answer") in ("session", "always"):
            session.grants += [rule for rule in data.get("rules", ()) if rule not in session.grants]
        case "task_changed" if "task" in data:
            session.tasks_before[data["task"]["id"]] = data["task"]
        case "tool_activated":
            session.activated.add(record["tool"])
        case "call_finished":
            result: dict[str, Any] = data.get("result") or {}
            meta: dict[str, Any] = result.get("meta") or {}
            origin = meta.get("origin")
            if origin and origin != "workspace":
                session.origins.add(origin)
        case _:
            pass
