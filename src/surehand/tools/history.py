"""`Undo`, `Redo` and `Changes`: the history as tools; an undo is judged, recorded and undoable like any change."""

from __future__ import annotations

import datetime
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from surehand.core.call import ToolResult, Undo
from surehand.core.context import ToolContext
from surehand.core.effects import DeletePath, Effect, WritePath
from surehand.core.errors import ToolFailure
from surehand.core.frozen import replace_values
from surehand.core.record import Args, Field
from surehand.core.text import format_count
from surehand.core.tool import Preview, Tool
from surehand.files.diff import one_line
from surehand.files.paths import readable_roots, workspace_failure
from surehand.history import undo
from surehand.history.history import HISTORY, History
from surehand.history.recovery import recover_interrupted
from surehand.history.steps import CarriedOut
from surehand.history.undo import LAST_TURN, Plan, PlannedCall, UndoRequest, Wants, plan_redo, plan_undo, recent_session
from surehand.history.words import ABSENT, Author, Change, FileChange
from surehand.search.ignore_files import KeptFiles
from surehand.tools import list_schema, object_schema, prompt
from surehand.tools.write_result import report_step

TIME_S: Final = 600.0
"""Timeout of an undo: one command may have changed tens of thousands of files."""

NOT_A_TIME: Final = 'is not a time; write "10 min", "2 h", "3 days", "14:30" or "2026-01-31 14:30"'
_PATHS_SHOWN: Final = 50
"""The most paths in the output; `data` has all, which may be thousands."""


class UndoArgs(Args):
    """What to undo: by default this session's last change of files that are neither ignored nor caches."""

    change_id: str | None = Field(default=None, description="This change, as a result or the log names it")
    last: int | None = Field(default=None, ge=1, description="The last so many changes (default 1)")
    turns: list[str] | None = Field(default=None, description='All of these turns, by their ids; "last" is the latest')
    since: str | None = Field(default=None, description='All since then: "10 min", "2 h", "14:30", "2026-01-31 14:30"')
    to: str | None = Field(default=None, description="All after this change")
    session: str | None = Field(default=None, description="Of this session; alone: everything it changed")
    file: str | None = Field(default=None, description="Only this file or folder")
    all: bool = Field(default=False, description="Ignored files and caches too")
    all_sessions: bool = Field(default=False, description="Of whichever session")
    merge: bool = Field(default=False, description="Keep what somebody else changed in other lines")
    force: bool = Field(default=False, description="Go on although somebody else changed a file")

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yield faults that the schema cannot express."""
        units = ("change_id", "last", "turns", "since", "to")
        given = [name for name in units if getattr(self, name) is not None]
        if len(given) > 1:
            yield given[1], f"cannot be given together with {given[0]}: each says what to take back"
        if self.change_id is not None and (self.file is not None or self.session is not None):
            yield "change_id", "names one change, whole; leave out file and session"
        if self.session is not None and self.all_sessions:
            yield "all_sessions", "cannot be given together with session"
        if self.since is not None and moment(self.since, time.time()) is None:
            yield "since", NOT_A_TIME


class RedoArgs(Args):
    """What to redo: by default this session's latest undo."""

    change_id: str | None = Field(default=None, description="The undo to reverse, or a change it took back")
    all_sessions: bool = Field(default=False, description="The latest undo of whichever session")
    merge: bool = Field(default=False, description="Keep what somebody else changed in other lines")
    force: bool = Field(default=False, description="Go on although somebody else changed a file")


class ChangesArgs(Args):
    """Which changes to list, newest first."""

    limit: int = Field(default=30, ge=1, le=10_000, description="How many at most")
    session: str | None = Field(default=None, description="Only those of this session and its sub-agents")
    turn: str | None = Field(default=None, description="Only those of this turn, by its id")
    file: str | None = Field(default=None, description="Only those of this file, or below this folder")


