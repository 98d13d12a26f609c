"""`Undo` and `Redo`: the history through the one door, so that taking back is permitted, recorded and undoable too."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from surehand.core.args import Args, Field
from surehand.core.call import ToolResult, Undo
from surehand.core.context import ToolContext
from surehand.core.effects import DeletePath, Effect, WritePath
from surehand.core.errors import ToolFailure
from surehand.core.read_state import Seen
from surehand.core.tool import Preview, Tool
from surehand.host.diff import one_line
from surehand.host.history import undo
from surehand.host.history.history import HISTORY, Who
from surehand.host.history.plan import Plan, plan_redo, plan_undo
from surehand.host.history.words import ABSENT, FileChange
from surehand.host.paths import readable_roots
from surehand.tools.prompts import prompt

TIME_S: Final = 600.0
"""What one command did may be tens of thousands of files."""

_PATHS_SHOWN: Final = 50
"""A command may have changed thousands; a model reads the first, a program finds all in `data`."""


class UndoArgs(Args):
    """What to take back; the latest change of the workspace when nothing is named."""

    change_id: str | None = Field(default=None, description="The change to take back, as a result or the log names it")
    to: str | None = Field(default=None, description="Take back every change after this one")
    session: str | None = Field(default=None, description="Take back every change of this session")
    turns: list[str] | None = Field(default=None, description="Take back every change of these turns, by their ids")
    force: bool = Field(default=False, description="Go on although a file was changed by somebody else since")


class RedoArgs(Args):
    """What to bring back; the latest undo when nothing is named."""

    change_id: str | None = Field(default=None, description="The undo to reverse, or a change it took back")
    force: bool = Field(default=False, description="Go on although a file was changed by somebody else since")


def _plan(args: UndoArgs | RedoArgs, ctx: ToolContext) -> Plan:
    history = ctx.session.keep(HISTORY)
    if isinstance(args, RedoArgs):
        return plan_redo(history, change_id=args.change_id)
    if sum(each is not None for each in (args.change_id, args.to, args.session, args.turns)) > 1:
        hint = "change_id takes back one change, to every change after one, session every change of one."
        raise ToolFailure("name only one of change_id, to, session and turns", code="invalid_args", hint=hint)
    session_id = args.session
    if session_id is not None and not session_id.startswith("session_"):
        session_id = f"session_{session_id}"
    return plan_undo(history, change_id=args.change_id, to=args.to, session_id=session_id, turns=args.turns)


def _roots(ctx: ToolContext) -> undo.RootsOf:
    return lambda path: readable_roots(ctx, path)


def effects(args: Any, ctx: ToolContext) -> Sequence[Effect]:
    """State every path that would be put back or removed."""
    try:
        steps = _plan(args, ctx).steps
    except ToolFailure:  # nothing to do touches nothing; the check says so
        return []
    return [(DeletePath if (step.after or ABSENT).kind == "absent" else WritePath)(step.path) for step in steps]


def resources(args: Any, ctx: ToolContext) -> list[str]:
    return ["history", *(f"file:{effect.path}" for effect in effects(args, ctx) if isinstance(effect, WritePath))]


def check(args: Any, ctx: ToolContext) -> None:
    undo.check(ctx.session.keep(HISTORY), _plan(args, ctx), _roots(ctx), force=args.force)


def preview(args: Any, ctx: ToolContext) -> Preview:
    plan = _plan(args, ctx)
    diff = undo.preview(ctx.session.keep(HISTORY), plan, _roots(ctx))
    return Preview(
        f"would {plan.kind} {_named(plan)}", diff, {"changes": list(plan.originals), "paths": list(plan.paths)}
    )


def run(args: Any, ctx: ToolContext) -> ToolResult:
    history, plan = ctx.session.keep(HISTORY), _plan(args, ctx)
    tool = "Undo" if plan.kind == "undo" else "Redo"
    who = Who.of(ctx, tool, f"{tool} {_named(plan)}")
    diff = undo.preview(history, plan, _roots(ctx))
    carried_out = undo.apply(history, plan, who, _roots(ctx), force=args.force)
    change_id, done = carried_out.change_id, carried_out.steps
    for step in done:
        _tell(ctx, tool, change_id, step)
    lines = [f"  {_told(step)}" for step in done[:_PATHS_SHOWN]]
    if len(done) > _PATHS_SHOWN:
        lines.append(f"  ... and {len(done) - _PATHS_SHOWN:,} more paths")
    word = "Undid" if plan.kind == "undo" else "Brought back"
    data = {
        "change_id": change_id,
        "changes": list(plan.originals),
        "paths": [step.path for step in done],
        "diff": diff,
    }
    output = "\n".join([f"{word} {_named(plan)}:", *lines])
    return ToolResult(data=data, output=output, undo=Undo(change_id, f"reverse this {plan.kind}"))


def _named(plan: Plan) -> str:
    ids = plan.originals
    more = ", ..." if len(ids) > 10 else ""
    return f"change {ids[0]}" if len(ids) == 1 else f"{len(ids)} changes ({', '.join(ids[:10])}{more})"


def _told(step: FileChange) -> str:
    after, name = step.after or ABSENT, one_line(step.path)
    if after.kind == "absent":
        left = step.before.kind == "directory" and os.path.isdir(step.path)
        return f"left {name}, which is not empty" if left else f"removed {name}"
    return f"{'created' if step.before.kind == 'absent' else 'restored'} {name}"


def _tell(ctx: ToolContext, tool: str, change_id: str, step: FileChange) -> None:
    """Keep the read state right: the caller knows what is there now if it had read what stood there before."""
    after, seen = step.after or ABSENT, ctx.session.read_state.get(step.path)
    if after.kind == "file" and seen is not None and seen.digest == step.before.digest:
        ctx.session.saw(step.path, Seen.of(after.digest, os.stat(step.path)))
    elif after.kind != "file":
        ctx.session.read_state.forget(step.path)
    action = "deleted" if after.kind == "absent" else "created" if step.before.kind == "absent" else "changed"
    ctx.session.emit("file_changed", tool=tool, call_id=ctx.call.id, path=step.path, change_id=change_id, action=action)


TOOLS: tuple[Tool, ...] = (
    Tool(
        name="Undo",
        description=prompt("undo"),
        args=UndoArgs,
        run=run,
        check=check,
        preview=preview,
        effects=effects,
        resources=resources,
        search_hint="undo revert take back restore file changes",
        requires_permission=True,
        reversible=True,
        cancel_safe=True,
        timeout_s=TIME_S,
        origin="workspace",
        examples=({}, {"change_id": "12"}),
    ),
    Tool(
        name="Redo",
        description=prompt("redo"),
        args=RedoArgs,
        run=run,
        check=check,
        preview=preview,
        effects=effects,
        resources=resources,
        search_hint="redo bring back undone file changes",
        requires_permission=True,
        reversible=True,
        cancel_safe=True,
        timeout_s=TIME_S,
        origin="workspace",
        examples=({},),
    ),
)
