"""The audit log: every call and refusal, with its approver and rules, in a hash chain.

Each line holds the hash of the line before it, so that a changed, missing or moved line breaks the chain. The head, a
small file beside the log, holds the last number and hash, so that a truncated end shows too. Several processes may
append at once. A log over its size limit is renamed to a numbered segment, and the chain goes on in a new file.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.core.errors import StateError, ToolFailure
from surehand.core.events import Event, EventKind
from surehand.core.frozen import frozen
from surehand.files.sanitize import mask_data

if TYPE_CHECKING:
    from surehand.core.call import ToolCall, ToolResult
    from surehand.policy.policy import Decision

RECORDED: Final[tuple[EventKind, ...]] = ("permission_decided", "call_finished", "dry_run_made")
GENESIS: Final = "0" * 64
LIMIT_BYTES: Final = 16 * 1024 * 1024
TEXT_LIMIT: Final = 2000
_TAIL: Final = 64 * 1024
FOLLOW_S: Final = 0.05
"""How long (s) the record of a read-only call may wait, to be written together with others."""
_BATCH: Final = 50
"""Records written at a time: the event loop, or a call with effects, waits meanwhile."""
_FEW_ARGUMENTS: Final = 32
_PLAIN_TYPES: Final = frozenset({str, int, float, bool, type(None)})
WAITING_LIMIT: Final = 2000
"""Records kept while nothing can be written; further ones are dropped, and their number is recorded as a gap."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str, check_circular=False)
"""Without the check for cycles: `mask_data` copies what a record holds, and would not end on one."""


