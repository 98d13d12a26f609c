"""Undo and redo: planning (which changes, which paths) and applying the plan.

`UndoRequest` selects a unit (a change, the last few, a turn, everything since a time or after a change, a session)
and a scope (whose changes, which of their files). The plan is made from the log alone. Changes are folded, newest
first, into one step per path: from what the newest change left to what the oldest one found. A redone change counts as
made when the redo was.

The disk is then compared with the plan: a path with neither the expected content nor the wanted one was changed by
somebody since, and the whole plan is refused with a diff unless it is forced. The undo is itself a change: recorded
first, confirmed afterwards, and what it overwrites is stored, so that `redo` reverses it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any, Final, Literal, TypeAlias

from surehand.core.errors import ToolFailure
from surehand.core.frozen import field, frozen, replace_values
from surehand.core.session import digest_of
from surehand.files.diff import one_line
from surehand.files.merge import merge_lines
from surehand.files.text import detect
from surehand.history.disk import HELD_BYTES
from surehand.history.history import History
from surehand.history.recovery import recover_interrupted
from surehand.history.steps import CarriedOut, Content, RootsOf, Standing, Steps, data_diff, large_diff, read_all
from surehand.history.words import ABSENT, CALL_MADE, Author, Change, FileChange, FileState

LAST_TURN: Final = "last"
_LISTED: Final = "`surehand log` lists the changes there are, and which are undone."

Wants: TypeAlias = Callable[[FileChange], bool]
"""Returns whether a file of a change is to be undone."""


def _everything(each: FileChange) -> bool:
    return True


@frozen
class PlannedCall:
    """A call to make: the compensation of a change, or the call that made it, to be repeated by a redo."""

    change_id: str
    tool: str
    args: Mapping[str, Any]
    description: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"tool": self.tool, "args": dict(self.args), "description": self.description}


@frozen
class Plan:
    """What an undo or redo would do: the changes it is about, and per path the expected and the wanted state."""

    kind: Literal["undo", "redo"]
    about: tuple[str, ...]
    steps: tuple[FileChange, ...]
    gaps: dict[str, tuple[FileChange, ...]] = field(default_factory=dict[str, tuple[FileChange, ...]])
    """By path, what others changed between the changes to undo, newest first."""
    originals: tuple[str, ...] = ()
    """The changes of tools that are undone or redone in the end."""
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """By change that is undone in part, the paths that are."""
    calls: tuple[PlannedCall, ...] = ()
    """The calls to make, in this order: compensations, or for a redo the original calls."""
    sessions: tuple[str, ...] = ()
    """The sessions that made the changes."""
    left_alone: int = 0
    """How many files of those changes are outside the request and stay as they are."""
    merges: bool = False
    """Whether later changes of others in other lines are kept."""
    merged: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Digest → content merged with later changes of others; not in the history yet."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that the plan touches."""
        return tuple(step.path for step in self.steps)


@frozen
class UndoRequest:
    """What to undo: at most one of the units; the last change if none is given."""

    change_id: str | None = None
    to: str | None = None
    turns: tuple[str, ...] | None = None
    since: float | None = None
    last: int = 1
    whole_session: bool = False
    session_id: str | None = None
    """Only changes of this session and its sub-agents; None: of all sessions."""
    wants: Wants = _everything
    calls: bool = True
    """Whether changes made elsewhere than in files are included."""


def plan_undo(history: History, request: UndoRequest | None = None) -> Plan:
    """Plan the requested undo, by default of the last change of all sessions."""
    request = request or UndoRequest()
    recover_interrupted(history)  # changes of killed processes that began, or were not confirmed
    if request.change_id is not None:
        return _plan_one(history, _get_known(history, request.change_id))
    changes = _chosen(history, request)
    if not changes:
        raise _nothing(history, request)
    return _fold(history, changes, request.wants, calls=request.calls)


def recent_session(history: History, wants: Wants) -> str | None:
    """Return the session of the most recent change of wanted files, undone or not; None if there is none."""
    recover_interrupted(history)
    for change in history.latest_first("+kind = 'change' AND state != 'intent'"):
        if change.compensation is not None or any(map(wants, change.files)):
            return change.main_session_id
    return None


