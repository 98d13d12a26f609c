"""Apply what a command did on a copy: exactly that, whole or not at all, and undone like any edit."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from surehand.commands.dry_run.differences import DIFF_BYTES, Difference, Side, read_bytes, render
from surehand.core.errors import ToolFailure
from surehand.core.read_state import digest_of
from surehand.files.protected_paths import inside
from surehand.history.command_changes import KEPT_FILE, KEPT_TOTAL, Recorded
from surehand.history.disk import Data
from surehand.history.steps import Content, Standing, Steps
from surehand.history.words import ABSENT, FileChange, FileState

if TYPE_CHECKING:
    from surehand.history.history import History
    from surehand.history.words import Author

MOST_PATHS: Final = 100_000
MOST_BYTES: Final = 1 << 30
"""The most a dry run may change and still be applied: what is changed or deleted goes into the history first."""
_REMEMBERED: Final = 16 * 1024 * 1024

_KINDS: Final = {"file": "file", "symlink": "symlink", "directory": "directory"}


def remember(differences: Sequence[Difference]) -> dict[str, bytes]:
    """Return what small files hold that a dry run would change, by digest: to show what somebody changed since."""
    kept: dict[str, bytes] = {}
    room = _REMEMBERED
    for each in differences:
        side = each.before
        if side.kind != "file" or not side.digest or side.size > min(room, DIFF_BYTES):
            continue
        try:
            data = read_bytes(side.at)
        except OSError:
            continue
        if digest_of(data) == side.digest:
            kept[side.digest] = data
            room -= len(data)
    return kept


class Applying:
    """What is to be applied, beneath which roots, and what of it goes into the history."""

    def __init__(
        self,
        differences: Sequence[Difference],
        remembered: Mapping[str, bytes],
        *,
        roots: Sequence[str],
        recorded: Sequence[str],
        forbidden: Callable[[str], bool],
    ) -> None:
        self.differences = differences
        self._remembered = remembered
        self._roots = roots
        self._recorded = recorded
        self._forbidden = forbidden
        self._after = {each.after.digest: each.after for each in differences if each.after.digest}

    def apply(self, history: History, who: Author) -> Recorded:
        """Make the differences real and write them down; raise ToolFailure, with nothing changed, where one cannot."""
        self._refuse_what_cannot_be_kept()
        changes = [FileChange(each.place, _state(each.before), _state(each.after)) for each in self.differences]
        steps = Steps(
            history,
            changes,
            lambda path: self._roots,
            self._content(history),
            self._is_recorded,
            durable=False,
            keep_new=lambda: self._keep_new(history, changes),
        )
        done = steps.carry_out(who, lambda: self._check(steps))
        files = sorted((each for each in done.steps if self._is_recorded(each)), key=lambda each: each.path)
        return Recorded(done.change_id, tuple(files), done.trouble)

    def _is_recorded(self, change: FileChange) -> bool:
        # What git keeps for itself is git's to take back.
        return inside(change.path, self._recorded) and "/.git/" not in f"{change.path}/"

    def _refuse_what_cannot_be_kept(self) -> None:
        reasons: dict[str, Callable[[Difference], bool]] = {
            "no command may change it": lambda each: self._forbidden(each.place),
            "it is not a file, link or folder": lambda each: "other" in (each.before.kind, each.after.kind),
            "its owner would change, which cannot be undone": lambda each: (
                each.both and each.before.owner != each.after.owner
            ),
            "it cannot be read, so it could not be put back": lambda each: any(
                side.kind == "file" and not side.digest for side in (each.before, each.after)
            ),
        }
        for why, says in reasons.items():
            if paths := [each.path for each in self.differences if says(each)]:
                raise _refusal(f"{_list_some(paths)}: {why}", paths)
        if len(self.differences) > MOST_PATHS:
            raise _refusal(f"it changed more than {MOST_PATHS:,} paths", [])
        if sum(each.before.size for each in self.differences) > MOST_BYTES:
            raise _refusal(f"it would change or delete more than {MOST_BYTES >> 20:,} MB", [])

    def _content(self, history: History) -> Content:
        def content(state: FileState) -> Data | None:
            side = self._after.get(state.digest)
            if side is not None:
                return _data(side)
            return self._remembered[state.digest] if state.digest in self._remembered else history.source(state)

        return content

    def _keep_new(self, history: History, changes: Sequence[FileChange]) -> None:
        """Keep new contents for a redo, and for finishing what a crash cuts off, as far as there is room."""
        room = KEPT_TOTAL
        for each in changes:
            after = each.after or ABSENT
            if after.digest and after.size <= min(KEPT_FILE, room) and self._is_recorded(each):
                history.contents.keep(after.digest, [_data(self._after[after.digest])])
                room -= after.size

    def _check(self, steps: Steps) -> None:
        """Raise ToolFailure, with a diff, when a path was changed by somebody else since the dry run began."""
        during = [each for each in self.differences if each.disturbed]
        since = [each for each in steps.standing() if each.changed or _other_mode(each)]
        added = self._find_added()
        if not during and not since and not added:
            return
        names = {each.place: each.path for each in self.differences}
        paths = [*(each.path for each in during), *(names[each.step.path] for each in since), *added]
        diff = render(during) + "".join(_diff(each, self._content(steps.history)) for each in since)
        raise ToolFailure(
            f"not applied: {_list_some(paths)} changed since the dry run began\n{diff}".rstrip("\n"),
            code="precondition_failed",
            hint="Nothing was changed. Try the command again, or run it for real.",
            details={"paths": paths, "diff": diff},
        )

    def _find_added(self) -> list[str]:
        """Return what came to stand in folders that would go."""
        known = {each.place for each in self.differences}
        found: list[str] = []
        for each in self.differences:
            if each.before.kind == "directory" and each.after.kind != "directory" and os.path.isdir(each.place):
                names = sorted(os.listdir(each.place))
                found += [
                    os.path.join(each.path, name) for name in names if os.path.join(each.place, name) not in known
                ]
        return found


def _other_mode(each: Standing) -> bool:
    """Tell whether somebody changed the mode of what the dry run changes too."""
    wanted = each.step.after or ABSENT
    return each.now.kind == each.step.before.kind != "symlink" and each.now.mode not in (
        each.step.before.mode,
        wanted.mode,
    )


def _diff(each: Standing, content: Content) -> str:
    return each.diff(content) or f"mode of {each.step.path}: {each.step.before.mode:o} → {each.now.mode:o}\n"


def _state(side: Side) -> FileState:
    kind = _KINDS.get(side.kind)
    return FileState(kind, side.digest, side.mode, side.size) if kind else ABSENT  # pyright: ignore[reportArgumentType]


def _data(side: Side) -> bytes | memoryview:
    """Return a content of the copy; a large one is mapped, not read."""
    if side.kind == "symlink":
        return os.fsencode(os.readlink(side.at))
    if side.size <= DIFF_BYTES:
        return read_bytes(side.at)
    descriptor = os.open(side.at, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


def _list_some(paths: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(paths[:most])
    return f"{shown} and {len(paths) - most} more" if len(paths) > most else shown


def _refusal(why: str, paths: Sequence[str]) -> ToolFailure:
    return ToolFailure(
        f"the dry run cannot be applied: {why}",
        code="precondition_failed",
        hint="Nothing was changed. Discard it, or run the command for real.",
        details={"paths": list(paths[:100])},
    )
