"""The ignore files of a tree: which rule of which file decides about a path, exactly as in git.

A `Folder` has the rules in force inside it: first its own `.gitignore`, then those of the folders above up to the top
of the repository, then `.git/info/exclude`, then the user's file. Everything in an excluded folder is excluded,
whatever a deeper file says. A repository inside another follows its own rules only.

Outside a repository `.gitignore` files count too, from a `stop` folder (the workspace) downwards, so that a copy of a
tree without its `.git` is searched like the tree itself.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from surehand.core.frozen import frozen
from surehand.core.secrets import is_secret
from surehand.core.text import lazy_pattern
from surehand.git.config import config_home, is_true, read_plain, settings_of
from surehand.git.repositories import common_of, is_repository, repository_at
from surehand.search.gitignore import Rule, Rules, rg_agrees

# Where a git repository begins and what its configuration says about ignored files; git itself is never run.


@frozen
class Repository:
    """The settings of a repository that say what is ignored."""

    top: bytes
    git_dir: bytes
    exclude: bytes
    """`.git/info/exclude`; may not exist."""
    excludes_file: bytes | None
    """The user's own ignore file, `core.excludesFile` or git's default; may not exist."""
    ignore_case: bool


def find_repository(folder: bytes) -> Repository | None:
    """Return the repository that contains `folder` (absolute), or None.

    If git finds none, the nearest folder with a `.git` folder counts, as in ripgrep: even an incomplete repository
    shows which rules are meant.
    """
    unfinished: bytes | None = None
    while True:
        git_dir = git_dir_of(folder)
        if git_dir is not None:
            return _repository(folder, git_dir)
        if unfinished is None and os.path.isdir(os.path.join(folder, b".git")):
            unfinished = folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return _repository(unfinished, os.path.join(unfinished, b".git")) if unfinished is not None else None
        folder = parent


def git_dir_of(folder: bytes) -> bytes | None:
    """Return the git folder if `folder` is the top of a repository or a worktree, by git's own test.

    A `.git` that points nowhere, as in a copied worktree, is no repository: the one around it counts.
    """
    place = repository_at(os.fsdecode(folder)) if os.path.lexists(os.path.join(folder, b".git")) else None
    if place is None or not is_repository(place) or place.git_dir == place.top:
        return None
    # Messages about rules show paths as people use them, so the path is not resolved unless `.git` is a pointer.
    return os.path.join(folder, b".git") if not place.pointer else os.fsencode(place.git_dir)


def _find_common_dir(git_dir: bytes) -> bytes:
    """Return the git folder that a worktree shares with its repository; any other git folder is returned itself."""
    if not os.path.lexists(os.path.join(git_dir, b"commondir")):
        return git_dir
    return os.fsencode(common_of(os.fsdecode(git_dir)))


def user_excludes_file(settings: dict[bytes, bytes] | None = None) -> bytes | None:
    """Return the user's ignore file by the `settings` of a repository, by default those outside of any."""
    settings = settings_of(None) if settings is None else settings
    chosen = settings.get(b"core.excludesfile")
    if chosen is not None:
        path = os.path.expanduser(chosen)
        return None if not path or is_secret(os.fsdecode(path)) else path
    return os.path.join(config_home(), b"git", b"ignore")


def _repository(top: bytes, git_dir: bytes) -> Repository:
    shared = _find_common_dir(git_dir)
    settings = settings_of(git_dir, shared)
    excludes_file = user_excludes_file(settings)
    return Repository(
        top=top,
        git_dir=git_dir,
        exclude=os.path.join(shared, b"info", b"exclude"),
        excludes_file=os.path.normpath(os.path.join(top, excludes_file)) if excludes_file else None,
        ignore_case=is_true(settings.get(b"core.ignorecase", b"")),
    )


GITIGNORE: Final = b".gitignore"

Chain: TypeAlias = tuple[tuple[Rules, int], ...]
"""Ignore files in order of precedence, each with the length of the path of its folder."""


class Folder:
    """A folder of a tree with the rules in force inside it."""

    __slots__ = ("chain", "fold", "path", "prefix")

    def __init__(self, path: bytes, prefix: bytes, chain: Chain, fold: bool) -> None:
        self.path = path
        self.prefix = prefix
        """The path from the top, with a slash at its end; empty at the top."""
        self.chain = chain
        self.fold = fold

    def decide(self, name: bytes, is_dir: bool) -> Rule | None:
        """Return the rule that applies to an entry of this folder, if any."""
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
        """Return a folder inside this one, without its own rules."""
        return Folder(self.path + b"/" + name, self.prefix + name + b"/", self.chain, self.fold)

    def with_own_rules(self) -> Folder:
        """Return this folder with the rules of its `.gitignore` first; the top of a repository inherits none."""
        if self.prefix and git_dir_of(self.path) is not None:
            return folder_at(self.path)
        own = _own_rules(self.path, self.prefix, self.fold)
        return Folder(self.path, self.prefix, own + self.chain, self.fold) if own else self


