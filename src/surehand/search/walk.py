"""Walking a tree: in one stable order, by git's ignore rules, without following links, secrets left out.

The order is that of `rg --sort path`: the names of a folder by their bytes, the contents of a subfolder at its place.
Walks are generators, so a caller that has enough simply stops. A folder is opened relative to its open parent, never by
path, so that a folder replaced by a link meanwhile cannot lead the walk out of the tree.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from surehand.core.frozen import field, frozen
from surehand.core.secrets import is_secret, may_be_secret
from surehand.core.text import format_count
from surehand.search.gitignore import Sieve
from surehand.search.ignore_files import GITIGNORE, Chain, Folder, folder_at

_EXCLUDED: Final = frozenset({b"node_modules", b"__pycache__", b"vendor", b"dist", b"build", b".DS_Store"})
"""Folders that listings leave out beside ignored files, and a file of the macOS Finder."""
_EXCLUDED_ENDINGS: Final = (b".pyc",)
_MARKS: Final = frozenset({GITIGNORE, b".git"})
"""Entries that give a folder ignore rules of its own."""
_SIEVES_LIMIT: Final = 64
DEPTH_LIMIT: Final = 200
"""Nesting depth at which a walk stops; each level holds a descriptor open."""
_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
SETTLED_NS: Final = 2_000_000_000
"""How long a change must be over before its time proves that there was no other one since."""
_REMEMBERED_FROM: Final = 64
"""Folders of a walk before its others are remembered: a small tree is read as fast as it is looked up."""
_NAMES_REMEMBERED: Final = 400_000
"""Names remembered at most, some 70 bytes each."""
_EXACT_FILE_SYSTEMS: Final = frozenset(
    {b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs", b"f2fs", b"zfs", b"bcachefs", b"tmpfs", b"overlay"}
)
_ENCODING, _ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_FILE, FOLDER, _LINK = 1, 2, 3
"""Kinds of entries; 0 is any other one (device, socket, FIFO)."""


class Tally:
    """Counts what a walk found and what it left out."""

    __slots__ = ("files", "folders", "ignored", "secret", "unreadable", "with_rules")

    def __init__(self) -> None:
        self.folders = self.files = self.ignored = self.secret = self.unreadable = 0
        self.with_rules: list[bytes] = []
        """Paths of folders that have a `.gitignore` or a `.git`."""

    def notes(self, done: str) -> list[str]:
        """Return the notes of a result about what was not `done` ("searched", "listed")."""
        secret = format_count(self.secret, "secret file is", "secret files or folders are")
        unreadable = format_count(self.unreadable, "folder that cannot be read is", "folders that cannot be read are")
        found = ((self.secret, secret), (self.unreadable, unreadable))
        return [f"({text} not {done})" for number, text in found if number]


@frozen
class Walk:
    """A walk from `root` (absolute, without links on the way), with or without ignore rules and default excludes."""

    root: bytes
    stop: bytes | None = None
    """Outside a repository, the folder from which on `.gitignore` files count."""
    ignore: bool = True
    excludes: bool = False
    keeps_out: Callable[[str], bool] = is_secret
    """Whether an absolute path must not be listed or searched; folders end in a slash."""
    enters: Callable[[bytes], bool] | None = None
    """Whether a folder (path from the root) is entered; None enters all."""
    tally: Tally = field(default_factory=Tally)
    fd: int | None = None
    """A descriptor of the root that the caller keeps open; without it the root is opened by path."""
    memory: FolderMemory | None = None
    """A cache of unchanged folders; walks that share one differ in `root`, `stop` and `enters` alone."""

    def files(self) -> Iterator[tuple[bytes, bool]]:
        """Yield the path (from the root) of every file and link, in order, and whether it is a file."""
        levels: list[_Level] = []
        try:
            levels += self._root()
            while levels:
                level = levels[-1]
                for name, kind in level.in_order():
                    if kind != FOLDER:
                        yield level.prefix + name, kind == _FILE
                    elif below := self._below(level, name, len(levels)):
                        levels.append(below)
                        break
                else:
                    os.close(levels.pop().fd)
        finally:
            for level in levels:
                os.close(level.fd)

    def folders(self) -> Iterator[tuple[bytes, Sequence[bytes], int]]:
        """Yield each folder: its path from the root (with a slash), the names of its files and links, its descriptor.

        In no particular order; faster than `files`.
        """
        levels: list[_Level] = []
        try:
            levels += self._root()
            if levels:
                yield b"", levels[0].names(), levels[0].fd
            while levels:
                level = levels[-1]
                if not level.folders:
                    os.close(levels.pop().fd)
                elif below := self._below(level, level.folders.pop(), len(levels)):
                    levels.append(below)
                    yield below.prefix, below.names(), below.fd
        finally:
            for level in levels:
                os.close(level.fd)

    def open_root(self) -> int:
        """Open the root; the caller closes the descriptor."""
        return os.dup(self.fd) if self.fd is not None else os.open(self.root, _OPEN_FOLDER)

    def _root(self) -> list[_Level]:
        folder = folder_at(self.root, self.stop) if self.ignore else Folder(self.root, b"", (), False)
        try:
            return [self._level(self.open_root(), folder, b"")]
        except OSError:
            self.tally.unreadable += 1
            return []

    def _below(self, level: _Level, name: bytes, depth: int) -> _Level | None:
        """Open a subfolder relative to its parent; None if it is gone, unreadable, too deep or a link by now."""
        try:
            if depth >= DEPTH_LIMIT:
                raise OSError(errno.ELOOP, "too deep")
            fd = os.open(name, _OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=level.fd)
            return self._level(fd, level.contents.folder.below(name), level.prefix + name + b"/")
        except OSError:
            self.tally.unreadable += 1
            return None

    def _level(self, fd: int, folder: Folder, prefix: bytes) -> _Level:
        """Read an open folder; closes it on failure."""
        try:
            contents = self._read(fd, folder, prefix) if self.memory is None else self._recall(fd, folder, prefix)
        except BaseException:
            os.close(fd)
            raise
        tally = self.tally
        tally.folders += 1
        tally.files += len(contents.files) + len(contents.links)
        tally.ignored += contents.ignored
        tally.secret += contents.secret
        if contents.has_rules:
            tally.with_rules.append(folder.path)
        return _Level(fd, prefix, contents, self.enters)

    def _recall(self, fd: int, folder: Folder, prefix: bytes) -> _Contents:
        """Return the contents of a folder from memory, or read and remember them if it or its rules have changed."""
        assert self.memory is not None
        status = os.fstat(fd)  # before the names are read, so that a change in between shows next time
        now = time.time_ns()
        known = self.memory.get(folder.path, status)
        if known is not None:
            inside = folder.with_own_rules() if known.has_rules and prefix else folder
            if inside.chain == known.folder.chain and inside.prefix == known.folder.prefix:
                return known
        contents = self._read(fd, folder, prefix)
        if self.tally.folders >= _REMEMBERED_FROM:
            self.memory.add(contents, status, now)
        return contents

    def _read(self, fd: int, folder: Folder, prefix: bytes) -> _Contents:
        """Read the entries of an open folder and drop what the rules in force inside leave out."""
        entries = list(os.scandir(fd))  # closes its own descriptor at the end
        files = _encode([entry.name for entry in entries if entry.is_file(follow_symlinks=False)])
        others = _kinds_of_others(entries) if len(files) < len(entries) else {}
        has_rules = self.ignore and not (_MARKS.isdisjoint(files) and _MARKS.isdisjoint(others))
        contents = _Contents(folder.with_own_rules() if has_rules and prefix else folder, has_rules)
        sieve = self._sieve(contents.folder.chain)
        # Only the few files that the sieve finds are judged one by one.
        doubtful = files if sieve is None else sieve.find(files, contents.folder)
        if doubtful is files:
            files = [name for name in files if not self._drops(contents, name, _FILE)]
        elif doubtful:
            files = [name for name in files if name not in doubtful or not self._drops(contents, name, _FILE)]
        found = [(name, kind) for name, kind in others.items() if kind and not self._drops(contents, name, kind)]
        contents.files = tuple(files)
        contents.links = tuple([name for name, kind in found if kind == _LINK])
        contents.folders = tuple([name for name, kind in found if kind == FOLDER])
        return contents

    def _sieve(self, chain: Chain) -> Sieve | None:
        """Return the sieve for files under a chain of rules; None if any file may have to be left out."""
        if self.keeps_out is not is_secret:
            return None
        rules = chain, self.excludes
        if (sieve := _SIEVES.get(rules)) is None:
            if len(_SIEVES) >= _SIEVES_LIMIT:
                _SIEVES.clear()
            endings = _EXCLUDED_ENDINGS if self.excludes else ()
            names = (b".git", b".DS_Store") if self.excludes else (b".git",)
            sieve = _SIEVES[rules] = Sieve(chain, names, endings)
        return sieve

    def _drops(self, contents: _Contents, name: bytes, kind: int) -> bool:
        """Whether an entry of a folder is left out; counts it."""
        folder, is_dir = contents.folder, kind == FOLDER
        if name == b".git":
            return True
        if (self.excludes and _is_excluded(name, is_dir)) or (folder.chain and folder.ignores(name, is_dir)):
            contents.ignored += 1
            return True
        if self.is_kept_out(folder, name, is_dir):
            contents.secret += 1
            return True
        return False

    def is_kept_out(self, folder: Folder, name: bytes, is_dir: bool) -> bool:
        """Whether an entry of a folder is a secret, or kept out by the policy."""
        if self.keeps_out is is_secret and not may_be_secret(name):
            return False
        return self.keeps_out(os.fsdecode(os.path.join(folder.path, name)) + ("/" if is_dir else ""))


class _Contents:
    """What is kept in a folder, and how much is left out."""

    __slots__ = ("files", "folder", "folders", "has_rules", "ignored", "links", "secret")

    def __init__(self, folder: Folder, has_rules: bool) -> None:
        self.folder = folder
        """The rules in force inside."""
        self.has_rules = has_rules
        """Whether it has a `.gitignore` or begins a repository."""
        self.files: Sequence[bytes] = ()
        self.links: Sequence[bytes] = ()
        self.folders: Sequence[bytes] = ()
        self.ignored = self.secret = 0


class FolderMemory:
    """The contents of folders listed before, used again while the status of a folder proves them unchanged.

    A new, renamed or deleted entry changes the ctime of its folder, which no program can set. That holds for the
    file systems named here; on others, and where the last change is so recent that another one could bear the same
    time, a folder is read each time. Files in it are still looked at by the caller: their times change alone.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[tuple[int, int, int], _Contents]] = {}
        """By path."""
        self._names = 0
        self._devices: dict[int, bool] = {}
        """Whether the file system of a device is one of those."""

    def begin(self) -> None:
        """Begin a walk: forget everything if there is no room for more."""
        self._devices.clear()  # a number may belong to another file system by now
        if self._names > _NAMES_REMEMBERED:
            self._known.clear()
            self._names = 0

    def get(self, path: bytes, status: os.stat_result) -> _Contents | None:
        """Return the contents of a folder with this status; its rules may have changed all the same."""
        found = self._known.get(path)
        return found[1] if found and found[0] == (status.st_ino, status.st_dev, status.st_ctime_ns) else None

    def add(self, contents: _Contents, status: os.stat_result, now: int) -> None:
        """Remember contents that were read after `status` was, at `now` (ns)."""
        if status.st_ctime_ns >= now - SETTLED_NS or self._names > _NAMES_REMEMBERED:
            return
        if (exact := self._devices.get(status.st_dev)) is None:
            exact = self._devices[status.st_dev] = _has_exact_times(status.st_dev)
        if not exact:
            return
        self._names += 1 + len(contents.files) + len(contents.links) + len(contents.folders)
        self._known[contents.folder.path] = (status.st_ino, status.st_dev, status.st_ctime_ns), contents


