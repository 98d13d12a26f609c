"""Listing the files a pattern matches, newest first.

A small tree is walked here, links included. A large one is listed by `rg --files` on all cores while the hits are
looked at here; should a rule file in it say something `rg` reads otherwise than git, the tree is walked here after all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from holdfast.core.secrets import is_secret, may_be_secret
from holdfast.host import rg
from holdfast.host.globbing import Glob
from holdfast.host.ignore_chain import GITIGNORE, folder_at, rules_of
from holdfast.host.repository import read_plain
from holdfast.host.search import rg_reads, walk_options
from holdfast.host.walk import Tally, Walk

SMALL: Final = 600
"""Files up to which a tree is walked here."""
_EXCLUDES: Final = tuple(
    f"--glob=!{each}" for each in ("node_modules/", "__pycache__/", "vendor/", "dist/", "build/", ".DS_Store", "*.pyc")
)


Hit: TypeAlias = tuple[int, bytes, int]
"""A file: minus the time of its last change (ns), its path from the root, its size.

A plain tuple that sorts newest first, then by path: there are many of them.
"""


@dataclass(slots=True)
class Listing:
    """One listing below `walk.root`; `hits` blocks, and ends early when `stop` is set."""

    walk: Walk
    glob: Glob
    stop: rg.Stop = field(default_factory=rg.Stop)
    links_left_out: bool = False

    def hits(self) -> list[Hit]:
        """Return every file that matches, newest first, then by path."""
        walk = replace(self.walk, enters=self._enters)
        found = self._walked(walk, SMALL)
        if found is None:
            found = self._listed_by_rg()
        if found is None:
            found = self._walked(replace(walk, tally=Tally()), 1 << 60) or []
        found.sort()
        return found

    def _enters(self, folder: bytes) -> bool:
        start = self.glob.start
        on_the_way = not start or (start + b"/").startswith(folder + b"/") or folder.startswith(start + b"/")
        return on_the_way and self.glob.enters(folder)

    def _walked(self, walk: Walk, limit: int) -> list[Hit] | None:
        """Walk here; None when the tree is larger than `limit` files."""
        found: list[Hit] = []
        fits = self.glob.matches
        for path, entry in walk.files():
            if walk.tally.files > limit:
                return None
            if self.stop.wanted:
                break
            if fits(path):
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # gone since it was listed
                    continue
                found.append((-status.st_mtime_ns, path, status.st_size))
        return found

    def _listed_by_rg(self) -> list[Hit] | None:
        """List with `rg`; None when it cannot be trusted with the rules of this tree."""
        walk = self.walk
        if walk.ignore and not rg_reads(folder_at(walk.root, walk.stop)):
            return None
        options = walk_options(walk) if walk.ignore else ["--hidden", "--glob=!.git", "--no-ignore"]
        excludes = _EXCLUDES if walk.excludes else ()
        run = rg.output(["--files", "--null", *options, *excludes, "--", b"."], walk.root, self.stop)
        self.links_left_out = True
        found: list[Hit] = []
        secrets, top = Secrets(walk), walk.root.rstrip(b"/") + b"/"
        fd = os.open(walk.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for paths in _parts(run):
                if walk.ignore and not all(_rg_reads_file(top + path) for path in paths if path.endswith(GITIGNORE)):
                    return None
                found += _looked_at(fd, secrets.without(filter(self.glob.matches, paths)))
        finally:
            os.close(fd)
        return found


class Secrets:
    """Says fast of many paths whether they are kept out: folders are judged once, names mostly at a glance."""

    def __init__(self, walk: Walk) -> None:
        self._top = os.fsdecode(walk.root.rstrip(b"/")) + "/"
        self._keeps_out = walk.keeps_out
        self._folders: dict[bytes, bool] = {b"": False}
        self._harmless: dict[bytes, bool] = {}
        """Names that are no secret wherever they lie; the same few names come again and again."""

    def without(self, paths: Iterable[bytes]) -> list[bytes]:
        """Return the paths that are not kept out."""
        folders, harmless = self._folders, self._harmless if self._keeps_out is is_secret else {}
        kept: list[bytes] = []
        for path in paths:
            folder, _, name = path.rpartition(b"/")
            # Most names were seen before, and in such a folder; a third of the time of asking for each.
            if (folders.get(folder) is False and harmless.get(name)) or not self.holds(path):
                kept.append(path)
        return kept

    def holds(self, path: bytes) -> bool:
        cut = path.rfind(b"/")
        folder, name = path[: max(cut, 0)], path[cut + 1 :]
        known = self._folders.get(folder)
        if self._folder(folder) if known is None else known:
            return True
        if self._keeps_out is is_secret:
            harmless = self._harmless.get(name)
            if harmless is None:
                harmless = self._harmless[name] = not may_be_secret(name)
            if harmless:
                return False
        return self._keeps_out(self._top + os.fsdecode(path))

    def _folder(self, path: bytes) -> bool:
        known = self._folders.get(path)
        if known is None:
            above = path.rpartition(b"/")[0]
            known = self._folder(above) or self._keeps_out(f"{self._top}{os.fsdecode(path)}/")
            self._folders[path] = known
        return known


def _parts(chunks: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Yield the paths of NUL-separated output as they come, without their leading `./`."""
    rest = b""
    for chunk in chunks:
        *paths, rest = (rest + chunk).split(b"\0")
        yield [path[2:] for path in paths]


def _looked_at(top: int, paths: list[bytes]) -> list[Hit]:
    """Return the hits of paths below the open folder `top`: the kernel need not find the way there each time."""
    found: list[Hit] = []
    stat = os.stat
    for path in paths:
        try:
            status = stat(path, dir_fd=top, follow_symlinks=False)
        except OSError:  # gone since it was listed
            continue
        found.append((-status.st_mtime_ns, path, status.st_size))
    return found


def _rg_reads_file(path: bytes) -> bool:
    if os.path.basename(path) != GITIGNORE:
        return True
    data = read_plain(path, follow=False)
    return data is not None and rules_of(data, os.fsdecode(path), False).rg_agrees
