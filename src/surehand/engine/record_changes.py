"""Record changes in the history for tools that only declare the paths they change, so that they can be undone.

The contents of each path are read before the handler runs and after it has ended or failed. Tools that record their
changes themselves declare it (`reversible`) and are skipped.
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
"""Maximum size of the declared files of one call, which are held in memory while the handler runs."""

_Changing: TypeAlias = WritePath | DeletePath
_Standing: TypeAlias = "Mapping[str, tuple[FileState, bytes | None]]"


class _TooMuch(Exception):
    """Raised if the declared files exceed the limits."""


class Keeping:
    """Middleware that records the changes a call made to its declared paths."""

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
    """Record the compensation of a call in the history; note in the result if that fails."""
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
    except Exception as problem:  # the call has succeeded; that it cannot be undone is only noted
        why = str(problem) if isinstance(problem, ToolFailure) else f"{type(problem).__name__}: {problem}"
        _emit_problem(prepared, ToolFailure(why))
        left = Undo(files, f"take back what {tool.name} did to files, and only that") if files else None
        return replace(result, undo=left).with_meta(not_undoable=why)


def _plain(args: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a call's arguments for the history; None if they are no JSON data."""
    try:
        return json.loads(json.dumps(dict(args), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return None


def _own_undo(prepared: Prepared, result: ToolResult) -> Undo | None:
    """Return the compensation that the tool's `undo` gives for a successful call."""
    if prepared.tool.undo is None or not result.ok:
        return None
    made = prepared.tool.undo(prepared.args, result)
    return Undo(call=made) if isinstance(made, ToolCall) else made


def _stated_changes(prepared: Prepared) -> list[_Changing]:
    effects = prepared.tool.effects(prepared.args, prepared.ctx) if prepared.tool.effects else None
    return [each for each in effects or () if isinstance(each, WritePath | DeletePath)]


def _record_difference(prepared: Prepared, stated: list[_Changing], before: _Standing) -> str | None:
    """Record the differences from the states before; return the id of the change."""
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
    """Return the contents at all declared paths, recursively where declared so, and at the known ones."""
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
    """Yield all paths a call may change: declared ones, link targets, new parent directories, and what is below."""
    for effect in stated:
        parent, name = os.path.split(os.path.normpath(effect.path))
        real = os.path.realpath(effect.path)
        yield from _missing_folders(real)
        yield os.path.join(os.path.realpath(parent), name)
        yield real
        if effect.recursive and os.path.isdir(real):
            for folder, folders, files in os.walk(real):
                folders[:] = [each for each in folders if each != ".git"]  # git's own data is not undone file by file
                yield from (os.path.join(folder, each) for each in (*folders, *files))


def _missing_folders(path: str) -> Iterator[str]:
    while not os.path.lexists(path := os.path.dirname(path)):
        yield path
