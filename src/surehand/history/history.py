"""`History`: tools record a change in it before making it, and confirm it afterwards.

    pending = history.begin(who, [FileChange(path, before, after)], before=data, after=parts)
    ...replace the file through `pending.temporary`, under the folder's lock...
    change_id = history.commit(pending)

A tool that learns afterwards what changed (a command) stores the contents with `keep_bytes` and adds the entry with
`record`, both in one transaction: contents that no entry of the log refers to are pruned.

What a call did elsewhere than in files is undone by another call, its compensation. It is recorded when the call has
ended, and Undo makes it in turn with the other changes, newest first:

    author = Author.of(ctx, "Send", "Send the letter")
    change_id = history.record_compensation(author, Compensation("Unsend", {"id": 7}))

It is an entry like any other (`Change.compensation`, no files), belongs to a turn and a session, and is listed by
`surehand log`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.core.session import Kept
from surehand.files.atomic import temporary_name
from surehand.files.streamed import Bytes, Part
from surehand.files.text import Splice
from surehand.history import recovery
from surehand.history.contents import LINK_BYTES
from surehand.history.log import PARTIAL_UNDOS, of_kind, of_turns, prune_oldest
from surehand.history.store import Store, unusable
from surehand.history.words import CALL_MADE, Author, Change, ChangeKind, Compensation, FileChange

if TYPE_CHECKING:
    from surehand.core.session import Session

_UNCHANGED: Final = "Nothing was changed."
_CHECK_EVERY: Final = 200
_AT_ONCE: Final = 50
_OF_SESSION: Final = "(session = ? OR main_session = ?)"
_STRAYS_EVERY_S: Final = 24 * 3600.0


@frozen
class Pending:
    """A change that is recorded and not yet confirmed."""

    id: str
    temporary: str
    linked: str = ""
    """The digest of the old content, if its file is to be linked into the store."""


class History(Store):
    """The history of one workspace. Safe to use from several threads, and by several processes at once."""

    def __init__(self, folder: str | None, limit_bytes: int, note: Callable[[str], None] = lambda text: None) -> None:
        super().__init__(folder, limit_bytes, note)
        self._users = 1
        self._recorded = 0

    def begin(
        self,
        who: Author,
        files: Sequence[FileChange],
        *,
        before: Bytes | None = None,
        after: Sequence[Part] | None = None,
        splices: Sequence[Splice] = (),
        kind: ChangeKind = "change",
        about: Sequence[str] = (),
        parts: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Pending:
        """Record a change that begins. `before` and `after` are contents of its first file, not stored yet."""
        temporary = temporary_name(os.urandom(6).hex())
        first, linked = files[0], ""
        change = _entry(who, files, kind, about, temporary, parts)
        with before_anything_changes(), self.transaction():
            if before is not None and len(before) >= LINK_BYTES and self._folder is not None:
                linked = first.before.digest if self.contents.announce(first.before.digest, len(before)) else ""
            elif before is not None:
                self.contents.keep(first.before.digest, [before])
            if after is not None and first.after is None and not splices:
                self.contents.added += sum(map(len, after))  # stored on completion, but refused now if too large
            elif after is not None and first.after is not None:
                self.contents.keep_after(first.after.digest, first.before.digest, splices, after)
            return Pending(self.log.add(change), temporary, linked)

    def adopt(self, pending: Pending, folder: int, name: str, data: Bytes, links: int) -> None:
        """Bring a large old content into the store, by a hard link if the file has no other name."""
        if not pending.linked:
            return
        with before_anything_changes():
            try:
                self.contents.adopt(pending.linked, folder, name if links == 1 else "", data)
            except OSError as problem:
                raise unusable(problem) from problem

    def commit(self, pending: Pending) -> str:
        """Confirm a change that has happened as recorded; return its id.

        The confirmation is written with the next transaction. After a crash before that, recovery confirms the change
        by the file, which holds the recorded content.
        """
        with self._lock:
            self._confirmed.append(pending.id)
        self._prune_sometimes()
        return pending.id

    def complete(
        self,
        pending: Pending,
        files: Sequence[FileChange],
        after: Sequence[Part],
        splices: Sequence[Splice] = (),
    ) -> str:
        """Confirm a change whose new content was not known when it began; return its id.

        Never raises: the files are changed already. What cannot be confirmed now is recovered at the next opening.
        """
        first = files[0]
        try:
            with self.transaction():
                if first.after is not None:
                    self.contents.keep_after(first.after.digest, first.before.digest, splices, after)
                self.log.finish(pending.id, files)
        except ToolFailure as problem:
            self._note(f"change {pending.id} is made but not yet confirmed in the history: {problem}")
        self._prune_sometimes()
        return pending.id

    def commit_reversal(self, pending: Pending) -> str:
        """Confirm an undo or redo and update the states of the changes it is about; return why that failed, or "".

        Never raises: the files are changed already, and the next opening recovers the rest.
        """
        try:
            with self.transaction():
                self.log.confirm([pending.id])
                if change := self.log.get(pending.id, with_files=False):
                    self.log.update_reversed(change)
        except ToolFailure as problem:
            return f"it is made, and will be confirmed in the history later: {problem}"
        self._prune_sometimes()
        return ""

    def abandon(self, pending: Pending, folder: int, *, may_have_happened: bool = True) -> bool:
        """Remove the entry of a change that failed; return True, and confirm it, if the change happened all the same.

        The file tells: an error may follow the rename. `folder` is the open folder of the first path, whose lock the
        caller holds.
        """
        try:
            with self._hold_database():
                change = self.log.get(pending.id)
            if change is None:
                return False
            with ExitStack() as stack:
                folders = {**recovery.open_folders(change, stack), os.path.dirname(change.files[0].path): folder}
                if may_have_happened:
                    return bool(recovery.recover_change(self, change, folders))
                recovery.strike(self, change, folders)
        except (ToolFailure, OSError):  # a full disk; the next opening recovers it
            pass
        return False

    def record(self, who: Author, changes: Sequence[FileChange]) -> str:
        """Record a change that has happened and whose contents are stored already; return its id."""
        return self.record_found(lambda: (who, changes))

    def record_found(self, find: Callable[[], tuple[Author, Sequence[FileChange]]]) -> str:
        """Record the changes that `find` returns, in one transaction; return the id, "" for none."""
        with self.transaction():
            who, changes = find()
            if not changes:
                return ""
            id = self.log.add(replace(_entry(who, changes, "change", (), ""), state="done"))
        self._prune_sometimes()
        return id

    def record_compensation(self, who: Author, compensation: Compensation, change_id: str = "") -> str:
        """Record the call that undoes what a call did elsewhere than in files; return the change's id.

        `change_id` is the change of files that the same call made: one undo takes back both.
        """
        with self.transaction():
            if change_id and self.log.get(change_id, with_files=False) is not None:
                self.log.set_compensation(change_id, compensation)
                return change_id
            return self.log.add(replace(_entry(who, (), "change", (), ""), state="done", compensation=compensation))

    def record_taken_back(self, who: Author, change_id: str) -> str:
        """Record that the compensation of a change was called; return the id of that undo."""
        entry = replace(_entry(who, (), "undo", (change_id,), ""), state="done", parts={change_id: (CALL_MADE,)})
        with self.transaction():
            id = self.log.add(entry)
            self.log.update_reversed(replace(entry, id=id))
        return id

    def record_made_again(self, who: Author, change_id: str, made: str, *, redo: str, undos: Sequence[str]) -> str:
        """Record that the call of a change was made again, as the change `made` ("" if it recorded none).

        `redo` is the redo that this belongs to, "" for a new one; `undos` are the undos that it completes. Returns the
        redo's id.
        """
        with self.transaction():
            taken_back = self.log.select(PARTIAL_UNDOS, (), with_files=False)
            done = [each.id for each in taken_back if CALL_MADE in each.parts.get(change_id, ())] + [*undos]
            self.log.set_state(done, "undone")
            redo = redo or self.log.add(replace(_entry(who, (), "redo", (), ""), state="done"))
            before = self.log.get(redo, with_files=False)
            self.log.set_about(redo, (*(before.about if before else ()), *done, *([made] if made else [])))
        return redo

    def change(self, id: str, *, with_files: bool = True) -> Change | None:
        """Return a change by its id."""
        with self._hold_to_read():
            return self.log.get(id, with_files=with_files)

    def begun(self) -> list[Change]:
        """Return the changes that have begun and are not confirmed, oldest first."""
        with self._hold_to_read():
            return self.log.intents()

    def changes(
        self,
        *,
        limit: int = -1,
        session_id: str | None = None,
        path: str | None = None,
        call_id: str | None = None,
        turn: str | None = None,
        before: int | None = None,
    ) -> list[Change]:
        """Return confirmed changes, newest first, filtered by session, path, call, turn, and below a number."""
        condition, values = "state != 'intent'", list[str | int]()
        if before is not None:
            condition, values = condition + " AND number < ?", [before]
        if turn is not None:
            condition, values = f"{condition} AND {of_turns(1)}", [*values, turn, turn]
        if call_id is not None:
            condition, values = condition + " AND call = ?", [*values, call_id]
        if session_id is not None:
            condition, values = f"{condition} AND {_OF_SESSION}", [*values, session_id, session_id]
        with self._hold_to_read():
            found = self.log.select(condition, values, limit=-1 if path else limit)
        if path is None:
            return found
        below = path.rstrip("/") + "/"
        found = [each for each in found if any(f.path == path or f.path.startswith(below) for f in each.files)]
        return found[:limit] if limit >= 0 else found

    def standing(
        self,
        kind: ChangeKind = "change",
        *,
        limit: int = -1,
        session_id: str | None = None,
        after: int = 0,
        turns: Sequence[str] | None = None,
    ) -> list[Change]:
        """Return changes of a kind that are not undone, newest first, filtered by session, turns, above a number."""
        condition, values = f"state = 'done' AND {of_kind(kind)} AND number > ?", list[str | int]([after])
        if turns is not None:
            # The `+` signs make SQLite use the index of turns instead of reading all changes of the kind.
            condition = f"+state = 'done' AND +kind = '{kind}' AND number > ? AND {of_turns(len(turns))}"
            values += [*turns, *turns]
        if session_id is not None:
            condition, values = f"{condition} AND {_OF_SESSION}", [*values, session_id, session_id]
        with self._hold_to_read():
            return self.log.select(condition, values, limit=limit)

    def latest_first(self, condition: str) -> Iterator[Change]:
        """Yield the entries that meet a condition, newest first, read a few at a time."""
        below = sys.maxsize
        while True:
            with self._hold_to_read():
                found = self.log.select(f"number < ? AND {condition}", (below,), limit=_AT_ONCE)
            yield from found
            if len(found) < _AT_ONCE:
                return
            below = found[-1].number

    def partial_undos(self) -> dict[str, set[str]]:
        """Return, by change id, the paths that undos of a part of the change have restored."""
        with self._hold_database():
            return self.log.partial_undos()

    def describe_pruned(self) -> str:
        """Say how many changes were pruned and why; empty if none were."""
        with self._hold_database():
            return self.log.fact("dropped")

    def share(self) -> History:
        """Count one more user, a sub-session; the last one's `close` closes the history."""
        with self._lock:
            self._users += 1
        return self

    def close(self) -> None:
        """Write confirmations, compress, prune, and close the database."""
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return
            try:
                if self._folder is not None and not self.unwritable:
                    self._tidy()
            finally:
                self._database.close()

    def remove_strays(self) -> None:
        """Delete what killed processes left in the store: contents of changes that never happened."""
        with self.transaction():
            self.contents.remove_strays()
            self.log.set_fact("strays_removed", str(time.time()))

    def _tidy(self) -> None:
        try:
            with self.transaction():
                self.contents.compress(budget_s=0.25)  # the transaction also writes pending confirmations
                last = float(self.log.fact("strays_removed", "0"))
            self._keep_to_limit()
            if not last <= time.time() <= last + _STRAYS_EVERY_S:
                self.remove_strays()
        except (ToolFailure, OSError) as problem:
            self._note(str(problem))

    def _prune_sometimes(self) -> None:
        """Prune every few changes, and after much new content. Never raises: the files are changed already."""
        self._recorded += 1
        if self._recorded % _CHECK_EVERY == 0 or self.contents.added > self._limit_bytes // 10:
            self.contents.added = 0
            try:
                self._keep_to_limit()
            except ToolFailure as problem:
                self._note(str(problem))

    def _keep_to_limit(self) -> None:
        if self.prune(self._limit_bytes):
            self._note(self.describe_pruned())

    def prune(self, limit_bytes: int) -> int:
        """If the contents exceed the limit, drop the oldest changes until a tenth of it is free; return how many."""
        # `prune_oldest` (log.py) chooses what goes. Called every `_CHECK_EVERY` changes, after large ones and at close,
        # never by `open_to_look`; by hand from console/changes.py. `prune_seen` prunes what sessions have read.
        # Limits: `HistorySettings`; of one change `most_bytes` (store.py).
        if self.size_bytes() <= limit_bytes:
            return 0
        with self.transaction():
            size = f"{limit_bytes // (1024 * 1024)} MB"
            own = limit_bytes == self._limit_bytes
            why = f"the history is limited to {size} (history.limit_mb)" if own else f"the history was pruned to {size}"
            dropped = prune_oldest(self.log, self.contents, limit_bytes, why)
        with self._hold_database():
            self._database.execute("PRAGMA incremental_vacuum").fetchall()
        return dropped


