"""Steps of a change of many paths, made entirely or not at all: per path, the state now and the one wanted.

Undo, redo and an applied dry run are such changes. They are recorded first, made under the locks of their folders,
rolled back if a step fails, and confirmed at the end.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final, TypeAlias

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.core.secrets import is_secret
from surehand.core.text import DIFF_LINES
from surehand.files.atomic import locked_now, temporary_name
from surehand.files.diff import creation_diff, narrow_diff, one_line, text_diff
from surehand.files.paths import open_folder, os_failure
from surehand.files.text import UTF8, detect
from surehand.history.contents import Stream
from surehand.history.disk import HELD_BYTES, Data, is_special, put, read_in, state_in
from surehand.history.history import History, Pending, before_anything_changes
from surehand.history.words import ABSENT, Author, ChangeKind, FileChange, FileState

_NAMED: Final = 10
FLUSHED_EACH: Final = 100
HELD_FOLDERS: Final = 200
"""The most folders held open and locked during a change: the number of open files is limited."""

RootsOf: TypeAlias = Callable[[str], Sequence[str]]
"""Returns the roots beneath which a path may be opened."""
Content: TypeAlias = Callable[[FileState], Data | None]
"""Returns the content of a state."""


def _carry_on() -> None:
    """Do nothing: a rollback cannot be cancelled, and most changes have no new contents to store."""


def _every(step: FileChange) -> bool:
    return True


@frozen
class Standing:
    """A step, and the present state of its path."""

    step: FileChange
    now: FileState
    data: bytes | None
    """The present content; None if there is none, or a large one."""
    special: bool = False
    """Whether the path is a pipe, a socket or a device, which could not be restored."""

    @property
    def changed(self) -> bool:
        """Whether somebody else changed the path: it has neither the state before this step nor the one after."""
        before, wanted = self.step.before, self.step.after or ABSENT
        if self.special:
            return True
        if "directory" in (before.kind, wanted.kind) and self.now.kind in ("absent", "directory"):
            return False
        return not self.now.same_content(before) and not self.now.same_content(wanted)

    def diff(self, content: Content) -> str:
        """Return what others changed since, as a diff from the expected state to the present one."""
        before, name = self.step.before, one_line(self.step.path)
        if self.special:
            return f"{name} is a pipe, a socket or a device now; move it away first\n"
        if self.now.kind == "directory":
            return f"{name} is a folder now; move it away first, unless it is empty\n"
        if self.now.kind == "symlink" and before.kind != "symlink" and self.data is not None:
            return f"{name} is a link to {one_line(os.fsdecode(self.data))} now\n"
        if max(before.size, self.now.size) > HELD_BYTES:
            return large_diff(self.step.path, before, self.now)
        known = content(before) if before.digest else None
        return data_diff(self.step.path, None if known is None else read_all(known), self.data)


@frozen
class CarriedOut:
    """What was done: the change's id ("" if none is recorded), its steps, and why its confirmation failed."""

    change_id: str
    steps: list[FileChange]
    already: list[FileChange]
    """Steps with nothing to do: their paths have the wanted state already."""
    trouble: str = ""


