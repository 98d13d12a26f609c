"""Tasks: the board of a session, with to-dos, background commands and agents behind one interface.

A to-do changes when it is updated. A command or agent changes by itself, has output and can be stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import time
from typing import Any, Final, Literal, Protocol, cast

from surehand.core.errors import ToolFailure
from surehand.core.frozen import field, frozen, names_of

Status = Literal["pending", "in_progress", "done", "failed", "cancelled"]
Kind = Literal["todo", "command", "agent"]
MOVES: Final[Mapping[Status, tuple[Status, ...]]] = {
    "pending": ("in_progress", "cancelled"),
    "in_progress": ("done", "failed", "cancelled"),
    "done": (),
    "failed": (),
    "cancelled": (),
}
STATUSES: Final[tuple[Status, ...]] = tuple(MOVES)


@frozen
class Task:
    """One entry of the board."""

    id: str
    title: str
    description: str = ""
    status: Status = "pending"
    kind: Kind = "todo"
    created: float = field(default_factory=time)
    updated: float = field(default_factory=time)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {name: getattr(self, name) for name in names_of(self)}


class Running(Protocol):
    """What runs behind a task: a background command or an agent."""

    @property
    def state(self) -> Status:
        """The current status."""
        ...

    def output(self) -> str:
        """Return the output since the last call."""
        ...

    def show_output(self) -> str:
        """Return all output still in memory, for a viewer; does not affect `output`."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return further facts as plain data."""
        ...

    async def stop(self) -> None:
        """Stop it and everything it started, and wait for that."""
        ...


class TaskBoard:
    """All tasks of a session, in order of creation."""

    def __init__(self, on_change: Callable[[Task], None] | None = None) -> None:
        self._tasks: dict[str, Task] = {}
        self._running: dict[str, Running] = {}
        self._count = 0
        self._on_change = on_change

    def create(self, title: str, description: str = "") -> Task:
        """Add a to-do."""
        self._count += 1
        while f"task_{self._count}" in self._tasks:
            self._count += 1
        return self._add_task(Task(f"task_{self._count}", title, description))

    def join(self, id: str, title: str, kind: Kind, running: Running) -> Task:
        """Add something that runs."""
        self._running[id] = running
        return self._add_task(Task(id, title, status="in_progress", kind=kind))

    def restore(self, task: Task) -> None:
        """Restore a task of an earlier process; one that ran then counts as cancelled."""
        gone = task.kind != "todo" and task.status == "in_progress"
        self._tasks[task.id] = replace(task, status="cancelled") if gone else task

    def leave(self, id: str) -> None:
        """Forget a task; safe for one that is not there."""
        self._tasks.pop(id, None)
        self._running.pop(id, None)

    def all(self) -> list[Task]:
        """Return all tasks with their current status."""
        return [self._fresh(task) for task in list(self._tasks.values())]

    def facts(self, id: str) -> dict[str, Any] | None:
        """Return the facts of the command or agent of a task; None for a to-do, and for one of an earlier process."""
        running = self._running.get(id)
        return None if running is None else running.facts()

    def get(self, id: str) -> Task:
        """Return one task; raise ToolFailure, which lists the known ones."""
        if task := self._tasks.get(id):
            return self._fresh(task)
        known = ", ".join(self._tasks) or "none"
        raise ToolFailure(f"there is no task {id!r}", hint=f"Tasks of this session: {known}.")

    def running(self, id: str) -> Running:
        """Return the command or agent of a task; raise ToolFailure for a to-do."""
        task = self.get(id)
        if found := self._running.get(id):
            return found
        if task.kind != "todo":
            raise ToolFailure(f"{id} ran in an earlier process and is {task.status}", hint="Start it again if needed.")
        raise ToolFailure(f"{id} is a to-do; nothing runs behind it", hint=f"It is {task.status}; use TaskUpdate.")

    def update(self, id: str, status: Status) -> Task:
        """Change the status of a to-do; the error for an illegal transition lists the legal ones."""
        task = self.get(id)
        if id in self._running:
            raise ToolFailure(f"{id} runs by itself and cannot be set to {status}", hint="TaskStop ends it.")
        if status not in MOVES[task.status]:
            legal = " or ".join(MOVES[task.status]) or "nothing any more"
            raise ToolFailure(
                f"{id} is {task.status} and cannot become {status}",
                hint=f"From {task.status} it can become {legal}.",
                details={"from": task.status, "to": status, "legal": list(MOVES[task.status])},
            )
        return self._add_task(replace(task, status=status, updated=time()))

    def refresh(self, id: str) -> None:
        """Update a task's status from its command or agent, with an event if it changed; ignores unknown tasks."""
        if task := self._tasks.get(id):
            self._fresh(task)

    def _add_task(self, task: Task) -> Task:
        self._tasks[task.id] = task
        if self._on_change is not None:
            self._on_change(task)
        return task

    def _fresh(self, task: Task) -> Task:
        running = self._running.get(task.id)
        if running is None or running.state == task.status:
            return task
        return self._add_task(replace(task, status=running.state, updated=time()))


def task_from_dict(data: Mapping[str, Any]) -> Task:
    """Build a task from plain data; raise ValueError if it does not describe one."""
    texts = (data.get("id"), data.get("title"), data.get("description", ""))
    times = (data.get("created", 0.0), data.get("updated", 0.0))
    known = data.get("status") in STATUSES and data.get("kind", "todo") in ("todo", "command", "agent")
    if not known or not all(isinstance(text, str) for text in texts) or not all(isinstance(at, float) for at in times):
        raise ValueError("not a task")
    return Task(**{name: data[name] for name in names_of(Task) if name in cast("dict[str, Any]", data)})
