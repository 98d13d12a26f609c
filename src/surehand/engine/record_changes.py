"""Record changes of tools that only state which paths they change: they are in the history, undone like any edit.

The state of each path is taken before the handler runs and again when it has ended, however it ended. Tools that keep
their changes themselves say so (`reversible`) and are left alone.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from surehand.core.call import ToolCall, ToolResult, Undo
from surehand.core.effects import DeletePath, WritePath
from surehand.core.errors import ToolFailure
from surehand.history.disk import state_at
from surehand.history.history import HISTORY
from surehand.history.words import ABSENT, Author, Compensation, FileChange

if TYPE_CHECKING:
    from surehand.engine.prepared import Prepared, Proceed
    from surehand.history.words import FileState

PATHS_LIMIT: Final = 2000
BYTES_LIMIT: Final = 64 * 1024 * 1024
"""How much one call may touch and still be kept: it is all held in memory while the handler runs."""

_Changing: TypeAlias = WritePath | DeletePath
_Standing: TypeAlias = "Mapping[str, tuple[FileState, bytes | None]]"


class _TooMuch(Exception):
    """More would have to be kept than the limits allow."""


class Keeping:
    """Writes down what a call has done to the paths it stated."""

    async def __call__(self, prepared: Prepared, proceed: Proceed) -> ToolResult:
        stated = _stated_changes(prepared)
        if not stated:
            return await proceed(prepared)
        try:
            before = await asyncio.to_thread(_standing, stated)
        except (_TooMuch, OSError) as problem:
            _emit_problem(prepared, problem)
            return await proceed(prepared)
        try:
            result = await proceed(prepared)
        except BaseException:
            await asyncio.to_thread(_record_difference, prepared, stated, before)
            raise
        change_id = await asyncio.to_thread(_record_difference, prepared, stated, before)
        prepared.change_id = change_id or ""
        if change_id is None or result.undo is not None:
            return result
        return replace(result, undo=Undo(change_id, f"take back what {prepared.tool.name} changed"))


def record_compensation(prepared: Prepared, result: ToolResult) -> ToolResult:
    """Write down the call that takes back what a call did elsewhere than in files; say so where that cannot be done."""
    tool, ctx = prepared.tool, prepared.ctx
    files = result.undo.change_id if result.undo is not None and result.undo.change_id else prepared.change_id
    try:
        undo = result.undo if result.undo is not None and result.undo.call is not None else _own_undo(prepared, result)
        if undo is None or undo.call is None:
            return result
        view = ctx.session.selection
        if view is not None and view.source.resolve(undo.call.name) is None:
            raise ToolFailure(f"the tool that takes it back, {undo.call.name}, is not registered")
        said = undo.description or f"take back what {tool.name} did"
        who = Author.of(ctx, tool.name, f"{tool.name}: {said}")
        taken_back = Compensation(undo.call.name, undo.call.args, undo.description, _plain(prepared.call.args))
        change_id = ctx.session.keep(HISTORY).record_compensation(who, taken_back, files)
        return replace(result, undo=Undo(change_id, said))
    except Exception as problem:  # what a call did is done; that it cannot be taken back is said, not made its failure
        why = str(problem) if isinstance(problem, ToolFailure) else f"{type(problem).__name__}: {problem}"
        _emit_problem(prepared, ToolFailure(why))
        left = Undo(files, f"take back what {tool.name} did to files, and only that") if files else None
        return replace(result, undo=left).with_meta(not_undoable=why)


def _plain(args: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the arguments of a call for the history; None where they are no plain data."""
    try:
        return json.loads(json.dumps(dict(args), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return None


def _own_undo(prepared: Prepared, result: ToolResult) -> Undo | None:
    """Return what the tool's `undo` makes of a call that came to something."""
    if prepared.tool.undo is None or not result.ok:
        return None
    made = prepared.tool.undo(prepared.args, result)
    return Undo(call=made) if isinstance(made, ToolCall) else made


def _stated_changes(prepared: Prepared) -> list[_Changing]:
    effects = prepared.tool.effects(prepared.args, prepared.ctx) if prepared.tool.effects else None
    return [each for each in effects or () if isinstance(each, WritePath | DeletePath)]


def _record_difference(prepared: Prepared, stated: list[_Changing], before: _Standing) -> str | None:
    """Compare with the states before and record the differences; return the change's id."""
    session, tool = prepared.ctx.session, prepared.tool.name
    try:
        after = _standing(stated, before)
        changes = _changes(before, after)
        if not changes:
            return None
        history = session.keep(HISTORY)
        said = f"{tool} {os.path.relpath(changes[0].path, session.workspace)}"
        who = Author.of(prepared.ctx, tool, said)

        def keep_contents() -> tuple[Author, list[FileChange]]:
            for state, data in (*before.values(), *after.values()):
                if data is not None:
                    history.contents.keep(state.digest, [data])
            return who, changes

        change_id = history.record_found(keep_contents)
    except (_TooMuch, OSError, ToolFailure) as problem:
        _emit_problem(prepared, problem)
        return None
    for change in changes:
        session.emit("file_changed", tool=tool, call_id=prepared.call.id, path=change.path, change_id=change_id)
    return change_id


def _emit_problem(prepared: Prepared, problem: Exception) -> None:
    message = f"what {prepared.tool.name} changes is not in the history: {problem}"
    prepared.ctx.session.emit("note", message=message)


def _changes(before: _Standing, after: _Standing) -> list[FileChange]:
    nothing = (ABSENT, None)
    compared = ((path, before.get(path, nothing)[0], after.get(path, nothing)[0]) for path in {**before, **after})
    return sorted((FileChange(path, old, new) for path, old, new in compared if old != new), key=lambda each: each.path)


def _standing(stated: Iterable[_Changing], known: Iterable[str] = ()) -> _Standing:
    """Return what stands at every stated path, below those that are stated with all below them, and at known ones."""
    found: dict[str, tuple[FileState, bytes | None]] = {}
    room = BYTES_LIMIT
    for path in chain(known, _paths(stated)):
        if path in found:
            continue
        room -= os.lstat(path).st_size if os.path.isfile(path) else 0
        if len(found) >= PATHS_LIMIT or room < 0:
            raise _TooMuch(f"it touches more than {PATHS_LIMIT:,} paths or {BYTES_LIMIT >> 20} MiB")
        found[path] = state_at(path)
    return found


def _paths(stated: Iterable[_Changing]) -> Iterator[str]:
    """Yield each place a call may change: the name itself, where it leads, folders made on the way, and all below."""
    for effect in stated:
        parent, name = os.path.split(os.path.normpath(effect.path))
        real = os.path.realpath(effect.path)
        yield from _missing_folders(real)
        yield os.path.join(os.path.realpath(parent), name)
        yield real
        if effect.recursive and os.path.isdir(real):
            for folder, folders, files in os.walk(real):
                folders[:] = [each for each in folders if each != ".git"]  # what git keeps is git's to take back
                yield from (os.path.join(folder, each) for each in (*folders, *files))


def _missing_folders(path: str) -> Iterator[str]:
    while not os.path.lexists(path := os.path.dirname(path)):
        yield path