def _has_exact_times(device: int) -> bool:
    """Whether a device holds a local file system that changes a folder's ctime with every change in it."""
    number = b"%d:%d" % (os.major(device), os.minor(device))
    try:
        with open("/proc/self/mountinfo", "rb") as mounts:
            fields = ((line.split(b" ", 3)[2], line.partition(b" - ")[2].split(b" ", 1)[0]) for line in mounts)
            return any(each == number and kind in _EXACT_FILE_SYSTEMS for each, kind in fields)
    except (OSError, IndexError):
        return False


class _Level:
    """A folder that a walk is in, open until all of it was visited."""

    __slots__ = ("_left", "contents", "fd", "folders", "prefix")

    def __init__(self, fd: int, prefix: bytes, contents: _Contents, enters: Callable[[bytes], bool] | None) -> None:
        self.fd = fd
        self.prefix = prefix
        """The path from the root, with a slash at its end; empty at the root."""
        self.contents = contents
        self.folders = [name for name in contents.folders if enters is None or enters(prefix + name)]
        self._left: Iterator[tuple[bytes, int]] | None = None

    def names(self) -> Sequence[bytes]:
        files, links = self.contents.files, self.contents.links
        return [*files, *links] if links else files

    def in_order(self) -> Iterator[tuple[bytes, int]]:
        """Return the entries not yet visited, by name."""
        if self._left is None:
            kinds = ((self.contents.files, _FILE), (self.contents.links, _LINK), (self.folders, FOLDER))
            self._left = iter(sorted((name, kind) for names, kind in kinds for name in names))
        return self._left


