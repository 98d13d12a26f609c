"""Where the parts of a repository really are, found as the kernel and git find them: links followed, nothing guessed.

A repository is a folder with `.git` in it, a folder whose `.git` is a file that leads elsewhere (a worktree, a
submodule), or a plain folder that is one itself (a bare repository, which any archive or clone may hold). Its settings,
hooks and objects may lie in another folder again (`commondir`).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, TypeAlias

from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern
from surehand.git.config import entries, read_plain

_SMALL: Final = 1 << 16
_HEAD: Final = lazy_pattern(rb"ref:\s*refs/|[0-9a-fA-F]{40}")
"""How the file begins that says what is checked out."""
_MOST: Final = 200
"""Repositories inside one that are looked at."""
_NOT_ENTERED: Final = frozenset({"objects", "refs", "logs", "hooks", "info"})


@frozen
class Repository:
    """One repository: all paths are real."""

    top: str
    """The folder git was asked about: with `.git` in it, or itself the repository."""
    git_dir: str
    common: str
    """Where settings, hooks and objects are: the same folder, but for worktrees."""
    pointer: str = ""
    """The `.git` file or link that led here, if one did."""

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders whose files count."""
        return (self.git_dir,) if self.git_dir == self.common else (self.git_dir, self.common)

    @property
    def is_worktree_of_common(self) -> bool:
        """Whether its git folder lies in the `worktrees` folder of the repository it shares."""
        return self.git_dir.startswith(self.common.rstrip("/") + "/worktrees/")

    @property
    def is_linked(self) -> bool:
        """Whether a pointer that led elsewhere is named back from there, as git does for worktrees and submodules.

        A command, or an archive, can write the one file, but not the answer in a folder it has no part in.
        """
        back = text_of(os.path.join(self.git_dir, "gitdir"))
        if back and os.path.realpath(os.path.join(self.git_dir, back)) == os.path.realpath(self.pointer):
            return self.is_worktree_of_common
        named = worktree_of(self.git_dir)
        return bool(named) and os.path.realpath(os.path.join(self.git_dir, named)) == os.path.realpath(self.top)


def text_of(path: str) -> str:
    """Return the path that a file names, as git reads it: blanks belong to it, line breaks behind it do not.

    These may be many, and what follows a NUL is not seen; a path beyond the limit leads nowhere.
    """
    data = read_plain(os.fsencode(path), _SMALL, beginning=True) or b""
    return os.fsdecode(data.rstrip(b"\r\n").partition(b"\0")[0])


def worktree_of(git_dir: str) -> str:
    """Return the value of `core.worktree`, as it is written."""
    data = read_plain(os.fsencode(os.path.join(git_dir, "config")), 1 << 20) or b""
    return next((os.fsdecode(each.value) for each in reversed(entries(data)[0]) if each.key == b"core.worktree"), "")


def common_of(git_dir: str) -> str:
    """Return the folder of git that a worktree shares with its repository; for any other one itself."""
    named = text_of(f"{git_dir}/commondir")
    return os.path.realpath(os.path.join(git_dir, named)) if named else git_dir


def follow_pointer(pointer: str) -> str | None:
    """Return the folder of git that a `.git` stands for; None when it leads nowhere."""
    if os.path.isdir(pointer):
        return os.path.realpath(pointer)
    line = text_of(pointer)
    if not line.startswith("gitdir: "):
        return None
    return os.path.realpath(os.path.join(os.path.realpath(os.path.dirname(pointer)), line[8:]))


def repository_at(folder: str) -> Repository | None:
    """Return the repository that begins at this very folder, judged generously: more may pass than git would take."""
    return next(repositories_at(os.path.realpath(folder)), None)


def repositories_at(folder: str) -> Iterator[Repository]:
    """Yield what git may take for the repository at a folder (a real path): where its `.git` leads, and itself.

    That one counts beside a `.git` too, which git passes over if it lacks something.
    """
    pointer = os.path.join(folder, ".git")
    try:
        mode = os.lstat(pointer).st_mode
    except (OSError, ValueError):
        pass
    else:
        plain = stat.S_ISDIR(mode)  # and so a real path itself
        if (git_dir := pointer if plain else follow_pointer(pointer)) is not None:
            yield Repository(folder, git_dir, common_of(git_dir), "" if plain else pointer)
    if seems_bare(folder):
        yield Repository(folder, folder, common_of(folder))


def seems_bare(folder: str) -> bool:
    """Tell whether a folder itself looks like a folder of git."""
    if not os.path.lexists(os.path.join(folder, "HEAD")):
        return False
    names = ("objects", "refs")
    return os.path.lexists(os.path.join(folder, "commondir")) or all(
        os.path.isdir(os.path.join(folder, name)) for name in names
    )


