"""Taking changes back, and bringing them back again.

The disk is held against the plan: a path that holds neither what must stand there nor what shall was changed by
somebody since, and the whole plan is refused with a diff unless it is forced. The undo is a change like any other:
written down first, confirmed afterwards, and what it overwrites is kept, so that `redo` reverses it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from holdfast.core.errors import ToolFailure
from holdfast.host.diff import creation_diff, text_diff
from holdfast.host.history.disk import put, state_in
from holdfast.host.history.history import History, Pending, Who
from holdfast.host.history.plan import Plan
from holdfast.host.history.words import ABSENT, Change, FileChange, FileState
from holdfast.host.locks import locked_now
from holdfast.host.paths import open_folder, os_failure
from holdfast.host.text import detect

_DIFF_LINES = 200


RootsOf = Callable[[str], Sequence[str]]
"""Says beneath which roots a path may be opened."""


def check(history: History, plan: Plan, roots_of: RootsOf, *, force: bool) -> None:
    """Raise ToolFailure, with a diff, when a path of the plan was changed by somebody else since."""
    conflicts: list[tuple[FileChange, FileState, bytes | None]] = []
    for step in plan.steps:
        now, data = _standing(step.path, roots_of)
        if _conflicts(step, now) or (step.path in plan.broken and not now.same_content(step.after or ABSENT)):
            conflicts.append((step, now, data))
    if conflicts and not force:
        raise _changed_since(history, plan, conflicts)
    missing = [step.path for step in plan.steps if not _available(history, step)]
    if missing:
        raise ToolFailure(
            f"the content to put back is no longer in the history: {', '.join(missing)}",
            code="precondition_failed",
            hint=history.dropped() or "The store was changed by hand.",
            details={"paths": missing},
        )


def _conflicts(step: FileChange, now: FileState) -> bool:
    wanted = step.after or ABSENT
    if "directory" in (step.before.kind, wanted.kind) and now.kind in ("absent", "directory"):
        return False
    return not now.same_content(step.before) and not now.same_content(wanted)


def _available(history: History, step: FileChange) -> bool:
    wanted = step.after or ABSENT
    return wanted.kind in ("absent", "directory") or history.content(wanted.digest) is not None


def _changed_since(
    history: History, plan: Plan, conflicts: list[tuple[FileChange, FileState, bytes | None]]
) -> ToolFailure:
    diffs = [
        _diff(step.path, history.content(step.before.digest) if step.before.digest else None, data)
        for step, _, data in conflicts
    ]
    paths = [step.path for step, _, _ in conflicts]
    word = "Undo" if plan.kind == "undo" else "Redo"
    message = f"{word} refused: {', '.join(paths)} changed since. What would be lost:"
    diff = "".join(diffs)
    return ToolFailure(
        f"{message}\n{diff}",
        code="precondition_failed",
        hint="Use force (`--force`) to go on all the same; what is there now is kept and can be brought back.",
        details={"paths": paths, "diff": diff, "changes": list(plan.about)},
    )


def _standing(path: str, roots_of: RootsOf) -> tuple[FileState, bytes | None]:
    """Return what stands at a path, reached without following any link."""
    try:
        folder, _ = open_folder(os.path.dirname(path), roots_of(path))
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT, None
    except OSError as problem:
        raise os_failure(problem, path, "look at") from None
    try:
        return state_in(folder, os.path.basename(path))
    finally:
        os.close(folder)


def preview(history: History, plan: Plan, roots_of: RootsOf) -> str:
    """Return the diff from what is on the disk now to what the plan would leave there."""
    shown: list[str] = []
    for step in plan.steps:
        _, data = _standing(step.path, roots_of)
        wanted = step.after or ABSENT
        shown.append(_diff(step.path, data, history.content(wanted.digest) if wanted.digest else None))
    return "".join(shown)


def change_diff(history: History, change: Change) -> str:
    """Return what a change of the log did, as a diff."""
    parts: list[str] = []
    for each in change.files:
        after = each.after or ABSENT
        if "directory" in (each.before.kind, after.kind):
            parts.append(f"{'made' if after.kind == 'directory' else 'removed'} the folder {each.path}\n")
            continue
        if each.before.mode != after.mode and "absent" not in (each.before.kind, after.kind):
            parts.append(f"mode of {each.path}: {each.before.mode:o} → {after.mode:o}\n")
        before_data, after_data = (history.content(s.digest) if s.digest else None for s in (each.before, after))
        lost = [s for s, data in ((each.before, before_data), (after, after_data)) if s.digest and data is None]
        parts.append(f"{each.path}: content no longer kept\n" if lost else _diff(each.path, before_data, after_data))
    return "".join(parts)


def _diff(path: str, before: bytes | None, after: bytes | None) -> str:
    if before == after:
        return ""
    encodings = [detect(data) for data in (before, after) if data is not None]
    if any(encoding is None for encoding in encodings):
        return f"Binary file {path} differs ({len(before or b'')} → {len(after or b'')} bytes)\n"
    old, new = (
        encoding.decode(data, "replace") if data is not None and (encoding := detect(data)) else ""
        for data in (before, after)
    )
    if before is None:
        return creation_diff(new, path)
    shown = text_diff(old, new, path, limit_lines=_DIFF_LINES)
    return shown if shown else f"{path}: only its encoding or BOM differs\n"


def apply(history: History, plan: Plan, who: Who, roots_of: RootsOf, *, force: bool) -> tuple[str, list[FileChange]]:
    """Do what the plan says, under the locks of all its folders; return the new change's id and what was done."""
    with ExitStack() as stack:
        folders = _open_folders(plan, roots_of, stack)
        stack.enter_context(locked_now(list(folders.values())))
        check(history, plan, roots_of, force=force)
        steps = [_actual(history, step, folders) for step in _in_order(plan.steps)]
        pending = history.begin(who, steps, kind=plan.kind, about=plan.about)
        _do_all(history, steps, folders, pending)
        history.commit(pending)
        with history.transaction():
            history.log.set_state(plan.about, "undone")
            if plan.kind == "redo":
                for id in plan.about:
                    undo = history.log.get(id)
                    history.log.set_state(undo.about if undo else (), "done")
        return pending.id, steps