def list_changes(args: ChangesArgs, ctx: ToolContext) -> ToolResult:
    """Return the changes of the workspace, newest first."""
    history = ctx.session.keep(HISTORY)
    problem = recover_interrupted(history)
    changes = history.changes(
        limit=args.limit,
        session_id=None if args.session is None else _session_id(args.session),
        path=None if args.file is None else os.path.realpath(ctx.resolve(args.file)),
        turn=args.turn,
    )
    lines = [_line(each, ctx) for each in changes] or ["There are no such changes."]
    dropped = history.describe_pruned()
    data = {"changes": [each.to_dict() for each in changes], "dropped": dropped}
    return ToolResult(data=data, output="\n".join([*lines, *filter(None, (dropped, problem))]))


def _line(change: Change, ctx: ToolContext) -> str:
    names = [one_line(os.path.relpath(each.path, ctx.session.workspace)) for each in change.files[:3]]
    more = f" and {len(change.files) - 3:,} more" if len(change.files) > 3 else ""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(change.at))
    state = "" if change.state == "done" else f" [{change.state}]"
    about = f" of {', '.join(change.about)}" if change.about else ""
    whose = "" if change.main_session_id == ctx.session.main.id else f" ({one_line(change.main_session_id)})"
    note = f" - {change.note}" if change.note else ""
    return f"{change.id}  {at}  {change.tool}{about}{state}  {', '.join(names)}{more}{whose}{note}"


def _session_id(name: str) -> str:
    return name if name.startswith("session_") else f"session_{name}"


_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_AGO: Final = re.compile(
    r"(\d+(?:\.\d+)?)\s*(s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?|w|weeks?)(?:\s+ago)?", re.IGNORECASE
)


def moment(text: str, now: float) -> float | None:
    """Parse a time as people write it ("10 min", "14:30", "2026-01-31 14:30") into seconds; None if it is none."""
    text = text.strip()
    if ago := _AGO.fullmatch(text):
        return now - float(ago[1]) * _UNITS[ago[2][0].lower()]
    try:
        clock = datetime.time.fromisoformat(text)
    except ValueError:
        clock = None
    try:
        if clock is not None and ":" in text:
            today = datetime.datetime.fromtimestamp(now).date()
            at = datetime.datetime.combine(today, clock).timestamp()
            return at if at <= now else at - 86400  # yesterday's
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _plan(args: UndoArgs | RedoArgs, ctx: ToolContext) -> Plan:
    """Plan once per call, so that what is done is what was judged and shown."""
    if isinstance(args, RedoArgs):
        return ctx.once(f"plan of {args!r}", lambda: _plan_redo(args, ctx))
    return ctx.once(f"plan of {args!r}", lambda: _plan_undo(args, ctx))


def _plan_redo(args: RedoArgs, ctx: ToolContext) -> Plan:
    own = None if args.all_sessions or _is_outside(ctx) else ctx.session.id
    plan = plan_redo(ctx.session.keep(HISTORY), change_id=args.change_id, session_id=own)
    return undo.merge(ctx.session.keep(HISTORY), plan, _roots(ctx)) if args.merge else plan


def _plan_undo(args: UndoArgs, ctx: ToolContext) -> Plan:
    history = ctx.session.keep(HISTORY)
    wants = _wanted_files(args, ctx)
    units = (args.last, args.turns, args.since, args.to, args.file)
    request = UndoRequest(
        change_id=args.change_id,
        to=args.to,
        turns=None if args.turns is None else tuple(args.turns),
        since=None if args.since is None else moment(args.since, time.time()),
        last=args.last or 1,
        whole_session=args.session is not None and all(each is None for each in units),
        session_id=_scope(args, ctx, wants),
        wants=wants,
        calls=args.file is None,
    )
    plan = plan_undo(history, request)
    return undo.merge(history, plan, _roots(ctx)) if args.merge else plan


def _is_outside(ctx: ToolContext) -> bool:
    """Return whether the call's session ends with its process, so that no earlier changes are its own."""
    return ctx.session.name is None and not ctx.session.interactive


