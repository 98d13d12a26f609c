"""Finds repositories and reads their index the way git does, with symbolic links resolved.

A repository is a directory with `.git` in it, one whose `.git` is a file that points elsewhere (a worktree, a
submodule), or a bare repository, which any archive or clone may contain. Settings, hooks and objects may lie in yet
another directory (`commondir`).
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
"""How a valid `HEAD` file begins."""
_MOST: Final = 200
"""Limit on nested repositories that are checked."""
_NOT_ENTERED: Final = frozenset({"objects", "refs", "logs", "hooks", "info"})


@frozen
class Repository:
    """A repository; all paths are resolved."""

    top: str
    """The directory that contains `.git`, or the bare repository itself."""
    git_dir: str
    common: str
    """Where settings, hooks and objects are: `git_dir`, except for worktrees."""
    pointer: str = ""
    """The `.git` file or link that pointed here, if any."""

    @property
    def folders(self) -> tuple[str, ...]:
        """The git directories whose files git heeds."""
        return (self.git_dir,) if self.git_dir == self.common else (self.git_dir, self.common)

    @property
    def is_worktree_of_common(self) -> bool:
        """Whether `git_dir` lies in the `worktrees` directory of the shared repository."""
        return self.git_dir.startswith(self.common.rstrip("/") + "/worktrees/")

    @property
    def is_linked(self) -> bool:
        """Whether the git directory points back at the `.git` file, as git sets up worktrees and submodules.

        A command or an archive can forge the `.git` file, but not the reply in a directory it cannot write.
        """
        back = text_of(os.path.join(self.git_dir, "gitdir"))
        if back and os.path.realpath(os.path.join(self.git_dir, back)) == os.path.realpath(self.pointer):
            return self.is_worktree_of_common
        named = worktree_of(self.git_dir)
        return bool(named) and os.path.realpath(os.path.join(self.git_dir, named)) == os.path.realpath(self.top)


def text_of(path: str) -> str:
    """Return the path a pointer file contains, as git reads it: spaces count, trailing line breaks do not.

    It ends at a NUL; a path longer than the limit leads nowhere.
    """
    data = read_plain(os.fsencode(path), _SMALL, beginning=True) or b""
    return os.fsdecode(data.rstrip(b"\r\n").partition(b"\0")[0])


def worktree_of(git_dir: str) -> str:
    """Return the value of `core.worktree` as written."""
    data = read_plain(os.fsencode(os.path.join(git_dir, "config")), 1 << 20) or b""
    return next((os.fsdecode(each.value) for each in reversed(entries(data)[0]) if each.key == b"core.worktree"), "")


def common_of(git_dir: str) -> str:
    """Return the shared git directory of a worktree; any other git directory itself."""
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
    """Tell whether a directory itself looks like a git directory."""
    if not os.path.lexists(os.path.join(folder, "HEAD")):
        return False
    names = ("objects", "refs")
    return os.path.lexists(os.path.join(folder, "commondir")) or all(
        os.path.isdir(os.path.join(folder, name)) for name in names
    )


def is_repository(repository: Repository) -> bool:
    """Tell, by git's own test, whether git accepts the repository and stops searching further up."""
    common = repository.common
    return has_head(repository.git_dir) and all(os.access(f"{common}/{part}", os.X_OK) for part in ("objects", "refs"))


def has_head(git_dir: str) -> bool:
    """Tell whether a git directory has a valid `HEAD`."""
    head = os.path.join(git_dir, "HEAD")
    try:
        return os.readlink(head).startswith("refs/")
    except OSError:  # not a link, as usual
        return _HEAD.match(read_plain(os.fsencode(head), _SMALL) or b"") is not None


def repositories_around(folder: str) -> Iterator[Repository]:
    """Yield every repository that git may use in `folder`, nearest first, up to one that it certainly accepts.

    Candidates that git would reject now count too: that can change before git runs.
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
    """Yield the nested repositories that git may enter from this one, recursively.

    These are the gitlinks of its index (with or without `.gitmodules`), the paths in `.gitmodules`, and the git
    directories in `modules`.
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
    """Tell whether there are more nested repositories than are checked."""
    return sum(1 for _ in inner_repositories(repository)) >= _MOST - 1


def _find_nested(repository: Repository) -> Iterator[Repository]:
    top = _worktree_top(repository)
    names = dict.fromkeys((*gitlinks(repository.git_dir), *_submodule_paths(os.path.join(top, ".gitmodules"))))
    for name in names:
        if "\0" not in name:
            yield from repositories_at(os.path.realpath(os.path.join(top, name)))
    for folder in module_folders(repository.common):
        yield Repository(folder, folder, common_of(folder))


def _worktree_top(repository: Repository) -> str:
    named = worktree_of(repository.git_dir)
    return os.path.realpath(os.path.join(repository.git_dir, named)) if named else repository.top


def _submodule_paths(gitmodules: str) -> Iterable[str]:
    data = read_plain(os.fsencode(gitmodules), 1 << 20) or b""
    return [os.fsdecode(each.value) for each in entries(data)[0] if each.key.endswith(b".path")]


def module_folders(common: str) -> list[str]:
    """Return the git directories of submodules, recursively."""
    found: list[str] = []
    for folder, inner, files in os.walk(os.path.join(common, "modules")):
        if "HEAD" in files or "config" in files or "commondir" in files:
            found.append(os.path.realpath(folder))
        inner[:] = [name for name in inner if name not in _NOT_ENTERED]
        if len(found) > _MOST:
            break
    return found