@frozen
class Steps:
    """The steps of a change, and where contents come from."""

    history: History
    steps: Sequence[FileChange]
    roots_of: RootsOf
    content: Content
    recorded: Callable[[FileChange], bool] = _every
    """Whether a step goes into the history; others are made, and rolled back, all the same."""
    durable: bool = True
    """Whether everything is flushed to the disk at the end."""
    keep_new: Callable[[], None] = _carry_on
    """Stores new contents in the history, in the transaction that records the change."""

    def standing(self) -> Iterator[Standing]:
        """Yield every step with the present state of its path."""
        with ExitStack() as stack:
            folders = _Folders((), self.roots_of, self._links(), stack)
            for step in self.steps:
                folder = folders.get(step.path)
                now, data = _look(folder, step.path)
                name = os.path.basename(step.path)
                special = folder is not None and now.kind == "absent" and is_special(folder, name)
                yield Standing(step, now, data, special)

    @property
    def _flush_each(self) -> bool:
        """Whether each file is flushed before its rename; many files are flushed together at the end, for speed."""
        return self.durable and len(self.steps) <= FLUSHED_EACH

    def _links(self) -> tuple[str, ...]:
        """Return the links that become folders: nothing exists below them yet."""
        return tuple(f"{step.path}/" for step in self.steps if step.before.kind == "symlink")

    def carry_out(
        self,
        who: Author,
        check: Callable[[], None],
        *,
        kind: ChangeKind = "change",
        about: Sequence[str] = (),
        parts: Mapping[str, tuple[str, ...]] | None = None,
    ) -> CarriedOut:
        """Make the change, after calling `check` under the locks."""
        with ExitStack() as stack:
            folders = _Folders((step.path for step in self.steps), self.roots_of, self._links(), stack)
            check()
            others: dict[str, bytes] = {}
            pending = None
            # One transaction: another process prunes contents that no entry refers to.
            with before_anything_changes(), self.history.transaction():
                self.keep_new()
                steps, already = self._actual(folders, others)
                if recorded := [step for step in (*steps, *already) if self.recorded(step)]:
                    pending = self.history.begin(who, recorded, kind=kind, about=about, parts=parts)
            self._do_all(steps, folders, pending, others, who.check_wanted)
            if self.durable and not self._flush_each:
                os.sync()
            if pending is None:
                return CarriedOut("", steps, already)
            return CarriedOut(pending.id, steps, already, self.history.commit_reversal(pending))

    def _actual(self, folders: _Folders, others: dict[str, bytes]) -> tuple[list[FileChange], list[FileChange]]:
        """Return the steps from the present states, whose contents are stored, and apart those made already.

        The latter keep the plan's state before: reversing this change restores that, not what is there now.
        """
        found: list[FileChange] = []
        already: list[FileChange] = []
        for step in in_order(self.steps):
            wanted = step.after or ABSENT
            folder = folders.get(step.path)
            now, data = _look(folder, step.path)
            name = os.path.basename(step.path)
            if folder is not None and data is None and now.kind == "file":
                if self.recorded(FileChange(step.path, now, wanted)):
                    self.history.keep_file(now, folder, name)
                else:
                    data = read_in(folder, name)
            if step.before.mode == wanted.mode and now.kind == wanted.kind:
                wanted = replace(wanted, mode=now.mode)  # the change leaves the mode alone
            if now == wanted and not step.before.same_content(wanted):
                already.append(FileChange(step.path, step.before, wanted))
                continue
            found.append(actual := FileChange(step.path, now, wanted))
            if data is not None and self.recorded(actual):
                self.history.contents.keep(now.digest, [data])
            elif data is not None:
                others[now.digest] = data
        return found, already

    def _do_all(
        self,
        steps: list[FileChange],
        folders: _Folders,
        pending: Pending | None,
        others: dict[str, bytes],
        check_wanted: Callable[[], None],
    ) -> None:
        """Do every step; if one fails or the call is cancelled, roll back those before it."""
        temporary = pending.temporary if pending else temporary_name(os.urandom(6).hex())
        done: list[FileChange] = []
        try:
            self._do_each(steps, folders, temporary, self.content, done, check_wanted)
        except BaseException as problem:

            def find_content(state: FileState) -> Data | None:
                return others[state.digest] if state.digest in others else self.history.source(state)

            stuck = self._take_back(steps, len(done), folders, temporary, find_content)
            if stuck:
                raise _half_done(problem, stuck, len(steps)) from problem
            self._strike(pending)
            raise

    def _take_back(
        self, steps: list[FileChange], done: int, folders: _Folders, temporary: str, content: Content
    ) -> list[str]:
        """Roll back the first `done` steps and the one that failed; return the paths that stay changed."""
        # The failed step may have been made all the same: an error can follow the rename.
        back = [step.reverse() for step in reversed(steps[: done + 1])]
        left = (step for step in steps[done:] if step.before.kind == "directory")
        shut = [FileChange(step.path, _enterable(step.before), step.before) for step in left]
        stuck: list[str] = []
        for step in (*back, *shut):
            try:
                now, _ = _look(folders.get(step.path), step.path)
                if now != step.after:
                    self._do_each([FileChange(step.path, now, step.after)], folders, temporary, content, [], _carry_on)
            except (OSError, ToolFailure):
                stuck.append(step.path)
        return stuck

    def _strike(self, pending: Pending | None) -> None:
        """Remove a change that was rolled back from the log; if that fails, recovery does."""
        if pending is not None:
            try:
                with self.history.transaction():
                    self.history.log.remove([pending.id])
            except ToolFailure:
                pass

    def _do_each(
        self,
        steps: list[FileChange],
        folders: _Folders,
        temporary: str,
        content: Content,
        done: list[FileChange],
        check_wanted: Callable[[], None],
    ) -> None:
        """Do the steps, appending each to `done`; folders without write permission get it meanwhile."""
        check_wanted()
        for step in steps:
            if (entered := _enterable(step.before)) is not step.before:
                self._do(FileChange(step.path, step.before, entered), folders, temporary, content)
        for step in steps:
            check_wanted()
            before, after = _enterable(step.before), _enterable(step.after or ABSENT)
            self._do(FileChange(step.path, before, after), folders, temporary, content)
            done.append(step)
        for step in reversed(steps):
            after = step.after or ABSENT
            if (entered := _enterable(after)) is not after:
                self._do(FileChange(step.path, entered, after), folders, temporary, content)

    def _do(self, step: FileChange, folders: _Folders, temporary: str, content: Content) -> None:
        wanted = step.after or ABSENT
        try:
            folder = folders.get(step.path, make=wanted.kind != "absent")
            if folder is not None:
                data = content(wanted) if wanted.digest else None
                name = os.path.basename(step.path)
                put(folder, name, step.before, wanted, data, temporary, flush=self._flush_each)
                if "directory" in (step.before.kind, wanted.kind):
                    folders.forget()
        except OSError as problem:
            raise os_failure(problem, step.path, "change") from None


