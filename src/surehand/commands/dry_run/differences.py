"""Differences that a command made on a copy of the workspace: per path, its state now and its state after."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from typing import Final, Literal

from surehand.commands.output import binary_kind
from surehand.core.frozen import frozen
from surehand.core.read_state import digest_of
from surehand.core.secrets import is_secret
from surehand.files.diff import text_diff

Kind = Literal["absent", "file", "symlink", "directory", "other"]
DIFF_BYTES: Final = 512 * 1024
DIFF_LINES: Final = 400
DIFF_FILES: Final = 200
_BLOCK: Final = 1 << 20


@frozen
class Side:
    """What stands at a path before or after; `at` is where its content can be read."""

    kind: Kind
    mode: int = 0
    owner: tuple[int, int] = (0, 0)
    digest: str = ""
    """Of a file's bytes or a link's target; empty for a file that cannot be read."""
    size: int = 0
    at: str = ""

    def same(self, other: Side) -> bool:
        """Say whether both are alike: kind, mode, owner and content."""
        if self.kind != other.kind:
            return False
        modes = self.kind in ("symlink", "absent") or (self.mode, self.owner) == (other.mode, other.owner)
        return modes and self.digest == other.digest


ABSENT: Final = Side("absent")


@frozen
class Difference:
    """One path the command changed: its name as people see it, and where it is."""

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
        """Return the difference as a diff; of what is no text only a line that says so."""
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
        shown = text_diff(old, new, self.path, limit_lines=DIFF_LINES) or f"{self.action} {self.path} (empty)\n"
        return shown + self._mode()

    def _mode(self) -> str:
        """Return a line on the mode where it changed too, or where what is created can be executed."""
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
    """Return what stands at a path, no link followed; `modes` are those of files that were opened up since."""
    try:
        status = os.lstat(path)
    except OSError:
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
    """Let us enter and read all of a tree that is ours, whatever the command made its modes; return what those were."""
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
    """Return the bytes of a file, no link followed."""
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
    """Return the text of a file, nothing for one that is absent, None for what is no text or too large."""
    if side.kind != "file":
        return ""
    try:
        if side.size > DIFF_BYTES:
            return None
        data = read_bytes(side.at)
        return None if binary_kind(data[:8192]) else data.decode()
    except (OSError, UnicodeDecodeError):
        return None
