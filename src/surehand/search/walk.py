"""Walking a tree: in one stable order, by git's ignore rules, without following links, secrets left out.

The order is that of `rg --sort path`: names of one folder by their bytes, a folder's content in its place. Walks are
generators, so a caller that has enough simply stops. A folder is opened from the one it was found in, never by its
path, so that no link put in its place meanwhile leads out of the tree.

`rg` may walk a tree by itself where every rule in sight means to it what it means to git, or where the rules can be
told to it in one list that does (`look_through`). What it lets through is judged again, so only what it would leave out
too much matters: a rule it reads otherwise, a rule file git would not follow, rules of a tree applied inside another
repository.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from surehand.core.frozen import field, frozen, replace_values
from surehand.core.secrets import is_secret, may_be_secret
from surehand.core.text import format_count
from surehand.files.paths import PATH_ONLY
from surehand.git.config import read_plain
from surehand.search import ripgrep
from surehand.search.gitignore import Rules, Sieve
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

_EXCLUDED: Final = frozenset({b"node_modules", b"__pycache__", b"vendor", b"dist", b"build", b".DS_Store"})
"""What listings leave out beside ignored files: folders, and one file of the Finder's."""
_EXCLUDED_ENDINGS: Final = (b".pyc",)
_MARKS: Final = frozenset({GITIGNORE, b".git"})
"""What says that a folder has rules of its own."""
_SIEVES_LIMIT: Final = 64
DEPTH_LIMIT: Final = 200
"""Folders inside each other that are held open at once."""
_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_REMEMBERED_FROM: Final = 64
"""Folders of a walk before its others are remembered: a small tree is read as fast as it is looked up."""
_NAMES_REMEMBERED: Final = 250_000
"""Names remembered at most, some 70 bytes each."""
_EXACT_FILE_SYSTEMS: Final = frozenset(
    {b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs", b"f2fs", b"zfs", b"bcachefs", b"tmpfs", b"overlay"}
)
_ENCODING, _ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_FILE, _FOLDER, _LINK = 1, 2, 3
"""What an entry is; 0 for devices, sockets and the like."""


class Tally:
    """What a walk met and left out."""

    __slots__ = ("files", "folders", "ignored", "secret", "unreadable", "with_rules")

    def __init__(self) -> None:
        self.folders = self.files = self.ignored = self.secret = self.unreadable = 0
        self.with_rules: list[bytes] = []
        """Folders that have a `.gitignore` or begin a repository."""

    def notes(self, done: str) -> list[str]:
        """Return what a caller should know of what was not searched or listed (`done`)."""
        secret = format_count(self.secret, "secret file is", "secret files or folders are")
        unreadable = format_count(self.unreadable, "folder that cannot be read is", "folders that cannot be read are")
        found = ((self.secret, secret), (self.unreadable, unreadable))
        return [f"({text} not {done})" for number, text in found if number]


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
    fd: int | None = None
    """The root, held open by the caller; without it the root is opened by its name."""
    memory: FolderMemory | None = None
    """Where unchanged folders are taken from; walks that share one differ in `root`, `stop` and `enters` alone."""

    def files(self) -> Iterator[tuple[bytes, bool]]:
        """Yield the path (from the root) of every file and link, in order, and whether it is a file."""
        levels: list[_Level] = []
        try:
            levels += self._root()
            while levels:
                level = levels[-1]
                for name, kind in level.in_order():
                    if kind != _FOLDER:
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
        """Yield every folder: its path from the root with a slash, the names of its files and links, it itself open.

        In no order and in larger steps: faster for who has to look at everything.
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
        """Return a descriptor of the root, for the caller to close."""
        return os.dup(self.fd) if self.fd is not None else os.open(self.root, _OPEN_FOLDER)

    def _root(self) -> list[_Level]:
        folder = folder_at(self.root, self.stop) if self.ignore else Folder(self.root, b"", (), False)
        try:
            return [self._level(self.open_root(), folder, b"")]
        except OSError:
            self.tally.unreadable += 1
            return []

    def _below(self, level: _Level, name: bytes, depth: int) -> _Level | None:
        """Open a folder from the one it was found in: a link put in its place meanwhile is not followed."""
        try:
            if depth >= DEPTH_LIMIT:
                raise OSError(errno.ELOOP, "too deep")
            fd = os.open(name, _OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=level.fd)
            return self._level(fd, level.contents.folder.below(name), level.prefix + name + b"/")
        except OSError:
            self.tally.unreadable += 1
            return None

    def _level(self, fd: int, folder: Folder, prefix: bytes) -> _Level:
        """Return what is kept in an open folder, which is closed if it cannot be read."""
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
        """Return the contents of a folder from memory if nothing has changed, and remember them otherwise."""
        assert self.memory is not None
        status = os.fstat(fd)  # before the names are read: a change from here on shows next time
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
        """Read an open folder, and judge what is in it by the rules in force inside."""
        entries = list(os.scandir(fd))  # read to its end it closes itself
        files = _encode([entry.name for entry in entries if entry.is_file(follow_symlinks=False)])
        others = _find_others(entries) if len(files) < len(entries) else {}
        has_rules = self.ignore and not (_MARKS.isdisjoint(files) and _MARKS.isdisjoint(others))
        contents = _Contents(folder.with_own_rules() if has_rules and prefix else folder, has_rules)
        sieve = self._sieve(contents.folder.chain)
        # Most files are not judged one by one.
        doubtful = files if sieve is None else sieve.find(files, contents.folder)
        if doubtful is files:
            files = [name for name in files if not self._drops(contents, name, _FILE)]
        elif doubtful:
            files = [name for name in files if name not in doubtful or not self._drops(contents, name, _FILE)]
        found = [(name, kind) for name, kind in others.items() if kind and not self._drops(contents, name, kind)]
        contents.files = tuple(files)
        contents.links = tuple([name for name, kind in found if kind == _LINK])
        contents.folders = tuple([name for name, kind in found if kind == _FOLDER])
        return contents

    def _sieve(self, chain: Chain) -> Sieve | None:
        """Return what finds the files that may have to be left out; None where that can be any."""
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
        """Whether an entry of a folder is left out; it is counted then."""
        folder, is_dir = contents.folder, kind == _FOLDER
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
        """Whether an entry of a folder is a secret, or closed by the policy."""
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
        if status.st_ctime_ns >= now - _SETTLED_NS or self._names > _NAMES_REMEMBERED:
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
    """A folder on the way down, held open until everything in it was seen."""

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
        """Return what has not been seen of files and folders, by name."""
        if self._left is None:
            kinds = ((self.contents.files, _FILE), (self.contents.links, _LINK), (self.folders, _FOLDER))
            self._left = iter(sorted((name, kind) for names, kind in kinds for name in names))
        return self._left


def _is_excluded(name: bytes, is_dir: bool) -> bool:
    """Whether listings leave an entry out by its name."""
    return name in _EXCLUDED if is_dir else name == b".DS_Store" or name.endswith(_EXCLUDED_ENDINGS)


def _encode(names: list[str]) -> list[bytes]:
    """Return names as the system has them, all at once."""
    return "/".join(names).encode(_ENCODING, _ERRORS).split(b"/") if names else []


def _find_others(entries: list[os.DirEntry[str]]) -> dict[bytes, int]:
    """Return the entries that are no files, each with what it is."""
    found = [entry for entry in entries if not entry.is_file(follow_symlinks=False)]
    return dict(zip(_encode([entry.name for entry in found]), map(_kind, found), strict=True))


def _kind(entry: os.DirEntry[str] | os.DirEntry[bytes]) -> int:
    """Return what an entry is that is no file."""
    if entry.is_dir(follow_symlinks=False):
        return _FOLDER
    return _LINK if entry.is_symlink() else 0


_SIEVES: Final = dict[tuple[Chain, bool], Sieve]()
"""By the rules in force, and whether listings' excludes are."""


def order(path: bytes) -> bytes:
    """Return the key that sorts paths the way a walk meets them: part by part."""
    return path.replace(b"/", b"\0")


SURVEY_S: Final = 5.0
"""How long a tree is looked through for rule files that `rg` reads otherwise."""
_SETTLED_NS: Final = 2_000_000_000
_KNOWN_LIMIT: Final = 4
_ORDINARY: Final = (False, False)


def rg_reads(folder: Folder) -> bool:
    """Return whether `rg`, started in `folder`, reads every rule in force there as git does."""
    if folder.fold or not all(rules.rg_agrees for rules, _ in folder.chain):
        return False
    if not folder.prefix:
        return True
    # Rules given as files count from the folder `rg` starts in, and without a repository it would look up to the root.
    anchored = any(not rule.by_name for rules in _outer(folder) for rule in rules.rules)
    return not anchored and find_repository(folder.path) is not None


def walk_options(walk: Walk, given: int | None = None) -> list[str]:
    """Return the options that make `rg` walk by the rules of `walk`: the strongest rule file comes last.

    With `given`, a descriptor of a list of rules, it reads that instead of rule files.
    """
    if given is not None:
        return [*ripgrep.BY_GIVEN_RULES, f"--ignore-file=/proc/self/fd/{given}"]
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


def look_through(walk: Walk, stop: ripgrep.Stop) -> KnownTree | None:
    """Return what must be known of a tree before `rg` may walk it by itself; None where it must not.

    The first time the tree is walked to find that out; later only folders that have changed since are looked at again,
    and the tree only where a rule file or a folder has come or gone.
    """
    if not walk.ignore:
        return None
    top = folder_at(walk.root, walk.stop)
    key = walk.root, walk.stop, walk.keeps_out
    tree = _KNOWN.pop(key, None)
    if tree is None or tree.chain != top.chain or not tree.holds(walk):
        tree = _survey(walk, top, stop)
        if tree is None or tree.unreadable:  # a folder that is opened to us meanwhile does not tell its parent
            return tree
    _KNOWN[key] = tree
    for old in list(_KNOWN)[:-_KNOWN_LIMIT]:
        _KNOWN.pop(old, None)
    return tree


def last_rules(walk: Walk) -> bytes:
    """Return the rules `rg` was given here last: most likely those it is to be given now."""
    known = _KNOWN.get((walk.root, walk.stop, walk.keeps_out))
    return known.given if known else b""


@frozen
class KnownTree:
    """What a tree looked like when `rg` could be trusted with it."""

    chain: Chain
    folders: dict[bytes, int]
    """Folders (paths from the root, the root as `.`), each with the time of its last change (ns).

    That of its status, which nobody can set back: another folder moved to this place has another one. 0 for one that
    had changed just before: it might change again within one tick of the clock.
    """
    special: dict[bytes, tuple[bool, bool]]
    """Folders that have a `.gitignore`, or a `.git`."""
    secrets: dict[bytes, int]
    """Folders in which something is kept from being searched, and how much."""
    unreadable: int
    """Folders that could not be read."""
    rules: list[tuple[bytes, bytes]]
    """Rule files and what was in them."""
    given: bytes
    """The rules `rg` is given; empty where it reads the files itself."""

    def holds(self, walk: Walk) -> bool:
        """Say whether all this is still so; folders that have changed are looked at again, those alone."""
        if not all(read_plain(path, follow=False) == data for path, data in self.rules):
            return False
        try:
            changed = self._find_changed(walk.root)
            judge = Judge(walk)
            return all(self._is_alike(walk.root, judge, folder) for folder in changed) and self._note_times(changed)
        except OSError:
            return False

    def _find_changed(self, root: bytes) -> dict[bytes, int]:
        top = os.open(root, PATH_ONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            now = ((path, os.stat(path, dir_fd=top).st_ctime_ns, then) for path, then in self.folders.items())
            return {path: at for path, at, then in now if at != then}
        finally:
            os.close(top)

    def _is_alike(self, root: bytes, judge: Judge, folder: bytes) -> bool:
        """Say whether a folder has the rule file it had, if any, and no folder that was not there."""
        prefix = b"" if folder == b"." else folder
        with os.scandir(os.path.join(root, prefix)) as found:
            kinds = {entry.name: _FILE if entry.is_file(follow_symlinks=False) else _kind(entry) for entry in found}
        if (GITIGNORE in kinds, b".git" in kinds) != self.special.get(folder, _ORDINARY):
            return False
        below = (prefix + name for name, kind in kinds.items() if kind == _FOLDER and name != b".git")
        if any(path + b"/" not in self.folders and judge.enters(path) for path in below):
            return False
        self.secrets[folder] = sum(judge.hides(prefix + name, kind == _FOLDER) for name, kind in kinds.items() if kind)
        return True

    def _note_times(self, changed: dict[bytes, int]) -> bool:
        settled = time.time_ns() - _SETTLED_NS
        self.folders.update((path, at) for path, at in changed.items() if at < settled)
        return True


def _survey(walk: Walk, top: Folder, stop: ripgrep.Stop) -> KnownTree | None:
    """Walk a tree for its rule files; None when `rg` must not be trusted with them, however they are told."""
    walk = replace_values(walk, tally=Tally(), enters=None)
    folders: dict[bytes, int] = {}
    secrets: dict[bytes, int] = {}
    counted = 0
    settled = time.time_ns() - _SETTLED_NS
    ends = time.monotonic() + SURVEY_S
    for prefix, _, folder in walk.folders():
        if stop.wanted:
            return None
        # A tree so large that looking through it takes longer than searching is `rg`'s.
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

    def enters(self, folder: bytes) -> bool:
        """Whether a folder is walked."""
        return not self._walk.keeps_out(os.fsdecode(os.path.join(self._walk.root, folder)) + "/") and (
            self._folder(folder) is not None
        )

    def hides(self, path: bytes, is_dir: bool) -> bool:
        """Whether a path is kept from being searched, other than by ignore rules."""
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
"""Trees `rg` was trusted with last."""