class _Folders:
    """The folders of all paths: open and locked from the start; those above the limit opened for a moment each."""

    def __init__(self, paths: Iterable[str], roots_of: RootsOf, links: tuple[str, ...], stack: ExitStack) -> None:
        self._roots_of = roots_of
        self._links = links
        self._held: dict[str, int] = {}
        inside = {_folder_of(path): path for path in paths}  # each folder is opened once, also one that is gone
        for folder, path in inside.items():
            descriptor = self._open(path, make=False) if len(self._held) < HELD_FOLDERS else None
            if descriptor is not None:
                self._held[folder] = descriptor
                stack.callback(os.close, descriptor)
        stack.enter_context(locked_now(list(self._held.values())))
        self._latest: tuple[str, int | None] = ("", None)
        """The folder opened last: paths of one folder follow each other."""
        stack.callback(self.forget)

    def get(self, path: str, *, make: bool = False) -> int | None:
        """Return the open folder of a path, valid until the next call; None if it does not exist and is not made."""
        folder = _folder_of(path)
        held = self._held.get(folder)
        if held is None:
            latest, held = self._latest
            if latest != folder or (held is None and make):
                self.forget()
                held = self._open(path, make=make)
                self._latest = folder, held
        return held

    def forget(self) -> None:
        """Close the folder opened last: its name may lead elsewhere now."""
        if self._latest[1] is not None:
            os.close(self._latest[1])
        self._latest = ("", None)

    def _open(self, path: str, *, make: bool) -> int | None:
        folder = os.path.dirname(path)
        try:
            return open_folder(folder, self._roots_of(path), make=make)[0]
        except OSError as problem:
            if not make and _no_folder(problem, path, self._links):
                return None  # a step creates it, or the path is absent and stays so
            raise _unreachable_error(problem, path) from None


def _folder_of(path: str) -> str:
    """Return the folder of an absolute path, four times as fast as `os.path.dirname`."""
    return path.rpartition("/")[0] or "/"


