"""`ApplyPatch`: a patch in git's format applied to the workspace, whole or not at all, and undone like any edit.

No model is shown it: it brings home what a batch's task or a session elsewhere did (`app.apply_patch`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from surehand.core.call import ToolResult, Undo
from surehand.core.context import ToolContext
from surehand.core.effects import DeletePath, Effect, WritePath
from surehand.core.errors import StateError, ToolFailure
from surehand.core.frozen import frozen
from surehand.core.record import Args, Field
from surehand.core.session import digest_of
from surehand.core.text import format_count
from surehand.core.tool import Preview, Tool
from surehand.files.diff import one_line
from surehand.files.paths import is_beneath, open_folder
from surehand.history.disk import state_in
from surehand.history.history import HISTORY
from surehand.history.steps import Steps
from surehand.history.words import ABSENT, Author, FileChange, FileState
from surehand.tools.write_result import report_step
from surehand.workspaces.patch import FilePatch, parse_patch

_TIME_S: Final = 600.0
_NAMED: Final = 10


class ApplyPatchArgs(Args):
    """The patch to apply."""

    patch: str = Field(description="A patch in git's format, with full index lines, as batches and sessions make it")
    description: str = Field(default="", description="What it is, in a line, for the history")


@frozen
class _Planned:
    """What a patch would change in this workspace."""

    changes: tuple[FileChange, ...]
    contents: dict[str, bytes]
    conflicts: tuple[str, ...]


def _plan(args: ApplyPatchArgs, ctx: ToolContext) -> _Planned:
    """Plan the patch once per call, so that what is applied is what was judged and shown."""
    return ctx.once(f"plan of {digest_of(args.patch.encode('utf-8', 'surrogateescape'))}", lambda: _work_out(args, ctx))


def _work_out(args: ApplyPatchArgs, ctx: ToolContext) -> _Planned:
    changes: dict[str, FileChange] = {}
    contents: dict[str, bytes] = {}
    conflicts: list[str] = []
    for each in _parse(args.patch):
        path = os.path.join(ctx.session.workspace, each.path)
        known = changes.get(path)  # a file that becomes a link is deleted first, then created
        now, data = _look(path, ctx) if known is None else (known.after or ABSENT, None)
        try:
            after = _after(each, now, data)
        except StateError:
            conflicts.append(each.path)
            continue
        if after is not None:
            contents[digest_of(after)] = after
        changes[path] = FileChange(path, now if known is None else known.before, _state(each, after, now))
    folders = _missing_folders(changes, ctx)
    return _Planned((*folders, *changes.values()), contents, tuple(conflicts))


def _parse(patch: str) -> list[FilePatch]:
    try:
        return parse_patch(patch)
    except StateError as problem:
        raise ToolFailure(str(problem), code="invalid_args", hint="Nothing was changed.") from None


def _look(path: str, ctx: ToolContext) -> tuple[FileState, bytes | None]:
    try:
        folder, _ = open_folder(os.path.dirname(path), ctx.session.roots)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT, None
    try:
        return state_in(folder, os.path.basename(path))
    finally:
        os.close(folder)


def _after(each: FilePatch, now: FileState, data: bytes | None) -> bytes | None:
    """Return the content after the patch; raise StateError if the patch does not fit the file."""
    kind = "symlink" if each.old_mode == 0o120000 else "file"
    if now.kind != (kind if each.old_mode else "absent"):
        raise StateError(each.path)
    return each.apply(data)


def _state(each: FilePatch, after: bytes | None, now: FileState) -> FileState:
    if after is None:
        return ABSENT
    if each.new_mode == 0o120000:
        return FileState("symlink", digest_of(after), 0o777, len(after))
    mode = now.mode if each.old_mode == each.new_mode else 0o755 if each.new_mode == 0o100755 else 0o644
    return FileState("file", digest_of(after), mode, len(after))


def _missing_folders(changes: dict[str, FileChange], ctx: ToolContext) -> list[FileChange]:
    """Return the folders that new files need; they belong to the change, and are undone with it."""
    missing: dict[str, None] = {}
    for path, change in changes.items():
        if (change.after or ABSENT).kind == "absent":
            continue
        above = os.path.dirname(path)
        while is_beneath(above, ctx.session.workspace) and not os.path.lexists(above):
            missing[above] = None
            above = os.path.dirname(above)
    made = FileState("directory", mode=0o755)
    return [FileChange(path, ABSENT, made) for path in sorted(missing) if path not in changes]


def effects(args: ApplyPatchArgs, ctx: ToolContext) -> Sequence[Effect]:
    """State every path the patch writes or deletes."""
    try:
        paths = [(each, os.path.join(ctx.session.workspace, each.path)) for each in _parse(args.patch)]
    except ToolFailure:  # the check says what is wrong with it
        return []
    return [(WritePath if each.new_mode else DeletePath)(path) for each, path in paths]


def resources(args: ApplyPatchArgs, ctx: ToolContext) -> list[str]:
    """Return the resources that only one call at a time may have."""
    return ["history", *(f"file:{effect.path}" for effect in effects(args, ctx) if isinstance(effect, WritePath))]


def check(args: ApplyPatchArgs, ctx: ToolContext) -> None:
    """Raise ToolFailure if a file is not what the patch was made from."""
    if conflicts := _plan(args, ctx).conflicts:
        more = f" and {len(conflicts) - _NAMED} more" if len(conflicts) > _NAMED else ""
        raise ToolFailure(
            f"not applied: changed since the patch was made: {', '.join(map(one_line, conflicts[:_NAMED]))}{more}",
            code="precondition_failed",
            hint="Nothing was changed. Bring those files back to what they were, or make the patch again.",
            details={"paths": list(conflicts)},
        )


def preview(args: ApplyPatchArgs, ctx: ToolContext) -> Preview:
    """Return what would change, as a diff."""
    paths = [each.path for each in _plan(args, ctx).changes]
    return Preview(f"would change {format_count(len(paths), 'path')}", args.patch, {"paths": paths})


def run(args: ApplyPatchArgs, ctx: ToolContext) -> ToolResult:
    """Apply the patch and return what changed."""
    history, plan = ctx.session.keep(HISTORY), _plan(args, ctx)
    if not plan.changes:
        return ToolResult(data={"change_id": "", "paths": []}, output="The patch changes nothing.")

    def keep_new() -> None:  # for a redo
        for digest, data in plan.contents.items():
            history.contents.keep(digest, [data])

    def find_content(state: FileState) -> bytes | None:
        return plan.contents.get(state.digest)

    steps = Steps(history, plan.changes, lambda path: ctx.session.roots, find_content, keep_new=keep_new)

    def check_again() -> None:
        if changed := [each.step.path for each in steps.standing() if each.changed]:
            raise ToolFailure(
                f"not applied: changed this moment: {', '.join(map(one_line, changed[:_NAMED]))}",
                code="precondition_failed",
                hint="Nothing was changed. Try again.",
            )

    who = Author.of(
        ctx, "ApplyPatch", args.description or f"Apply a patch of {format_count(len(plan.changes), 'path')}"
    )
    done = steps.carry_out(who, check_again)
    files = [each for each in done.steps if "directory" not in (each.before.kind, (each.after or ABSENT).kind)]
    for each in files:
        report_step(ctx, "ApplyPatch", done.change_id, each)
    names = [one_line(os.path.relpath(each.path, ctx.session.workspace)) for each in files]
    shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    trouble = f"\nNote: {done.trouble}" if done.trouble else ""
    data = {"change_id": done.change_id, "paths": [each.path for each in files]}
    undo = Undo(done.change_id, "take the patch back") if done.change_id else None
    return ToolResult(data=data, output=f"Applied to {format_count(len(files), 'file')}: {shown}{trouble}", undo=undo)


TOOL: Final = Tool(
    name="ApplyPatch",
    description="Apply a patch in git's format to the workspace, whole or not at all; it can be undone.",
    args=ApplyPatchArgs,
    run=run,
    check=check,
    preview=preview,
    effects=effects,
    resources=resources,
    requires_permission=True,
    reversible=True,
    cancel_safe=True,
    timeout_s=_TIME_S,
    origin="workspace",
)
