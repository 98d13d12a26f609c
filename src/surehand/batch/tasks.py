"""The tasks of a batch: one JSON object a line, checked whole before anything runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, cast

from surehand.core.errors import SettingsError
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
        """What it works on, in the long form; a path of `.` for the batch's own folder."""
        if isinstance(self.workspace, WorkspaceSpec):
            return self.workspace
        text = self.workspace or "."
        if _REMOTE.match(text):
            return WorkspaceSpec(git=text)
        if text.endswith(_ARCHIVES):
            return WorkspaceSpec(archive=text)
        return WorkspaceSpec(path=text)

    def rules_of(self, verdict: str) -> tuple[str, ...]:
        """Return the rules of one verdict, without that word."""
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
    return _check_ids(rows, faults)


def make_tasks(given: Iterable[Task | Mapping[str, Any] | str]) -> list[Task]:
    """Return tasks of a program: tasks, plain data, or prompts alone."""
    rows = [({"prompt": each} if isinstance(each, str) else each) for each in given]
    return _check_ids([(f"task {number}", row) for number, row in enumerate(rows, 1)], [])


def _check_ids(rows: Sequence[tuple[str, Any]], faults: list[str]) -> list[Task]:
    """Return tasks with ids, each once; a task without one is named by its place."""
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
