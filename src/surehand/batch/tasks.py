"""The tasks of a batch, one JSON object a line, checked whole before anything runs; and their results.

The results are a JSON-lines file with at most one line per task. A line is appended in one write and flushed to disk
before the result is reported. A last line that a crash left half-written is removed on resume, and its task runs again.
The file is locked: only one batch at a time writes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, cast

from surehand.core.errors import SettingsError, StateError
from surehand.core.frozen import field, frozen
from surehand.core.record import Field
from surehand.core.settings import Mode, Table
from surehand.policy.rules import VERDICTS, RuleError, parse_rule

_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_REMOTE: Final = re.compile(r"https?://")
_ARCHIVES: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")


class CallSpec(Table):
    """One call of a task that names its calls instead of a prompt."""

    tool: str = Field(min_length=1)
    args: dict[str, Any] = Field(default_factory=dict)


class WorkspaceSpec(Table):
    """What a task works on: a folder, an archive, or a git repository (path or URL) at a revision."""

    path: str | None = None
    archive: str | None = None
    git: str | None = None
    revision: str | None = Field(default=None, description="A commit, branch or tag; needs a git repository.")
    isolation: Literal["auto", "worktree", "copy"] = Field(
        default="auto", description="A git worktree where the folder is a clean repository, otherwise a copy."
    )


class LimitsSpec(Table):
    """Limits of a task's conversation; unset ones come from the settings."""

    turns: int | None = Field(default=None, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    seconds: float | None = Field(default=None, gt=0)
    cost: float | None = Field(default=None, gt=0)


class Task(Table):
    """One task: what is to be done, where, with which model, limits and rules, and how its outcome is checked."""

    id: str = ""
    prompt: str | None = None
    calls: tuple[CallSpec, ...] = ()
    workspace: str | WorkspaceSpec | None = Field(default=None, description="The batch's own folder when not set.")
    profile: str | None = None
    model: str | None = None
    limits: LimitsSpec = Field(default_factory=LimitsSpec)
    rules: tuple[str, ...] = Field(default=(), description='"allow RULE", "ask RULE" or "deny RULE".')
    mode: Mode | None = None
    check: str | None = Field(default=None, description="A command that exits with 0 if the task was done right.")
    timeout: float | None = Field(default=None, gt=0, description="Timeout of the task in seconds, its check included.")

    @property
    def digest(self) -> str:
        """A digest of the whole task: a result belongs to the task with the same digest."""
        text = json.dumps(self.to_dict(), sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def source(self) -> WorkspaceSpec:
        """The workspace in its long form; path `.`, the batch's own folder, if none is given."""
        if isinstance(self.workspace, WorkspaceSpec):
            return self.workspace
        text = self.workspace or "."
        if _REMOTE.match(text):
            return WorkspaceSpec(git=text)
        if text.endswith(_ARCHIVES):
            return WorkspaceSpec(archive=text)
        return WorkspaceSpec(path=text)

    def rules_of(self, verdict: str) -> tuple[str, ...]:
        """Return the rules with this verdict, without the verdict itself."""
        return tuple(rule.partition(" ")[2].strip() for rule in self.rules if rule.partition(" ")[0] == verdict)

    def find_faults(self) -> Iterator[str]:
        """Yield faults that types cannot express."""
        if self.id and not _ID.fullmatch(self.id):
            yield f"id {self.id!r} must be letters, digits, '.', '_' and '-', at most 100"
        if (self.prompt is None) == (not self.calls):
            yield "give either a prompt or calls"
        if self.prompt is not None and not self.prompt.strip():
            yield "prompt is empty"
        if self.check is not None and not self.check.strip():
            yield "check is empty"
        for rule in self.rules:
            verdict, _, text = rule.partition(" ")
            if verdict not in VERDICTS or not text.strip():
                yield f"rule {rule!r} must begin with allow, ask or deny"
                continue
            try:
                parse_rule(verdict, text)
            except RuleError as problem:
                yield str(problem)
        source = self.source
        if sum(each is not None for each in (source.path, source.archive, source.git)) != 1:
            yield "workspace: give exactly one of path, archive and git"
        if source.revision is not None and source.archive is not None:
            yield "workspace: an archive has no revision"
        if source.revision is not None and source.revision.startswith("-"):
            yield f"workspace: {source.revision!r} is not a revision"
        if source.git is not None and "://" in source.git and not _REMOTE.match(source.git):
            yield f"workspace: {source.git}: only paths and http(s) addresses can be cloned"


def read_tasks(path: str) -> list[Task]:
    """Return the tasks of a JSON-lines file; raise SettingsError that names every wrong line (the first ten)."""
    try:
        with open(path, encoding="utf-8-sig") as file:  # some editors write a byte order mark
            lines = file.read().split("\n")
    except OSError as problem:
        raise SettingsError(
            f"{path} cannot be read: {problem.strerror}; `surehand help batch` shows what it holds"
        ) from None
    except UnicodeDecodeError as problem:
        raise SettingsError(f"{path} is not UTF-8 text (byte {problem.start})") from None
    rows: list[tuple[str, Any]] = []
    faults: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append((f"{os.path.basename(path)}:{number}", json.loads(line)))
        except (ValueError, RecursionError) as problem:
            faults.append(f"{os.path.basename(path)}:{number}: not JSON: {problem}")
    return _parse_tasks(rows, faults)


def make_tasks(given: Iterable[Task | Mapping[str, Any] | str]) -> list[Task]:
    """Build tasks from Task objects, mappings or bare prompts; raise SettingsError for invalid ones."""
    rows = [({"prompt": each} if isinstance(each, str) else each) for each in given]
    return _parse_tasks([(f"task {number}", row) for number, row in enumerate(rows, 1)], [])


def _parse_tasks(rows: Sequence[tuple[str, Any]], faults: list[str]) -> list[Task]:
    """Parse and check tasks. One without an id is named by its position; ids must be unique."""
    tasks: list[Task] = []
    taken: dict[str, str] = {}
    for number, (where, row) in enumerate(rows, 1):
        try:
            task = row if isinstance(row, Task) else _parse(row)
        except SettingsError as problem:
            faults.append(f"{where}: {problem}")
            continue
        task = task if task.id else task.replace_values(id=f"task-{number:04}")
        faults += [f"{where}: {fault}" for fault in task.find_faults()]
        if task.id in taken:
            faults.append(f"{where}: the id {task.id} is taken by {taken[task.id]}")
        taken[task.id] = where
        tasks.append(task)
    if faults:
        more = f"\n... and {len(faults) - 10} more" if len(faults) > 10 else ""
        raise SettingsError("\n".join(faults[:10]) + more)
    return tasks


def _parse(row: Any) -> Task:
    if not isinstance(row, Mapping):
        raise SettingsError("a task is a JSON object")
    return Task.parse(cast("Mapping[str, Any]", row))


Status = Literal["passed", "failed", "error", "timeout"]
"""`failed`: the work or its check did not succeed. `error`: the task could not be run as it should."""
STATUSES: Final[tuple[Status, ...]] = ("passed", "failed", "error", "timeout")


@frozen(kw_only=True)
class TaskResult:
    """The result of one task."""

    id: str
    task: str
    """The digest of the task as it was given."""
    status: Status
    answer: str = ""
    diff: str = ""
    """What it changed, as a patch in git's format."""
    files: tuple[Mapping[str, str], ...] = ()
    calls: tuple[Mapping[str, Any], ...] = ()
    turns: int = 0
    usage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cost: float | None = None
    seconds: float = 0.0
    attempts: int = 1
    check: Mapping[str, Any] | None = None
    stop: str = ""
    error: Mapping[str, str] | None = None
    model: str = ""
    workspace: str = ""
    """Path of the workspace, if it was kept."""
    node: str = ""
    """Which node of a cluster it ran on."""

    @property
    def ok(self) -> bool:
        """Whether the task was done, and passed its check where it has one."""
        return self.status == "passed"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-compatible data."""
        return {name: getattr(self, name) for name in _NAMES}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TaskResult:
        """Build a TaskResult from the output of to_dict; raise StateError if it is not one."""
        if not isinstance(data.get("id"), str) or data.get("status") not in STATUSES:
            raise StateError("this is not a result of a batch")
        return cls(**{name: data[name] for name in _NAMES if name in data})


_NAMES: Final = (
    "id", "task", "status", "answer", "diff", "files", "calls", "turns", "usage", "cost", "seconds", "attempts",
    "check", "stop", "error", "model", "workspace", "node",
)  # fmt: skip
_BEGINNING: Final = b'{"id": '


def read_results(path: str) -> list[TaskResult]:
    """Return the results in a file; a last line that was not finished is left out."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as problem:
        raise StateError(f"{path} cannot be read: {problem.strerror}") from None
    return [result for result, _ in _parse_results(path, data)[0]]


def _parse_results(path: str, data: bytes) -> tuple[list[tuple[TaskResult, int]], int]:
    """Return each result with the offset after its line, and the offset after the last complete line."""
    found: list[tuple[TaskResult, int]] = []
    at = number = 0
    while at < len(data):
        number += 1
        end = data.find(b"\n", at) + 1
        line = data[at : end or len(data)]
        try:
            if not end:
                raise ValueError
            row: Any = json.loads(line)
            found.append((TaskResult.from_dict(cast("Mapping[str, Any]", row)), end))
        except (ValueError, AttributeError, RecursionError, StateError):
            if _is_torn(data[at:]):
                return found, at
            raise StateError(f"{path}:{number} is not a result of a batch") from None
        at = end
    return found, at


def _is_torn(tail: bytes) -> bool:
    """True if this is what a crash leaves of a result: its beginning, or blocks that never reached the disk.

    Anything else was written by another program and must not be removed.
    """
    written = tail.rstrip(b"\n").rstrip(b"\0")
    begins_as_ours = written.startswith(_BEGINNING) or _BEGINNING.startswith(written)
    return begins_as_ours and (b"\0" in tail or b"\n" not in tail)


class ResultsFile:
    """A results file, locked for this batch until it is closed."""

    def __init__(self, path: str, *, resume: bool) -> None:
        self.path = os.path.abspath(path)
        self._open()
        try:
            self.done = self._recover(resume)
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise StateError(f"{self.path} cannot be written: {problem.strerror}") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise StateError(f"another batch is writing {self.path}") from None
        folder = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # the name, too, must survive a power cut
        finally:
            os.close(folder)

    def _recover(self, resume: bool) -> dict[str, TaskResult]:
        """Return the results in the file, after removing a line that a crash left half-written."""
        with open(self.path, "rb") as file:
            data = file.read()
        if data and not resume:
            raise StateError(f"{self.path} already has results; continue with --resume, or name another file")
        rows, self._size = _parse_results(self.path, data)
        if self._size < len(data):
            os.ftruncate(self._descriptor, self._size)
            os.fsync(self._descriptor)
        done = {result.id: result for result, _ in rows}
        if len(done) < len(rows):
            raise StateError(f"{self.path} has two results of one task; it was not written by one batch")
        return done

    def find_open(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks without a result; raise StateError if a task was changed since its result was written."""
        for task in tasks:
            known = self.done.get(task.id)
            if known is not None and known.task != task.digest:
                raise StateError(
                    f"the task {task.id} is not the one whose result is in {self.path}: it was changed since"
                )
        return [task for task in tasks if task.id not in self.done]

    def append(self, result: TaskResult) -> None:
        """Append a result and flush it to the disk; on failure nothing of it stays in the file."""
        line = json.dumps(result.to_dict(), default=str).encode() + b"\n"
        if result.id in self.done:
            raise StateError(f"the task {result.id} already has a result")
        try:
            at = 0
            while at < len(line):
                at += os.write(self._descriptor, line[at:])
            os.fsync(self._descriptor)
        except OSError as problem:
            os.ftruncate(self._descriptor, self._size)
            raise StateError(f"{self.path} cannot be written: {problem.strerror}") from None
        self._size += len(line)
        self.done[result.id] = result

    def close(self) -> None:
        """Release the lock and close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def summarize(results: Iterable[TaskResult]) -> dict[str, Any]:
    """Return how many passed and failed, and how time, tokens and cost are distributed."""
    rows = list(results)
    tokens = [sum(value for value in each.usage.values() if isinstance(value, int)) for each in rows]
    costs = [each.cost for each in rows if each.cost is not None]
    return {
        "tasks": len(rows),
        **{status: sum(each.status == status for each in rows) for status in STATUSES},
        "retried": sum(each.attempts > 1 for each in rows),
        "calls": sum(len(each.calls) for each in rows),
        "seconds": _distribution([each.seconds for each in rows]),
        "tokens": _distribution(tokens),
        "cost": _distribution(costs) if costs else None,
    }


def _distribution(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return dict.fromkeys(("total", "min", "median", "p95", "max"), 0.0)
    ranked = sorted(values)

    def at(share: float) -> float:
        return round(ranked[min(len(ranked) - 1, int(share * len(ranked)))], 6)

    return {"total": round(sum(ranked), 6), "min": at(0), "median": at(0.5), "p95": at(0.95), "max": at(1)}
