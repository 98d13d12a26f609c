"""Record and replay: write calls and results to a file, make the calls again later, and report each difference.

A recording is JSON lines: a header with workspace and time, then one line per call. The journal of a named session can
be replayed too. Recorded calls can also be judged by the current rules, without running them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.core.call import ToolCall, ToolResult
from surehand.core.errors import StateError
from surehand.core.events import Event, plain
from surehand.core.frozen import field, frozen

if TYPE_CHECKING:
    from surehand.core.session import Session
    from surehand.engine.executor import Executor
    from surehand.engine.prepared import View

KIND: Final = "recording"
SHOWN_LIMIT: Final = 200
"""Characters of a value shown in a difference."""


@frozen
class Recorded:
    """One call of a recording: the call, its result, and the verdict at the time."""

    call: ToolCall
    result: ToolResult
    verdict: str | None = None


@frozen
class Recording:
    """A recording: its workspace and its calls."""

    workspace: str
    calls: tuple[Recorded, ...]


@frozen
class Difference:
    """One difference between a replayed result and the recorded one."""

    path: str
    before: Any
    after: Any

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"path": self.path, "before": _short(self.before), "after": _short(self.after)}

    def __str__(self) -> str:
        return f"{self.path}: {_short(self.before)} -> {_short(self.after)}"


@frozen
class Replayed:
    """One call made again, and how its result differs."""

    recorded: Recorded
    result: ToolResult
    differences: tuple[Difference, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        call = self.recorded.call
        return {
            "tool": call.name,
            "args": call.shown_args,
            "ok": self.result.ok,
            "same": not self.differences,
            "differences": [each.to_dict() for each in self.differences],
        }


@frozen
class Judged:
    """The recorded and the current verdict on a call."""

    call: ToolCall
    before: str | None
    after: str
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        shown = {"tool": self.call.name, "args": self.call.shown_args, "before": self.before, "after": self.after}
        return shown | {"reason": self.reason, "same": self.before in (None, self.after)}


class Recorder:
    """Writes every finished call to a file; a listener of the bus."""

    def __init__(self, path: str, session: Session) -> None:
        self._session_id = session.id
        self._file = open(path, "a", encoding="utf-8", opener=_private)  # noqa: SIM115  # closed by `close`
        if self._file.tell() == 0:
            self._write({"kind": KIND, "version": 1, "workspace": session.workspace, "at": time()})

    def __call__(self, event: Event) -> None:
        if event.kind == "call_finished" and event.session_id == self._session_id and not self._file.closed:
            data = {key: plain(event.data.get(key)) for key in ("call", "result", "decision")}
            self._write({"kind": "call", "at": event.at, **data})

    def close(self) -> None:
        """Close the file of the recording."""
        self._file.close()

    def _write(self, record: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")
        self._file.flush()


def read(path: str) -> Recording:
    """Read a recording or a session's journal; raise StateError if the file is neither."""
    workspace, calls = "", list[Recorded]()
    for number, line in _lines(path):
        try:
            record: dict[str, Any] = json.loads(line)
            kind = record["kind"]
        except (ValueError, KeyError, TypeError):
            raise StateError(f"{path}:{number}: this is not a line of a recording") from None
        data = record if kind == "call" else cast("dict[str, Any]", record.get("data") or {})
        if kind in (KIND, "session_started"):
            workspace = workspace or record.get("workspace") or data.get("workspace", "")
        elif kind in ("call", "call_finished") and data.get("call") and data.get("result"):
            calls.append(_load_recorded(data))
    if not calls:
        raise StateError(f"{path} holds no calls")
    return Recording(workspace, tuple(calls))


