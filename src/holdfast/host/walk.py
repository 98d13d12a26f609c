"""Walking a tree: in one stable order, by git's ignore rules, without following links, secrets left out.

The order is that of `rg --sort path`: names of one folder by their bytes, a folder's content in its place. Walks are
generators, so whoever has enough simply stops.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from holdfast.core.frozen import field, frozen
from holdfast.core.secrets import is_secret, may_be_secret
from holdfast.host.globbing import Glob
from holdfast.host.ignore_chain import GITIGNORE, Folder, folder_at

DEFAULT_EXCLUDES: Final = frozenset({b"node_modules", b"__pycache__", b"vendor", b"dist", b"build", b".DS_Store"})
"""What listings leave out beside ignored files; `*.pyc` goes with them."""
_RULES: Final = frozenset({GITIGNORE, b".git"})
_FOLDERS_ONLY: Final = DEFAULT_EXCLUDES - {b".DS_Store"}


@dataclass(slots=True)
class Tally:
    """What a walk met and left out."""

    folders: int = 0
    files: int = 0
    ignored: int = 0
    secret: int = 0
    unreadable: int = 0


@frozen
class Walk:
    """How to walk: from `root` (absolute, no link), with or without ignore rules and default excludes."""

    root: bytes
    stop: bytes | None = None
    """Where ignore rules begin outside a repository."""
    ignore: bool = True
    excludes: bool = False
    keeps_out: Callable[[str], bool] = is_secret
    enters: Callable[[bytes], bool] | None = None
    tally: Tally = field(default_factory=Tally)

    def files(self) -> Iterator[tuple[bytes, os.DirEntry[bytes]]]:
        """Yield the path (from the root) and the entry of every file and link, in order."""
        folder = folder_at(self.root, self.stop) if self.ignore else Folder(self.root, b"", (), False)
        waiting = [iter(self._entries(folder, b""))]
        while waiting:
            for path, entry, inside in waiting[-1]:
                if inside is None:
                    yield path, entry
                else:
                    waiting.append(iter(self._entries(inside, path + b"/")))
                    break
            else:
                waiting.pop()

    def _entries(self, folder: Folder, prefix: bytes) -> Iterator[tuple[bytes, os.DirEntry[bytes], Folder | None]]:
        """Yield what is kept of one folder, in order; a folder inside comes with the rules that reach it."""
        tally = self.tally
        try:
            with os.scandir(folder.path) as found:
                entries = sorted(found, key=_name)
        except OSError:
            tally.unreadable += 1
            return
        tally.folders += 1
        if self.ignore and prefix and any(entry.name in _RULES for entry in entries):
            folder = folder.with_own_rules()
        for entry in entries:
            name = entry.name
            is_dir = entry.is_dir(follow_symlinks=False)
            if name == b".git" or self._drops(folder, entry, name, is_dir):
                continue
            path = prefix + name
            if not is_dir:
                if entry.is_file(follow_symlinks=False) or entry.is_symlink():
                    tally.files += 1
                    yield path, entry, None
            elif self.enters is None or self.enters(path):
                yield path, entry, folder.below(name)

    def _drops(self, folder: Folder, entry: os.DirEntry[bytes], name: bytes, is_dir: bool) -> bool:
        if self.excludes and _excluded(name, is_dir):
            return True
        if folder.chain:
            rule = folder.decide(name, is_dir)
            if rule is not None and not rule.negated:
                self.tally.ignored += 1
                return True
        if self.keeps_out is is_secret and not may_be_secret(name):
            return False
        if self.keeps_out(os.fsdecode(entry.path) + ("/" if is_dir else "")):
            self.tally.secret += 1
            return True
        return False


def _name(entry: os.DirEntry[bytes]) -> bytes:
    return entry.name


def _excluded(name: bytes, is_dir: bool) -> bool:
    if is_dir:
        return name in _FOLDERS_ONLY
    return name == b".DS_Store" or name.endswith(b".pyc")


def order(path: bytes) -> bytes:
    """Return the key that sorts paths the way a walk meets them: part by part."""
    return path.replace(b"/", b"\0")


def glob_walk(walk: Walk, glob: Glob) -> Iterator[tuple[bytes, os.DirEntry[bytes]]]:
    """Yield the files of a walk that a pattern matches."""
    fits = glob.expression.fullmatch
    return ((path, entry) for path, entry in walk.files() if fits(path))