def _scope(args: UndoArgs, ctx: ToolContext, wants: Wants) -> str | None:
    """Return the session whose changes are meant; None for all, or if the changes are named one by one."""
    if args.session is not None:
        return _session_id(args.session)
    if args.all_sessions or args.change_id is not None or (args.turns is not None and LAST_TURN not in args.turns):
        return None
    if not _is_outside(ctx):
        return ctx.session.id
    return recent_session(ctx.session.keep(HISTORY), wants)


def _wanted_files(args: UndoArgs, ctx: ToolContext) -> Wants:
    """Return the test for changed files that are meant: those named, or all but ignored ones and caches."""
    if args.file is not None:
        path = os.path.normpath(ctx.resolve(args.file))
        places = {path, os.path.realpath(path)}
        below = tuple(f"{place.rstrip('/')}/" for place in places)
        return lambda each: each.path in places or each.path.startswith(below)
    if args.all:
        return lambda each: True
    kept = KeptFiles(ctx.session.roots)
    return lambda each: kept(each.path, is_folder="directory" in (each.before.kind, (each.after or ABSENT).kind))


def _roots(ctx: ToolContext) -> undo.RootsOf:
    return lambda path: readable_roots(ctx, path)


def effects(args: Any, ctx: ToolContext) -> Sequence[Effect]:
    """State every path that would be restored or removed."""
    try:
        steps = _plan(args, ctx).steps
    except ToolFailure:  # there is nothing to do; the check raises it again
        return []
    return [(DeletePath if (step.after or ABSENT).kind == "absent" else WritePath)(step.path) for step in steps]


def resources(args: Any, ctx: ToolContext) -> list[str]:
    """Return the resources that only one call at a time may have."""
    return ["history", *(f"file:{effect.path}" for effect in effects(args, ctx) if isinstance(effect, WritePath))]


def check(args: Any, ctx: ToolContext) -> None:
    """Raise ToolFailure if the plan cannot be applied as the files are now."""
    plan = _plan(args, ctx)
    if plan.steps and not os.path.isdir(ctx.session.workspace):  # moved: its files are not deleted but elsewhere
        raise workspace_failure(ctx.session.workspace)
    undo.check(ctx.session.keep(HISTORY), plan, _roots(ctx), force=args.force)


def preview(args: Any, ctx: ToolContext) -> Preview:
    """Return what the call would change, as a diff."""
    plan = _plan(args, ctx)
    diff = undo.preview(ctx.session.keep(HISTORY), plan, _roots(ctx))
    data = {
        "changes": list(plan.originals),
        "paths": list(plan.paths),
        "sessions": list(plan.sessions),
        "left_alone": plan.left_alone,
    }
    calls = "".join(f"\nwould call {_as_text(each)}" for each in plan.calls)
    return Preview(f"would {plan.kind} {_name_changes(plan, ctx)}{_left_alone(plan)}{calls}", diff, data)


def run(args: Any, ctx: ToolContext) -> ToolResult:
    """Undo or redo: compensating calls first, then files, then calls to repeat."""
    history, plan = ctx.session.keep(HISTORY), _plan(args, ctx)
    tool = "Undo" if plan.kind == "undo" else "Redo"
    who = Author.of(ctx, tool, f"{tool} {_name_changes(plan, ctx)}")
    diff, done, made = "", CarriedOut("", [], []), list[str]()
    if plan.kind == "undo" and plan.calls:
        made = _take_back_by_calls(history, plan, who, ctx)
        left = [id for id in plan.about if (change := history.change(id)) is not None and change.state == "done"]
        plan = replace_values(plan, about=tuple(left))
    if plan.steps:
        diff = undo.preview(history, plan, _roots(ctx))
        done = _apply(history, plan, who, ctx, made, force=args.force)
        for step in done.steps:
            report_step(ctx, tool, done.change_id, step)
    if plan.kind == "redo" and plan.calls:
        redo_id, made = _make_again(history, plan, who, ctx, done)
        done = replace_values(done, change_id=redo_id)
    word = "Undid" if plan.kind == "undo" else "Brought back"
    summary = f" {_summary(plan, done)}" if plan.steps else ""
    lines = [f"{word} {_name_changes(plan, ctx)}:{summary}", *made, *_list_files(plan, done)]
    if done.trouble:
        lines.append(f"Note: {done.trouble}")
    data = {
        "change_id": done.change_id,
        "changes": list(plan.originals),
        "paths": [step.path for step in done.steps],
        "already": [step.path for step in done.already],
        "sessions": list(plan.sessions),
        "left_alone": plan.left_alone,
        "merged": [step.path for step in done.steps if (step.after or ABSENT).digest in plan.merged],
        "diff": diff,
        "calls": [each.to_dict() for each in plan.calls],
    }
    reverse = Undo(done.change_id, f"reverse this {plan.kind}") if done.change_id else None
    return ToolResult(data=data, output="\n".join(lines), undo=reverse)


