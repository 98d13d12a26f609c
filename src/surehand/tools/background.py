"""Commands in the background: started by `Bash`, watched with TaskOutput and TaskList, ended with TaskStop.

They belong to the session. When it closes, or the process dies, so do they.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

from surehand.commands.collect_changes import ChangeCollector
from surehand.commands.output import (
    Stream,
    binary_kind,
    decode_output,
    mark_stderr,
    stray_note,
    whole_characters,
)
from surehand.commands.session import SHELLS
from surehand.core.call import ToolResult
from surehand.core.errors import ToolFailure
from surehand.core.session import Kept
from surehand.core.tasks import Status as BoardStatus
from surehand.core.text import STDERR_LIMIT, STDOUT_LIMIT
from surehand.sandbox.command import Ended
from surehand.sandbox.protocol import Run
from surehand.tools.bash_call import BashArgs, change_log_of, command_of, describe, why_unrecorded
from surehand.tools.tasks import BOARD

if TYPE_CHECKING:
    from surehand.core.context import ToolContext
    from surehand.core.session import Session
    from surehand.history.command_changes import Recorded
    from surehand.sandbox.profile import SandboxProfile

Status = Literal["running", "done", "failed", "cancelled", "timeout"]
_ON_THE_BOARD: Final[dict[Status, BoardStatus]] = {
    "running": "in_progress",
    "done": "done",
    "failed": "failed",
    "cancelled": "cancelled",
    "timeout": "failed",
}
KEPT_TASKS: Final = 100
"""Ended tasks that are kept; older ones are forgotten."""


class BackgroundTask:
    """One command in the background."""

    def __init__(self, id: str, command: str, description: str, call_id: str) -> None:
        self.id = id
        self.call_id = call_id
        self.command = command
        self.description = description
        self.started = self.last_activity = time.time()
        self.stdout: Stream
        self.stderr: Stream
        self.run: Run
        self.recorded: Recorded | None = None
        self.unrecorded = ""
        """Why its changes are not recorded; empty if they are."""
        self.waiting: asyncio.Task[Ended]
        self._seen = [0, 0]

    @property
    def status(self) -> Status:
        """The state of the command."""
        ended = self.run.ended
        if ended is None:
            return "running"
        if ended.stopped == "timeout":
            return "timeout"
        if ended.stopped:
            return "cancelled" if self.run.stopped else "failed"
        return "done" if ended.exit_code == 0 else "failed"

    @property
    def state(self) -> BoardStatus:
        """The state of the command as the session's task board names it."""
        return _ON_THE_BOARD[self.status]

    def make_feed(self, stream: Stream) -> Callable[[bytes], None]:
        """Return a feed for one of its streams that also notes the time."""

        def feed(data: bytes) -> None:
            self.last_activity = time.time()
            stream.feed(data)

        return feed

    def output(self) -> str:
        """Return what was printed since the last call, as one text."""
        stdout, stderr = self.news()
        return "\n".join(part for part in (stdout.rstrip("\n"), mark_stderr(stderr)) if part)

    def show_output(self) -> str:
        """Return what was printed and is still in memory, as one text."""
        stdout, stderr = (_text(*stream.since(0)) for stream in (self.stdout, self.stderr))
        return "\n".join(part for part in (stdout.rstrip("\n"), mark_stderr(stderr)) if part)

    async def stop(self) -> None:
        """End the command and all its processes, and wait for that."""
        self.run.stop("cancelled")
        await asyncio.shield(self.waiting)

    def news(self) -> tuple[str, str]:
        """Return what was printed on stdout and stderr since the last call."""
        texts: list[str] = []
        for number, stream in enumerate((self.stdout, self.stderr)):
            data, lost = stream.since(self._seen[number])
            if stream.total == self._seen[number] + lost + len(data) and self.status == "running":
                data = data[: whole_characters(data)]
            self._seen[number] += lost + len(data)
            texts.append(_text(data, lost))
        return texts[0], texts[1]

    def facts(self) -> dict[str, Any]:
        """Return it as plain data."""
        ended = self.run.ended
        shown: dict[str, Any] = {
            "task_id": self.id,
            "call_id": self.call_id,
            "kind": "bash",
            "command": self.command,
            "description": self.description,
            "status": self.status,
            "started": self.started,
            "last_activity": self.last_activity,
            "exit_code": None if ended is None or ended.stopped else ended.exit_code,
            "wall_s": round(ended.wall_s if ended else time.time() - self.started, 3),
        }
        if self.unrecorded:
            shown["unrecorded"] = self.unrecorded
        if self.run.waiting:
            shown["waiting_for_input"] = self.run.waiting
        if ended is not None:
            shown["usage"] = ended.usage()
            if self.recorded is not None and self.recorded.change_id:
                shown["change_id"] = self.recorded.change_id
                shown["changes"] = self.recorded.to_dict()
            if self.recorded is not None and self.recorded.put_back:
                shown["put_back"] = list(self.recorded.put_back)
            if ended.stopped:
                shown["reason"] = ended.stopped
        for name, stream in (("output_file", self.stdout), ("stderr_file", self.stderr)):
            if stream.file:
                shown[name] = stream.file
        return shown


