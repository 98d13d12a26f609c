"""A checkpoint of a session's journal, kept beside it: the next process reads it and the records written since.

A checkpoint is derived: one that is missing, damaged, or does not fit its journal any more costs a reading of the whole
journal and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any, Final, cast

from surehand.core.read_state import Seen
from surehand.core.session import Session
from surehand.state.json_file import write_private

WRITTEN_AFTER: Final = 64 * 1024
"""Bytes of new records after which a new checkpoint is written."""
PAST: Final = "past"
"""The kind of a journal's first record where older ones were dropped: it holds what they came to."""
_VERSION: Final = 1
_MARK_BYTES: Final = 512
_BLOCK: Final = 64 * 1024
_LISTS: Final = ("grants", "activated", "origins")
_TABLES: Final = ("read", "tasks")


class Past:
    """What a process needs to continue a session, and what lists show of it."""

    def __init__(self) -> None:
        self.read: dict[str, dict[str, Any]] = {}
        """Real path → what was seen there."""
        self.grants: list[str] = []
        self.tasks: dict[str, dict[str, Any]] = {}
        self.activated: list[str] = []
        self.origins: list[str] = []
        self.calls = 0
        self.first = ""
        """The first question."""
        self.workspace = ""

    def take_up(self, record: dict[str, Any]) -> None:
        """Apply one record; KeyError, TypeError or AttributeError for one of another version, or a damaged one."""
        data: dict[str, Any] = record.get("data") or {}
        match record["kind"]:
            case "file_read":
                seen = {name: value for name, value in data.items() if name != "path"}
                Seen(**seen)
                self.read[data["path"]] = seen
            case "permission_decided" if data.get("answer") in ("session", "always"):
                _add(self.grants, data.get("rules", ()))
            case "task_changed" if "task" in data:
                self.tasks[data["task"]["id"]] = data["task"]
            case "tool_activated":
                _add(self.activated, [record["tool"]])
            case "call_finished":
                self.calls += 1
                result: dict[str, Any] = data.get("result") or {}
                meta: dict[str, Any] = result.get("meta") or {}
                origin = meta.get("origin")
                _add(self.origins, [origin] if origin and origin != "workspace" else [])
            case "session_started":
                self.workspace = str(data.get("workspace") or self.workspace)
            case "message" if not self.first and data["message"]["role"] == "user":
                self.first = str(data["message"]["text"])
            case kind if kind == PAST:
                self.__dict__.update(from_dict(data).__dict__)
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


def _add(known: list[str], new: Any) -> None:
    known += [each for each in new if each not in known]


def from_dict(data: dict[str, Any]) -> Past:
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


def path_of(journal: str) -> str:
    """Return where the checkpoint of a journal stands."""
    return journal.removesuffix(".jsonl") + ".checkpoint"


def read_past(journal: str) -> Past:
    """Return the state a journal describes: its checkpoint, and the records written since."""
    past, begin = _load(journal)
    end = begin
    for line in complete_lines(journal, begin):
        end += len(line)
        try:
            record = json.loads(line.decode("utf-8", "replace"))
            if isinstance(record, dict):
                past.take_up(cast("dict[str, Any]", record))
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            continue  # written by another version, or damaged: what can be read is kept
    if end - begin > WRITTEN_AFTER:
        _save(journal, past, end)
    return past


def complete_lines(path: str, begin: int = 0) -> Iterator[bytes]:
    """Yield the lines of a file from a place on; one without its end is not yet written."""
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
    """Return the last lines of a file, and whether there are others before them."""
    with open(path, "rb") as file:
        begin, tail = file.seek(0, os.SEEK_END), b""
        while begin > 0 and tail.count(b"\n") <= count:
            size = min(begin, _BLOCK)
            begin -= size
            file.seek(begin)
            tail = file.read(size) + tail
    lines = tail.splitlines(keepends=True)
    return lines[-count:], begin > 0 or len(lines) > count


def _load(journal: str) -> tuple[Past, int]:
    try:
        with open(path_of(journal), "rb") as file:
            kept = json.load(file)
        if kept["version"] == _VERSION and kept["mark"] == _mark(journal, kept["end"]):
            return from_dict(kept["past"]), kept["end"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        pass
    return Past(), 0


def _save(journal: str, past: Past, end: int) -> None:
    try:
        mark = _mark(journal, end)
        kept = {"version": _VERSION, "end": end, "mark": mark, "past": past.to_dict()}
        write_private(path_of(journal), json.dumps(kept), flush=False)
    except (OSError, TypeError, ValueError):  # no room, or somebody else's folder: the journal has it all
        pass


def _mark(journal: str, end: int) -> str:
    """Return the mark of a place in a journal: another journal of the same name has another before it."""
    begin = max(0, end - _MARK_BYTES)
    with open(journal, "rb") as file:
        file.seek(begin)
        data = file.read(end - begin)
    if len(data) != end - begin or not data.endswith(b"\n"):
        raise ValueError("the journal is shorter by now")
    return hashlib.sha256(data).hexdigest()
