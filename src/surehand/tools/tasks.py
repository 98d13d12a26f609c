"""`TaskCreate`, `TaskList`, `TaskUpdate`, and `TaskOutput` and `TaskStop` for running tasks: one board for all of them.

In memory; saved for later sessions if `[toolset] keep_tasks` is set.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

from surehand.core.call import ToolResult
from surehand.core.errors import ToolFailure
from surehand.core.record import Args, Field, hide_default
from surehand.core.session import Kept
from surehand.core.tasks import STATUSES, Status, Task, TaskBoard, task_from_dict
from surehand.core.tool import Tool
from surehand.state.files import write_private_json
from surehand.tools import list_schema, object_schema

if TYPE_CHECKING:
    from surehand.core.context import ToolContext
    from surehand.core.effects import Effect
    from surehand.core.session import Session


def _board(session: Session) -> TaskBoard:
    kept = session.settings.toolset.keep_tasks and session.state_dir is not None
    path = os.path.join(session.state_dir or "", "tasks.json")

    def note_change(task: Task) -> None:
        session.emit("task_changed", task_id=task.id, status=task.status, task=task.to_dict())
        if kept:
            _save(board, path)

    board = TaskBoard(note_change)
    for before in session.tasks_before.values():
        with suppress(ValueError, TypeError):
            board.restore(task_from_dict(before))
    if kept:
        _load(board, path)
    _root(session).keep(_BOARDS)[session] = board
    return board


BOARD: Final[Kept[TaskBoard]] = Kept("tasks", make=_board)


def _serve_boards(root: Session) -> dict[Session, TaskBoard]:
    """Let other processes list the tasks of a session and its sub-agents, read their output and stop them."""
    boards: dict[Session, TaskBoard] = {}

    async def show(request: Mapping[str, Any]) -> dict[str, Any]:
        del request
        return {"session_id": root.id, "tasks": [row for session in list(boards) for row in _rows(session, boards)]}

    async def order(request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            board = next(board for session, board in boards.items() if session.id == request.get("session_id"))
            running = board.running(str(request.get("id")))
            if request["want"] == "stop":
                await running.stop()
            return {"task": board.get(str(request["id"])).to_dict(), "output": running.show_output()}
        except StopIteration:
            return {"error": f"there are no tasks of {request.get('session_id')}", "hint": ""}
        except ToolFailure as failure:
            return {"error": failure.message, "hint": failure.hint}

    root.requests |= {"board": show, "output": order, "stop": order}
    return boards


_BOARDS: Final[Kept[dict[Session, TaskBoard]]] = Kept("boards", make=_serve_boards)


def _rows(session: Session, boards: dict[Session, TaskBoard]) -> list[dict[str, Any]]:
    if session.closed:
        del boards[session]
        return []
    board, where = boards[session], {"session_id": session.id, "workspace": session.workspace}
    return [task.to_dict() | {"details": board.facts(task.id)} | where for task in board.all()]


def _root(session: Session) -> Session:
    while session.parent is not None:
        session = session.parent
    return session


def _save(board: TaskBoard, path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    write_private_json(path, [task.to_dict() for task in board.all()])


def _load(board: TaskBoard, path: str) -> None:
    try:
        with open(path, encoding="utf-8") as file:
            rows: Any = json.load(file)
        for row in rows:
            board.restore(task_from_dict(row))
    except FileNotFoundError:
        return
    except (ValueError, TypeError, AttributeError):
        os.replace(path, f"{path}.damaged")  # renamed for a person to inspect; the board starts empty


# Models use the argument names that similar tools of other programs have.
_ID_SYNONYMS: Final = {"task_id": "id", "taskId": "id", "bash_id": "id", "shell_id": "id"}


class CreateArgs(Args):
    """A to-do."""

    synonyms: ClassVar[Mapping[str, str]] = {"subject": "title", "content": "title"}
    title: str = Field(min_length=1, description="Task title")
    description: str = Field(default="", description="Task description", json_schema_extra=hide_default)


class NoArgs(Args):
    """No arguments."""


class UpdateArgs(Args):
    """A new status for a to-do."""

    synonyms: ClassVar[Mapping[str, str]] = _ID_SYNONYMS | {"state": "status"}
    value_synonyms: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "status": {"completed": "done", "complete": "done", "canceled": "cancelled", "todo": "pending"}
    }
    id: str = Field(description="Task ID")
    status: Status = Field(description="New status: pending/in_progress/done/failed/cancelled")


class WhichArgs(Args):
    """A running task."""

    synonyms: ClassVar[Mapping[str, str]] = _ID_SYNONYMS
    id: str = Field(description="Task ID, such as bg_task_1")


def _line(task: Task) -> str:
    kind = "" if task.kind == "todo" else f" ({task.kind})"
    return f"{task.id} [{task.status}]{kind} {task.title.splitlines()[0][:120]}"


async def _create(args: CreateArgs, ctx: ToolContext) -> ToolResult:
    task = ctx.session.keep(BOARD).create(args.title, args.description)
    return ToolResult(data=task.to_dict(), output=f"Created {_line(task)}")


async def _list(args: NoArgs, ctx: ToolContext) -> ToolResult:
    tasks = ctx.session.keep(BOARD).all()
    text = "\n".join(map(_line, tasks)) or "There are no tasks."
    return ToolResult(data={"tasks": [task.to_dict() for task in tasks]}, output=text)


async def _update(args: UpdateArgs, ctx: ToolContext) -> ToolResult:
    task = ctx.session.keep(BOARD).update(args.id, args.status)
    return ToolResult(data=task.to_dict(), output=f"Updated {_line(task)}")


async def _output(args: WhichArgs, ctx: ToolContext) -> ToolResult:
    board = ctx.session.keep(BOARD)
    await asyncio.sleep(0)  # let output arrive even if a caller polls in a loop
    running = board.running(args.id)
    text = running.output().rstrip("\n")
    task = board.get(args.id)
    facts = running.facts()
    data = task.to_dict() | {"output": text, "details": facts}
    return ToolResult(data=data, output=f"{text or '(nothing new)'}\n[{task.id}: {task.status}{_why(facts)}]")


def _why(facts: Mapping[str, Any]) -> str:
    """Return the reason or exit code of an ended task if it says more than the status."""
    if reason := facts.get("reason"):
        return f", {reason}" if reason != facts.get("status") or reason == "timeout" else ""
    return f", exit code {code}" if (code := facts.get("exit_code")) else ""


async def _stop(args: WhichArgs, ctx: ToolContext) -> ToolResult:
    board = ctx.session.keep(BOARD)
    running = board.running(args.id)
    already = " already" if board.get(args.id).status != "in_progress" else ""
    await running.stop()
    task = board.get(args.id)
    return ToolResult(data=task.to_dict(), output=f"{task.id} is{already} {task.status}.")


def _touches_nothing(args: Args, ctx: ToolContext) -> list[Effect]:
    return []


_TASK: Final = {"id": "string", "title": "string", "status": "string"}


def _tool(
    name: str, description: str, args: type[Args], run: Any, hint: str, answer: Mapping[str, Any] = _TASK, **more: Any
) -> Tool:
    return Tool(
        name=name,
        output_schema=object_schema(answer),
        description=description,
        args=args,
        run=run,
        search_hint=hint,
        concurrency_safe=True,
        requires_permission=False,
        effects=_touches_nothing,
        **more,
    )


TOOLS: Final[tuple[Tool, ...]] = (
    _tool("TaskCreate", "Adds a task to the session's task list.", CreateArgs, _create, "todo task create add plan"),
    _tool(
        "TaskList",
        "Lists all tasks: to-dos, background commands and agents.",
        NoArgs,
        _list,
        "todo task list background running agents",
        {"tasks": list_schema(object_schema(_TASK))},
        read_only=True,
    ),
    _tool(
        "TaskUpdate",
        f"Moves a to-do to another status ({', '.join(STATUSES)}).",
        UpdateArgs,
        _update,
        "todo task update status done",
    ),
    _tool(
        "TaskOutput",
        "Returns what a background command or agent has said since the last look, and its status.",
        WhichArgs,
        _output,
        "background output log status agent",
        {**_TASK, "output": "string"},
        read_only=True,
    ),
    _tool(
        "TaskStop",
        "Ends a background command or agent and everything it started.",
        WhichArgs,
        _stop,
        "background stop cancel kill agent",
        timeout_s=15,
    ),
)