def _apply(
    history: History, plan: Plan, who: Author, ctx: ToolContext, made: Sequence[str], *, force: bool
) -> CarriedOut:
    """Restore the files; a failure after calls were made names these."""
    try:
        return undo.apply(history, plan, who, _roots(ctx), force=force)
    except ToolFailure as failure:
        if made:
            failure.hint = f"{_tell_made(made)} {failure.hint}".rstrip()
        raise


def _take_back_by_calls(history: History, plan: Plan, who: Author, ctx: ToolContext) -> list[str]:
    """Make the compensating calls, newest first; return a line on each.

    Each is judged and asked about like any other call, and recorded as soon as it was made. The first that fails ends
    the undo: its change and all older ones stay.
    """
    lines: list[str] = []
    for call in plan.calls:
        result = _make_call(history, call, ctx, "taken back", f"No file was changed. {_tell_made(lines)}")
        history.record_taken_back(who, call.change_id)
        lines.append(f"  called {_as_text(call)}: {one_line(result.output)[:200]}")
    return lines


def _make_again(history: History, plan: Plan, who: Author, ctx: ToolContext, done: CarriedOut) -> tuple[str, list[str]]:
    """Make the calls again whose changes were taken back by calls, oldest first; return the redo's id and their lines.

    Each is a call like any other, judged, with a change and an undo of its own. The first that fails ends the redo;
    another redo goes on with it.
    """
    redo_id, lines = done.change_id, list[str]()
    for position, call in enumerate(plan.calls):
        files = f"The files were brought back (change {done.change_id})." if plan.steps else "No file was changed."
        result = _make_call(history, call, ctx, "made again", f"{files} {_tell_made(lines)}")
        is_last = position == len(plan.calls) - 1
        made = result.undo.change_id if result.undo is not None else ""
        redo_id = history.record_made_again(
            who, call.change_id, made, redo=redo_id, undos=plan.about if is_last and not plan.steps else ()
        )
        lasting = "" if made else " (which cannot be taken back)"
        lines.append(f"  called {_as_text(call)} again{lasting}: {one_line(result.output)[:200]}")
    return redo_id, lines


def _make_call(history: History, call: PlannedCall, ctx: ToolContext, what: str, so_far: str) -> ToolResult:
    """Make one call of a plan; raise ToolFailure, with what was done so far, if it fails."""
    ctx.check_wanted()
    result = ctx.call.wait(call.tool, call.args, listed=False)
    if result.error is not None:
        change = history.change(call.change_id)
        described = f" ({one_line(change.description)})" if change is not None else ""
        raise ToolFailure(
            f"change {call.change_id}{described} was not {what}: {_as_text(call)} failed: {result.error.message}",
            code="permission_denied" if result.error.code == "permission_denied" else "execution_error",
            hint=f"{so_far.strip()} {result.error.hint}".strip(),
            details={"change": call.change_id, "call": call.to_dict(), "error": result.error.to_dict()},
        )
    return result


def _tell_made(lines: Sequence[str]) -> str:
    return f"Done before it: {'; '.join(line.strip() for line in lines)}." if lines else ""


def _as_text(call: PlannedCall) -> str:
    said = f" ({call.description})" if call.description else ""
    return one_line(f"{call.tool}({json.dumps(dict(call.args), ensure_ascii=False, default=repr)})") + said


