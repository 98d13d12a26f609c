"""Listing the files a pattern matches, newest first.

The tree is walked in this process. `rg --files` would walk on all cores, but the order needs a look at every hit, which
takes longer than the walk, and it knows neither links nor all of git's rules.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
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
        try:
            top = os.open(self.walk.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # gone, or not ours to read
            return found
        try:
            for prefix, entries in replace(self.walk, enters=self._enters()).folders():
                if self.stop.wanted:
                    break
                paths = [prefix + entry.name for entry in entries]
                found += _looked_at(top, filter(fits, paths))
        finally:
            os.close(top)
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


def _looked_at(top: int, paths: Iterable[bytes]) -> list[Hit]:
    """Return the hits of paths below the open folder `top`: the kernel need not find the way there each time."""
    found: list[Hit] = []
    for path in paths:
        try:
            status = os.stat(path, dir_fd=top, follow_symlinks=False)
        except OSError:  # gone since it was listed
            continue
        found.append((-status.st_mtime_ns, path, status.st_size))
    return found
