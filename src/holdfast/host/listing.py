"""Listing the files a pattern matches, newest first.

The tree is walked in this process. `rg --files` would walk on all cores, but the order needs a look at every hit, which
takes longer than the walk, and it knows neither links nor all of git's rules.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from holdfast.host import rg
from holdfast.host.globbing import Glob
from holdfast.host.walk import Walk

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

    def hits(self) -> list[Hit]:
        """Return every file and link that matches, newest first, then by path."""
        found: list[Hit] = []
        fits = self.glob.matches
        for prefix, names, folder in replace(self.walk, enters=self._enters()).folders():
            if self.stop.wanted:
                break
            found += _looked_at(prefix, names, folder, fits)
        found.sort()
        return found

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


def _looked_at(prefix: bytes, names: list[bytes], folder: int, fits: Callable[[bytes], object]) -> list[Hit]:
    """Return the hits in one open folder."""
    found: list[Hit] = []
    for name in names:
        path = prefix + name
        if fits(path):
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except OSError:  # gone since it was listed
                continue
            found.append((-status.st_mtime_ns, path, status.st_size))
    return found
