"""What an undo or redo is about, worked out from the log alone: per path, what must stand there and what shall.

Changes are folded, newest first, into one step per path: it begins with what the newest change left and ends with
what the oldest one found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.host.history.history import History
from surehand.host.history.recovery import recover
from surehand.host.history.words import ABSENT, Change, FileChange

_LISTED: Final = "`surehand log` lists the changes there are, and which are undone."


@frozen
class Plan:
    """What an undo or redo would do: the changes it is about, and per path what is there and what shall be."""

    kind: Literal["undo", "redo"]
    about: tuple[str, ...]
    steps: tuple[FileChange, ...]
    broken: tuple[str, ...] = ()
    """Paths somebody else changed between the changes to take back."""
    originals: tuple[str, ...] = ()
    """The changes of tools that are taken back or brought back in the end."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(step.path for step in self.steps)


def plan_undo(
    history: History,
    *,
    change_id: str | None = None,
    to: str | None = None,
    session_id: str | None = None,
    turns: Sequence[str] | None = None,
) -> Plan:
    """Plan to take back one change, all after `to`, all of a session or of turns, or (by default) the latest."""
    recover(history)  # a change of another process that was only begun, or not confirmed yet
    if turns is not None:
        return _plan_many(history.standing(turns=turns), "nothing of that turn")
    if change_id is not None:
        return _plan_one(history, _known(history, change_id))
    if to is not None:
        return _plan_many(history.standing(after=_known(history, to).number), f"nothing after change {to}")
    if session_id is not None:
        return _plan_many(history.standing(session_id=session_id), f"nothing of session {session_id}")
    return _plan_many(history.standing(limit=1), "nothing")


def plan_redo(history: History, *, change_id: str | None = None) -> Plan:
    """Plan to bring back what the latest undo (or the one named, by its own id or by what it took back) took away."""
    recover(history)
    if change_id is None:
        undos = history.standing("undo", limit=1)
    else:
        _known(history, change_id)
        undos = [each for each in history.standing("undo") if change_id == each.id or change_id in each.about]
    if not undos:
        what = "there is nothing to redo" if change_id is None else f"change {change_id} is not undone"
        raise ToolFailure(what, code="precondition_failed", hint=_LISTED)
    return _plan_redo(undos[0])


def _plan_one(history: History, change: Change) -> Plan:
    if change.kind == "undo":
        return _plan_redo(change)
    if change.kind == "redo":
        originals = [_known(history, id) for undo in change.about for id in _known(history, undo).about]
        return _plan_many(sorted(originals, key=lambda each: -each.number), "nothing")
    if change.state == "undone":
        raise ToolFailure(
            f"change {change.id} is undone already", code="precondition_failed", hint="Redo brings it back."
        )
    return _plan_many([change], "nothing")


def _plan_redo(undo: Change) -> Plan:
    if undo.state != "done":
        raise ToolFailure(f"undo {undo.id} is brought back already", code="precondition_failed", hint=_LISTED)
    return Plan("redo", (undo.id,), tuple(each.reversed() for each in undo.files), originals=undo.about)


def _plan_many(changes: Sequence[Change], nothing: str) -> Plan:
    """Fold changes, newest first, into one step per path."""
    if not changes:
        raise ToolFailure(f"there is {nothing} to undo", code="precondition_failed", hint=_LISTED)
    steps: dict[str, FileChange] = {}
    broken: dict[str, None] = {}
    for change in changes:
        for each in change.files:
            later, after = steps.get(each.path), each.after or ABSENT
            if later is not None and later.after is not None and not later.after.same_content(after):
                broken[each.path] = None
            steps[each.path] = FileChange(each.path, later.before if later else after, each.before)
    ids = tuple(each.id for each in changes)
    # What came and went again, or is as it was, is nobody's to touch.
    wanted = [step for step in steps.values() if step.before != step.after or step.path in broken]
    return Plan("undo", ids, tuple(wanted or steps.values()), tuple(broken), ids)


def _known(history: History, id: str) -> Change:
    change = history.change(id)
    if change is None or change.state == "intent":
        hint = history.dropped() or _LISTED
        raise ToolFailure(f"there is no change {id}", code="precondition_failed", hint=hint)
    return change
