"""Listing the files a pattern matches, newest first.

The tree is walked in this process. `rg --files` would walk on all cores, but the order needs a look at every hit, which
takes longer than the walk, and it knows neither links nor all of git's rules.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeAlias

from surehand.core.frozen import field, frozen, replace_values
from surehand.search import ripgrep
from surehand.search.globs import Glob
from surehand.search.walk import Walk

Hit: TypeAlias = tuple[int, bytes, int]
"""A file: minus the time of its last change (ns), its path from the root, its size."""


@frozen
class Listing:
    """One listing below `walk.root`; `hits` blocks, and ends early when `stop` is set."""

    walk: Walk
    glob: Glob
    stop: ripgrep.Stop = field(default_factory=ripgrep.Stop)

    def hits(self, limit: int) -> tuple[list[Hit], int]:
        """Return the files and links that match, newest first, then by path, as many as asked for, and their number."""
        found = _Columns()
        choose = self.glob.choose
        for prefix, names, folder in replace_values(self.walk, enters=self._enters()).folders():
            if self.stop.wanted:
                break
            found.look(prefix, choose(prefix, names), folder)
        return found.newest(limit), len(found.times)

    def _enters(self) -> Callable[[bytes], bool] | None:
        """Return which folders can hold a match; None: every one."""
        start, depth = self.glob.start, self.glob.depth
        if not start and depth is None:
            return None
        below, enters = start + b"/", self.glob.enters

        def leads_there(folder: bytes) -> bool:
            on_the_way = not start or below.startswith(folder + b"/") or folder.startswith(below)
            return on_the_way and enters(folder)

        return leads_there


class _Columns:
    """The hits in columns: a tuple for each of very many would keep the garbage collector busy."""

    __slots__ = ("folders", "names", "sizes", "times")

    def __init__(self) -> None:
        self.times: list[int] = []
        self.folders: list[bytes] = []
        self.names: list[bytes] = []
        self.sizes: list[int] = []

    def look(self, prefix: bytes, names: list[bytes], folder: int) -> None:
        """Add the hits in one open folder."""
        stat = os.stat
        for name in names:
            try:
                status = stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:  # gone since it was listed
                continue
            self.times.append(-status.st_mtime_ns)
            self.folders.append(prefix)
            self.names.append(name)
            self.sizes.append(status.st_size)

    def newest(self, limit: int) -> list[Hit]:
        """Return the first hits in order; only what can be among them is put in order."""
        times = self.times
        last = sorted(times)[limit - 1] if 0 < limit < len(times) else None
        chosen = range(len(times)) if last is None else [at for at, time in enumerate(times) if time <= last]
        return sorted((times[at], self.folders[at] + self.names[at], self.sizes[at]) for at in chosen)[:limit]
