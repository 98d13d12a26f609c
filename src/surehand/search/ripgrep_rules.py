"""Where `rg` may walk a tree by itself: every rule in sight means to it what it means to git.

What `rg` lets through is judged again here, so only what it would leave out too much matters: a rule it reads
otherwise, a rule file git would not follow, rules of a tree applied inside another repository.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Final

from surehand.core.frozen import frozen
from surehand.git.config import read_plain
from surehand.search import ripgrep
from surehand.search.gitignore import Rules
from surehand.search.ignore_files import GITIGNORE, Chain, Folder, folder_at, rules_of
from surehand.search.repository import find_repository, git_dir_of
from surehand.search.walk import Tally, Walk

SURVEY_S: Final = 5.0
"""How long a tree is looked through for rule files that `rg` reads otherwise."""
_SETTLED_NS: Final = 2_000_000_000
_TRUSTED_LIMIT: Final = 4


def rg_reads(folder: Folder) -> bool:
    """Return whether `rg`, started in `folder`, reads every rule in force there as git does."""
    if folder.fold or not all(rules.rg_agrees for rules, _ in folder.chain):
        return False
    if not folder.prefix:
        return True
    # Rules given as files count from the folder `rg` starts in, and without a repository it would look up to the root.
    anchored = any(not rule.by_name for rules in _outer(folder) for rule in rules.rules)
    return not anchored and find_repository(folder.path) is not None


def walk_options(walk: Walk) -> list[str]:
    """Return the options that make `rg` walk by the rules of `walk`: the strongest rule file comes last."""
    folder = folder_at(walk.root, walk.stop)
    options = [f"--ignore-file={rules.source}" for rules in reversed(_outer(folder))]
    options += [] if folder.prefix else ["--no-ignore-parent"]
    # In a repository `rg` minds where another one begins inside it; told to do without, it does not.
    options += ["--no-require-git"] if find_repository(walk.root) is None else []
    return [*ripgrep.BY_GIT_RULES, *options]


def _outer(folder: Folder) -> list[Rules]:
    """Return the rules in force that come from no `.gitignore` of the tree."""
    top = os.fsdecode(folder.path[: len(folder.path) - len(folder.prefix)])
    own = os.path.join(top, ".gitignore")
    return [rules for rules, skip in folder.chain if skip == 0 and rules.source != own]


def rg_may_walk(walk: Walk, stop: ripgrep.Stop) -> bool:
    """Return whether `rg` can be left to walk here: no rule file anywhere in the tree says otherwise.

    The first time the tree is walked for that; as long as no folder and no rule file has changed, its answer holds.
    """
    top = folder_at(walk.root, walk.stop)
    if not walk.ignore or not rg_reads(top):
        return False
    key = walk.root, walk.stop
    seen = _TRUSTED.pop(key, None)
    if seen is None or seen.chain != top.chain or not seen.holds(walk.root):
        began = time.time_ns()
        seen = _survey(walk, top.chain, stop)
        if seen is None:
            return False
        if max(seen.folders.values(), default=0) > began - _SETTLED_NS:  # it might change again within one tick
            return True
    _TRUSTED[key] = seen
    for old in list(_TRUSTED)[:-_TRUSTED_LIMIT]:
        _TRUSTED.pop(old, None)
    return True


@frozen
class _Seen:
    """What a tree looked like when `rg` could be trusted with it."""

    chain: Chain
    folders: dict[bytes, int]
    """Folders (paths from the root, the root as `.`), each with the time of its last change (ns)."""
    rules: list[tuple[bytes, bytes]]
    """Rule files and what was in them."""

    def holds(self, root: bytes) -> bool:
        return self._unchanged(root) and all(read_plain(path, follow=False) == data for path, data in self.rules)

    def _unchanged(self, root: bytes) -> bool:
        try:
            top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return all(os.stat(path, dir_fd=top).st_mtime_ns == then for path, then in self.folders.items())
        except OSError:
            return False
        finally:
            os.close(top)


def _survey(walk: Walk, chain: Chain, stop: ripgrep.Stop) -> _Seen | None:
    """Walk a tree for its rule files; None when `rg` must not be trusted with one of them."""
    walk = replace(walk, tally=Tally(), enters=None)
    folders: dict[bytes, int] = {}
    ends = time.monotonic() + SURVEY_S
    for prefix, _, folder in walk.folders():
        if stop.wanted:
            return None
        # A tree so large that looking through it takes longer than searching is `rg`'s.
        if time.monotonic() > ends:
            break
        folders[prefix or b"."] = os.fstat(folder).st_mtime_ns
    rules: list[tuple[bytes, bytes]] = []
    in_repository = find_repository(walk.root) is not None
    for place in walk.tally.with_rules:
        if not in_repository and git_dir_of(place) is not None:
            return None
        path = os.path.join(place, GITIGNORE)
        data = read_plain(path, follow=False)
        if data is None and not os.path.lexists(path):
            continue
        if data is None or not rules_of(data, os.fsdecode(path), False).rg_agrees:
            return None
        rules.append((path, data))
    return _Seen(chain, folders, rules)


class Judge:
    """Says of paths in any order whether our rules keep them; folders are looked at once."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._folders: dict[bytes, Folder | None] = {b"": folder_at(walk.root, walk.stop)}

    def keeps(self, path: bytes) -> bool:
        """Whether a path is searched."""
        folder, _, name = path.rpartition(b"/")
        inside = self._folder(folder)
        if inside is None or (self._walk.ignore and inside.ignores(name, False)):
            return False
        return not self._walk.keeps_out(os.fsdecode(os.path.join(self._walk.root, path)))

    def _folder(self, path: bytes) -> Folder | None:
        if path not in self._folders:
            above, _, name = path.rpartition(b"/")
            parent = self._folder(above)
            ignored = parent is None or parent.ignores(name, True)
            self._folders[path] = None if parent is None or ignored else parent.child(name)
        return self._folders[path]


_TRUSTED: Final = dict[tuple[bytes, bytes | None], _Seen]()
"""Trees `rg` was trusted with last."""