def folder_at(path: bytes, stop: bytes | None = None) -> Folder:
    """Return the folder at an absolute path with all rules in force there.

    Outside a repository `.gitignore` files count from `stop` on, or from the folder itself if `stop` is not above it.
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
    """The decision about a path: the rule that applies (None: no rule does), and the part of the path it matched."""

    path: bytes
    rule: Rule | None
    decided_at: bytes
    """The path, or the folder above it, that the rule matched; relative to the top."""

    @property
    def ignored(self) -> bool:
        """Whether the path is ignored."""
        return self.rule is not None and not self.rule.negated


def explain(path: bytes, *, stop: bytes | None = None, is_dir: bool | None = None) -> Decision:
    """Find the rule that decides about an absolute path, which may not exist (`is_dir`: written with a final slash)."""
    parent = os.path.dirname(path)
    repository = find_repository(parent)
    top = repository.top if repository else stop if stop and _is_below(parent, stop) else parent
    if path == top:
        return Decision(path, None, b"")
    folder = folder_at(top, stop)
    *above, name = _names_between(top, path)
    for each in above:
        rule = folder.decide(each, True)
        if rule is not None and not rule.negated:
            return Decision(path, rule, folder.prefix + each)
        folder = folder.child(each)
    rule = folder.decide(name, _is_folder(path) if is_dir is None else is_dir)
    if is_dir and (rule is None or rule.negated) and git_dir_of(path) is None:
        # For `name/` git also matches that very text: `name/**` fits it. Otherwise git reports no rule, not even a
        # negated one; here that rule is reported, because people want to know it.
        rule = folder.child(name).decide(b"", _is_folder(path)) or rule
    return Decision(path, rule, folder.prefix + name)


def _outer_rules(repository: Repository | None) -> Chain:
    """Return the rules of `.git/info/exclude` and of the user's file."""
    if repository is None:
        files = [user_excludes_file()]
        fold = False
    else:
        files, fold = [repository.exclude, repository.excludes_file], repository.ignore_case
    found = ((file, read_plain(file)) for file in files if file)
    rules = (rules_of(data, os.fsdecode(file), fold) for file, data in found if data)
    return tuple((each, 0) for each in rules if each)


def _own_rules(path: bytes, prefix: bytes, fold: bool) -> Chain:
    # Like git, follow no link: rules must come from the tree itself.
    data = read_plain(os.path.join(path, GITIGNORE), follow=False)
    if not data:
        return ()
    rules = rules_of(data, os.fsdecode(os.path.join(path, GITIGNORE)), fold)
    return ((rules, len(prefix)),) if rules else ()


@lru_cache(maxsize=256)
def rules_of(data: bytes, source: str, fold: bool) -> Rules:
    """Compile an ignore file; cached by its contents."""
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


# The ignore rules of a whole tree as one list for `rg`, used if `rg` would misread one of its ignore files.
#
# `rg` then reads no `.gitignore` itself. The list may ignore too little, never too much: what `rg` finds is judged
# again by git's rules. So a rule that ignores and that `rg` would misread is simply left out of the list. A negated one
# must be in the list; if `rg` would misread that, there is no list.
#
# The rules of a file are relative to its folder. In the list they are written relative to the root, weaker files first,
# so that as in git the last matching rule decides.

RULES_LIMIT: Final = 1000
"""Rules in one list: `rg` compiles them all, and compares each path with all of them."""
_TITLE: Final = b"# the rules of the whole tree"
"""The first line of each list, so that a list without rules is not empty: an empty one stands for no list."""
_PLAIN_FOLDER: Final = lazy_pattern(rb"[\w.@%+=:,~/-]*", re.ASCII)


def combine(top: Folder, files: Sequence[tuple[bytes, Rules]]) -> bytes | None:
    """Return one list of the rules in force in `top` and those of `files` below it, given with their folders.

    None if there is no such list.
    """
    above = [line for rules, skip in reversed(top.chain) for line in _from_above(rules, top.prefix[skip:])]
    below = [line for folder, rules in sorted(files, key=_depth) for line in _from_below(rules, folder)]
    lines = [*above, *below]
    if top.fold or len(lines) > RULES_LIMIT or None in lines or not hasattr(os, "memfd_create"):
        return None
    return b"\n".join([_TITLE, *filter(None, lines), b""])


def _depth(file: tuple[bytes, Rules]) -> int:
    return file[0].count(b"/")


def _from_above(rules: Rules, path: bytes) -> Iterator[bytes | None]:
    """Yield the rules of a file in the root (empty `path`) or above it, where `path` leads from there to the root."""
    for rule in rules.rules:
        anchored = bool(path) and not rule.by_name
        yield _write(rule, b"" if rule.by_name else b"/") if not anchored else _leave_out(rule)