# The index: which paths are tracked, and which are other repositories (gitlinks).

_GITLINK: Final = 0o160000
_LIMIT: Final = 256 << 20
_EXTENDED: Final = 0x4000
_ASSUMED: Final = 0x8000
_PACK_NAME: Final = 80
"""Limit on the length of a pack's name in bytes."""


@frozen
class TrackedFile:
    """An index entry: path, mode and object id."""

    path: str
    mode: int
    object: str
    assumed: bool = False
    """Whether it is marked `assume-unchanged`."""

    @property
    def is_folder(self) -> bool:
        """Whether it stands for a whole directory that is not checked out (sparse index)."""
        return self.mode & 0o170000 == 0o040000


def gitlinks(git_dir: str) -> tuple[str, ...]:
    """Return the paths of gitlinks: commits of other repositories."""
    return tuple(each.path for each in read_tracked(git_dir) if each.mode & 0o170000 == _GITLINK)


def read_tracked(git_dir: str) -> tuple[TrackedFile, ...]:
    """Return the entries of a repository's index; none if it is missing or cannot be read.

    A split index yields the entries of both files, including shared ones that were replaced or removed since.
    """
    return _read_index(git_dir)[0]


def find_index_problem(git_dir: str) -> str:
    """Return why the index cannot be trusted (unreadable, or with paths outside the worktree); empty if it can."""
    return _read_index(git_dir)[1]


_Index: TypeAlias = tuple[tuple[TrackedFile, ...], str]
_UNREADABLE: Final = "index, which cannot be read"


def tracked_folders(git_dir: str) -> tuple[str, ...]:
    """Return all directories above tracked files."""
    mark = _mark_index(git_dir)
    return _folders_of(*mark) if mark else ()


@lru_cache(maxsize=8)
def _folders_of(path: str, changed: int, size: int, inode: int) -> tuple[str, ...]:
    found: set[str] = set()
    for folder in {each.path.rpartition("/")[0] for each in _read_cached(path, changed, size, inode)[0]}:
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return tuple(sorted(found))


def _read_index(git_dir: str) -> _Index:
    try:
        mark = _mark_index(git_dir)
    except OSError:
        return (), _UNREADABLE
    return _read_cached(*mark) if mark else ((), "")


def _mark_index(git_dir: str) -> tuple[str, int, int, int] | None:
    """Return path, mtime, size and inode of an index, the key of the cache; None if there is none."""
    path = os.path.join(git_dir, "index")
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return path, status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(maxsize=32)
def _read_cached(path: str, changed: int, size: int, inode: int) -> _Index:
    found = _parse_index(path)
    if found is None:
        return (), _UNREADABLE
    tracked, shared = found
    if shared:
        base = _parse_index(os.path.join(os.path.dirname(path), f"sharedindex.{shared}"))
        if base is None or base[1]:
            return tracked, _UNREADABLE
        tracked += base[0]
    tracked = tuple(each for each in tracked if each.path)  # an entry that replaces a shared one has no path of its own
    # git uses such paths as they are, although none of its own commands writes them.
    outside = next((each.path for each in tracked if each.path.startswith("/") or ".." in each.path.split("/")), "")
    return tracked, f"index, which tracks {outside}" if outside else ""


def _parse_index(path: str) -> tuple[tuple[TrackedFile, ...], str] | None:
    """Return the entries of an index file and the id of its shared index; None if they are not certain.

    The checksum at the end tells the length of object ids. git does not verify it: how git would read a file with a
    wrong checksum cannot be known here.
    """
    data = read_plain(os.fsencode(path), _LIMIT) or b""
    read: list[tuple[tuple[TrackedFile, ...], str]] = []
    for width, make_hash in ((20, hashlib.sha1), (32, hashlib.sha256)):
        if any(data[-20:]) and data[-width:] != make_hash(data[:-width]).digest():
            continue
        try:
            entries, at = _parse_entries(data, width)
            read.append((entries, _parse_shared_id(data, at, width)))
        except (ValueError, IndexError):
            continue
    return read[0] if len(read) == 1 else None


def _parse_entries(data: bytes, width: int) -> tuple[tuple[TrackedFile, ...], int]:
    """Return the entries and the offset of their end."""
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
            drop, at = _parse_varint(data, at)
            end = data.index(b"\0", at)
            path = previous[: len(previous) - drop] + data[at:end]
            previous, at = path, end + 1
        else:
            end = data.index(b"\0", at)
            path = data[at:end]
            at = begin + ((end - begin) // 8 + 1) * 8
        found.append(TrackedFile(os.fsdecode(path), mode, name.hex(), bool(flags & _ASSUMED)))
    return tuple(found), at


def _parse_shared_id(data: bytes, at: int, width: int) -> str:
    """Return the id of the shared index from the extensions after the entries; usually empty."""
    shared = ""
    while at < len(data) - width:
        size = int.from_bytes(data[at + 4 : at + 8])
        if data[at : at + 4] == b"link":
            shared = data[at + 8 : at + 8 + width].hex()
        at += 8 + size
    if at != len(data) - width:
        raise ValueError
    return shared if shared.strip("0") else ""


def _parse_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode a variable-length integer: how many bytes of the previous path to drop (version 4)."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1


def read_pack_names(path: str) -> list[bytes]:
    """Return the names of packs in a multi-pack index; none if it cannot be read.

    git reads the number of names in the header from the chunk's start, ignoring the chunk's end.
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
