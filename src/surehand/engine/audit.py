"""The audit: every call and every refusal, who approved and which rule, in a chain of hashes.

Each line holds the hash of the line before it, so that a changed, missing or moved line breaks the chain; a small file
beside the log remembers the last hash, so that a cut-off end shows too. Several processes may append at once. A log
that grows past its limit is set aside under a number, and the chain goes on in the next file.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.core.errors import StateError
from surehand.core.events import Event
from surehand.core.frozen import frozen
from surehand.host.visible import mask_data

if TYPE_CHECKING:
    from surehand.core.call import ToolCall, ToolResult
    from surehand.policy.policy import Decision

GENESIS: Final = "0" * 64
LIMIT_BYTES: Final = 16 * 1024 * 1024
TEXT_LIMIT: Final = 2000
_TAIL: Final = 64 * 1024
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)


class Audit:
    """An audit log in one folder; a listener of the bus. Made once, closed at the end."""

    def __init__(self, folder: str, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.folder = folder
        self.path = os.path.join(folder, "audit.jsonl")
        self.limit_bytes = limit_bytes
        self._writing = Lock()
        os.makedirs(folder, mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._head = os.open(os.path.join(folder, "audit.head"), flags, 0o600)
        self._log = os.open(self.path, flags | os.O_APPEND, 0o600)
        self._size = -1
        """Where the log ended after our last line; anything else means that somebody wrote in between."""
        self._last = (0, GENESIS)
        self._asked: dict[str, dict[str, Any]] = {}

    def __call__(self, event: Event) -> None:
        match event.kind:
            case "permission_decided":
                self._asked[event.call_id] = {
                    key: event.data[key]
                    for key in ("answer", "by", "reason", "rule", "rules", "trial")
                    if event.data.get(key)
                }
            case "call_finished":
                self.append(self._record(event))
            case "trial_made":
                self.append(_tried(event))
            case _:
                pass

    def _record(self, event: Event) -> dict[str, Any]:
        result = cast("ToolResult", event.data["result"])
        decision = cast("Decision | None", event.data.get("decision"))
        record = _facts("call", event) | {"ok": result.ok}
        if result.error is not None:
            record["error"] = {"code": result.error.code, "message": mask_data(result.error.message, limit=TEXT_LIMIT)}
            record["refused"] = result.error.code == "permission_denied"
            if record["refused"] and result.error.details.get("rules"):
                record["rules"] = mask_data(result.error.details["rules"])
        if decision is not None:
            record["verdict"] = decision.verdict
            record["why"] = mask_data(decision.reason, limit=TEXT_LIMIT)
            rules = [each.rule.text for each in decision.rules if each.decided]
            record |= {"rules": rules} if rules else {}
        approval = self._asked.pop(event.call_id, None)
        return record | ({"approval": mask_data(approval, limit=TEXT_LIMIT)} if approval else {})

    def append(self, record: dict[str, Any]) -> None:
        """Add one record to the chain; one lock, one write. Nothing once it is closed."""
        with self._writing:
            if self._log >= 0:
                self._append(record)

    def _append(self, record: dict[str, Any]) -> None:
        fcntl.flock(self._head, fcntl.LOCK_EX)
        try:
            self._follow()
            number, previous = self._last
            body = {"n": number + 1, "prev": previous, **record}
            text = _ENCODER.encode(body)
            digest = line_hash(previous, text)
            line = f'{text[:-1]},"hash":"{digest}"}}\n'.encode("utf-8", "backslashreplace")
            os.write(self._log, line)
            os.pwrite(self._head, _head_line(number + 1, digest), 0)
            self._last = (number + 1, digest)
            self._size += len(line)
        finally:
            fcntl.flock(self._head, fcntl.LOCK_UN)

    def _follow(self) -> None:
        """Be at the end of the chain, wherever other processes have taken it."""
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            there = None
        here = os.fstat(self._log)
        if there is None or there.st_ino != here.st_ino:
            os.close(self._log)
            self._log = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            here, self._size = os.fstat(self._log), -1
        if here.st_size != self._size:
            self._last = self._end(here.st_size)
            self._size = os.fstat(self._log).st_size
        if self._size > self.limit_bytes:
            self._rotate()

    def _end(self, size: int) -> tuple[int, str]:
        """Return number and hash of the last line, by the log itself or, when it is empty, by what is remembered."""
        if size == 0:
            return _read_head(self._head) or (0, GENESIS)
        tail = os.pread(self._log, _TAIL, max(size - _TAIL, 0))
        if not tail.endswith(b"\n"):  # a crash in the middle of a line: it stays, and shows as broken
            os.write(self._log, b"\n")
        for line in reversed(tail.splitlines()):
            try:
                record = json.loads(line)
                return int(record["n"]), str(record["hash"])
            except (ValueError, KeyError, TypeError):
                continue
        return _read_head(self._head) or (0, GENESIS)

    def _rotate(self) -> None:
        number = max((each for each, _ in segments(self.folder)), default=0) + 1
        os.rename(self.path, os.path.join(self.folder, f"audit-{number:06}.jsonl"))
        os.close(self._log)
        self._log = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = 0

    def close(self) -> None:
        """Let go of the files; nothing is written through their descriptors any more."""
        with self._writing:
            log, head = self._log, self._head
            self._log = self._head = -1
        for descriptor in (log, head):
            if descriptor >= 0:
                os.close(descriptor)


def _facts(kind: str, event: Event) -> dict[str, Any]:
    """Return what every record says: who wanted what of which tool, and when."""
    call = cast("ToolCall", event.data["call"])
    made_by = {"parent": call.parent.id} if call.parent is not None else {}
    return {
        "kind": kind,
        "at": round(event.at, 6),
        "session": event.session_id,
        "call": event.call_id,
        "tool": event.tool,
        "source": call.source,
        **made_by,
        "args": mask_data(call.args, limit=TEXT_LIMIT),
    }


def _tried(event: Event) -> dict[str, Any]:
    """Return the record of a call that ran on a copy: something ran, though nothing was changed."""
    found = {name: event.data[name] for name in ("trial", "exit_code")}
    return _facts("trial", event) | {"ok": True} | found


def line_hash(previous: str, text: str) -> str:
    """Return the hash of one line: over the hash before it and the record's own text."""
    return hashlib.sha256(f"{previous}\n{text}".encode("utf-8", "backslashreplace")).hexdigest()