def _entry(
    who: Author,
    files: Sequence[FileChange],
    kind: ChangeKind,
    about: Sequence[str],
    temporary: str,
    parts: Mapping[str, tuple[str, ...]] | None = None,
) -> Change:
    return Change(
        id="0",
        tool=who.tool,
        files=tuple(files),
        kind=kind,
        state="intent",
        about=tuple(about),
        session_id=who.session_id,
        main_session_id=who.main_session_id,
        turn=who.turn,
        call_id=who.call_id,
        description=who.description,
        note=who.note,
        parts=parts or {},
        temporary=temporary,
    )


@contextmanager
def before_anything_changes() -> Generator[None]:
    """Add "Nothing was changed" to a failure of the history; for use before the first file changes."""
    try:
        yield
    except ToolFailure as problem:
        if not problem.hint.startswith(_UNCHANGED):
            problem.hint = f"{_UNCHANGED} {problem.hint}".strip()
        raise


def _open(session: Session) -> History:
    if session.parent is not None:
        return session.parent.keep(HISTORY).share()
    folder = None if session.state_dir is None else os.path.join(session.state_dir, "history")
    limit = session.settings.history.limit_mb * 1024 * 1024

    def note(text: str) -> None:
        session.emit("note", message=text)
        session.result_notes.append(text)

    history = History(folder, limit, note)
    if problem := recovery.recover_interrupted(history):
        session.emit("note", message=problem)
    return history


@contextmanager
def open_to_look(state_dir: str, note: Callable[[str], None]) -> Generator[History]:
    """Open the history in a workspace's state folder, and recover what a crash left; nothing is pruned.

    Works on a disk that cannot be written, too; what is not recovered then is noted.
    """
    folder = os.path.join(state_dir, "history")
    # A killed command may have left its change log only: it becomes the first change.
    is_there = any(os.path.isdir(os.path.join(state_dir, name)) for name in ("history", "journals"))
    history = History(folder if is_there else None, sys.maxsize, note)
    try:
        if problem := recovery.recover_interrupted(history):
            note(problem)
        yield history
    finally:
        history.close()


async def _close(history: History) -> None:
    history.close()


HISTORY: Final[Kept[History]] = Kept("history", make=_open, close=_close)
"""The session's history: `ctx.session.keep(HISTORY)`."""