def plan_redo(history: History, *, change_id: str | None = None, session_id: str | None = None) -> Plan:
    """Plan the redo of the latest undo, or of one named by its own id or by that of a change it undid."""
    recover_interrupted(history)
    if change_id is None:
        undos = history.standing("undo", limit=1, session_id=session_id)
    else:
        _get_known(history, change_id)
        undos = [each for each in history.standing("undo") if change_id == each.id or change_id in each.about]
    if not undos:
        whose = "" if session_id is None else f" in {session_id}"
        what = f"there is nothing to redo{whose}" if change_id is None else f"change {change_id} is not undone"
        raise ToolFailure(what, code="precondition_failed", hint=_LISTED)
    return _plan_redo(history, undos[0])


def _chosen(history: History, request: UndoRequest) -> list[Change]:
    """Return the changes a request is about, newest first."""
    if request.turns is not None:
        return _of_turns(history, request, request.turns)
    if request.whole_session:
        return _in_order(history, history.standing(session_id=request.session_id), request)
    groups = _groups(history, request)
    if request.to is not None:
        number = _get_known(history, request.to).number
        chosen = takewhile(lambda group: group[0].number > number, groups)
    elif (since := request.since) is not None:
        chosen = takewhile(lambda group: group[0].at >= since, groups)
    else:
        chosen = islice(groups, request.last)
    return [change for _, changes in chosen for change in changes]


def _of_turns(history: History, request: UndoRequest, turns: Sequence[str]) -> list[Change]:
    if LAST_TURN in turns:
        latest = next((changes[0].turn for _, changes in _groups(history, request)), None)
        turns = [latest if each == LAST_TURN else each for each in turns if each != LAST_TURN or latest is not None]  # pyright: ignore[reportAssignmentType]
    return _in_order(history, history.standing(turns=turns, session_id=request.session_id), request)


def _groups(history: History, request: UndoRequest) -> Iterator[tuple[Change, list[Change]]]:
    """Yield what is not undone, newest first: an entry of the log, and the changes it made or redid."""
    known: set[str] = set()
    taken = history.partial_undos()
    made_again = {id for redo in history.standing("redo") for id in redo.about}
    for entry in history.latest_first("state = 'done' AND kind != 'undo'"):
        if entry.id in made_again:  # it comes with the redo that repeated its call
            continue
        changes = [entry] if entry.kind == "change" else _brought_back(history, entry)
        fresh = [each for each in changes if each.id not in known and _is_of(each, request.session_id)]
        known.update(each.id for each in fresh)
        wanted = [each for each in fresh if _is_wanted(history, each, taken, request)]
        if wanted:
            yield entry, wanted


def _in_order(history: History, changes: Iterable[Change], request: UndoRequest) -> list[Change]:
    """Return the wanted changes, newest first; a redone change counts from its redo."""
    at = {
        original.id: redo.number
        for redo in reversed(history.standing("redo"))
        for original in _brought_back(history, redo)
    }
    taken = history.partial_undos()
    wanted = [each for each in changes if _is_wanted(history, each, taken, request)]
    return sorted(wanted, key=lambda each: (at.get(each.id, each.number), each.number), reverse=True)


def _brought_back(history: History, redo: Change) -> list[Change]:
    """Return the changes that a redo brought back and that are not undone since, newest first."""
    entries = list(filter(None, map(history.change, redo.about)))
    ids = dict.fromkeys(id for each in entries for id in (each.about if each.kind == "undo" else (each.id,)))
    found = filter(None, map(history.change, ids))
    return sorted((each for each in found if each.state == "done"), key=lambda each: -each.number)


def _is_of(change: Change, session_id: str | None) -> bool:
    return session_id is None or session_id in (change.session_id, change.main_session_id)


def _is_wanted(history: History, change: Change, taken: Mapping[str, set[str]], request: UndoRequest) -> bool:
    call = request.calls and history.log.call_left(change, taken)
    return call or any(map(request.wants, history.log.files_left(change, taken)))