def _name_changes(plan: Plan, ctx: ToolContext) -> str:
    """Name the changes of a plan, and their sessions if these are others."""
    ids = plan.originals
    more = ", ..." if len(ids) > 10 else ""
    named = f"change {ids[0]}" if len(ids) == 1 else f"{len(ids)} changes ({', '.join(ids[:10])}{more})"
    others = [each for each in plan.sessions if each != ctx.session.main.id]
    return f"{named} of {', '.join(one_line(each) for each in plan.sessions)}" if others else named


def _left_alone(plan: Plan) -> str:
    return f" (and {format_count(plan.left_alone, 'cache or ignored file')} left alone)" if plan.left_alone else ""


def _summary(plan: Plan, done: CarriedOut) -> str:
    """Return how many files were restored and removed."""
    files = [step for step in done.steps if {step.before.kind, (step.after or ABSENT).kind} - {"directory", "absent"}]
    did, one = Counter(map(_did, files or done.steps)), "file" if files else "folder"
    did["restored"] += did.pop("created", 0)
    parts: list[str] = []
    for word in ("restored", "removed", "left"):
        if did[word]:
            parts.append(f"{word} {f'{did[word]:,}' if parts else format_count(did[word], one)}")
    if done.already:
        parts.append(f"{len(done.already):,} already as wanted")
    return (", ".join(parts) or "nothing was left to do") + _left_alone(plan)


def _list_files(plan: Plan, done: CarriedOut) -> list[str]:
    lines = [f"  {_describe_undo(plan, step)}" for step in done.steps]
    lines += [f"  {one_line(step.path)} was so already, by somebody else's hand" for step in done.already]
    if len(lines) > _PATHS_SHOWN:
        lines[_PATHS_SHOWN:] = [f"  ... and {len(lines) - _PATHS_SHOWN:,} more paths"]
    return lines


def _did(step: FileChange) -> str:
    if (step.after or ABSENT).kind == "absent":
        return "left" if step.before.kind == "directory" and os.path.isdir(step.path) else "removed"
    return "created" if step.before.kind == "absent" else "restored"


def _describe_undo(plan: Plan, step: FileChange) -> str:
    did = _did(step)
    if (step.after or ABSENT).digest in plan.merged:
        return f"{did} {one_line(step.path)}, with what was changed in other lines since"
    return f"{did} {one_line(step.path)}" + (", which is not empty" if did == "left" else "")


_CHANGE: Final = object_schema({"id": "string", "at": "number", "tool": "string", "state": "string"})
_TAKEN_BACK: Final = object_schema(
    {"changes": list_schema("string"), "paths": list_schema("string")},
    change_id="string|null",
    sessions=list_schema("string"),
    left_alone="integer",
    diff="string",
    calls=list_schema("object"),
)

_REVERSAL: Final[dict[str, Any]] = {
    "kind": "edit",
    "output_schema": _TAKEN_BACK,
    "run": run,
    "check": check,
    "preview": preview,
    "effects": effects,
    "resources": resources,
    "requires_permission": True,
    "reversible": True,
    "cancel_safe": True,
    "facts_block": True,  # it may be about ten thousand files
    "timeout_s": TIME_S,
    "origin": "workspace",
}
TOOLS: tuple[Tool, ...] = (
    Tool(
        **_REVERSAL,
        name="Undo",
        description=prompt("undo"),
        args=UndoArgs,
        search_hint="undo revert take back restore file changes",
        examples=({}, {"change_id": "12"}),
    ),
    Tool(
        **_REVERSAL,
        name="Redo",
        description=prompt("redo"),
        args=RedoArgs,
        search_hint="redo bring back undone file changes",
        examples=({},),
    ),
    Tool(
        name="Changes",
        output_schema=object_schema({"changes": list_schema(_CHANGE)}),
        description=prompt("changes"),
        args=ChangesArgs,
        run=list_changes,
        read_only=True,
        search_hint="list changes history log undo what was changed",
        origin="workspace",
        examples=({}, {"file": "src/app.py", "limit": 5}),
    ),
)