class Audit:
    """An audit log in one directory; a listener of the bus.

    A call with effects is recorded before it runs (`intend`), a refusal at once (one with nested arguments after they
    were masked in a thread). Results, and read-only calls, are recorded in batches a moment later. If writing fails,
    `problem` says why; the records are kept, and every further call tries again.
    """

    def __init__(self, folder: str, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.folder = folder
        self.path = os.path.join(folder, "audit.jsonl")
        self.limit_bytes = limit_bytes
        self.problem = ""
        """Why the log cannot be written; empty if it can."""
        self._writing, self._taking = Lock(), Lock()
        self._head = self._log = -1
        self._closed = False
        self._identity = (-1, -1)
        self._size = -1
        """Size of the log after our last write; if it differs, another process has written since."""
        self._last = (0, GENESIS)
        self._asked: dict[str, dict[str, Any]] = {}
        self._intended: dict[str, Any] = {}
        """Call id → masked arguments, for running calls whose intent is recorded."""
        self._waiting: list[Event] = []
        self._due = False
        self._slow = False
        """Whether masking some waiting record may take long: its arguments are many, or nested."""
        self._lost = 0
        try:
            self._open()
        except (OSError, StateError) as problem:
            self._note(problem)

    def _open(self) -> None:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        if self._head < 0:
            self._head = os.open(os.path.join(self.folder, "audit.head"), flags, 0o600)
        if self._log < 0:
            self._log = os.open(self.path, flags | os.O_APPEND, 0o600)
            found = os.fstat(self._log)
            self._identity = found.st_dev, found.st_ino
        if not os.fstat(self._head).st_size:
            self._begin()

    def _begin(self) -> None:
        """Write the head of an empty chain, so that a head missing later shows as removed."""
        fcntl.flock(self._head, fcntl.LOCK_EX)
        try:
            new = not os.fstat(self._log).st_size and not segments(self.folder)
            if new and not os.fstat(self._head).st_size:
                _write_head(self._head, 0, GENESIS)
        finally:
            fcntl.flock(self._head, fcntl.LOCK_UN)

    def _note(self, problem: OSError | StateError) -> None:
        where = getattr(problem, "filename", None) or self.folder
        self.problem = f"{where}: {getattr(problem, 'strerror', None) or problem}"

    # -- when records are written --------------------------------------------------------------------------------------

    def intend(self, call: ToolCall, tool: str, session_id: str, decision: Decision, args: Any = None) -> None:
        """Record that a call with effects is about to run; raise ToolFailure where that fails: then it must not.

        `args` are its arguments as `mask_arguments` returns them, for a caller that has had them masked in a thread.
        """
        record = _facts("intent", call, tool, session_id, time(), args)
        record["verdict"] = decision.verdict
        if asked := self._asked.get(call.id):
            record["approval"] = asked
        try:
            self.append(record)
        except (OSError, StateError) as problem:
            self._note(problem)
            raise ToolFailure(
                f"{tool} was not run: a call that changes something is recorded first, and {self.problem}",
                code="precondition_failed",
                hint="Nothing was changed. Free some space, or make the folder writable (`surehand config path`).",
            ) from problem
        self._intended[call.id] = record["args"]

    def __call__(self, event: Event) -> None:
        match event.kind:
            case "permission_decided":
                approval = {
                    key: event.data[key]
                    for key in ("answer", "by", "reason", "rule", "rules", "dry_run")
                    if event.data.get(key)
                }
                self._asked[event.call_id] = mask_data(approval, limit=TEXT_LIMIT)
            case "call_finished" | "dry_run_made":
                flat, may_follow = is_flat(event.data["call"].args), self._may_follow(event)
                if not self.problem and flat and not may_follow:
                    self._write_events([event])
                    return
                with self._taking:
                    self._waiting.append(event)
                    self._slow = self._slow or not flat
                enough = len(self._waiting) >= _BATCH and not self._slow
                if enough or self.problem or not (self._due or self._is_writable()):
                    self.flush()
                elif may_follow:
                    self._flush_soon(FOLLOW_S)
                else:
                    self._due = False  # now, however soon the others are due
                    self._flush_soon(0.0)
            case _:
                pass

    def _may_follow(self, event: Event) -> bool:
        """Whether a record may be written later: the call only read, or its intent is recorded."""
        if event.kind == "dry_run_made":
            return False
        result: ToolResult = event.data["result"]
        error = result.error
        return error is None or error.code != "permission_denied"

    def _is_writable(self) -> bool:
        """Whether a record can probably be written later; if not, the call's own result must say so."""
        try:
            return os.access(self.path, os.W_OK) and os.fstatvfs(self._log).f_bavail > 0
        except OSError:
            return False

    def _flush_soon(self, delay_s: float) -> None:
        if self._due:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        self._due = True
        atexit.register(self.flush)  # for programs that end without closing the application
        loop.call_later(delay_s, self._flush_due, loop)

    def _flush_due(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._due:  # flushed meanwhile, or closed
            return
        if not self._slow:  # takes under a millisecond; a thread would contend with the loop for the GIL for longer
            self.flush()
            return
        try:
            loop.run_in_executor(None, self.flush)
        except RuntimeError:  # the loop's executor is shut down already
            self.flush()

    def flush(self) -> None:
        """Write all waiting records; if that fails they keep waiting, and `problem` says why."""
        self._due = False
        atexit.unregister(self.flush)
        while True:
            with self._taking:
                events = self._waiting[:_BATCH]
                del self._waiting[: len(events)]
                self._slow = self._slow and bool(self._waiting)
            if not events or not self._write_events(events):
                return

    def _write_events(self, events: list[Event]) -> bool:
        """Write the records of events; on failure keep them waiting and return False."""
        gap = [{"kind": "gap", "at": time(), "lost": self._lost}] if self._lost else []
        try:
            self.append(*gap, *map(self._record, events))
        except (OSError, StateError) as problem:
            self._note(problem)
            with self._taking:
                self._waiting[:0] = events
                self._lost += max(0, len(self._waiting) - WAITING_LIMIT)
                del self._waiting[WAITING_LIMIT:]
            return False
        for event in events:
            self._asked.pop(event.call_id, None)
            self._intended.pop(event.call_id, None)
        self._lost, self.problem = 0, ""
        return True

    def _record(self, event: Event) -> dict[str, Any]:
        call: ToolCall = event.data["call"]
        if event.kind == "dry_run_made":  # a command ran, if only on a copy
            found = {name: event.data[name] for name in ("dry_run", "exit_code")}
            return _facts("dry_run", call, event.tool, event.session_id, event.at) | {"ok": True} | found
        result: ToolResult = event.data["result"]
        decision: Decision | None = event.data.get("decision")
        args = self._intended.get(event.call_id)
        record = _facts("call", call, event.tool, event.session_id, event.at, args)
        record["ok"] = result.ok
        if (took := result.meta.get("duration_ms")) is not None:
            record["ms"] = took
        if result.error is not None:
            record["error"] = {"code": result.error.code, "message": mask_data(result.error.message, limit=TEXT_LIMIT)}
            record["refused"] = result.error.code == "permission_denied"
            if record["refused"] and result.error.details.get("rules"):
                record["rules"] = mask_data(result.error.details["rules"])
        if decision is not None:
            record["verdict"] = decision.verdict
            record["why"] = _mask_reason(decision.reason)
            if rules := [each.rule.text for each in decision.rules if each.decided]:
                record["rules"] = rules
        if approval := self._asked.get(event.call_id):
            record["approval"] = approval
        return record

    # -- the chain -----------------------------------------------------------------------------------------------------

    def append(self, *records: dict[str, Any]) -> None:
        """Append records to the chain, all or none, under one lock and in one write. Does nothing once closed."""
        with self._writing:
            if self._closed:
                return
            if self._log < 0 or self._head < 0:
                self._open()
            fcntl.flock(self._head, fcntl.LOCK_EX)
            try:
                self._follow()
                self._write(records)
            finally:
                fcntl.flock(self._head, fcntl.LOCK_UN)

    def _write(self, records: Iterable[dict[str, Any]]) -> None:
        number, digest = self._last
        written: list[bytes] = []
        for record in records:
            number += 1
            text = f'{{"n":{number},"prev":"{digest}",{_ENCODER.encode(record)[1:]}'
            digest = line_hash(digest, text)
            written.append(f'{text[:-1]},"hash":"{digest}"}}\n'.encode("utf-8", "backslashreplace"))
        data = b"".join(written)
        try:
            if os.write(self._log, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        except OSError:
            os.ftruncate(self._log, self._size)  # all or none: leave no partial line
            raise
        _write_head(self._head, number, digest)
        self._last = (number, digest)
        self._size += len(data)

    def _follow(self) -> None:
        """Catch up with what other processes have appended or rotated; rotate if the log is over its limit."""
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != self._identity:
            self._reopen()
            there = os.fstat(self._log)
        if there.st_size != self._size:
            self._last, self._size = self._end(there.st_size)
        if self._size > self.limit_bytes:
            self._rotate()

    def _reopen(self) -> None:
        closing, self._log, self._size = self._log, -1, -1
        os.close(closing)
        self._open()

    def _end(self, size: int) -> tuple[tuple[int, str], int]:
        """Return (number, hash) to continue from, and the size of the log without an unfinished last line.

        If the head is ahead of the last line, the log was truncated: numbers continue from the head, so that the gap
        stays visible for ever. If the record that the head names is gone, a number is skipped for the same reason.
        """
        head, window = _read_head(self._head), _TAIL
        tail = os.pread(self._log, window, max(size - window, 0))
        while window < size and tail.count(b"\n") < 2:  # the last line may be longer than the window
            window *= 4
            tail = os.pread(self._log, window, max(size - window, 0))
        if cut := len(tail) - (tail.rfind(b"\n") + 1):
            size -= cut
            os.ftruncate(self._log, size)
            tail = tail[:-cut]
        last = next(filter(None, map(_parse_position, reversed(tail.splitlines()))), None)
        if head is None:  # removed: a head is written before the first record
            begun = last is not None or bool(segments(self.folder))
            return ((last[0] if last else 0) + begun, GENESIS), size
        if last is None or last[0] <= head[0]:
            return head, size
        # A crash between writing lines and head leaves the head behind, by one batch at most.
        first = head[0] == 0 and last[0] <= _BATCH + 1
        known = first or any(_parse_position(line) == head for _, _, line in lines(self.folder))
        return (last if known else (last[0] + 1, head[1])), size

    def _rotate(self) -> None:
        number = max((each for each, _ in segments(self.folder)), default=0) + 1
        os.rename(self.path, os.path.join(self.folder, f"audit-{number:06}.jsonl"))
        self._reopen()
        self._size = 0

    def close(self) -> None:
        """Write all waiting records and close the files; later appends do nothing."""
        self.flush()
        with self._writing:
            log, head, self._closed = self._log, self._head, True
            self._log = self._head = -1
        for descriptor in (log, head):
            if descriptor >= 0:
                os.close(descriptor)


def is_flat(args: Mapping[str, Any]) -> bool:
    """Whether arguments are masked in no time: few, and none nested. Texts are truncated before they are searched."""
    return len(args) <= _FEW_ARGUMENTS and all(type(value) in _PLAIN_TYPES for value in args.values())


def _facts(kind: str, call: ToolCall, tool: str, session_id: str, at: float, args: Any = None) -> dict[str, Any]:
    """Return the fields that every record has; `args` are the call's masked arguments, if at hand."""
    facts = {"kind": kind, "at": at, "session": session_id, "call": call.id, "tool": tool, "source": call.source}
    if call.parent is not None:
        facts["parent"] = call.parent.id
    facts["args"] = mask_arguments(call) if args is None else args
    return facts


def mask_arguments(call: ToolCall) -> Any:
    """Return the arguments of a call as they are recorded; a tenth of a second for 1 MB of nested ones."""
    return mask_data(call.shown_args, limit=TEXT_LIMIT)


@lru_cache(maxsize=1024)
def _mask_reason(reason: str) -> str:
    """Mask the reason of a decision; cached, since most calls of a tool have the same one."""
    return mask_data(reason, limit=TEXT_LIMIT)


def line_hash(previous: str, text: str) -> str:
    """Return the hash of a line, computed over the previous hash and the record's text."""
    return hashlib.sha256(f"{previous}\n{text}".encode("utf-8", "backslashreplace")).hexdigest()


def _parse_position(line: str | bytes) -> tuple[int, str] | None:
    """Return (number, hash) of a line; None if it is no record."""
    try:
        record = json.loads(line)
        return int(record["n"]), str(record["hash"])
    except (ValueError, KeyError, TypeError):
        return None


def _write_head(descriptor: int, number: int, digest: str) -> None:
    line, done = f"{number:020} {digest}\n".encode(), 0
    while done < len(line):  # a partial head would name a record that never existed
        done += os.pwrite(descriptor, line[done:], done)


def _read_head(descriptor: int) -> tuple[int, str] | None:
    text = os.pread(descriptor, 200, 0).decode("ascii", "replace").split()
    return (int(text[0]), text[1]) if len(text) == 2 and text[0].isdigit() else None


def segments(folder: str) -> list[tuple[int, str]]:
    """Return (number, path) of the rotated segments, oldest first."""
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
    """A break of the chain: where, and how."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.line else f"{self.file}: {self.text}"


@frozen
class Verified:
    """The result of verifying the chain."""

    count: int
    faults: tuple[Fault, ...]
    at: float

    @property
    def ok(self) -> bool:
        """Whether the chain is intact."""
        return not self.faults

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"ok": self.ok, "lines": self.count, "faults": [str(fault) for fault in self.faults], "at": self.at}


def verify(folder: str) -> Verified:
    """Verify every line against the one before it, and the last one against the head."""
    faults: list[Fault] = []
    number, previous, count = 0, GENESIS, 0
    hashes: dict[int, str] = {}
    for path, at, line in lines(folder):
        count += 1
        record, problem = _check_line(line, number, previous)
        if problem:
            faults.append(Fault(path, at, problem))
        if record is not None:
            number, previous = record
            hashes[number] = previous
    faults += _end_faults(folder, number, hashes)
    return Verified(count, tuple(faults), time())


def _check_line(line: str, number: int, previous: str) -> tuple[tuple[int, str] | None, str]:
    """Return (number, hash) of a line, if readable, and the fault found, if any."""
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
    # A crash between writing lines and head leaves the head behind; the record it names must still exist.
    if head[0] == 0 and number <= _BATCH + 1:
        return []
    if hashes.get(head[0]) != head[1]:
        return [Fault(path, 0, f"record {head[0]} is not the one that was written")]
    return []
