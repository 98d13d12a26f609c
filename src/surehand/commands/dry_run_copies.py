"""Copies of the workspace for dry runs, by overlays or file by file, and their differences from the workspace.

    layers = Layers.make(folder, workspace)         # where the overlay's folders are, what it is mounted on
    ... run the command with `overlay=layers.wire` ...
    found = layers.differences()                   # created, changed, deleted, mode, links
    layers.discard()

The upper folder of an overlay holds what the command wrote; a deleted file is a whiteout (a character device 0:0).

Without overlays there is a full copy, bounded in size: reflinks where the file system has them, plain bytes otherwise.
What the command changed is found by the status of each copied file, whose ctime no command can set back.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from surehand.commands.output import binary_kind
from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen, replace_values
from surehand.core.secrets import is_secret
from surehand.core.session import digest_of
from surehand.core.text import DRY_RUN_DIFF_LINES
from surehand.files.diff import text_diff
from surehand.files.protected_paths import inside
from surehand.files.trees import copy_data, remove_tree

Kind = Literal["absent", "file", "symlink", "directory", "other"]
DIFF_BYTES: Final = 512 * 1024
DIFF_FILES: Final = 200
_BLOCK: Final = 1 << 20
COPY_FILES: Final = 50_000
COPY_BYTES: Final = 1 << 30


@frozen
class Side:
    """What is at a path before or after; `at` is where its content can be read."""

    kind: Kind
    mode: int = 0
    owner: tuple[int, int] = (0, 0)
    digest: str = ""
    """Of a file's bytes or a link's target; empty for a file that cannot be read."""
    size: int = 0
    at: str = ""

    def same(self, other: Side) -> bool:
        """Tell whether kind, mode, owner and content are equal."""
        if self.kind != other.kind:
            return False
        modes = self.kind in ("symlink", "absent") or (self.mode, self.owner) == (other.mode, other.owner)
        return modes and self.digest == other.digest


ABSENT: Final = Side("absent")


@frozen
class Difference:
    """One path the command changed: `path` as shown to people, `place` its absolute path."""

    path: str
    place: str
    before: Side
    after: Side
    disturbed: bool = False
    """Whether somebody else has changed it since the dry run began."""

    @property
    def action(self) -> str:
        """What happened to the file: created, changed or deleted."""
        if self.before.kind == "absent":
            return "created"
        if self.after.kind == "absent":
            return "deleted"
        if self.before.kind != self.after.kind or self.before.digest != self.after.digest:
            return "changed"
        return "mode changed" if self.before.mode != self.after.mode else "owner changed"

    @property
    def both(self) -> bool:
        """Whether the path exists both before and after."""
        return "absent" not in (self.before.kind, self.after.kind)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain data."""
        kind = self.before.kind if self.after.kind == "absent" else self.after.kind
        shown: dict[str, object] = {"path": self.path, "action": self.action, "kind": kind}
        if self.both and self.before.mode != self.after.mode:
            shown["mode"] = [oct(self.before.mode), oct(self.after.mode)]
        if self.both and self.before.owner != self.after.owner:
            shown["owner"] = [_owner(self.before), _owner(self.after)]
        if self.after.kind == "symlink":
            shown["target"] = os.readlink(self.after.at)
        return shown

    def diff(self) -> str:
        """Return the difference as a diff; for anything but text, a line that says what changed."""
        if self.action == "mode changed":
            return f"mode changed {self.path}: mode {self.before.mode:o} -> {self.after.mode:o}\n"
        if self.action == "owner changed":
            return f"owner changed {self.path}: {_owner(self.before)} -> {_owner(self.after)}\n"
        if "directory" in (self.before.kind, self.after.kind) and "file" not in (self.before.kind, self.after.kind):
            return f"{self.action} {self.path}{_target(self.after)}\n"
        if "symlink" in (self.before.kind, self.after.kind):
            return f"{self.action} link {self.path}{_target(self.after) or ' -> (no link)'}\n"
        if "other" in (self.before.kind, self.after.kind):
            return f"{self.action} {self.path}: no file, link or folder\n"
        if is_secret(self.place):
            return f"{self.action} {self.path}: holds secrets, going by its name, not shown\n{self._mode()}"
        old, new = _text(self.before), _text(self.after)
        if old is None or new is None:
            return f"{self.action} {self.path}: binary or large, not shown\n{self._mode()}"
        shown = text_diff(old, new, self.path, limit_lines=DRY_RUN_DIFF_LINES) or f"{self.action} {self.path} (empty)\n"
        return shown + self._mode()

    def _mode(self) -> str:
        """Return a line on a changed mode, or on a created file that is executable."""
        if self.both and self.before.mode != self.after.mode:
            return f"mode changed {self.path}: mode {self.before.mode:o} -> {self.after.mode:o}\n"
        created = self.before.kind == "absent" and self.after.kind == "file" and self.after.mode & 0o111
        return f"executable {self.path}: mode {self.after.mode:o}\n" if created else ""


