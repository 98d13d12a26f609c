"""A command tried for real on a copy-on-write layer over the workspace: what it would change, without changing it.

    trial = Trial.make(folder, workspace)          # where the layer lives, what it lies over
    ... run the command with `overlay=trial.layer` ...
    found = trial.differences()                    # created, changed, deleted, mode, links
    trial.apply(...)  or  trial.drop()

The layer holds only what the command wrote; a file it removed is there as a mark (a character device 0:0).
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from typing import Final, Literal

from holdfast.core.frozen import frozen
from holdfast.host.diff import text_diff
from holdfast.host.output import binary_kind
from holdfast.host.trees import remove_tree

Kind = Literal["absent", "file", "symlink", "directory", "other"]
DIFF_BYTES: Final = 512 * 1024
DIFF_LINES: Final = 400
DIFF_FILES: Final = 200


@frozen
class Side:
    """What stands at a path before or after; `at` is where its content can be read."""

    kind: Kind
    mode: int = 0
    at: str = ""

    def same(self, other: Side) -> bool:
        """Say whether both are alike: kind, mode and content."""
        if self.kind != other.kind:
            return False
        if self.kind == "symlink":
            return os.readlink(self.at) == os.readlink(other.at)
        return self.mode == other.mode and (self.kind != "file" or _same_bytes(self.at, other.at))


ABSENT: Final = Side("absent")


@frozen
class Difference:
    """One path the command changed."""

    path: str
    before: Side
    after: Side

    @property
    def action(self) -> str:
        if self.before.kind == "absent":
            return "created"
        if self.after.kind == "absent":
            return "deleted"
        if self.before.kind != self.after.kind or self.before.kind == "symlink":
            return "changed"
        same = self.before.kind != "file" or _same_bytes(self.before.at, self.after.at)
        return "mode changed" if same else "changed"

    def to_dict(self) -> dict[str, object]:
        kind = self.before.kind if self.after.kind == "absent" else self.after.kind
        shown: dict[str, object] = {"path": self.path, "action": self.action, "kind": kind}
        if self.before.mode != self.after.mode and "absent" not in (self.before.kind, self.after.kind):
            shown["mode"] = [oct(self.before.mode), oct(self.after.mode)]
        if self.after.kind == "symlink":
            shown["target"] = os.readlink(self.after.at)
        return shown

    def diff(self) -> str:
        """Return the difference as a diff; of what is no text only a line that says so."""
        notes = [f"mode {self.before.mode:o} -> {self.after.mode:o}"] if self.action == "mode changed" else []
        if self.action == "mode changed" or "directory" in (self.before.kind, self.after.kind):
            return f"{self.action} {self.path}{': ' + notes[0] if notes else ''}\n"
        if "symlink" in (self.before.kind, self.after.kind):
            target = os.readlink(self.after.at) if self.after.kind == "symlink" else "(no link)"
            return f"{self.action} link {self.path} -> {target}\n"
        old, new = _text(self.before), _text(self.after)
        if old is None or new is None:
            return f"{self.action} {self.path}: binary or large, not shown\n"
        return text_diff(old, new, self.path, limit_lines=DIFF_LINES) or f"{self.action} {self.path} (empty)\n"


class Trial:
    """A layer over a workspace, and what a command left in it."""

    def __init__(self, folder: str, workspace: str) -> None:
        self.folder = folder
        self.workspace = workspace
        self.upper = os.path.join(folder, "upper")

    @classmethod
    def make(cls, folder: str, workspace: str) -> Trial:
        """Make the folders of a layer."""
        os.makedirs(folder, mode=0o700)
        trial = cls(folder, workspace)
        for name in ("upper", "work"):
            os.mkdir(os.path.join(folder, name), 0o700)
        os.chmod(trial.upper, stat.S_IMODE(os.stat(workspace).st_mode))
        # What covers secrets in the layer, as it does outside it.
        os.close(os.open(os.path.join(folder, "nothing"), os.O_CREAT | os.O_WRONLY, 0))
        os.mkdir(os.path.join(folder, "nobody"), 0)
        return trial

    @property
    def layer(self) -> dict[str, str]:
        """What the launcher needs to know to mount it."""
        work = os.path.join(self.folder, "work")
        return {"workspace": self.workspace, "upper": self.upper, "work": work, "covers": self.folder}

    def differences(self) -> list[Difference]:
        """Return everything the command changed, by path."""
        found = [each for each in self._walk("") if not each.before.same(each.after)]
        return sorted(found, key=lambda each: each.path)

    def _walk(self, folder: str) -> Iterator[Difference]:
        upper = os.path.join(self.upper, folder)
        with os.scandir(upper) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        if _opaque(upper) and folder:
            yield from self._gone_below(folder, {entry.name for entry in listed})
        for entry in listed:
            yield from self._entry(os.path.join(folder, entry.name), entry)

    def _entry(self, path: str, entry: os.DirEntry[str]) -> Iterator[Difference]:
        before = look(os.path.join(self.workspace, path))
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            if before.kind == "directory":
                yield from self._gone_below(path, set())
            yield Difference(path, before, ABSENT)
            return
        after = look(entry.path)
        if before.kind == "directory" and after.kind != "directory":
            yield from self._gone_below(path, set())
        yield Difference(path, before, after)
        if after.kind == "directory":
            yield from self._walk(path)

    def _gone_below(self, folder: str, kept: set[str]) -> Iterator[Difference]:
        """Everything in a folder of the workspace that the layer hides, except what it has itself."""
        below = os.path.join(self.workspace, folder)
        if os.path.islink(below) or not os.path.isdir(below):
            return
        for name in sorted(set(os.listdir(below)) - kept):
            path = os.path.join(folder, name)
            before = look(os.path.join(self.workspace, path))
            if before.kind == "directory":
                yield from self._gone_below(path, set())
            yield Difference(path, before, ABSENT)

    def apply(self, differences: list[Difference]) -> None:
        """Make the differences real: folders first, then files, each in one step, then what goes, deepest first."""
        for each in sorted(differences, key=_rank):
            _put(os.path.join(self.workspace, each.path), each.after)

    def drop(self) -> None:
        """Take the layer away."""
        remove_tree(self.folder)


def render(differences: list[Difference]) -> str:
    """Return all differences as one diff."""
    parts = [each.diff() for each in differences[:DIFF_FILES]]
    if len(differences) > DIFF_FILES:
        parts.append(f"... and {len(differences) - DIFF_FILES} more paths\n")
    return "".join(parts)


def look(path: str) -> Side:
    """Return what stands at a path, no link followed."""
    try:
        status = os.lstat(path)
    except OSError:
        return ABSENT
    mode = stat.S_IMODE(status.st_mode)
    kinds: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
    return Side(kinds.get(stat.S_IFMT(status.st_mode), "other"), mode, path)


def _rank(difference: Difference) -> tuple[int, int]:
    depth = difference.path.count("/")
    if difference.after.kind == "absent":
        return (0 if difference.before.kind != "directory" else 1, -depth)
    return (2 if difference.after.kind == "directory" else 3, depth)


def _put(path: str, wanted: Side) -> None:
    now = look(path)
    if now.kind not in ("absent", wanted.kind):
        os.rmdir(path) if now.kind == "directory" else os.unlink(path)
    if wanted.kind == "directory":
        os.makedirs(path, exist_ok=True)
        os.chmod(path, wanted.mode)
    elif wanted.kind in ("file", "symlink"):
        temporary = f"{path}.holdfast-{os.getpid()}"
        shutil.copy2(wanted.at, temporary, follow_symlinks=False)
        os.replace(temporary, path)


def _opaque(folder: str) -> bool:
    """Tell whether a folder of the layer hides all of the one below it."""
    try:
        return os.getxattr(folder, "user.overlay.opaque") in (b"y", b"x")
    except OSError:
        return False


def _same_bytes(first: str, second: str) -> bool:
    try:
        if os.path.getsize(first) != os.path.getsize(second):
            return False
        with open(first, "rb") as one, open(second, "rb") as other:
            while block := one.read(1 << 20):
                if block != other.read(1 << 20):
                    return False
    except OSError:
        return False
    return True


def _text(side: Side) -> str | None:
    """Return the text of a file, nothing for one that is absent, None for what is no text or too large."""
    if side.kind != "file":
        return ""
    try:
        if os.path.getsize(side.at) > DIFF_BYTES:
            return None
        with open(side.at, "rb") as file:
            data = file.read()
        return None if binary_kind(data[:8192]) else data.decode()
    except (OSError, UnicodeDecodeError):
        return None