def _plan_one(history: History, change: Change) -> Plan:
    if change.kind == "undo":
        return _plan_redo(history, change)
    if change.kind == "redo":
        return _fold(history, _brought_back(history, change), _everything)
    if change.state == "undone":
        raise ToolFailure(
            f"change {change.id} is already undone", code="precondition_failed", hint="Redo brings it back."
        )
    return _fold(history, [change], _everything)


def _plan_redo(history: History, undo: Change) -> Plan:
    if undo.state != "done":
        raise ToolFailure(f"undo {undo.id} is already redone", code="precondition_failed", hint=_LISTED)
    entries = _made_by_one_call(history, undo)
    standing = [each for each in entries if each.state == "done"]
    # Files of a call that is repeated belong to its new change.
    made = {id for each in entries for id, parts in each.parts.items() if CALL_MADE in parts}
    again = {path for id in made if (change := history.change(id)) for path in change.paths}
    ids = sorted({id for each in standing for id in each.about}, key=int)
    originals = [change for id in ids if (change := history.change(id))]
    if both := [path for each in originals if each.id not in made for path in each.paths if path in again]:
        raise ToolFailure(
            f"{both[0]} was changed by a call that would be repeated, and by others: their order cannot be preserved",
            code="precondition_failed",
            hint="Repeat the calls one by one, or restore single changes by hand from `surehand diff CHANGE`.",
        )
    steps = tuple(each.reverse() for entry in standing for each in entry.files if each.path not in again)
    to_make = {id for each in standing for id, parts in each.parts.items() if CALL_MADE in parts}
    calls = tuple(_original_call(each) for each in originals if each.id in to_make)
    if not steps and not calls:
        raise ToolFailure(f"undo {undo.id} left nothing to bring back", code="precondition_failed", hint=_LISTED)
    about = tuple(each.id for each in standing if each.files)
    sessions = tuple(dict.fromkeys(each.main_session_id for each in originals))
    return Plan("redo", about, steps, originals=tuple(ids), calls=calls, sessions=sessions)


def _made_by_one_call(history: History, undo: Change) -> list[Change]:
    """Return the entries of one Undo call: one per compensation it called, and one for files."""
    same = [
        each
        for each in history.changes(call_id=undo.call_id, turn=undo.turn)
        if each.kind == "undo" and each.session_id == undo.session_id and each.id != undo.id
    ]
    files = [] if undo.files else [each for each in same if each.files][:1]
    return [undo, *files, *(each for each in same if not each.files)]


def _original_call(change: Change) -> PlannedCall:
    args = change.compensation.original_args if change.compensation else None
    if args is None:
        raise ToolFailure(
            f"change {change.id} ({change.description}) was taken back by a call, and the arguments of the original "
            "call are no longer known: it cannot be repeated",
            code="precondition_failed",
            hint=f"Call {change.tool} again.",
        )
    return PlannedCall(change.id, change.tool, args)


def _fold(history: History, changes: Sequence[Change], wants: Wants, *, calls: bool = True) -> Plan:
    """Fold changes, newest first, into one step per path."""
    if not changes:
        raise ToolFailure("there is nothing to undo", code="precondition_failed", hint=_LISTED)
    steps: dict[str, FileChange] = {}
    gaps: dict[str, tuple[FileChange, ...]] = {}
    parts: dict[str, tuple[str, ...]] = {}
    left_alone: set[str] = set()
    taken = history.partial_undos()
    for change in changes:
        standing = history.log.files_left(change, taken)
        wanted = _with_made_folders(standing, [each for each in standing if wants(each)])
        if len(wanted) < len(change.files) or (not calls and history.log.call_left(change, taken)):
            parts[change.id] = tuple(each.path for each in wanted)
            left_alone.update({each.path for each in standing} - {each.path for each in wanted})
        for each in wanted:
            later, after = steps.get(each.path), each.after or ABSENT
            if later is not None and later.after is not None and _is_broken(later.after, after):
                gaps[each.path] = (*gaps.get(each.path, ()), FileChange(each.path, after, later.after))
            steps[each.path] = FileChange(each.path, later.before if later else after, each.before)
    ids = tuple(each.id for each in changes)
    # Paths that are back in their first state need no step.
    needed = [step for step in steps.values() if step.before != step.after or step.path in gaps]
    return Plan(
        "undo",
        ids,
        tuple(needed or steps.values()),
        gaps,
        ids,
        parts,
        tuple(_call_back(each) for each in changes if calls and history.log.call_left(each, taken)),
        tuple(dict.fromkeys(each.main_session_id for each in changes)),
        len(left_alone),
    )