def _owner(side: Side) -> str:
    return f"{side.owner[0]}:{side.owner[1]}"


def _target(side: Side) -> str:
    return f" -> {os.readlink(side.at)}" if side.kind == "symlink" else ""


def render(differences: list[Difference]) -> str:
    """Return all differences as one diff."""
    parts = [each.diff() for each in differences[:DIFF_FILES]]
    if len(differences) > DIFF_FILES:
        parts.append(f"... and {len(differences) - DIFF_FILES} more paths\n")
    return "".join(parts)


def look(path: str, modes: Mapping[str, int] | None = None) -> Side:
    """Return what is at a path, without following links; `modes` are those that `open_up` has changed."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):  # any other error does not mean that nothing is there
        return ABSENT
    mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
    mode = modes.get(path, mode) if modes else mode
    if stat.S_ISDIR(status.st_mode):
        return Side("directory", mode, owner, at=path)
    if stat.S_ISLNK(status.st_mode):
        target = os.fsencode(os.readlink(path))
        return Side("symlink", mode, owner, digest_of(target), len(target), path)
    if not stat.S_ISREG(status.st_mode):
        return Side("other", mode, owner, at=path)
    try:
        return Side("file", mode, owner, _digest(path), status.st_size, path)
    except OSError:
        return Side("file", mode, owner, "", status.st_size, path)


def open_up(folder: str) -> dict[str, int]:
    """Make all of our own tree readable, whatever modes the command has set; return path → former mode."""
    modes: dict[str, int] = {}
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                mode, is_folder = stat.S_IMODE(status.st_mode), stat.S_ISDIR(status.st_mode)
                wanted = 0o700 if is_folder else 0o400
                if (is_folder or stat.S_ISREG(status.st_mode)) and mode & wanted != wanted:
                    modes[entry.path] = mode
                    os.chmod(entry.path, mode | wanted)
                if is_folder:
                    waiting.append(entry.path)
    return modes


def read_bytes(path: str) -> bytes:
    """Read a file, without following links."""
    with open(_open_for_reading(path), "rb") as file:
        return file.read()


def _open_for_reading(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _digest(path: str) -> str:
    hasher = hashlib.sha256()
    with open(_open_for_reading(path), "rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            hasher.update(block)
    return hasher.hexdigest()


def _text(side: Side) -> str | None:
    """Return the text of a file; empty if there is no file, None if it is not text or too large."""
    if side.kind != "file":
        return ""
    try:
        if side.size > DIFF_BYTES:
            return None
        data = read_bytes(side.at)
        return None if binary_kind(data[:8192]) else data.decode()
    except (OSError, UnicodeDecodeError):
        return None


@frozen
class Layer:
    """One overlay: the lower folder, and its upper and work folders."""

    lower: str
    upper: str
    work: str

    @classmethod
    def make(cls, place: str, lower: str) -> Layer:
        """Make the upper and work folders of an overlay."""
        layer = cls(lower, os.path.join(place, "upper"), os.path.join(place, "work"))
        for folder in (place, layer.upper, layer.work):
            os.mkdir(folder, 0o700)
        os.chmod(layer.upper, stat.S_IMODE(os.stat(lower).st_mode))
        return layer


class Layers:
    """The overlays of one dry run, and what the command wrote in them."""

    def __init__(self, folder: str, workspace: str, layers: Sequence[Layer], frozen: Sequence[str]) -> None:
        self.folder = folder
        self.workspace = workspace
        self.layers = tuple(layers)
        self.frozen = tuple(frozen)
        self.began = os.stat(folder).st_ctime_ns
        self._modes: dict[str, int] = {}

    @classmethod
    def make(cls, folder: str, workspace: str, others: Sequence[str] = ()) -> Layers:
        """Make the folders of a dry run; `others` are paths that commands may write besides the workspace.

        Those that cannot have an overlay (files, folders that hold the overlays) are read-only during the dry run.
        """
        os.mkdir(folder, 0o700)
        make_covers(folder)
        layers = [Layer.make(os.path.join(folder, "0"), workspace)]
        frozen: list[str] = []
        for path in others:
            if inside(path, [layer.lower for layer in layers]):
                continue
            if not os.path.isdir(path) or inside(folder, [path]) or inside(workspace, [path]):
                frozen.append(path)
            else:
                layers.append(Layer.make(os.path.join(folder, str(len(layers))), path))
        return cls(folder, workspace, layers, frozen)

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders it is a copy of."""
        return tuple(layer.lower for layer in self.layers)

    @property
    def wire(self) -> dict[str, Any]:
        """What the launcher needs to mount them."""
        folders = [{"lower": each.lower, "upper": each.upper, "work": each.work} for each in self.layers]
        return wire(self.folder, folders, self.frozen)

    def differences(self) -> list[Difference]:
        """Return everything the command changed, by path."""
        for layer in self.layers:
            self._modes |= open_up(layer.upper)
        found = [each for layer in self.layers for each in self._walk(layer, "") if not each.before.same(each.after)]
        return sorted(found, key=lambda each: each.path)

    def _walk(self, layer: Layer, folder: str) -> Iterator[Difference]:
        upper = os.path.join(layer.upper, folder)
        with os.scandir(upper) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        if folder and _opaque(upper):
            yield from self._gone_below(layer, folder, {entry.name for entry in listed})
        for entry in listed:
            yield from self._entry(layer, os.path.join(folder, entry.name), entry)

    def _entry(self, layer: Layer, path: str, entry: os.DirEntry[str]) -> Iterator[Difference]:
        status = entry.stat(follow_symlinks=False)
        removed = stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
        after = ABSENT if removed else look(entry.path, self._modes)
        found = self._difference(layer, path, after)
        if found.before.kind == "directory" and after.kind != "directory":
            yield from self._gone_below(layer, path, set())
        yield found
        if after.kind == "directory":
            yield from self._walk(layer, path)

    def _gone_below(self, layer: Layer, folder: str, kept: set[str]) -> Iterator[Difference]:
        """Yield what a folder of the workspace holds and the overlay hides, except the names in `kept`."""
        below = os.path.join(layer.lower, folder)
        if os.path.islink(below) or not os.path.isdir(below):
            return
        for name in sorted(set(os.listdir(below)) - kept):
            found = self._difference(layer, os.path.join(folder, name), ABSENT)
            if found.before.kind == "directory":
                yield from self._gone_below(layer, os.path.join(folder, name), set())
            yield found

    def _difference(self, layer: Layer, path: str, after: Side) -> Difference:
        place = os.path.join(layer.lower, path)
        shown = path if layer.lower == self.workspace else place
        return Difference(shown, place, look(place), after, disturbed(place, self.began))

    def discard(self) -> None:
        """Delete the overlays' folders."""
        remove_tree(self.folder)


