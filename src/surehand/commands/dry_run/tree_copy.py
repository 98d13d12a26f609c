"""A whole copy of the workspace for the dry run of one command, where the system has no copy-on-write layers.

Files are shared with the original until one is written (a reflink) where the file system can, plain bytes otherwise,
and bounded either way. What the command changed is found by the status of every copied file, whose time of change no
command can set back.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from surehand.commands.dry_run.differences import Difference, look, open_up
from surehand.commands.dry_run.overlay import disturbed, make_covers, wire
from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.files.trees import copy_data, remove_tree

COPY_FILES: Final = 50_000
COPY_BYTES: Final = 1 << 30

_Status: TypeAlias = tuple[int, ...]
"""Mode, owner and group; of what is no folder also its number, size and times."""


@frozen
class Limits:
    """The most a copy may hold; a workspace beyond either has no dry run without layers."""

    files: int = COPY_FILES
    bytes: int = COPY_BYTES


class TreeTooLarge(Exception):
    """A tree beyond the limits of a copy; the message says which limit."""


class TreeCopy:
    """A copy of a workspace, and what a command changed in it."""

    def __init__(self, folder: str, workspace: str, frozen: Sequence[str]) -> None:
        self.folder = folder
        self.workspace = workspace
        self.frozen = tuple(frozen)
        self.copy = os.path.join(folder, "copy")
        self.temp = os.path.join(folder, "temp")
        self.began = os.stat(folder).st_ctime_ns
        self._copied: dict[str, _Status] = {}
        self._modes: dict[str, int] = {}

    @classmethod
    def make(
        cls,
        folder: str,
        workspace: str,
        *,
        frozen: Sequence[str] = (),
        limits: Limits | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> TreeCopy:
        """Copy the workspace; `frozen` is what else commands may write, and cannot during the dry run.

        Raises ToolFailure, and leaves nothing behind, where it holds more than `limits` or cannot be read.
        """
        os.mkdir(folder, 0o700)
        made = cls(folder, workspace, frozen)
        try:
            make_covers(folder)
            os.mkdir(made.temp, 0o700)
            copy_tree(workspace, made.copy, limits or Limits(), stopped)
            made._copied = dict(made._statuses())
        except TreeTooLarge as problem:
            made.discard()
            raise _too_large(workspace, str(problem)) from None
        except OSError as problem:
            made.discard()
            where = problem.filename or workspace
            raise ToolFailure(f"the workspace cannot be copied: {where}: {problem.strerror}") from problem
        except BaseException:
            made.discard()
            raise
        return made

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders it is a copy of."""
        return (self.workspace,)

    @property
    def wire(self) -> dict[str, Any]:
        """What the launcher needs to know to put the copy in the workspace's place."""
        return wire(self.folder, [{"lower": self.workspace, "copy": self.copy}], self.frozen)

    def differences(self) -> list[Difference]:
        """Return everything the command changed, by path."""
        self._modes |= open_up(self.copy)
        now = dict(self._statuses())
        changed = {path for path, status in now.items() if status != self._copied.get(path)}
        changed |= self._copied.keys() - now.keys()
        found = (self._difference(path, now.get(path)) for path in sorted(changed))
        return [each for each in found if not each.before.same(each.after)]

    def _statuses(self, folder: str = "") -> Iterator[tuple[str, _Status]]:
        with os.scandir(os.path.join(self.copy, folder)) as entries:
            for entry in entries:
                path, status = os.path.join(folder, entry.name), entry.stat(follow_symlinks=False)
                kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
                known = (status.st_uid, status.st_gid, kind | self._modes.get(entry.path, mode))
                if kind == stat.S_IFDIR:
                    yield path, known
                    yield from self._statuses(path)
                else:
                    yield path, (*known, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def _difference(self, path: str, now: _Status | None) -> Difference:
        place = os.path.join(self.workspace, path)
        before, after = look(place), look(os.path.join(self.copy, path), self._modes)
        copied = self._copied.get(path)
        if copied and now and copied[:2] == now[:2]:  # an owner that could not be copied was not changed either
            from dataclasses import replace

            after = replace(after, owner=before.owner)
        return Difference(path, place, before, after, disturbed(place, self.began))

    def discard(self) -> None:
        """Take the copy away."""
        remove_tree(self.folder)


def copy_tree(
    source: str,
    target: str,
    limits: Limits,
    stopped: Callable[[], bool],
    leaves_out: Callable[[str, bool], bool] = lambda path, is_folder: False,
) -> None:
    """Copy a tree with its links, modes and times; raise TreeTooLarge, and ToolFailure once `stopped` says so.

    `leaves_out` says of paths (from the top, and whether it is a folder) which are not copied.
    """
    entries = _measure_tree(source, limits, leaves_out)
    os.mkdir(target, 0o700)
    folders = [("", os.stat(source))]
    for path, status in entries:
        if stopped():
            raise ToolFailure("the copy of the workspace was stopped", code="cancelled")
        place, copy = os.path.join(source, path), os.path.join(target, path)
        if stat.S_ISDIR(status.st_mode):
            os.mkdir(copy, 0o700)
            folders.append((path, status))
        elif stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(place), copy)
            _keep(copy, status)
        elif stat.S_ISREG(status.st_mode):
            _copy_file(place, copy, status)
    for path, status in reversed(folders):
        _keep(os.path.join(target, path), status)


def _measure_tree(
    source: str, limits: Limits, leaves_out: Callable[[str, bool], bool]
) -> list[tuple[str, os.stat_result]]:
    """Return everything in a tree, folders before what is in them; refuse one beyond the limits before any copy."""
    found: list[tuple[str, os.stat_result]] = []
    total, waiting = 0, [""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(os.path.join(source, folder)) as entries:
            for entry in entries:
                path, status = os.path.join(folder, entry.name), entry.stat(follow_symlinks=False)
                if leaves_out(path, stat.S_ISDIR(status.st_mode)):
                    continue
                found.append((path, status))
                total += status.st_size if stat.S_ISREG(status.st_mode) else 0
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(path)
        if len(found) > limits.files:
            raise TreeTooLarge(f"more than {limits.files:,} files and folders")
        if total > limits.bytes:
            raise TreeTooLarge(f"more than {limits.bytes >> 20:,} MB")
    return found


def _too_large(source: str, what: str) -> ToolFailure:
    return ToolFailure(
        f"a dry run is not possible here: there are no copy-on-write layers, and {source} holds {what}, "
        "the limit of a plain copy",
        hint="`surehand policy check` says which files and hosts it would touch; undo takes back what it changes.",
    )


def _copy_file(place: str, copy: str, status: os.stat_result) -> None:
    source = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        target = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            copy_data(source, target)
        finally:
            os.close(target)
    finally:
        os.close(source)
    _keep(copy, status)


def _keep(copy: str, status: os.stat_result) -> None:
    """Give a copy the owner (where we may), mode and times of the original."""
    if os.geteuid() == 0:
        os.chown(copy, status.st_uid, status.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        os.chmod(copy, stat.S_IMODE(status.st_mode))
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)
