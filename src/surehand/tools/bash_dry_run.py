"""The dry run of `Bash`: the command runs on a copy of the workspace; its changes are then applied or discarded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from surehand.commands.dry_run import Applying, Scratch, never_ran, prepare_scratch, remember
from surehand.commands.dry_run_copies import Difference, render
from surehand.commands.output import mark_stderr
from surehand.commands.session import SHELLS, Shells
from surehand.core.call import ToolResult, new_id
from surehand.core.errors import ToolFailure
from surehand.core.tool import Preview
from surehand.files.protected_paths import inside
from surehand.git.protected_files import is_hook
from surehand.history.history import HISTORY
from surehand.history.words import Author
from surehand.sandbox.command import Ended
from surehand.tools.bash_call import BashArgs, Call, Outcome, Printed, command_of, result, time_s, understand_call

if TYPE_CHECKING:
    from surehand.core.context import ToolContext
    from surehand.history.command_changes import Recorded

_BESIDE = (
    "The copy is beside the workspace here: what the command names by a full path in {workspace} is the workspace "
    "itself, which it cannot change. Name files from the working directory, or run it for real."
)


async def dry_run_command(args: BashArgs, ctx: ToolContext) -> Preview:
    """Run a command on a copy; return its output and the diff of what it would change, with a `dry_run` to apply."""
    shells = ctx.session.keep(SHELLS)
    shells.check_directory(ctx.cwd)
    printed = Printed.of(ctx, shells, understand_call(args, ctx))
    try:
        scratch, ended = await _run_on_copy(args, ctx, shells, printed)
    finally:
        printed.close()
    dry_run = BashDryRun(args, ctx, scratch, printed, ended)
    try:
        await asyncio.to_thread(dry_run.look)
        return dry_run.preview()
    except BaseException:
        await asyncio.shield(dry_run.discard())
        raise


async def _run_on_copy(args: BashArgs, ctx: ToolContext, shells: Shells, printed: Printed) -> tuple[Scratch, Ended]:
    """Run the command on the best kind of copy; if an overlay could not be mounted, on the next best."""
    command = command_of(args.command, ctx, shells)
    while True:
        scratch = await prepare_scratch(shells, new_id("dry_run"))
        try:
            ended = await scratch.run(command, printed.stdout.feed, printed.stderr.feed, time_s(args, ctx))
            if not (why := never_ran(ended)):
                return scratch, ended
        except BaseException:
            await asyncio.shield(scratch.discard())
            raise
        await scratch.discard()
        if scratch.kind != "layer":
            raise ToolFailure(f"a dry run is not possible here: {why}", code="tool_unavailable")
        shells.no_layers = why


class BashDryRun:
    """A command that ran on a copy, to be applied or discarded."""

    def __init__(self, args: BashArgs, ctx: ToolContext, scratch: Scratch, printed: Printed, ended: Ended) -> None:
        self.id = scratch.copy.folder.rpartition("/")[2]
        self._args = args
        self._ctx = ctx
        self._scratch = scratch
        self._printed = printed
        self._ended = ended
        self._found: list[Difference] = []
        self._diff = ""
        self._changes: list[dict[str, object]] = []
        self._remembered: dict[str, bytes] = {}
        self._turn = asyncio.Lock()
        self._over = False

    def look(self) -> None:
        """Find what the command changed; raise ToolFailure if that cannot be read."""
        try:
            self._found = self._scratch.copy.differences()
        except OSError as problem:
            where = problem.filename or "the copy"
            raise ToolFailure(f"what the dry run changed cannot be read: {where}: {problem.strerror}") from problem
        self._diff = render(self._found)
        self._changes = [each.to_dict() for each in self._found]
        self._remembered = remember(self._found)

    def preview(self) -> Preview:
        """Return what a person is shown."""
        stdout, stderr = self._printed.stdout.show(), self._printed.stderr.show()
        ended, notes = self._ended, self._notes(stderr.text)
        code = f"it ended early: {ended.stopped}" if ended.stopped else f"exit code {ended.exit_code}"
        head = f"Dry run on a copy of the workspace, without network: {code}; {_count_changes(self._changes)}."
        body = (stdout.text.rstrip("\n"), mark_stderr(stderr.text), *(f"[{note}]" for note in notes))
        text = "\n".join(part for part in (head, *body) if part)
        data: dict[str, Any] = {
            "exit_code": ended.exit_code,
            "stdout": stdout.text,
            "stderr": stderr.text,
            "changes": self._changes,
            "diff": self._diff,
            "usage": ended.usage(),
            "dry_run": {"id": self.id, "on": self._scratch.kind},
        }
        if ended.stopped:
            data["stopped"] = ended.stopped
        if notes:
            data["notes"] = notes
        applicable = None if self._args.run_in_background else self
        return Preview(text, f"{text}\n{self._diff}" if self._diff else text, data, applicable)

    def _notes(self, stderr: str) -> list[str]:
        notes: list[str] = []
        workspace = self._scratch.copy.workspace
        if back := self._scratch.put_back:
            notes.append(f"it reached the workspace itself by a full path; put back as it was: {', '.join(back[:10])}")
        if self._scratch.beside and self._ended.exit_code and workspace in stderr + self._args.command:
            notes.append(_BESIDE.format(workspace=workspace))
        return notes

    async def apply(self) -> ToolResult:
        """Apply exactly the changes that were shown; the command does not run again."""
        async with self._turn:
            if self._over:
                raise ToolFailure("the dry run is over; nothing was changed", code="precondition_failed")
            self._over = True
            work = asyncio.ensure_future(asyncio.to_thread(self._apply))
            try:
                recorded = await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait({work})  # all or nothing: it is not interrupted
                raise
        return self._result(recorded)

    def _apply(self) -> Recorded | None:
        if not self._found:
            return None
        session, profile = self._ctx.session, self._scratch.launcher.profile
        kept = session.keeps_as_is
        protected = (*profile.read_only, *profile.forbidden)
        applying = Applying(
            self._found,
            self._remembered,
            roots=self._scratch.copy.roots,
            recorded=profile.roots,
            forbidden=lambda path: inside(path, protected) or is_hook(path) or (kept is not None and kept(path)),
        )
        who = Author.of(self._ctx, "Bash", self._args.description or self._args.command[:200])
        return applying.apply(session.keep(HISTORY), who)

    def _result(self, recorded: Recorded | None) -> ToolResult:
        call = Call(understand_call(self._args, self._ctx), self._scratch.launcher, time_s(self._args, self._ctx))
        note = f"applied from a dry run, {_count_changes(self._changes, 'changed')}; the command did not run again"
        done = result(self._ctx, call, self._printed, Outcome(self._ended, note), recorded)
        data = {**done.data, "diff": self._diff, "applied_from_dry_run": self.id}
        return ToolResult(done.ok, data, done.output, done.content, done.error, done.undo, done.meta).with_meta(
            applied_from_dry_run=self.id
        )

    async def discard(self) -> None:
        """Delete the copy. Idempotent, and allowed after `apply`."""
        async with self._turn:
            self._over = True
            await self._scratch.discard()


def _count_changes(changes: list[dict[str, object]], verb: str = "would change") -> str:
    if not changes:
        return f"no file {verb}"
    return f"one path {verb}" if len(changes) == 1 else f"{len(changes)} paths {verb}"