def is_repository(repository: Repository) -> bool:
    """Tell, by git's own test, whether git stops looking further up here."""
    common = repository.common
    return has_head(repository.git_dir) and all(os.access(f"{common}/{part}", os.X_OK) for part in ("objects", "refs"))


def has_head(git_dir: str) -> bool:
    """Tell whether a folder has the file that says what is checked out."""
    head = os.path.join(git_dir, "HEAD")
    try:
        return os.readlink(head).startswith("refs/")
    except OSError:  # it is no link, as is usual
        return _HEAD.match(read_plain(os.fsencode(head), _SMALL) or b"") is not None


def repositories_around(folder: str) -> Iterator[Repository]:
    """Yield every repository git may take for the one `folder` lies in, nearest first, up to one that it surely takes.

    What only looks like one counts too: whether git takes it can change before git is run.
    """
    folder = os.path.realpath(folder)
    while True:
        for repository in repositories_at(folder):
            yield repository
            if is_repository(repository):
                return
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above


def inner_repositories(repository: Repository) -> Iterator[Repository]:
    """Yield the repositories that git enters from this one, those inside them too.

    These are the folders its index holds as commits of other repositories (with or without `.gitmodules`), those that
    `.gitmodules` names, and whatever lies in `modules`.
    """
    seen = {repository.git_dir}
    waiting = [repository]
    for outer in waiting:
        for inner in _find_nested(outer):
            if inner.git_dir not in seen and len(seen) < _MOST:
                seen.add(inner.git_dir)
                waiting.append(inner)
                yield inner


def too_many(repository: Repository) -> bool:
    """Tell whether a repository has more inside it than are looked at."""
    return sum(1 for _ in inner_repositories(repository)) >= _MOST - 1


def _find_nested(repository: Repository) -> Iterator[Repository]:
    top = _work_top(repository)
    names = dict.fromkeys((*gitlinks(repository.git_dir), *_named_in(os.path.join(top, ".gitmodules"))))
    for name in names:
        if "\0" not in name:
            yield from repositories_at(os.path.realpath(os.path.join(top, name)))
    for folder in module_folders(repository.common):
        yield Repository(folder, folder, common_of(folder))


def _work_top(repository: Repository) -> str:
    named = worktree_of(repository.git_dir)
    return os.path.realpath(os.path.join(repository.git_dir, named)) if named else repository.top


def _named_in(gitmodules: str) -> Iterable[str]:
    data = read_plain(os.fsencode(gitmodules), 1 << 20) or b""
    return [os.fsdecode(each.value) for each in entries(data)[0] if each.key.endswith(b".path")]


def module_folders(common: str) -> list[str]:
    """Return the folders of git of submodules, those of submodules inside them too."""
    found: list[str] = []
    for folder, inner, files in os.walk(os.path.join(common, "modules")):
        if "HEAD" in files or "config" in files or "commondir" in files:
            found.append(os.path.realpath(folder))
        inner[:] = [name for name in inner if name not in _NOT_ENTERED]
        if len(found) > _MOST:
            break
    return found


# git's index, read as far as its names and kinds: which paths are tracked, and which are other repositories.

_GITLINK: Final = 0o160000
_LIMIT: Final = 256 << 20
_EXTENDED: Final = 0x4000
_ASSUMED: Final = 0x8000
_PACK_NAME: Final = 80
"""Bytes of the name of a pack, at most."""


@frozen
class TrackedFile:
    """One entry: its path, its mode and the name of its object."""

    path: str
    mode: int
    object: str
    assumed: bool = False
    """Whether git was told to take the file for unchanged."""

    @property
    def is_folder(self) -> bool:
        """Whether it stands for all files of a folder, none of which is checked out."""
        return self.mode & 0o170000 == 0o040000


def gitlinks(git_dir: str) -> tuple[str, ...]:
    """Return the paths that stand for commits of other repositories."""
    return tuple(each.path for each in read_tracked(git_dir) if each.mode & 0o170000 == _GITLINK)


def read_tracked(git_dir: str) -> tuple[TrackedFile, ...]:
    """Return the entries of a repository's index; none where it has none, or one that cannot be read.

    Of an index that is kept in two files, those of both: some of the first may have been replaced or removed since.
    """
    return _read_index(git_dir)[0]


def find_index_problem(git_dir: str) -> str:
    """Return why what git takes for tracked is not known here, or lies outside; nothing where all is well."""
    return _read_index(git_dir)[1]


_Index: TypeAlias = tuple[tuple[TrackedFile, ...], str]
_UNREADABLE: Final = "index, which cannot be read"


def tracked_folders(git_dir: str) -> tuple[str, ...]:
    """Return the folders that tracked files lie in, and those around them."""
    mark = _mark_index(git_dir)
    return _folders_of(*mark) if mark else ()