def make_covers(folder: str) -> None:
    """Make the files that are mounted over secrets during a dry run."""
    os.close(os.open(os.path.join(folder, "nothing"), os.O_CREAT | os.O_WRONLY, 0))
    os.mkdir(os.path.join(folder, "nobody"), 0)


def wire(folder: str, folders: list[dict[str, str]], frozen: Sequence[str]) -> dict[str, Any]:
    """Return what the launcher mounts for a dry run; `hidden`, with all copies, is hidden from the command."""
    return {"folders": folders, "frozen": list(frozen), "covers": folder, "hidden": os.path.dirname(folder)}


def disturbed(place: str, began: int) -> bool:
    """Tell whether a path was changed after `began`, by its ctime, which only root can falsify."""
    try:
        return os.lstat(place).st_ctime_ns > began
    except (FileNotFoundError, NotADirectoryError):
        return False


def _opaque(folder: str) -> bool:
    """Tell whether a folder of the overlay hides all of the lower one."""
    try:
        return os.getxattr(folder, "user.overlay.opaque") in (b"y", b"x")
    except OSError as problem:
        if problem.errno not in (errno.ENODATA, errno.ENOTSUP):
            raise
        return False


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
            after = replace_values(after, owner=before.owner)
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
            continue
        try:
            if stat.S_ISLNK(status.st_mode):
                os.symlink(os.readlink(place), copy)
                _keep(copy, status)
            elif stat.S_ISREG(status.st_mode):
                _copy_file(place, copy, status)
        except FileNotFoundError:
            if os.path.lexists(place):
                raise
            # It went since it was listed, as a lock of git does: then it is no part of the copy.
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
    source = _open_for_reading(place)
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
