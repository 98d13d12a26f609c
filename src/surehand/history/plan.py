"""What an undo or redo is about, worked out from the log alone: per path, what must stand there and what shall.

`Wish` says what is asked for: a unit (a change, the last few, a turn, everything since a moment or after a change, a
whole session) and a scope (whose changes, which files of them). Changes are folded, newest first, into one step per
path: it begins with what the newest change left and ends with what the oldest one found. A change that a redo brought
back counts as made when that redo was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import Final, Literal, TypeAlias

from surehand.core.errors import ToolFailure
from surehand.core.frozen import field, frozen
from surehand.history.history import History
from surehand.history.recovery import recover
from surehand.history.words import ABSENT, Change, Compensation, FileChange

LAST_TURN: Final = "last"
_LISTED: Final = "`surehand log` lists the changes there are, and which are undone."

Wants: TypeAlias = Callable[[FileChange], bool]
"""Says of a file of a change whether it is to be taken back."""


def _everything(each: FileChange) -> bool:
    return True


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
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The paths that are taken back of those changes that are not taken back whole."""
    calls: tuple[Compensation, ...] = ()
    """The calls that take back what the changes did elsewhere than in files, newest first."""
    sessions: tuple[str, ...] = ()
    """Whose changes they are."""
    left_alone: int = 0
    """Files of those changes that stay as they are, because people do not keep them."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that the plan touches."""
        return tuple(step.path for step in self.steps)


@frozen
class Wish:
    """What is to be taken back: at most one of the units; the last change when none is given."""

    change_id: str | None = None
    to: str | None = None
    turns: tuple[str, ...] | None = None
    since: float | None = None
    last: int = 1
    whole_session: bool = False
    session_id: str | None = None
    """Only changes of this session and its sub-agents; None: of all."""
    wants: Wants = _everything


def plan_undo(history: History, wish: Wish | None = None) -> Plan:
    """Plan to take back what is wished: by default the last change of all."""
    wish = wish or Wish()
    recover(history)  # a change of another process that was only begun, or not confirmed yet
    if wish.change_id is not None:
        return _plan_one(history, _known(history, wish.change_id))
    changes = _chosen(history, wish)
    if not changes:
        raise _nothing(history, wish)
    return _fold(history, changes, wish.wants)


def recent_session(history: History, wants: Wants) -> str | None:
    """Return the session that made the most recent change of files wanted, taken back or not; None: nobody did."""
    recover(history)
    for change in history.latest_first("kind = 'change' AND state != 'intent'"):
        if _is_wanted(change, change.files, wants):
            return change.main_session_id
    return None


def plan_redo(history: History, *, change_id: str | None = None, session_id: str | None = None) -> Plan:
    """Plan to bring back what the latest undo (or the one named, by its own id or by what it took back) took away."""
    recover(history)
    if change_id is None:
        undos = history.standing("undo", limit=1, session_id=session_id)
    else:
        _known(history, change_id)
        undos = [each for each in history.standing("undo") if change_id == each.id or change_id in each.about]
    if not undos:
        whose = "" if session_id is None else f" in {session_id}"
        what = f"there is nothing to redo{whose}" if change_id is None else f"change {change_id} is not undone"
        raise ToolFailure(what, code="precondition_failed", hint=_LISTED)
    return _plan_redo(history, undos[0])


def _chosen(history: History, wish: Wish) -> list[Change]:
    """Return the changes a wish is about, the latest first, each with what of it is not taken back."""
    if wish.turns is not None:
        return _of_turns(history, wish, wish.turns)
    if wish.whole_session:
        return _in_order(history, history.standing(session_id=wish.session_id), wish.wants)
    groups = _groups(history, wish)
    if wish.to is not None:
        number = _known(history, wish.to).number
        chosen = takewhile(lambda group: group[0].number > number, groups)
    elif (since := wish.since) is not None:
        chosen = takewhile(lambda group: group[0].at >= since, groups)
    else:
        chosen = islice(groups, wish.last)
    return [change for _, changes in chosen for change in changes]


def _of_turns(history: History, wish: Wish, turns: Sequence[str]) -> list[Change]:
    if LAST_TURN in turns:
        latest = next((changes[0].turn for _, changes in _groups(history, wish)), None)
        turns = [latest if each == LAST_TURN else each for each in turns if each != LAST_TURN or latest is not None]  # pyright: ignore[reportAssignmentType]
    return _in_order(history, history.standing(turns=turns, session_id=wish.session_id), wish.wants)


def _groups(history: History, wish: Wish) -> Iterator[tuple[Change, list[Change]]]:
    """Yield what stands, the latest first: an entry of the log, and the changes it made or brought back."""
    known: set[str] = set()
    taken = history.partial_undos()
    for entry in history.latest_first("state = 'done' AND kind != 'undo'"):
        changes = [entry] if entry.kind == "change" else _brought_back(history, entry)
        fresh = [each for each in changes if each.id not in known and _is_of(each, wish.session_id)]
        known.update(each.id for each in fresh)
        wanted = [each for each in fresh if _is_wanted(each, history.log.files_left(each, taken), wish.wants)]
        if wanted:
            yield entry, wanted