def _is_broken(earlier: FileState, later: FileState) -> bool:
    """Return whether somebody else changed a path between two changes.

    Not so for a folder that came or went between: a later change may have made it again.
    """
    if {earlier.kind, later.kind} <= {"absent", "directory"}:
        return False
    return not earlier.same_content(later)


def _call_back(change: Change) -> PlannedCall:
    assert change.compensation is not None
    call = change.compensation
    return PlannedCall(change.id, call.tool, call.args, call.description)


def _with_made_folders(files: Sequence[FileChange], wanted: list[FileChange]) -> list[FileChange]:
    """Add to the wanted files of a change the folders it made for them, which are removed if they are empty."""
    if len(wanted) == len(files):
        return wanted
    chosen, above = {each.path for each in wanted}, set[str]()
    for path in chosen:
        while (path := os.path.dirname(path)) not in above and path != "/":
            above.add(path)
    return [
        each
        for each in files
        if each.path in chosen
        or (each.path in above and each.before.kind == "absent" and (each.after or ABSENT).kind == "directory")
    ]


def _nothing(history: History, request: UndoRequest) -> ToolFailure:
    """Return the failure of a request that matches nothing, with a hint at what there is instead."""
    where = "" if request.session_id is None else f" in {request.session_id}"
    if request.to is not None:
        where = f" after change {request.to}{where}"
    hints: list[str] = []
    ignored = next((group for group in _groups(history, UndoRequest(session_id=request.session_id))), None)
    if ignored is not None:
        id = ignored[1][0].id
        hints.append(f"Change {id} has only files outside this request (ignored ones, or others): name it, or use all.")
    elif request.session_id is not None and (other := next(_groups(history, UndoRequest(wants=request.wants)), None)):
        change = other[1][0]
        hints.append(
            f"The latest change of all is {change.id}, of {change.main_session_id} ({change.description}): "
            "name it, its session, or all sessions."
        )
    return ToolFailure(f"there is nothing to undo{where}", code="precondition_failed", hint=" ".join([*hints, _LISTED]))


def _get_known(history: History, id: str) -> Change:
    change = history.change(id)
    if change is None or change.state == "intent":
        hint = history.describe_pruned() or _LISTED
        raise ToolFailure(f"there is no change {id}", code="precondition_failed", hint=hint)
    return change


# -- carrying it out ---------------------------------------------------------------------------------------------------


MERGE_LIMIT: Final = 1024 * 1024
"""Bytes of the largest content that is merged."""
DIFF_LIMIT: Final = 512 * 1024
"""Characters of diffs after which no further file is shown."""
_NAMED: Final = 10
"""The most change numbers named in a refusal: a file may have been edited a thousand times since."""


def check(history: History, plan: Plan, roots_of: RootsOf, *, force: bool) -> None:
    """Raise ToolFailure, with a diff, if others changed a path of the plan since, or a content is missing."""
    conflicts = [each for each in _steps(history, plan, roots_of).standing() if _is_conflict(plan, each)]
    if conflicts and (not force or any(each.special for each in conflicts)):
        raise _changed_since(history, plan, conflicts)
    missing = [step.path for step in plan.steps if not _available(history, plan, step)]
    if missing:
        raise ToolFailure(
            f"the content to put back is no longer in the history: {', '.join(map(one_line, missing))}",
            code="precondition_failed",
            hint=history.describe_pruned() or "The store was damaged or changed by hand; the files stay as they are.",
            details={"paths": missing},
        )


