"""The survey of a tree: whether `rg` may walk it by itself, and by which rules.

`rg` may where every rule in sight means to it what it means to git, or where the rules can be given to it as one list
that does. What it finds is judged again, so only what it would leave out too much matters: a rule it reads otherwise, a
rule file git would not follow, rules of a tree applied inside another repository.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from surehand.core.frozen import frozen, replace_values
from surehand.files.paths import PATH_ONLY
from surehand.git.config import read_plain
from surehand.search import ripgrep
from surehand.search.gitignore import Rules
from surehand.search.ignore_files import (
    GITIGNORE,
    Chain,
    Folder,
    combine,
    find_repository,
    folder_at,
    git_dir_of,
    rules_of,
)
from surehand.search.walk import FOLDER, SETTLED_NS, Tally, Walk, entry_kinds

SURVEY_S: Final = 5.0
"""Time after which a survey ends with what it has seen: in so large a tree the search must not wait for it."""
_KNOWN_LIMIT: Final = 4


def rg_reads(folder: Folder) -> bool:
    """Whether `rg`, started in `folder`, reads every rule in force there as git does."""
    if folder.fold or not all(rules.rg_agrees for rules, _ in folder.chain):
        return False
    if not folder.prefix:
        return True
    # Rules given as files count from the folder `rg` starts in, and without a repository it would look up to the root.
    anchored = any(not rule.by_name for rules in _outer(folder) for rule in rules.rules)
    return not anchored and find_repository(folder.path) is not None


def walk_options(walk: Walk, given: int | None = None) -> list[str]:
    """Return the options that make `rg` walk by the rules of `walk`.

    `given` is a descriptor of a list of rules to use instead of the rule files of the tree.
    """
    if given is not None:
        return [*ripgrep.BY_GIVEN_RULES, f"--ignore-file=/proc/self/fd/{given}"]
    folder = folder_at(walk.root, walk.stop)
    options = [f"--ignore-file={rules.source}" for rules in reversed(_outer(folder))]  # the last one is the strongest
    options += [] if folder.prefix else ["--no-ignore-parent"]
    # Only without this option `rg` lets a repository inside the tree follow its own rules alone.
    options += ["--no-require-git"] if find_repository(walk.root) is None else []
    return [*ripgrep.BY_GIT_RULES, *options]


def _outer(folder: Folder) -> list[Rules]:
    """Return the rules in force that come from no `.gitignore` of the tree: those of the repository and the user."""
    top = os.fsdecode(folder.path[: len(folder.path) - len(folder.prefix)])
    own = os.path.join(top, ".gitignore")
    return [rules for rules, skip in folder.chain if skip == 0 and rules.source != own]


def survey(walk: Walk, stop: ripgrep.Stop) -> KnownTree | None:
    """Return what `rg` must be told of a tree to walk it by itself; None if it must not.

    The first time the whole tree is walked. Later only changed folders are read again, and the whole tree if a rule
    file or a folder was added or removed.
    """
    if not walk.ignore:
        return None
    top = folder_at(walk.root, walk.stop)
    key = walk.root, walk.stop, walk.keeps_out
    tree = _KNOWN.pop(key, None)
    if tree is None or tree.chain != top.chain or not tree.refresh(walk):
        tree = _survey(walk, top, stop)
        if tree is None or tree.unreadable:  # a folder that becomes readable does not change the ctime of its parent
            return tree
    _KNOWN[key] = tree
    for old in list(_KNOWN)[:-_KNOWN_LIMIT]:
        _KNOWN.pop(old, None)
    return tree


def last_rules(walk: Walk) -> bytes:
    """Return the list of rules that `rg` was given at the last search here; most likely it is still right."""
    known = _KNOWN.get((walk.root, walk.stop, walk.keeps_out))
    return known.given if known else b""


@frozen
class KnownTree:
    """A tree as it was when `rg` was allowed to walk it."""

    chain: Chain
    folders: dict[bytes, int]
    """Folders (path from the root, the root itself as `.`) with their ctime in ns, which no program can set.

    0 for one that had just changed: it might change again within one tick of the clock.
    """
    special: dict[bytes, tuple[bool, bool]]
    """Folders that have a `.gitignore` or a `.git`, and which of them."""
    secrets: dict[bytes, int]
    """Folders with secret entries, and how many."""
    unreadable: int
    """How many folders could not be read."""
    rules: list[tuple[bytes, bytes]]
    """Rule files and their contents."""
    given: bytes
    """The list of rules to give to `rg`; empty if it reads the rule files itself."""

    def refresh(self, walk: Walk) -> bool:
        """Read changed folders again; False if the tree must be surveyed anew."""
        if not all(read_plain(path, follow=False) == data for path, data in self.rules):
            return False
        try:
            changed = self._find_changed(walk.root)
            judge = Judge(walk)
            if not all(self._refresh_folder(walk.root, judge, folder) for folder in changed):
                return False
        except OSError:
            return False
        settled = time.time_ns() - SETTLED_NS
        self.folders.update((path, at) for path, at in changed.items() if at < settled)
        return True

    def _find_changed(self, root: bytes) -> dict[bytes, int]:
        """Return the folders whose ctime differs, with the new one."""
        top = os.open(root, PATH_ONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            now = ((path, os.stat(path, dir_fd=top).st_ctime_ns, then) for path, then in self.folders.items())
            return {path: at for path, at, then in now if at != then}
        finally:
            os.close(top)

    def _refresh_folder(self, root: bytes, judge: Judge, folder: bytes) -> bool:
        """Count the secrets of a changed folder; False if its rule file or its subfolders are not the same."""
        prefix = b"" if folder == b"." else folder
        kinds = entry_kinds(os.path.join(root, prefix))
        if (GITIGNORE in kinds, b".git" in kinds) != self.special.get(folder, (False, False)):
            return False
        below = (prefix + name for name, kind in kinds.items() if kind == FOLDER and name != b".git")
        if any(path + b"/" not in self.folders and judge.enters(path) for path in below):
            return False
        self.secrets[folder] = sum(judge.hides(prefix + name, kind == FOLDER) for name, kind in kinds.items() if kind)
        return True


def _survey(walk: Walk, top: Folder, stop: ripgrep.Stop) -> KnownTree | None:
    """Walk a tree for its rule files; None if `rg` can be given their rules in no way."""
    walk = replace_values(walk, tally=Tally(), enters=None)
    folders: dict[bytes, int] = {}
    secrets: dict[bytes, int] = {}
    counted = 0
    settled = time.time_ns() - SETTLED_NS
    ends = time.monotonic() + SURVEY_S
    for prefix, _, folder in walk.folders():
        if stop.wanted:
            return None
        if time.monotonic() > ends:
            break
        changed = os.fstat(folder).st_ctime_ns
        folders[prefix or b"."] = changed if changed < settled else 0
        if walk.tally.secret > counted:
            secrets[prefix or b"."], counted = walk.tally.secret - counted, walk.tally.secret
    special: dict[bytes, tuple[bool, bool]] = {}
    rules: list[tuple[bytes, bytes]] = []
    below: list[tuple[bytes, Rules]] = []
    agrees, nested = rg_reads(top), False
    in_repository = find_repository(walk.root) is not None
    for place in walk.tally.with_rules:
        nested = nested or (place != walk.root and git_dir_of(place) is not None)
        path, prefix = os.path.join(place, GITIGNORE), place[len(walk.root.rstrip(b"/")) + 1 :] + b"/"
        has = os.path.lexists(path), os.path.lexists(os.path.join(place, b".git"))
        special[b"." if place == walk.root else prefix] = has
        data = read_plain(path, follow=False)
        if data is None and not has[0]:
            continue
        own = rules_of(data, os.fsdecode(path), False) if data is not None else None
        agrees = agrees and own is not None and own.rg_agrees
        rules += [(path, data)] if data is not None else []
        below += [(prefix, own)] if own and place != walk.root else []
    given: bytes | None = b""
    if not agrees or (nested and not in_repository):
        # Given to `rg` as one list, the rules of a tree would count inside another repository too.
        given = combine(top, below) if not nested else None
    if given is None:
        return None
    return KnownTree(top.chain, folders, special, secrets, walk.tally.unreadable, rules, given)


class Judge:
    """Decides whether a walk would visit a path; paths come in any order, the rules of each folder are read once."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._folders: dict[bytes, Folder | None] = {b"": folder_at(walk.root, walk.stop)}

    def keeps(self, path: bytes) -> bool:
        """Whether a file is searched."""
        folder, _, name = path.rpartition(b"/")
        inside = self._folder(folder)
        if inside is None or (self._walk.ignore and inside.ignores(name, False)):
            return False
        return not self._walk.keeps_out(os.fsdecode(os.path.join(self._walk.root, path)))

    def enters(self, folder: bytes) -> bool:
        """Whether a folder is walked."""
        return not self._walk.keeps_out(os.fsdecode(os.path.join(self._walk.root, folder)) + "/") and (
            self._folder(folder) is not None
        )

    def hides(self, path: bytes, is_dir: bool) -> bool:
        """Whether an entry is kept out, and not merely ignored."""
        folder, _, name = path.rpartition(b"/")
        inside = self._folder(folder)
        if inside is None or name == b".git" or not self._walk.is_kept_out(inside, name, is_dir):
            return False
        return not inside.ignores(name, is_dir)

    def _folder(self, path: bytes) -> Folder | None:
        if path not in self._folders:
            above, _, name = path.rpartition(b"/")
            parent = self._folder(above)
            ignored = parent is None or parent.ignores(name, True)
            self._folders[path] = None if parent is None or ignored else parent.child(name)
        return self._folders[path]


_KNOWN: Final = dict[tuple[bytes, bytes | None, Callable[[str], bool]], KnownTree]()
"""The trees that `rg` was allowed to walk last, by root, `stop` and `keeps_out`."""
