"""Walking a tree: in one stable order, by git's ignore rules, without following links, secrets left out.

The order is that of `rg --sort path`: names of one folder by their bytes, a folder's content in its place. Walks are
generators, so whoever has enough simply stops.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dataclasses import field as kept
from operator import itemgetter
from typing import Final, TypeAlias

from holdfast.core.frozen import field, frozen
from holdfast.core.secrets import is_secret, may_be_secret
from holdfast.host.ignore_chain import GITIGNORE, Folder, folder_at

_EXCLUDED: Final = frozenset({b"node_modules", b"__pycache__", b"vendor", b"dist", b"build", b".DS_Store"})
"""What listings leave out beside ignored files: folders, and one file of the Finder's."""
_EXCLUDED_ENDINGS: Final = (b".pyc",)
_RULES: Final = frozenset({GITIGNORE, b".git"})
_HARMLESS: Final = set[bytes]()
"""Names that are no secret wherever they lie: the same names come again and again, in one walk and in the next."""
_HARMLESS_LIMIT: Final = 1 << 15

_Found: TypeAlias = os.DirEntry[bytes]
_Entry: TypeAlias = tuple[bytes, os.DirEntry[bytes], Folder | None, bytes]
"""Name and entry; for a folder the one it lies in; the path from the root to where it lies."""


@dataclass(slots=True)
class Tally:
    """What a walk met and left out."""

    folders: int = 0
    files: int = 0
    ignored: int = 0
    secret: int = 0
    unreadable: int = 0
    with_rules: list[bytes] = kept(default_factory=list[bytes])
    """Folders that have a `.gitignore` or begin a repository."""

    def notes(self, done: str) -> list[str]:
        """Return what a caller should know of what was not searched or listed (`done`)."""
        secret = counted(self.secret, "secret file is", "secret files or folders are")
        unreadable = counted(self.unreadable, "folder that cannot be read is", "folders that cannot be read are")
        found = ((self.secret, secret), (self.unreadable, unreadable))
        return [f"({text} not {done})" for number, text in found if number]


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 file`, `1,200 files`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


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
        waiting = [iter(self._in_order(self._top(), b""))]
        while waiting:
            for name, entry, inside, prefix in waiting[-1]:
                if inside is None:
                    yield prefix + name, entry
                else:
                    waiting.append(iter(self._in_order(inside.below(name), prefix + name + b"/")))
                    break
            else:
                waiting.pop()

    def folders(self) -> Iterator[tuple[bytes, list[os.DirEntry[bytes]]]]:
        """Yield every folder (its path from the root, with a slash) with its files and links, in no order: faster."""
        waiting = [(self._top(), b"")]
        while waiting:
            folder, prefix = waiting.pop()
            folder, files, folders = self._kept(folder, prefix)
            waiting += [(folder.below(entry.name), prefix + entry.name + b"/") for entry in folders]
            yield prefix, files

    def _top(self) -> Folder:
        return folder_at(self.root, self.stop) if self.ignore else Folder(self.root, b"", (), False)

    def _in_order(self, folder: Folder, prefix: bytes) -> list[_Entry]:
        folder, files, folders = self._kept(folder, prefix)
        entries: list[_Entry] = [(entry.name, entry, None, prefix) for entry in files]
        entries += [(entry.name, entry, folder, prefix) for entry in folders]
        entries.sort(key=itemgetter(0))
        return entries

    def _kept(self, folder: Folder, prefix: bytes) -> tuple[Folder, list[_Found], list[_Found]]:
        """Read one folder; return it with the rules in force inside it, and what is kept: files and links, folders."""
        files: list[_Found] = []
        folders: list[_Found] = []
        try:
            with os.scandir(folder.path) as found:
                entries = list(found)
        except OSError:
            self.tally.unreadable += 1
            return folder, files, folders
        self.tally.folders += 1
        if self.ignore and not _RULES.isdisjoint([entry.name for entry in entries]):
            self.tally.with_rules.append(folder.path)
            folder = folder.with_own_rules() if prefix else folder
        drops, enters = self._drops(folder), self.enters
        for entry in entries:
            # Every entry of a tree comes through here.
            if entry.is_file(follow_symlinks=False) or entry.is_symlink():
                if not drops(entry, False):
                    files.append(entry)
            elif not entry.is_dir(follow_symlinks=False) or drops(entry, True):
                continue
            elif enters is None or enters(prefix + entry.name):
                folders.append(entry)
        self.tally.files += len(files)
        return folder, files, folders

    def _drops(self, folder: Folder) -> Callable[[_Found, bool], bool]:
        """Return what tells of the entries of a folder whether they are left out."""
        tally, keeps_out, ruled = self.tally, self.keeps_out, bool(folder.chain)
        names, endings = (_EXCLUDED, _EXCLUDED_ENDINGS) if self.excludes else (frozenset[bytes](), ())
        harmless = _HARMLESS if keeps_out is is_secret else frozenset[bytes]()

        def drops(entry: _Found, is_dir: bool) -> bool:
            name = entry.name
            if name == b".git":
                return True
            if (name in names and (is_dir or name == b".DS_Store")) or (not is_dir and name.endswith(endings)):
                tally.ignored += 1
                return True
            if ruled and (rule := folder.decide(name, is_dir)) is not None and not rule.negated:
                tally.ignored += 1
                return True
            if name in harmless or not self._is_kept_out(entry, is_dir):
                return False
            tally.secret += 1
            return True

        return drops

    def _is_kept_out(self, entry: _Found, is_dir: bool) -> bool:
        if self.keeps_out is is_secret and not may_be_secret(entry.name):
            if len(_HARMLESS) >= _HARMLESS_LIMIT:
                _HARMLESS.clear()
            _HARMLESS.add(entry.name)
            return False
        return self.keeps_out(os.fsdecode(entry.path) + ("/" if is_dir else ""))


def order(path: bytes) -> bytes:
    """Return the key that sorts paths the way a walk meets them: part by part."""
    return path.replace(b"/", b"\0")