class BackgroundTasks:
    """The background commands of one session: `get`, `all`, `cancel`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tasks: dict[str, BackgroundTask] = {}
        self._count = 0

    def all(self) -> list[BackgroundTask]:
        """Return every background command."""
        return list(self._tasks.values())

    def get(self, id: str) -> BackgroundTask:
        """Return a task; raise ToolFailure, naming those there are, when there is no such one."""
        if task := self._tasks.get(id):
            return task
        known = ", ".join(self._tasks) or "none"
        raise ToolFailure(f"there is no background task {id}", hint=f"Background tasks of this session: {known}.")

    async def start(self, args: BashArgs, ctx: ToolContext) -> BackgroundTask:
        """Start a command and return at once."""
        shells = self._session.keep(SHELLS)
        shells.check_directory(ctx.cwd)
        launcher = await shells.launcher()
        self._count += 1
        task = BackgroundTask(f"bg_task_{self._count}", args.command, args.description, ctx.call.id)
        name = f"{self._session.id}-{task.id}"
        task.stdout = Stream(STDOUT_LIMIT, lambda: shells.output_file(f"{name}.out"))
        task.stderr = Stream(STDERR_LIMIT, lambda: shells.output_file(f"{name}.err"))
        change_log = change_log_of(args, ctx, shells, launcher)
        task.unrecorded = why_unrecorded(args, ctx, launcher)
        command = command_of(args.command, ctx, shells)
        task.run = launcher.run(
            command, task.make_feed(task.stdout), task.make_feed(task.stderr), change_log=change_log
        )
        task.waiting = asyncio.get_running_loop().create_task(self._wait(task, args, ctx, launcher.profile, change_log))
        self._tasks[task.id] = task
        self._session.keep(BOARD).join(task.id, args.description or args.command, "command", task)
        self._forget_old()
        return task

    async def _wait(
        self, task: BackgroundTask, args: BashArgs, ctx: ToolContext, profile: SandboxProfile, change_log: str | None
    ) -> Ended:
        collector = ChangeCollector("Bash", describe(args), profile, profile.already_there(), change_log)
        try:
            return await task.run.finish(args.timeout / 1000)
        finally:
            task.stdout.close()
            task.stderr.close()
            task.recorded = await collector.collect(ctx, task.run.ended)
            if (board := self._session.peek(BOARD)) is not None:
                board.refresh(task.id)

    def _forget_old(self) -> None:
        over = len(self._tasks) - KEPT_TASKS
        for id in [id for id, task in self._tasks.items() if task.run.ended][: max(over, 0)]:
            del self._tasks[id]
            self._session.keep(BOARD).leave(id)

    async def cancel(self, id: str) -> BackgroundTask:
        """End a task and all its processes, and wait for that."""
        task = self.get(id)
        await task.stop()
        return task

    async def close(self) -> None:
        """End every task."""
        running = [task for task in self._tasks.values() if task.run.ended is None]
        for task in running:
            task.run.stop("the session was closed", 0.5)
        await asyncio.gather(*(task.waiting for task in running), return_exceptions=True)


BACKGROUND: Final[Kept[BackgroundTasks]] = Kept("background", make=BackgroundTasks, close=BackgroundTasks.close)


def _text(data: bytes, lost: int) -> str:
    """Decode output, with a note on bytes that are missing before it."""
    note = f"[{lost:,} bytes left out here]\n" if lost else ""
    kind = binary_kind(data[:512], whole=False)
    if kind:
        return f"{note}[{kind}, {len(data):,} bytes: not shown]"
    text, stray = decode_output(data, begins=not lost)
    return note + text + (f"\n{stray_note(stray)}" if stray else "")


async def start(args: BashArgs, ctx: ToolContext) -> ToolResult:
    """Start a command for `Bash`; return its id."""
    ctx.session.keep(SHELLS)  # kept first, so that it is closed after the tasks that run in it
    task = await ctx.session.keep(BACKGROUND).start(args, ctx)
    which = f'{{"id": "{task.id}"}}'
    text = f"{task.id} runs in the background. TaskOutput {which} shows what it prints, TaskStop {which} ends it."
    if task.unrecorded:
        text += f" What it changes is not recorded and cannot be undone: {task.unrecorded}."
    return ToolResult(data={"task_id": task.id, "status": task.status}, output=text)