def _in_order(history: History, changes: Iterable[Change], wants: Wants) -> list[Change]:
    """Return changes in the order in which they came about at last, the latest first."""
    at = {
        original.id: redo.number
        for redo in reversed(history.standing("redo"))
        for original in _brought_back(history, redo)
    }
    taken = history.partial_undos()
    wanted = [each for each in changes if _is_wanted(each, history.log.files_left(each, taken), wants)]
    return sorted(wanted, key=lambda each: (at.get(each.id, each.number), each.number), reverse=True)


def _brought_back(history: History, redo: Change) -> list[Change]:
    """Return the changes that a redo brought back and that still stand, the latest first."""
    undos = filter(None, map(history.change, redo.about))
    found = filter(None, (history.change(id) for undo in undos for id in undo.about))
    return sorted((each for each in found if each.state == "done"), key=lambda each: -each.number)


def _is_of(change: Change, session_id: str | None) -> bool:
    return session_id is None or session_id in (change.session_id, change.main_session_id)


def _is_wanted(change: Change, files: Sequence[FileChange], wants: Wants) -> bool:
    return change.compensation is not None or any(map(wants, files))


def _plan_one(history: History, change: Change) -> Plan:
    if change.kind == "undo":
        return _plan_redo(history, change)
    if change.kind == "redo":
        return _fold(history, _brought_back(history, change), _everything)
    if change.state == "undone":
        raise ToolFailure(
            f"change {change.id} is undone already", code="precondition_failed", hint="Redo brings it back."
        )
    return _fold(history, [change], _everything)


def _plan_redo(history: History, undo: Change) -> Plan:
    if undo.state != "done":
        raise ToolFailure(f"undo {undo.id} is brought back already", code="precondition_failed", hint=_LISTED)
    originals = filter(None, map(history.change, undo.about))
    sessions = tuple(dict.fromkeys(each.main_session_id for each in originals))
    steps = tuple(each.reversed() for each in undo.files)
    return Plan("redo", (undo.id,), steps, originals=undo.about, sessions=sessions)


def _fold(history: History, changes: Sequence[Change], wants: Wants) -> Plan:
    """Fold changes, the latest first, into one step per path."""
    if not changes:
        raise ToolFailure("there is nothing to undo", code="precondition_failed", hint=_LISTED)
    steps: dict[str, FileChange] = {}
    broken: dict[str, None] = {}
    parts: dict[str, tuple[str, ...]] = {}
    left_alone: set[str] = set()
    taken = history.partial_undos()
    for change in changes:
        standing = history.log.files_left(change, taken)
        wanted = _with_made_folders(standing, [each for each in standing if wants(each)])
        if len(wanted) < len(change.files):
            parts[change.id] = tuple(each.path for each in wanted)
            left_alone.update({each.path for each in standing} - {each.path for each in wanted})
        for each in wanted:
            later, after = steps.get(each.path), each.after or ABSENT
            if later is not None and later.after is not None and not later.after.same_content(after):
                broken[each.path] = None
            steps[each.path] = FileChange(each.path, later.before if later else after, each.before)
    ids = tuple(each.id for each in changes)
    # What came and went again, or is as it was, is nobody's to touch.
    needed = [step for step in steps.values() if step.before != step.after or step.path in broken]
    return Plan(
        "undo",
        ids,
        tuple(needed or steps.values()),
        tuple(broken),
        ids,
        parts,
        tuple(each.compensation for each in changes if each.compensation),
        tuple(dict.fromkeys(each.main_session_id for each in changes)),
        len(left_alone),
    )


def _with_made_folders(files: Sequence[FileChange], wanted: list[FileChange]) -> list[FileChange]:
    """Return the wanted files of a change with the folders it made on the way to them: those go when they are empty."""
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


def _nothing(history: History, wish: Wish) -> ToolFailure:
    """Say that there is nothing of what is wished, and what there is instead."""
    where = "" if wish.session_id is None else f" in {wish.session_id}"
    if wish.to is not None:
        where = f" after change {wish.to}{where}"
    hints: list[str] = []
    ignored = next((group for group in _groups(history, Wish(session_id=wish.session_id))), None)
    if ignored is not None:
        id = ignored[1][0].id
        hints.append(f"Change {id} is only of files outside this wish (ignored ones, or others): name it, or use all.")
    elif wish.session_id is not None and (other := next(_groups(history, Wish(wants=wish.wants)), None)):
        change = other[1][0]
        hints.append(
            f"The latest change of all is {change.id}, of {change.main_session_id} ({change.description}): "
            "name it, its session, or all sessions."
        )
    return ToolFailure(f"there is nothing to undo{where}", code="precondition_failed", hint=" ".join([*hints, _LISTED]))


def _known(history: History, id: str) -> Change:
    change = history.change(id)
    if change is None or change.state == "intent":
        hint = history.dropped() or _LISTED
        raise ToolFailure(f"there is no change {id}", code="precondition_failed", hint=hint)
    return change