def _head_line(number: int, digest: str) -> bytes:
    return f"{number:020} {digest}\n".encode()


def _read_head(descriptor: int) -> tuple[int, str] | None:
    text = os.pread(descriptor, 200, 0).decode("ascii", "replace").split()
    return (int(text[0]), text[1]) if len(text) == 2 and text[0].isdigit() else None


def segments(folder: str) -> list[tuple[int, str]]:
    """Return (number, path) of the files set aside, oldest first."""
    if not os.path.isdir(folder):
        return []
    names = [name for name in os.listdir(folder) if name.startswith("audit-") and name.endswith(".jsonl")]
    return sorted((int(name[6:-6]), os.path.join(folder, name)) for name in names if name[6:-6].isdigit())


def lines(folder: str) -> Iterator[tuple[str, int, str]]:
    """Yield (file, line number, line) of the whole audit, oldest first."""
    for path in [*(path for _, path in segments(folder)), os.path.join(folder, "audit.jsonl")]:
        try:
            with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
                for number, line in enumerate(file, 1):
                    yield path, number, line
        except FileNotFoundError:
            continue
        except OSError as problem:
            raise StateError(f"{path} cannot be read: {problem.strerror}") from None


def records(folder: str) -> Iterator[dict[str, Any]]:
    """Yield the readable records, oldest first."""
    for _, _, line in lines(folder):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield cast("dict[str, Any]", record)


@frozen
class Fault:
    """Where the chain is broken, and how."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.line else f"{self.file}: {self.text}"


@frozen
class Verified:
    """What a check of the chain found."""

    count: int
    faults: tuple[Fault, ...]
    at: float

    @property
    def ok(self) -> bool:
        return not self.faults

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, "lines": self.count, "faults": [str(fault) for fault in self.faults], "at": self.at}


def verify(folder: str) -> Verified:
    """Check every line against the one before it, and the last against what is remembered."""
    faults: list[Fault] = []
    number, previous, count = 0, GENESIS, 0
    hashes: dict[int, str] = {}
    for path, at, line in lines(folder):
        count += 1
        record, problem = _checked(line, number, previous)
        if problem:
            faults.append(Fault(path, at, problem))
        if record is not None:
            number, previous = record
            hashes[number] = previous
    faults += _end_faults(folder, number, hashes)
    return Verified(count, tuple(faults), time())


def _checked(line: str, number: int, previous: str) -> tuple[tuple[int, str] | None, str]:
    """Return ((number, hash) of a line, what is wrong with it)."""
    text = line.removesuffix("\n")
    try:
        record = json.loads(text)
        found, before, digest = int(record["n"]), str(record["prev"]), str(record["hash"])
    except (ValueError, KeyError, TypeError):
        return None, "the line is broken: it cannot be read as a record"
    here = (found, digest)
    ending = f',"hash":"{digest}"}}'
    if not text.endswith(ending) or line_hash(before, text[: -len(ending)] + "}") != digest:
        return here, f"record {found} was changed"
    if found != number + 1:
        what = f"{found - number - 1} missing before it" if found > number else "it is out of order"
        return here, f"record {found} does not follow record {number}: {what}"
    if before != previous:
        return here, f"record {found} does not continue record {number}: something before it was changed or taken away"
    return here, ""


def _end_faults(folder: str, number: int, hashes: dict[int, str]) -> list[Fault]:
    path = os.path.join(folder, "audit.head")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return [Fault(path, 0, "it is missing, so a cut-off end would not show")] if hashes else []
    try:
        head = _read_head(descriptor)
    finally:
        os.close(descriptor)
    if head is None:
        return [Fault(path, 0, "it cannot be read")] if hashes else []
    if head[0] > number:
        return [Fault(os.path.join(folder, "audit.jsonl"), 0, f"the end is missing: records {number + 1} to {head[0]}")]
    # A crash between line and head leaves the head one behind; what it names must still be there.
    if hashes.get(head[0]) != head[1]:
        return [Fault(path, 0, f"record {head[0]} is not the one that was written")]
    return []
