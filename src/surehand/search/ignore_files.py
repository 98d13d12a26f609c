"""The ignore files of a tree put together: which rule of which file decides about a path, exactly as in git.

A `Folder` knows the rules in force inside it: its own `.gitignore` first, then those of the folders above up to the
top of the repository, then `.git/info/exclude`, then the user's file. What lies in an excluded folder is excluded,
whatever a deeper file says. A repository inside another follows its own rules only.

Outside a repository `.gitignore` files count all the same, from a `stop` folder (the workspace) downwards; a copy of
a tree without its `.git` is searched like the tree itself.
"""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from typing import Final, TypeAlias

from surehand.core.frozen import frozen
from surehand.git.config import read_plain
from surehand.search.gitignore import Rule, Rules
from surehand.search.repository import Repository, find_repository, git_dir_of, user_excludes_file

GITIGNORE: Final = b".gitignore"

Chain: TypeAlias = tuple[tuple[Rules, int], ...]
"""Rules, the first to be asked first, each with the length of the path of its folder."""


class Folder:
    """One folder of a tree and the rules in force inside it."""

    __slots__ = ("chain", "fold", "path", "prefix")

    def __init__(self, path: bytes, prefix: bytes, chain: Chain, fold: bool) -> None:
        self.path = path
        self.prefix = prefix
        """The path from the top, with a slash at its end; empty at the top."""
        self.chain = chain
        self.fold = fold

    def decide(self, name: bytes, is_dir: bool) -> Rule | None:
        """Return the rule that decides about an entry of this folder, if any."""
        for rules, skip in self.chain:
            names = rules.last_names
            path = self.prefix[skip:] + name if names is None or name in names else b""
            rule = rules.decide(name, path, is_dir)
            if rule is not None:
                return rule
        return None

    def ignores(self, name: bytes, is_dir: bool) -> bool:
        """Whether the rules ignore an entry of this folder."""
        rule = self.decide(name, is_dir)
        return rule is not None and not rule.negated

    def child(self, name: bytes) -> Folder:
        """Return a folder inside this one, with its own rules."""
        return self.below(name).with_own_rules()

    def below(self, name: bytes) -> Folder:
        """Return a folder inside this one before its own rules are read."""
        return Folder(self.path + b"/" + name, self.prefix + name + b"/", self.chain, self.fold)

    def with_own_rules(self) -> Folder:
        """Return this folder with the rules of its `.gitignore` put first; the top of a repository starts anew."""
        if self.prefix and git_dir_of(self.path) is not None:
            return folder_at(self.path)
        own = _own_rules(self.path, self.prefix, self.fold)
        return Folder(self.path, self.prefix, own + self.chain, self.fold) if own else self


def folder_at(path: bytes, stop: bytes | None = None) -> Folder:
    """Return the folder at an absolute path with all the rules in force there.

    `stop` is where rules begin outside a repository; the folder itself when it is not above it.
    """
    repository = find_repository(path)
    top = repository.top if repository else stop if stop and _is_below(path, stop) else path
    fold = repository.ignore_case if repository else False
    outer = _outer_rules(repository)
    folder = Folder(top, b"", _own_rules(top, b"", fold) + outer, fold)
    for name in _names_between(top, path):
        folder = folder.child(name)
    return folder


@frozen
class Decision:
    """What the rules say about one path: the rule that decided (None: no rule fits), and about which part of it."""

    path: bytes
    rule: Rule | None
    decided_at: bytes
    """The path or the folder above it that the rule fits, from the top."""
    top: bytes

    @property
    def ignored(self) -> bool:
        """Whether the path is ignored."""
        return self.rule is not None and not self.rule.negated


def explain(path: bytes, *, stop: bytes | None = None, is_dir: bool | None = None) -> Decision:
    """Say which rule decides about an absolute path, which need not exist (`is_dir`: asked with a slash at its end)."""
    parent = os.path.dirname(path)
    repository = find_repository(parent)
    top = repository.top if repository else stop if stop and _is_below(parent, stop) else parent
    if path == top:
        return Decision(path, None, b"", top)
    folder = folder_at(top, stop)
    *above, name = _names_between(top, path)
    for each in above:
        rule = folder.decide(each, True)
        if rule is not None and not rule.negated:
            return Decision(path, rule, folder.prefix + each, top)
        folder = folder.child(each)
    rule = folder.decide(name, _is_folder(path) if is_dir is None else is_dir)
    if is_dir and (rule is None or rule.negated) and git_dir_of(path) is None:
        # Asked about `name/`, git compares that very text too: `name/**` fits it. Beside that it names no rule, not
        # even the one that takes the folder back, which is worth knowing.
        rule = folder.child(name).decide(b"", _is_folder(path)) or rule
    return Decision(path, rule, folder.prefix + name, top)


def _outer_rules(repository: Repository | None) -> Chain:
    """Return the rules that belong to no folder: the repository's private ones, then the user's."""
    if repository is None:
        files = [user_excludes_file()]
        fold = False
    else:
        files, fold = [repository.exclude, repository.excludes_file], repository.ignore_case
    found = ((file, read_plain(file)) for file in files if file)
    rules = (rules_of(data, os.fsdecode(file), fold) for file, data in found if data)
    return tuple((each, 0) for each in rules if each)


def _own_rules(path: bytes, prefix: bytes, fold: bool) -> Chain:
    # git does not follow a link here: the content of a tree must not come from elsewhere.
    data = read_plain(os.path.join(path, GITIGNORE), follow=False)
    if not data:
        return ()
    rules = rules_of(data, os.fsdecode(os.path.join(path, GITIGNORE)), fold)
    return ((rules, len(prefix)),) if rules else ()


@lru_cache(maxsize=256)
def rules_of(data: bytes, source: str, fold: bool) -> Rules:
    """Return the rules of an ignore file; compiled once as long as the bytes stay the same."""
    return Rules(data, source, fold=fold)


def _names_between(top: bytes, path: bytes) -> list[bytes]:
    return [name for name in path[len(top) :].split(b"/") if name]


def _is_below(path: bytes, top: bytes) -> bool:
    return path == top or path.startswith(top.rstrip(b"/") + b"/")


def _is_folder(path: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False
