"""Undo changes, and redo them.

The disk is held against the plan: a path that holds neither what must stand there nor what shall was changed by
somebody since, and the whole plan is refused with a diff unless it is forced. The undo is a change like any other:
written down first, confirmed afterwards, and what it overwrites is kept, so that `redo` reverses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from surehand.core.errors import ToolFailure
from surehand.core.frozen import replace_values
from surehand.core.read_state import digest_of
from surehand.files.diff import one_line
from surehand.files.merge import merge_lines
from surehand.files.text import detect
from surehand.history.disk import HELD_BYTES
from surehand.history.history import History
from surehand.history.plan import Plan
from surehand.history.steps import CarriedOut, Content, RootsOf, Standing, Steps, data_diff, large_diff, read_all
from surehand.history.words import ABSENT, Author, Change, FileChange, FileState

__all__ = ["RootsOf", "apply", "change_diff", "check", "merge", "preview"]

MERGE_LIMIT: Final = 1024 * 1024
"""Bytes of the largest content that is merged."""
DIFF_LIMIT: Final = 512 * 1024
"""Characters of diffs after which no further file is shown."""
_NAMED: Final = 10
"""A file may have been edited a thousand times since; a person reads the first few numbers."""


def check(history: History, plan: Plan, roots_of: RootsOf, *, force: bool) -> None:
    """Raise ToolFailure, with a diff, when a path of the plan was changed by somebody else since."""
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
    """Say whether somebody else changed the path of a step, since or between the changes."""
    return each.changed or (each.step.path in plan.gaps and not each.now.same_content(each.step.after or ABSENT))


def merge(history: History, plan: Plan, roots_of: RootsOf) -> Plan:
    """Return the plan with what others changed kept, where that is in other lines; conflicts stay as they are."""
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
    """Take changes back from what others made of a file, since or between them; None where both touch the same lines.

    What lies between two gaps is taken back in one step, the latest first.
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
    """Return who finds a content of the plan: one that was merged, or one of the history."""
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
    """Return what somebody else made of a path, between the changes of the plan and since."""
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
    """Return the changes still standing, newest first, that others made to the paths after one of the plan."""
    others, wanted = (each for each in history.standing(after=since) if each.id not in plan.originals), set(paths)
    return [each.id for each in others if not wanted.isdisjoint(each.paths)]


def preview(history: History, plan: Plan, roots_of: RootsOf) -> str:
    """Return the diff from what is on the disk now to what the plan would leave there."""
    return _join_diffs(_preview_one(history, plan, each) for each in _steps(history, plan, roots_of).standing())


def _preview_one(history: History, plan: Plan, each: Standing) -> str:
    path, wanted = each.step.path, each.step.after or ABSENT
    if max(wanted.size, each.now.size) > HELD_BYTES:
        return large_diff(path, each.now, wanted)
    data = _content(history, plan)(wanted) if wanted.digest else None
    return data_diff(path, each.data, None if data is None else read_all(data))


def _join_diffs(diffs: Iterable[str]) -> str:
    """Return diffs one after the other, as far as somebody may want to read them; what follows is not worked out."""
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
    """Do what the plan says, under the locks of all its folders."""

    def last_look() -> None:
        check(history, plan, roots_of, force=force)

    return _steps(history, plan, roots_of).carry_out(who, last_look, kind=plan.kind, about=plan.about, parts=plan.parts)


def _steps(history: History, plan: Plan, roots_of: RootsOf) -> Steps:
    def keep_merged() -> None:  # what is written down before it happens must be there to end it after a crash
        for data in plan.merged.values():
            history.keep_bytes(data)

    return Steps(history, plan.steps, roots_of, _content(history, plan), keep_new=keep_merged)