def _look(folder: int | None, path: str) -> tuple[FileState, bytes | None]:
    """Return the state of a path in its open folder, and its content unless it is large."""
    try:
        return (ABSENT, None) if folder is None else state_in(folder, os.path.basename(path), HELD_BYTES)
    except OSError as problem:
        raise os_failure(problem, path, "read") from None


def in_order(steps: Sequence[FileChange]) -> list[FileChange]:
    """Sort steps so that folders are made before, and removed after, what is in them."""
    made = [step for step in steps if (step.after or ABSENT).kind == "directory"]
    kept = {step.path for step in made}
    removed = [step for step in steps if step.before.kind == "directory" and step.path not in kept]
    gone = {step.path for step in removed}
    others = [step for step in steps if step.path not in kept and step.path not in gone]
    return [
        *sorted(made, key=lambda step: step.path),
        *others,
        *sorted(removed, key=lambda step: step.path, reverse=True),
    ]


def _enterable(state: FileState) -> FileState:
    """Return a folder's state with all permissions of its owner; any other state unchanged."""
    if state.kind != "directory" or state.mode & 0o700 == 0o700:
        return state
    return replace(state, mode=state.mode | 0o700)


def _no_folder(problem: OSError, path: str, links: tuple[str, ...]) -> bool:
    """Return whether a folder could not be opened because it does not exist, or a known link is in its place."""
    return problem.errno in (errno.ENOENT, errno.ENOTDIR) or (problem.errno == errno.ELOOP and path.startswith(links))


def _unreachable_error(problem: OSError, path: str) -> ToolFailure:
    if problem.errno != errno.ELOOP:
        return os_failure(problem, path, "reach")
    return ToolFailure(
        f"a folder on the way to {one_line(path)} is now a link, and links are not followed here",
        hint="Nothing was changed. Put the folder back, then try again.",
        details={"path": path, "errno": "ELOOP"},
    )


def _half_done(problem: BaseException, stuck: list[str], total: int) -> ToolFailure:
    """Return the failure of a change that stopped half-way and could not be rolled back."""
    shown = ", ".join(map(one_line, stuck[:_NAMED])) + (f" and {len(stuck) - _NAMED:,} more" if stuck[_NAMED:] else "")
    return ToolFailure(
        f"stopped halfway: {problem}. {len(stuck):,} of {total:,} paths stay changed: {shown}",
        hint="It is recorded: once the cause is removed, the next undo or `surehand log` completes it.",
        details={"paths": stuck},
    )


def read_all(data: Data) -> bytes:
    """Return a content as bytes."""
    return b"".join(data) if isinstance(data, Stream) else bytes(data)


def large_diff(path: str, before: FileState, after: FileState) -> str:
    """Describe how two states differ, one of which is too large for a diff."""
    if before.same_content(after):
        return ""
    sizes = " → ".join("not there" if each.kind == "absent" else f"{each.size:,} bytes" for each in (before, after))
    return f"Large file {one_line(path)} differs ({sizes}); its lines are not shown\n"


def data_diff(path: str, before: bytes | None, after: bytes | None) -> str:
    """Return the diff of two contents; None stands for a file that does not exist."""
    if before == after:
        return ""
    if is_secret(path):
        return f"{one_line(path)} differs; its lines are not shown, for it holds secrets, going by its name\n"
    encodings = [UTF8 if data is None else detect(data) for data in (before, after)]
    if None in encodings:
        return f"Binary file {one_line(path)} differs ({len(before or b'')} → {len(after or b'')} bytes)\n"
    if before and after and encodings[0] == encodings[1] and (encoding := encodings[0]):
        shown = narrow_diff(before, after, encoding, path)
        if shown is not None:
            return shown
    old, new = (
        encoding.decode(data, "replace") if data is not None and encoding else ""
        for data, encoding in zip((before, after), encodings, strict=True)
    )
    if before is None:
        return creation_diff(new, path, limit_lines=DIFF_LINES)
    if not before and after is None:
        return f"removes {one_line(path)}, which is empty\n"
    shown = text_diff(old, new, path, limit_lines=DIFF_LINES)
    return shown if shown else f"{one_line(path)}: only its encoding or BOM differs\n"
