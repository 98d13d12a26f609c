"""Rewind: bring a session back to just before one of its turns; the files, the transcript, or both.

Each turn is a checkpoint, which is one line of the journal: it has the length of the transcript, and the history has
the turn of each change. Files are restored by a call of `Undo`, so that a rewind is judged and recorded, refused if
somebody has changed a file since, and can be undone. The journal has a record before it begins. If the process dies,
the history tells whether the files were restored: if so, the transcript is rewound too; if not, nothing has happened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, Protocol
from weakref import WeakSet

from surehand.agent.transcript import Transcript, read
from surehand.core.call import ToolError, ToolResult, new_id
from surehand.core.errors import ToolFailure
from surehand.core.session import Checkpoint, Kept, Session, name_problem
from surehand.core.tasks import Task, TaskBoard
from surehand.core.text import format_count
from surehand.history.history import HISTORY
from surehand.history.recovery import recover_interrupted

PROMPT_SHOWN: Final = 500
"""Characters of a checkpoint's prompt; all of it is in the transcript."""


class Conversation(Protocol):
    """A loop of the session, whose transcript must be replaced after a rewind."""

    @property
    def busy(self) -> bool:
        """Whether a turn is still running."""
        ...

    def restart(self, transcript: Transcript) -> None:
        """Continue from another transcript."""
        ...


class RewindJournal(Protocol):
    """The part of a session's journal, on disk or in memory, that a rewind uses."""

    def records(self) -> Iterable[Mapping[str, Any]]:
        """Return the journal's records, oldest first."""
        ...

    problem: str
    """Why it cannot be written; empty if it can."""

    def hold_alone(self) -> AbstractContextManager[bool]:
        """Lock the journal inside the block; False if another process has it."""
        ...

    def check_branch(self, name: str) -> None:
        """Raise ToolFailure if no session of that name can branch off."""
        ...

    def start_branch(self, name: str, turn: str) -> None:
        """Create another session's journal with what came before a turn."""
        ...

    def drop_branch(self, name: str) -> None:
        """Delete the journal of a branch."""
        ...