def _from_below(rules: Rules, folder: bytes) -> Iterator[bytes | None]:
    """Yield the rules of a file in a folder below the root (its path ends in a slash)."""
    plain = _PLAIN_FOLDER.fullmatch(folder) is not None
    for rule in rules.rules:
        yield _write(rule, b"/" + folder + (b"**/" if rule.by_name else b"")) if plain else _leave_out(rule)


def _write(rule: Rule, beginning: bytes) -> bytes | None:
    if not rg_agrees(rule.text):
        return _leave_out(rule)
    body = beginning + rule.pattern.removeprefix(b"/")
    return (b"!" if rule.negated else b"") + body + (b"/" if rule.only_folders else b"")


def _leave_out(rule: Rule) -> bytes | None:
    return None if rule.negated else b""


def write_memory_file(lines: bytes) -> int:
    """Write the list to a memory file and return its descriptor for `rg`."""
    fd = os.memfd_create("ignore-rules")
    try:
        os.write(fd, lines)
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


# Which files people keep: all but what git ignores and the caches that programs recreate.
#
# An undo restores the files that people keep. The history has the others too, and restores them if they are named.

CACHES: Final = frozenset(
    {
        "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox", ".cache",
        ".eggs", ".ipynb_checkpoints", "node_modules", ".venv", ".npm", ".parcel-cache", ".turbo", ".next", ".nuxt",
        ".svelte-kit", ".angular", ".gradle", ".sass-cache", ".eslintcache", ".stylelintcache", ".coverage",
        ".DS_Store", "Thumbs.db"
    }
)  # fmt: skip
"""Names of caches that programs recreate if they are deleted."""
_CACHE_ENDINGS: Final = (".pyc", ".pyo", ".tsbuildinfo")
_INDEX_LIMIT: Final = 256 * 1024 * 1024


class KeptFiles:
    """Decides which paths people keep. Caches what it reads, so create a new one for each decision."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = [os.fsencode(root).rstrip(b"/") for root in roots]
        self._folders: dict[bytes, Folder | None] = {}
        """The folders with their rules; None for one that is not kept, with all its contents."""
        self._tracked: dict[bytes, frozenset[bytes]] = {}

    def __call__(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether people keep the file (or folder) at an absolute path, which may not exist."""
        parent, name = os.path.split(os.fsencode(path))
        folder = self._folder(parent)
        not_kept = folder is None or is_cache(name) or folder.ignores(name, is_folder)
        return not not_kept or self._is_tracked(os.fsencode(path))

    def _folder(self, path: bytes) -> Folder | None:
        if path not in self._folders:
            self._folders[path] = self._load_folder(path)
        return self._folders[path]

    def _load_folder(self, path: bytes) -> Folder | None:
        parent, name = os.path.split(path)
        if path in self._roots or parent == path or not any(path.startswith(root + b"/") for root in self._roots):
            return folder_at(path, path)
        above = self._folder(parent)
        if above is None or is_cache(name) or above.ignores(name, True):
            return None
        return above.child(name)

    def _is_tracked(self, path: bytes) -> bool:
        """Whether git tracks a path or a file below it, to which ignore rules do not apply."""
        repository = find_repository(os.path.dirname(path))
        if repository is None:
            return False
        if repository.top not in self._tracked:
            self._tracked[repository.top] = frozenset(_list_tracked(repository))
        return path[len(repository.top) + 1 :] in self._tracked[repository.top]


def is_cache(name: bytes) -> bool:
    """Whether a name is that of a cache."""
    text = os.fsdecode(name)
    return text in CACHES or text.endswith(_CACHE_ENDINGS)


def _list_tracked(repository: Repository) -> Iterator[bytes]:
    """Yield the paths in the index of a repository and their parent folders; none if the index cannot be read."""
    try:
        with open(os.path.join(repository.git_dir, b"index"), "rb") as file:
            data = file.read(_INDEX_LIMIT)
        for name in _parse_index(data):
            yield name
            while name := name.rpartition(b"/")[0]:
                yield name
    except (OSError, struct.error, ValueError, IndexError):
        return


def _parse_index(data: bytes) -> Iterator[bytes]:
    """Parse the paths in a git index (versions 2 to 4)."""
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        return
    at, name = 12, b""
    for _ in range(count):
        start, (flags,) = at, struct.unpack_from(">H", data, at + 60)
        at += 62 + (2 if version >= 3 and flags & 0x4000 else 0)
        if version == 4:
            dropped, at = _varint(data, at)
            end = data.index(b"\0", at)
            name = name[: len(name) - dropped] + data[at:end]
            at = end + 1
        else:
            end = data.index(b"\0", at)
            name = data[at:end]
            at = start + (end - start + 8) // 8 * 8
        yield name


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1