def _lines(path: str) -> Iterator[tuple[int, str]]:
    try:
        with open(path, encoding="utf-8") as file:
            yield from ((number, line) for number, line in enumerate(file, 1) if line.strip())
    except (OSError, UnicodeDecodeError) as problem:
        raise StateError(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None


def _load_recorded(data: Mapping[str, Any]) -> Recorded:
    decision = cast("dict[str, Any]", data.get("decision") or {})
    return Recorded(
        ToolCall.from_dict(data["call"]),
        ToolResult.from_dict(data["result"]),
        decision.get("decision") or decision.get("verdict"),
    )


async def replay(
    recording: Recording, executor: Executor, session: Session, view: View, *, ignore: Iterable[str] = ()
) -> AsyncIterator[Replayed]:
    """Make the calls of a recording again, in order, and yield how each result differs.

    Paths below the recording's workspace are mapped to that of the session. `ignore` lists fields that may differ
    (`data.timestamp`, `output`).
    """
    moved = _Moved(recording.workspace, session.workspace)
    ignored = tuple(ignore)
    for recorded in recording.calls:
        call = replace(recorded.call, args=moved(recorded.call.args), source="replay")
        result = await executor.run(call, session, view)
        found = differences(moved(_comparable(recorded.result)), _comparable(result), ignored)
        if _is_of_command(result):
            found = [each for each in found if not _is_occasional(each)]
        yield Replayed(recorded, result, tuple(found))


def judge(recording: Recording, executor: Executor, session: Session, view: View) -> list[Judged]:
    """Judge each call by the current rules, without running it; return both verdicts."""
    moved = _Moved(recording.workspace, session.workspace)
    found: list[Judged] = []
    for recorded in recording.calls:
        call = replace(recorded.call, args=moved(recorded.call.args))
        verdict, reason = executor.verdict(call, session, view)
        found.append(Judged(call, recorded.verdict, verdict, reason))
    return found


def differences(before: Any, after: Any, ignore: tuple[str, ...] = (), path: str = "") -> list[Difference]:
    """Return all differences between two values of plain data."""
    if path in ignore or before == after:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        old, new = cast("dict[str, Any]", before), cast("dict[str, Any]", after)
        keys = dict.fromkeys([*old, *new])
        return [
            each
            for key in keys
            for each in differences(old.get(key), new.get(key), ignore, f"{path}.{key}" if path else key)
        ]
    if isinstance(before, list) and isinstance(after, list):
        first, second = cast("list[Any]", before), cast("list[Any]", after)
        if len(first) == len(second):
            pairs = enumerate(zip(first, second, strict=True))
            return [each for at, (a, b) in pairs for each in differences(a, b, ignore, f"{path}[{at}]")]
    return [Difference(path, before, after)]


_OF_ONE_RUN: Final = frozenset({"usage", "duration_ms", "duration_s", "change_id", "output_file", "dry_run"})
"""Fields of a command's `data` that differ in every run: resources, times, and temporary names."""
_TEMPORARY_NAME: Final = re.compile(r"\b(?:tmp(?:\.[A-Za-z0-9]{6,12}|[a-z0-9_]{8})|surehand-[0-9a-f]{12})(?![\w.])")
"""Names of temporary files: by `mktemp` (tmp.3fGh72kLmQ), by Python's `tempfile` (tmpa1b2c3d4), and the temporary
directory shared by the commands of a session (surehand-0123456789ab)."""


def _comparable(result: ToolResult) -> dict[str, Any]:
    """Return a result without the values that differ in every run: times, durations, call ids."""
    shown = result.to_dict()
    error = shown["error"]
    found = {
        "ok": shown["ok"],
        "data": shown["data"],
        "output": shown["output"],
        "content": shown["content"],
        "error": {"code": error["code"], "message": error["message"]} if error else None,
    }
    if _is_of_command(result):
        found["data"] = {key: each for key, each in shown["data"].items() if key not in _OF_ONE_RUN}
    return found


def _is_of_command(result: ToolResult) -> bool:
    data: Any = result.data
    return isinstance(data, dict) and "exit_code" in data


def _is_occasional(difference: Difference) -> bool:
    """Whether two texts differ only in temporary names, each always replaced by the same other name."""
    before, after = difference.before, difference.after
    if not isinstance(before, str) or not isinstance(after, str):
        return False
    if _TEMPORARY_NAME.split(before) != _TEMPORARY_NAME.split(after):
        return False
    names = set(zip(_TEMPORARY_NAME.findall(before), _TEMPORARY_NAME.findall(after), strict=True))
    return len({old for old, _ in names}) == len({new for _, new in names}) == len(names)


@frozen
class _Moved:
    """Replaces the recording's workspace by the session's in a value."""

    before: str
    after: str
    wanted: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "wanted", bool(self.before) and self.before != self.after)

    def __call__(self, value: Any) -> Any:
        if not self.wanted:
            return value
        if isinstance(value, str):
            return value.replace(self.before, self.after)
        if isinstance(value, Mapping):
            return {key: self(each) for key, each in cast("Mapping[str, Any]", value).items()}
        if isinstance(value, list):
            return [self(each) for each in cast("list[Any]", value)]
        return value


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_LIMIT else text[:SHOWN_LIMIT] + "..."


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