class SessionRewinder:
    """The checkpoints of a session, and rewinding to them."""

    def __init__(
        self,
        session: Session,
        *,
        call: Callable[..., Awaitable[ToolResult]],
        dry_run: Callable[..., Awaitable[ToolResult]],
        journal: RewindJournal,
        board: Kept[TaskBoard],
    ) -> None:
        self.session = session
        self.conversations: WeakSet[Conversation] = WeakSet()
        """Loops of the session, which have the transcript in memory."""
        self._call = call
        self._dry_run = dry_run
        self._journal = journal
        self._board = board

    def transcript(self) -> Transcript:
        """Return the conversation so far, after finishing a rewind that a dead process left unfinished."""
        found = read(self._journal.records())
        if not found.unfinished or self._journal.problem or any(each.busy for each in self.conversations):
            return found
        with self._journal.hold_alone() as alone:
            if not alone:  # another process may be rewinding
                return found
            for id, begun in found.unfinished.items():
                change_id = self._change_made_by(id) if begun.get("files") else ""
                self.session.emit("rewind_ended", id=id, ok=bool(change_id), change_id=change_id, recovered=True)
        return read(self._journal.records())

    def checkpoints(self) -> list[Checkpoint]:
        """Return the turns so far, oldest first."""
        return list(self.transcript().checkpoints)

    def changes(self, checkpoints: Sequence[Checkpoint]) -> dict[str, list[str]]:
        """Return the paths changed by each turn and not undone since, by turn."""
        found: dict[str, list[str]] = {each.turn: [] for each in checkpoints}
        for change in self.session.keep(HISTORY).standing(turns=list(found)):
            paths = found[change.turn]
            paths += [each.path for each in change.files if each.path not in paths]
        return found

    def _is_changed_by(self, turns: Sequence[Checkpoint]) -> bool:
        """Return whether any change of the turns is not undone, in files or elsewhere."""
        return bool(self.session.keep(HISTORY).standing(turns=[each.turn for each in turns]))

    async def rewind(
        self,
        to: int | str,
        *,
        files: bool = True,
        transcript: bool = True,
        force: bool = False,
        branch: str | None = None,
        dry_run: bool = False,
    ) -> ToolResult:
        """Bring files, transcript or both back to just before a turn, given by its number or id.

        With `branch` this conversation stays as it is, and a new session of that name continues from the turn.
        """
        try:
            return await self._rewind(
                to, files=files, transcript=transcript, force=force, branch=branch, dry_run=dry_run
            )
        except ToolFailure as failure:
            return ToolResult.failed(ToolError.of(failure))

    async def undo_rewind(self, *, force: bool = False) -> ToolResult:
        """Undo the latest rewind: restore its files and turns."""
        try:
            return await self._undo_rewind(force)
        except ToolFailure as failure:
            return ToolResult.failed(ToolError.of(failure))

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _rewind(
        self, to: int | str, files: bool, transcript: bool, force: bool, branch: str | None, dry_run: bool
    ) -> ToolResult:
        self._check_options(files, transcript, branch)
        turns = self._turns_from(to)
        truncates = transcript and branch is None
        would = _describe_plan(turns, files, transcript, branch)
        with self._journal.hold_alone() as alone:
            self._refuse_while_busy(truncates and not alone)
            running = [_name_task(each) for each in self._tasks_of(turns) if each.status == "in_progress"]
            by, preview = await self._plan_files(would, turns, files, force, running)
            if dry_run or not preview.ok:  # a conflict is reported before any task is stopped
                return preview
            self._refuse_unwritable()
            stopped = await self._stop_tasks(turns)
            if stopped:  # a command's changes are recorded when it ends
                by, _ = await self._plan_files(would, turns, files, force)
            order = {"action": "rewind", "to": turns[0].turn, "files": by is not None, "transcript": truncates}
            done = [_describe_rewind(turns, transcript, branch), *stopped]
            result = await self._carry_out(order, by, done, branch)
            return result if result.ok or not stopped else _add_hint(result, " ".join(stopped))

    async def _plan_files(
        self, would: str, turns: Sequence[Checkpoint], files: bool, force: bool, running: Sequence[str] = ()
    ) -> tuple[tuple[str, Mapping[str, Any]] | None, ToolResult]:
        """Return the call that restores the files, None if there is nothing to restore, and its preview."""
        if running:
            too = f" and takes back what {'it' if len(running) == 1 else 'they'} changed" if files else ""
            would += f" Stops {', '.join(running)}{too}."
        if not (files and self._is_changed_by(turns)):
            would += " No file changes." if files and not running else ""
            return None, await self._preview(would, turns, None)
        undo = {"turns": [each.turn for each in turns], "force": force}
        by = "Undo", undo
        preview = await self._preview(would, turns, by)
        if not force and not preview.ok:  # merge with later changes of the user, if possible
            by = "Undo", {**undo, "merge": True}
            preview = await self._preview(would, turns, by)
        return by, preview

    async def _undo_rewind(self, force: bool) -> ToolResult:
        self.session.refuse_if_closed()
        rewound = self.transcript().rewound
        if not rewound:
            raise ToolFailure(
                "there is no rewind to undo",
                code="precondition_failed",
                hint="Only the latest rewind can be undone, and only until the conversation continues.",
            )
        latest = rewound[-1]
        redo = {"change_id": latest.change_id, "force": force, "merge": not force}
        by = ("Redo", redo) if latest.change_id else None
        with self._journal.hold_alone() as alone:
            self._refuse_while_busy(not alone)
            self._refuse_unwritable()
            order = {"action": "restore", "of": latest.id, "files": by is not None, "transcript": True}
            turns = format_count(len(latest.checkpoints), "turn")
            return await self._carry_out(order, by, [f"Took the rewind back: the conversation has {turns} again."])

    def _refuse_unwritable(self) -> None:
        """Raise ToolFailure if the journal cannot be written: the transcript could not be rewound."""
        if self._journal.problem:
            hint = "Nothing was changed. Let the folder be written, or name another with SUREHAND_HOME."
            raise ToolFailure(self._journal.problem, code="precondition_failed", hint=hint)

    def _check_options(self, files: bool, transcript: bool, branch: str | None) -> None:
        """Raise ToolFailure for invalid options."""
        self.session.refuse_if_closed()
        if branch is not None and (problem := name_problem(branch)):
            raise ToolFailure(problem, code="invalid_args", hint="Choose another name.")
        if branch is not None:
            self._journal.check_branch(branch)
        if not (files or transcript or branch):
            raise ToolFailure("there is nothing to rewind", code="invalid_args", hint="Say files, transcript, or both.")

    def _turns_from(self, to: int | str) -> list[Checkpoint]:
        """Return a turn, by id or number, and all after it."""
        known = self.checkpoints()
        for position, each in enumerate(known):
            if to in (each.turn, each.number, str(each.number)):
                return known[position:]
        turns = f"1 to {len(known)}" if known else "none yet"
        raise ToolFailure(f"there is no turn {to}", code="precondition_failed", hint=f"The turns are {turns}.")

    def _refuse_while_busy(self, shared: bool) -> None:
        """Raise ToolFailure while a turn runs here, or if another process has the session open."""
        if any(each.busy for each in self.conversations):
            raise ToolFailure("a turn is still running", code="precondition_failed", hint="Stop it first, then rewind.")
        if shared:
            raise ToolFailure(
                f"session {self.session.name or self.session.id} is open in another process, which would not notice",
                code="precondition_failed",
                hint="Rewind it there (`/rewind` in a chat), close it first, or rewind the files alone.",
            )

    async def _preview(
        self, would: str, turns: Sequence[Checkpoint], by: tuple[str, Mapping[str, Any]] | None
    ) -> ToolResult:
        shown = ToolResult(data={"diff": ""}) if by is None else await self._dry_run(*by)
        if not shown.ok:
            return shown
        found: Mapping[str, Any] = shown.data
        diff = str(found.get("diff", ""))
        data = {"turns": [each.to_dict() for each in turns], "diff": diff, "paths": found.get("paths", [])}
        return ToolResult(data=data, output=f"{would}\n{diff}" if diff else would)

    async def _carry_out(
        self,
        order: Mapping[str, Any],
        by: tuple[str, Mapping[str, Any]] | None,
        said: list[str],
        branch: str | None = None,
    ) -> ToolResult:
        """Record the beginning, restore the files, and record the end, from which the transcript is derived."""
        id = new_id("rewind")
        if branch is not None:
            self._journal.start_branch(branch, order["to"])
        self.session.emit("rewind_started", id=id, **order)
        result = ToolResult()
        ended = False
        try:
            if by is not None:
                result = await self._call(by[0], by[1], id=id)
            ended = result.ok
        finally:
            # A cancelled call may have restored the files: the history tells.
            change_id = self._change_made_by(id) if by is not None else ""
            happened = ended or bool(change_id)
            self.session.emit("rewind_ended", id=id, ok=happened, change_id=change_id)
            if happened:
                for each in self.conversations:
                    each.restart(self.transcript())
            elif branch is not None:
                self._journal.drop_branch(branch)
        if not result.ok:
            return result
        lines = [*said, *([result.output] if result.output else [])]
        found: Mapping[str, Any] = result.data or {}
        data = {"rewind": id, "change_id": change_id, **order, "paths": found.get("paths", [])}
        return ToolResult(data=data, output="\n".join(lines), undo=result.undo)

    def _change_made_by(self, call_id: str) -> str:
        """Return the id of the change that a call made; empty if it made none."""
        history = self.session.keep(HISTORY)
        recover_interrupted(history)
        return next((each.id for each in history.changes(call_id=call_id)), "")

    async def _stop_tasks(self, turns: Sequence[Checkpoint]) -> list[str]:
        """Stop the running tasks of turns and remove their to-dos; return a line for each task stopped."""
        stopped: list[str] = []
        for task in self._tasks_of(turns):
            board = self.session.keep(self._board)
            if task.kind == "todo":
                board.leave(task.id)
            elif task.status == "in_progress":
                await board.running(task.id).stop()
                stopped.append(f"Stopped {_name_task(task)}.")
        return stopped

    def _tasks_of(self, turns: Sequence[Checkpoint]) -> list[Task]:
        """Return the tasks of turns that are still on the board."""
        board = self.session.peek(self._board)
        known = {task.id: task for task in board.all()} if board is not None else {}
        return [known[id] for turn in turns for id in turn.tasks if id in known]


def _name_task(task: Task) -> str:
    return f"{task.id} ({task.title})"


def _add_hint(result: ToolResult, said: str) -> ToolResult:
    """Return a failed result with a longer hint."""
    assert result.error is not None
    error = replace(result.error, hint=f"{result.error.hint} {said}".strip())
    return ToolResult.failed(error, data=result.data)


def _name_turns(turns: Sequence[Checkpoint]) -> str:
    first, last = turns[0].number, turns[-1].number
    return f"turn {first}" if first == last else f"turns {first} to {last}"


def _describe_plan(turns: Sequence[Checkpoint], files: bool, transcript: bool, branch: str | None) -> str:
    if branch is not None:
        then = ", with the files of then" if files else ""
        return f"Would go on from before turn {turns[0].number} as session {branch}{then}."
    both = "files and transcript" if files else "the transcript only"
    return f"Would rewind {_name_turns(turns)}, {both if transcript else 'files only'}."


def _describe_rewind(turns: Sequence[Checkpoint], transcript: bool, branch: str | None) -> str:
    if branch is not None:
        return f"Session {branch} goes on from before turn {turns[0].number}; this one keeps its transcript."
    what = "Rewound" if transcript else "Put back the files of"
    return f"{what} {_name_turns(turns)}."