def _is_conflict(plan: Plan, each: Standing) -> bool:
    """Return whether others changed the path of a step, since or between the changes."""
    return each.changed or (each.step.path in plan.gaps and not each.now.same_content(each.step.after or ABSENT))


def merge(history: History, plan: Plan, roots_of: RootsOf) -> Plan:
    """Return the plan with changes of others kept where they are in other lines; conflicts stay as they are."""
    merged, gaps = dict[str, bytes](), dict(plan.gaps)
    steps = list[FileChange]()
    for each in _steps(history, plan, roots_of).standing():
        data = _merge_one(history, each, plan.gaps.get(each.step.path, ())) if _is_conflict(plan, each) else None
        if data is None:
            steps.append(each.step)
            continue
        before, wanted = each.step.before, each.step.after or ABSENT
        mode = each.now.mode if before.mode == wanted.mode else wanted.mode
        after = FileState("file", digest_of(data), mode, len(data))
        merged[after.digest] = data
        steps.append(FileChange(each.step.path, each.now, after))
        gaps.pop(each.step.path, None)
    return replace_values(plan, steps=tuple(steps), gaps=gaps, merges=True, merged=merged)


def _merge_one(history: History, standing: Standing, gaps: Sequence[FileChange]) -> bytes | None:
    """Undo changes in a file that others changed since or between them; None if both touch the same lines.

    The changes between two gaps are undone in one merge, newest first.
    """
    between = [state or ABSENT for gap in gaps for state in (gap.after, gap.before)]
    states = [standing.step.before, *between, standing.step.after or ABSENT]
    merged, contents = standing.data, [history.content(each.digest) for each in states if each.kind == "file"]
    known = [each for each in (merged, *contents) if each is not None]
    if len(known) <= len(states) or standing.now.kind != "file" or max(map(len, known)) > MERGE_LIMIT:
        return None
    encodings = {*map(detect, known)}
    if len(encodings) != 1 or (encoding := encodings.pop()) is None or encoding.unit != 1:
        return None  # lines of binary files, and of wide characters, are not split as bytes are
    for base, wanted in zip(known[1::2], known[2::2], strict=True):
        merged = merged if merged is None else merge_lines(base, merged, wanted)
    return merged


def _available(history: History, plan: Plan, step: FileChange) -> bool:
    wanted = step.after or ABSENT
    return wanted.kind in ("absent", "directory") or wanted.digest in plan.merged or history.holds(wanted.digest)


def _content(history: History, plan: Plan) -> Content:
    """Return the function that finds a content of the plan: a merged one, or one of the history."""
    return lambda state: plan.merged[state.digest] if state.digest in plan.merged else history.source(state)


def _changed_since(history: History, plan: Plan, conflicts: list[Standing]) -> ToolFailure:
    paths = [conflict.step.path for conflict in conflicts]
    word = "Undo" if plan.kind == "undo" else "Redo"
    diff = _join_diffs(_diff_of_others(history, plan, each) for each in conflicts)
    gone = all(each.now.kind == "absent" and not each.special for each in conflicts)
    what = "is gone (moved or deleted)" if gone else "changed"
    lost = "What would be lost" if what == "changed" else "What stood there"
    since = (max if plan.gaps.keys().isdisjoint(paths) else min)(map(int, plan.originals), default=0)
    later = _later(history, plan, paths, since)
    many, more = len(later) > 1, f" and {len(later) - _NAMED:,} more" if len(later) > _NAMED else ""
    named = f"{'Changes' if many else 'Change'} {', '.join(later[:_NAMED])}{more} came later in the same place"
    way = f"those first (`--to {since}` takes back all after it)" if many else "that first"
    first = f"{named}; undo {way}. " if later else ""
    return ToolFailure(
        f"{word} refused: {', '.join(map(one_line, paths))} {what} since. {lost}:\n{diff}",
        code="precondition_failed",
        hint=first + _offer_ways(plan, conflicts),
        details={"paths": paths, "diff": diff, "changes": list(plan.about), "later": later},
    )


