"""Dry runs of commands: on an overlay, on a copy mounted over the workspace, or on a copy beside it.

    scratch = await prepare_scratch(shells, name)
    ended = await scratch.run(command, stdout.feed, stderr.feed, timeout_s)
    found = scratch.copy.differences()
    await scratch.discard()

The first two need namespaces; absolute paths lead to the copy. With Landlock alone the copy is beside the workspace,
which is not writable then; changes that Landlock does not prevent (modes) are reverted. Where nothing can keep a
command off the workspace, there is no dry run.

Applying makes exactly the changes that were shown, all or none, and can be undone like any edit.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from surehand.commands.dry_run_copies import DIFF_BYTES, Difference, Layers, Side, TreeCopy, read_bytes, render
from surehand.commands.leftovers import DRY_RUNS, PrivateFolder
from surehand.commands.session import Shells
from surehand.core.errors import ToolFailure
from surehand.core.frozen import replace_values
from surehand.core.session import digest_of
from surehand.files.protected_paths import inside
from surehand.files.trees import remove_tree
from surehand.history.change_logs import ChangeLog
from surehand.history.command_changes import KEPT_FILE, KEPT_TOTAL, Recorded, put_back
from surehand.history.disk import Data
from surehand.history.steps import Content, Standing, Steps
from surehand.history.words import ABSENT, FileChange, FileState
from surehand.sandbox import protocol
from surehand.sandbox.command import NO_LAYER, Command, Ended, Feed, SandboxFailure
from surehand.sandbox.protocol import Runner

if TYPE_CHECKING:
    from surehand.history.history import History
    from surehand.history.words import Author

_HINT: Final = "Without a dry run, `surehand policy check` says which files and hosts it would touch."


class Scratch:
    """A copy of the workspace, and the launcher that confines commands to it."""

    def __init__(self, copy: Layers | TreeCopy, launcher: Runner, own: PrivateFolder | None = None) -> None:
        self.copy = copy
        self.launcher = launcher
        self._own = own
        self.put_back: tuple[str, ...] = ()
        """What the command changed in the workspace itself, and what was reverted."""

    @property
    def beside(self) -> bool:
        """Whether the copy is beside the workspace, so that absolute paths lead to the workspace itself."""
        return self._own is not None

    @property
    def kind(self) -> str:
        """How the copy is made."""
        return "layer" if isinstance(self.copy, Layers) else "copy beside" if self.beside else "copy"

    async def run(self, command: Command, stdout: Feed, stderr: Feed, timeout_s: float) -> Ended:
        """Run the command on the copy to its end."""
        if not self.beside:
            return await self.launcher.run(command, stdout, stderr, overlay=self.copy.wire).finish(timeout_s)
        assert isinstance(self.copy, TreeCopy)
        command = _beside(command, self.copy)
        change_log = os.path.join(self.copy.folder, "change-log")
        os.mkdir(change_log, 0o700)
        run = self.launcher.run(command, stdout, stderr, change_log=change_log)
        try:
            return await run.finish(timeout_s)
        finally:
            await asyncio.shield(asyncio.to_thread(self._put_back, change_log, run.ended))

    def _put_back(self, change_log: str, ended: Ended | None) -> None:
        """Revert changes of the workspace that Landlock does not prevent: modes, by absolute paths."""
        try:
            if ended is not None and ended.change_log is not None and ended.change_log["count"]:
                self.put_back = put_back(ChangeLog(change_log), lambda path: not inside(path, [self.copy.folder]))
        finally:
            remove_tree(change_log)

    async def discard(self) -> None:
        """Delete the copy, and close a launcher of its own."""
        await asyncio.to_thread(self.copy.discard)
        if self._own is not None:
            await self.launcher.close()
            await asyncio.to_thread(self._own.remove)


async def prepare_scratch(shells: Shells, name: str) -> Scratch:
    """Make the best kind of copy for a dry run that is possible here; raise ToolFailure if none is."""
    launcher = await shells.dry_run_launcher()
    folder = shells.dry_run_folder(name)
    workspace = launcher.profile.workspace if launcher else _real(shells.session.workspace)
    if inside(folder, [workspace]):
        raise ToolFailure(f"a dry run is not possible here: the workspace {workspace} holds the copy itself")
    if launcher is not None and not shells.no_layers and protocol.abilities().overlay:
        return Scratch(await asyncio.to_thread(Layers.make, folder, workspace, _others(launcher)), launcher)
    if launcher is not None:
        return Scratch(await _copy_workspace(folder, workspace, _others(launcher)), launcher)
    if not protocol.abilities().enough:
        why = protocol.abilities().why_not or "this system can contain nothing"
        raise ToolFailure(
            f"a dry run is not possible here: nothing would keep it off the workspace ({why})",
            code="tool_unavailable",
            hint=_HINT,
        )
    # Not in the session's private temp: its commands can write there, and Landlock alone can hide nothing in it.
    own = PrivateFolder.make()
    try:
        copy = await _copy_workspace(os.path.join(own.path, DRY_RUNS, name), workspace)
        return Scratch(copy, await _start_confined(shells, copy), own)
    except BaseException:
        await asyncio.to_thread(own.remove)
        raise


def _beside(command: Command, copy: TreeCopy) -> Command:
    """Return the command with its directory and TMPDIR moved into a copy beside the workspace."""
    cwd = _real(command.cwd)
    if inside(cwd, [copy.workspace]):
        cwd = os.path.normpath(os.path.join(copy.copy, os.path.relpath(cwd, copy.workspace)))
    return replace_values(command, cwd=cwd, environment={**command.environment, "TMPDIR": copy.temp})


def _real(path: str) -> str:
    return os.path.realpath(path)


def _others(launcher: Runner) -> list[str]:
    """Return what commands may write besides the workspace and their private temp."""
    profile = launcher.profile
    return [path for path in profile.writable if path != profile.workspace and not inside(path, [profile.private_dir])]


async def _copy_workspace(folder: str, workspace: str, frozen: Sequence[str] = ()) -> TreeCopy:
    """Copy the workspace in a thread, which stops when this is cancelled."""
    stop = threading.Event()
    work = asyncio.ensure_future(
        asyncio.to_thread(TreeCopy.make, folder, workspace, frozen=frozen, stopped=stop.is_set)
    )
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        done, _ = await asyncio.wait({work})
        if all(each.exception() is None for each in done):
            work.result().discard()
        raise


async def _start_confined(shells: Shells, copy: TreeCopy) -> Runner:
    """Start a launcher whose commands may write only in the copy."""
    profile = replace_values(shells.closed_profile(private_view=False), writable=(copy.copy, copy.temp), network=False)
    try:
        return await protocol.choose().start(profile)
    except SandboxFailure as failure:
        raise ToolFailure(
            f"a dry run is not possible here: {failure}", code="tool_unavailable", hint=_HINT
        ) from failure


def never_ran(ended: Ended) -> str:
    """Return why the overlay could not be mounted, so that the command never ran; else an empty text."""
    return ended.stopped.removeprefix(NO_LAYER) if ended.stopped.startswith(NO_LAYER) else ""


MOST_PATHS: Final = 100_000
MOST_BYTES: Final = 1 << 30
"""The largest dry run that can be applied: old contents have to be saved in the history first."""
_REMEMBERED_BYTES: Final = 16 * 1024 * 1024

_KINDS: Final = {"file": "file", "symlink": "symlink", "directory": "directory"}


def remember(differences: Sequence[Difference]) -> dict[str, bytes]:
    """Return the contents of small files that a dry run would change, by digest, to show later changes by others."""
    kept: dict[str, bytes] = {}
    room = _REMEMBERED_BYTES
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
    """Applies the differences of a dry run below `roots`, recording those below `recorded` in the history."""

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
        """Apply and record the differences; raise ToolFailure, with nothing changed, if one of them cannot be."""
        self._refuse_unrecordable()
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
        # Changes inside .git are undone by git's own means.
        return inside(change.path, self._recorded) and "/.git/" not in f"{change.path}/"

    def _refuse_unrecordable(self) -> None:
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
        """Save new contents, within the limit, for a redo and to finish an apply that a crash interrupts."""
        room = KEPT_TOTAL
        for each in changes:
            after = each.after or ABSENT
            if after.digest and after.size <= min(KEPT_FILE, room) and self._is_recorded(each):
                history.contents.keep(after.digest, [_data(self._after[after.digest])])
                room -= after.size

    def _check(self, steps: Steps) -> None:
        """Raise ToolFailure, with a diff, if anybody else has changed a path since the dry run began."""
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
        """Return what was added since to folders that would be deleted."""
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
    """Tell whether somebody else changed the mode of a path that the dry run changes."""
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
    """Return a content of the copy; a large one is memory-mapped."""
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