def _open_folders(plan: Plan, roots_of: RootsOf, stack: ExitStack) -> dict[str, int]:
    opened: dict[str, int] = {}
    for step in _in_order(plan.steps):
        folder = os.path.dirname(step.path)
        if folder in opened:
            continue
        try:
            needed = (step.after or ABSENT).kind != "absent"
            opened[folder], _ = open_folder(folder, roots_of(step.path), make=needed)
        except (FileNotFoundError, NotADirectoryError):
            continue  # nothing stands there and nothing shall
        except OSError as problem:
            raise os_failure(problem, folder, "open") from None
        stack.callback(os.close, opened[folder])
    return opened


def _in_order(steps: Sequence[FileChange]) -> list[FileChange]:
    """Folders are made before what stands in them and removed after it."""
    made = [step for step in steps if (step.after or ABSENT).kind == "directory"]
    removed = [step for step in steps if step.before.kind == "directory" and step not in made]
    others = [step for step in steps if step not in made and step not in removed]
    return [
        *sorted(made, key=lambda step: step.path),
        *others,
        *sorted(removed, key=lambda step: step.path, reverse=True),
    ]


def _actual(history: History, step: FileChange, folders: dict[str, int]) -> FileChange:
    """Return the step as it will really happen: from what stands there now, which is kept first."""
    folder, wanted = folders.get(os.path.dirname(step.path)), step.after or ABSENT
    now, data = (ABSENT, None) if folder is None else state_in(folder, os.path.basename(step.path))
    if data is not None:
        history.keep_bytes(data)
    if step.before.mode == wanted.mode and now.kind == wanted.kind:
        wanted = replace(wanted, mode=now.mode)  # the change left the mode alone, so does its undo
    return FileChange(step.path, now, wanted)


def _do_all(history: History, steps: list[FileChange], folders: dict[str, int], pending: Pending) -> None:
    """Do every step; when one fails, take back those before it, so that all or nothing happens."""
    done: list[FileChange] = []
    try:
        for step in steps:
            done.append(step)
            _put_back(history, step, folders, pending.temporary)
    except BaseException:
        for step in reversed(done[:-1]):
            _put_back(history, step.reversed(), folders, pending.temporary)
        with history.transaction():
            history.log.remove([pending.id])
        raise


def _put_back(history: History, step: FileChange, folders: dict[str, int], temporary: str) -> None:
    folder, wanted = folders.get(os.path.dirname(step.path)), step.after or ABSENT
    if folder is None:
        return
    data = history.content(wanted.digest) if wanted.digest else None
    try:
        put(folder, os.path.basename(step.path), step.before, wanted, data, temporary)
    except OSError as problem:
        raise os_failure(problem, step.path, "put back") from None
