"""Overlays: copy-on-write layers over the workspace and all else a command may write, for the dry run of one command.

    layers = Layers.make(folder, workspace)         # where the layers live, what they lie over
    ... run the command with `overlay=layers.wire` ...
    found = layers.differences()                   # created, changed, deleted, mode, links
    layers.discard()

A layer holds only what the command wrote; a file it removed is there as a mark (a character device 0:0).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from typing import Any

from surehand.commands.dry_run.differences import ABSENT, Difference, Side, look, open_up
from surehand.core.frozen import frozen
from surehand.files.protected_paths import inside
from surehand.files.trees import remove_tree


@frozen
class Layer:
    """One folder and the layer over it."""

    lower: str
    upper: str
    work: str

    @classmethod
    def make(cls, place: str, lower: str) -> Layer:
        """Make the folders of a copy-on-write layer."""
        layer = cls(lower, os.path.join(place, "upper"), os.path.join(place, "work"))
        for folder in (place, layer.upper, layer.work):
            os.mkdir(folder, 0o700)
        os.chmod(layer.upper, stat.S_IMODE(os.stat(lower).st_mode))
        return layer


class Layers:
    """The layers of one dry run, and what a command left in them."""

    def __init__(self, folder: str, workspace: str, layers: Sequence[Layer], frozen: Sequence[str]) -> None:
        self.folder = folder
        self.workspace = workspace
        self.layers = tuple(layers)
        self.frozen = tuple(frozen)
        self.began = os.stat(folder).st_ctime_ns
        self._modes: dict[str, int] = {}

    @classmethod
    def make(cls, folder: str, workspace: str, others: Sequence[str] = ()) -> Layers:
        """Make the folders of a dry run; `others` is what commands may write beside the workspace.

        What cannot have a layer (a file, a folder that holds the layers) cannot be written at all during the dry run.
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
        """What the launcher needs to know to mount them."""
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
        """Everything in a folder of the workspace that the layer hides, except what it has itself."""
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
        """Take the layers away."""
        remove_tree(self.folder)


def make_covers(folder: str) -> None:
    """Make what covers secrets during a dry run, as it does outside one."""
    os.close(os.open(os.path.join(folder, "nothing"), os.O_CREAT | os.O_WRONLY, 0))
    os.mkdir(os.path.join(folder, "nobody"), 0)


def wire(folder: str, folders: list[dict[str, str]], frozen: Sequence[str]) -> dict[str, Any]:
    """Return what the launcher mounts for a dry run; its own folders are out of the command's reach."""
    return {"folders": folders, "frozen": list(frozen), "covers": folder, "hidden": os.path.dirname(folder)}


def disturbed(place: str, began: int) -> bool:
    """Tell whether something outside was changed after a moment; only root could make its clock say otherwise."""
    try:
        return os.lstat(place).st_ctime_ns > began
    except OSError:
        return False


def _opaque(folder: str) -> bool:
    """Tell whether a folder of the layer hides all of the one below it."""
    try:
        return os.getxattr(folder, "user.overlay.opaque") in (b"y", b"x")
    except OSError:
        return False