def _is_excluded(name: bytes, is_dir: bool) -> bool:
    """Whether listings leave an entry out by default because of its name."""
    return name in _EXCLUDED if is_dir else name == b".DS_Store" or name.endswith(_EXCLUDED_ENDINGS)


def _encode(names: list[str]) -> list[bytes]:
    """Encode many names in one step."""
    return "/".join(names).encode(_ENCODING, _ERRORS).split(b"/") if names else []


def _kinds_of_others(entries: list[os.DirEntry[str]]) -> dict[bytes, int]:
    """Return the entries other than files with their kinds."""
    found = [entry for entry in entries if not entry.is_file(follow_symlinks=False)]
    return dict(zip(_encode([entry.name for entry in found]), map(_kind, found), strict=True))


def entry_kinds(folder: bytes) -> dict[bytes, int]:
    """Read the folder at a path: its entries with their kinds."""
    with os.scandir(folder) as entries:
        return {entry.name: _kind(entry) for entry in entries}


def _kind(entry: os.DirEntry[str] | os.DirEntry[bytes]) -> int:
    if entry.is_file(follow_symlinks=False):
        return _FILE
    if entry.is_dir(follow_symlinks=False):
        return FOLDER
    return _LINK if entry.is_symlink() else 0


_SIEVES: Final = dict[tuple[Chain, bool], Sieve]()
"""By the rules in force, and whether the default excludes of listings are."""


def order(path: bytes) -> bytes:
    """Return the sort key that puts paths in the order of a walk: compared part by part."""
    return path.replace(b"/", b"\0")