def _diff_of_others(history: History, plan: Plan, each: Standing) -> str:
    """Return the diff of what others changed in a path, between the changes of the plan and since."""
    between = [_change_diff(history, gap) for gap in reversed(plan.gaps.get(each.step.path, ()))]
    return "".join([*between, each.diff(history.source) if each.changed else ""])


def _offer_ways(plan: Plan, conflicts: list[Standing]) -> str:
    if any(each.special for each in conflicts):
        return "Move what is in the way, then try again."
    merging = not plan.merges and any(each.now.kind == each.step.before.kind == "file" for each in conflicts)
    merge = "Use merge (`--merge`) to keep what was changed in other lines since. " if merging else ""
    return (
        f"{merge}Use force (`--force`) to overwrite them anyway; the present content is recorded and can be restored."
    )


def _later(history: History, plan: Plan, paths: list[str], since: int) -> list[str]:
    """Return the ids of later changes to the paths, not undone and not of the plan, newest first."""
    others, wanted = (each for each in history.standing(after=since) if each.id not in plan.originals), set(paths)
    return [each.id for each in others if not wanted.isdisjoint(each.paths)]


def preview(history: History, plan: Plan, roots_of: RootsOf) -> str:
    """Return the diff from the present files to what the plan would leave."""
    return _join_diffs(_preview_one(history, plan, each) for each in _steps(history, plan, roots_of).standing())


def _preview_one(history: History, plan: Plan, each: Standing) -> str:
    path, wanted = each.step.path, each.step.after or ABSENT
    if max(wanted.size, each.now.size) > HELD_BYTES:
        return large_diff(path, each.now, wanted)
    data = _content(history, plan)(wanted) if wanted.digest else None
    return data_diff(path, each.data, None if data is None else read_all(data))


def _join_diffs(diffs: Iterable[str]) -> str:
    """Join diffs up to a limit; those after it are not made."""
    shown, size = list[str](), 0
    for diff in diffs:
        if size > DIFF_LIMIT:
            return "".join([*shown, "... and more files\n"])
        shown.append(diff)
        size += len(diff)
    return "".join(shown)


def change_diff(history: History, change: Change) -> str:
    """Return what a change of the log did, as a diff."""
    return "".join(_change_diff(history, each) for each in change.files)


def _change_diff(history: History, each: FileChange) -> str:
    after, name = each.after or ABSENT, one_line(each.path)
    if "directory" in (each.before.kind, after.kind):
        return f"{'made' if after.kind == 'directory' else 'removed'} the folder {name}\n"
    mode = ""
    if each.before.mode != after.mode and "absent" not in (each.before.kind, after.kind):
        mode = f"mode of {name}: {each.before.mode:o} → {after.mode:o}\n"
    if max(each.before.size, after.size) > HELD_BYTES:
        return mode + large_diff(each.path, each.before, after)
    before_data, after_data = (history.content(s.digest) if s.digest else None for s in (each.before, after))
    lost = [s for s, data in ((each.before, before_data), (after, after_data)) if s.digest and data is None]
    return mode + (f"{name}: content no longer kept\n" if lost else data_diff(each.path, before_data, after_data))


def apply(history: History, plan: Plan, who: Author, roots_of: RootsOf, *, force: bool) -> CarriedOut:
    """Apply the plan, under the locks of all its folders."""

    def last_look() -> None:
        for id in plan.about:
            change = history.change(id, with_files=False)
            if change is None or change.state != "done":
                word = "undone" if plan.kind == "undo" else "redone"
                raise ToolFailure(
                    f"somebody else has {word} {id} meanwhile; nothing was done",
                    code="precondition_failed",
                    hint=_LISTED,
                )
        check(history, plan, roots_of, force=force)

    return _steps(history, plan, roots_of).carry_out(who, last_look, kind=plan.kind, about=plan.about, parts=plan.parts)


def _steps(history: History, plan: Plan, roots_of: RootsOf) -> Steps:
    def keep_merged() -> None:  # stored with the record, so that recovery can complete it after a crash
        for data in plan.merged.values():
            history.keep_bytes(data)

    return Steps(history, plan.steps, roots_of, _content(history, plan), keep_new=keep_merged)