@lru_cache(maxsize=8)
def _folders_of(path: str, changed: int, size: int, inode: int) -> tuple[str, ...]:
    found: set[str] = set()
    for folder in {each.path.rpartition("/")[0] for each in _read(path, changed, size, inode)[0]}:
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return tuple(sorted(found))


def _read_index(git_dir: str) -> _Index:
    try:
        mark = _mark_index(git_dir)
    except OSError:
        return (), _UNREADABLE
    return _read(*mark) if mark else ((), "")


def _mark_index(git_dir: str) -> tuple[str, int, int, int] | None:
    """Return what tells one state of an index from another; None where there is none."""
    path = os.path.join(git_dir, "index")
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return path, status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(maxsize=32)
def _read(path: str, changed: int, size: int, inode: int) -> _Index:
    found = _parse(path)
    if found is None:
        return (), _UNREADABLE
    tracked, shared = found
    if shared:
        base = _parse(os.path.join(os.path.dirname(path), f"sharedindex.{shared}"))
        if base is None or base[1]:
            return tracked, _UNREADABLE
        tracked += base[0]
    tracked = tuple(each for each in tracked if each.path)  # of one that replaces an entry of the other file only that
    # git reads a path as it stands: no command of its own would have written these.
    outside = next((each.path for each in tracked if each.path.startswith("/") or ".." in each.path.split("/")), "")
    return tracked, f"index, which tracks {outside}" if outside else ""


def _parse(path: str) -> tuple[tuple[TrackedFile, ...], str] | None:
    """Return the entries of a file and which other one it adds to; None where that is not certain.

    How long the names of objects are is told by the checksum at the end. git itself does not compare that, so that a
    file with a wrong one is read by git as nobody can say here.
    """
    data = read_plain(os.fsencode(path), _LIMIT) or b""
    read: list[tuple[tuple[TrackedFile, ...], str]] = []
    for width, make_hash in ((20, hashlib.sha1), (32, hashlib.sha256)):
        if any(data[-20:]) and data[-width:] != make_hash(data[:-width]).digest():
            continue
        try:
            entries, at = _entries(data, width)
            read.append((entries, _shared_index(data, at, width)))
        except (ValueError, IndexError):
            continue
    return read[0] if len(read) == 1 else None


def _entries(data: bytes, width: int) -> tuple[tuple[TrackedFile, ...], int]:
    """Return the entries and where they end."""
    version, count = int.from_bytes(data[4:8]), int.from_bytes(data[8:12])
    if data[:4] != b"DIRC" or version not in (2, 3, 4):
        raise ValueError
    found: list[TrackedFile] = []
    at, previous = 12, b""
    for _ in range(count):
        begin, mode = at, int.from_bytes(data[at + 24 : at + 28])
        name = data[at + 40 : at + 40 + width]
        flags = int.from_bytes(data[at + 40 + width : at + 42 + width])
        at += 42 + width + (2 if version > 2 and flags & _EXTENDED else 0)
        if version == 4:
            drop, at = _number(data, at)
            end = data.index(b"\0", at)
            path = previous[: len(previous) - drop] + data[at:end]
            previous, at = path, end + 1
        else:
            end = data.index(b"\0", at)
            path = data[at:end]
            at = begin + ((end - begin) // 8 + 1) * 8
        found.append(TrackedFile(os.fsdecode(path), mode, name.hex(), bool(flags & _ASSUMED)))
    return tuple(found), at


def _shared_index(data: bytes, at: int, width: int) -> str:
    """Return the name of the file whose entries these add to, out of what stands behind them; usually there is none."""
    shared = ""
    while at < len(data) - width:
        size = int.from_bytes(data[at + 4 : at + 8])
        if data[at : at + 4] == b"link":
            shared = data[at + 8 : at + 8 + width].hex()
        at += 8 + size
    if at != len(data) - width:
        raise ValueError
    return shared if shared.strip("0") else ""


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Read the number of bytes that a name shares not with the one before it."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1


def read_pack_names(path: str) -> list[bytes]:
    """Return the names of packs in an index over several of them; none where it cannot be read.

    git takes as many as the file says from where they begin, wherever they are said to end.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            head = os.pread(file, 12, 0)
            rows = os.pread(file, 12 * head[6], 12)
            begin = next(at for at in range(0, len(rows), 12) if rows.startswith(b"PNAM", at))
            count = int.from_bytes(head[8:12])
            names = os.pread(file, min(count * _PACK_NAME, _LIMIT), int.from_bytes(rows[begin + 4 : begin + 12]))
        finally:
            os.close(file)
    except (OSError, IndexError, StopIteration, OverflowError):
        return []
    found = names.split(b"\0")[:count]
    return found if len(found) == count else []
