"""Snapshots: the files and links of a workspace that people keep, by path, with the digests of their contents.

Contents are stored as pieces, each once under its digest.

People keep everything that git tracks, and everything that is neither ignored nor a cache. Secrets are never included.
Empty folders are not recorded.

Folders and files are opened relative to their open parent folder, so that a path component replaced by a link meanwhile
is not followed.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from surehand.core.errors import StateError
from surehand.core.frozen import field, frozen
from surehand.core.secrets import is_secret
from surehand.core.session import SETTLED_NS, digest_of
from surehand.files.paths import open_folder
from surehand.files.trees import copy_data
from surehand.git.repositories import read_tracked, repository_at
from surehand.search.ignore_files import is_cache
from surehand.search.walk import Walk

EntryKind: TypeAlias = Literal["file", "symlink"]
Status: TypeAlias = tuple[int, ...]
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MOST_ENTRIES: Final = 500_000
MOST_BYTES: Final = 16 << 30


@frozen
class Entry:
    """A file or link; the piece of a link is its target."""

    kind: EntryKind
    mode: int
    digest: str
    size: int

    @property
    def executable(self) -> bool:
        """Whether it is an executable file."""
        return self.kind == "file" and bool(self.mode & 0o100)

    def same(self, other: Entry | None) -> bool:
        """Whether both have the same content, kind and executable bit."""
        return other is not None and (self.kind, self.digest, self.executable) == (
            other.kind,
            other.digest,
            other.executable,
        )


@frozen
class Snapshot:
    """The contents of a workspace at one moment."""

    entries: Mapping[str, Entry]
    statuses: Mapping[str, Status] = field(default_factory=dict[str, Status])
    """The status by path, if it proves that a file is unchanged; valid on the same machine only."""

    @property
    def digests(self) -> set[str]:
        """The digests of its pieces."""
        return {entry.digest for entry in self.entries.values()}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        return {path: [each.kind, each.mode, each.digest, each.size] for path, each in self.entries.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Snapshot:
        """Build a Snapshot from the output of to_dict; raise StateError for invalid paths."""
        for path in data:
            check_path(path)
        return cls({path: Entry(*values) for path, values in data.items()})


@frozen
class Difference:
    """A path that differs between two snapshots."""

    path: str
    before: Entry | None
    after: Entry | None

    @property
    def action(self) -> str:
        """Whether it was created, changed or deleted."""
        return "created" if self.before is None else "deleted" if self.after is None else "changed"


def check_path(path: str) -> None:
    """Raise StateError unless a path stays inside a workspace and leaves git's own files alone."""
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise StateError(f"{path!r} is not a path inside a workspace")
    if any(part.lower() == ".git" for part in parts):
        raise StateError(f"{path!r} belongs to git itself")


def compare(before: Snapshot, after: Snapshot) -> list[Difference]:
    """Compare two snapshots, by path."""
    found: list[Difference] = []
    for path in sorted(before.entries.keys() | after.entries.keys()):
        old, new = before.entries.get(path), after.entries.get(path)
        if old is None or not old.same(new):
            found.append(Difference(path, old, new))
    return found


def take_snapshot(
    root: str,
    pieces: Pieces,
    base: Snapshot | None = None,
    *,
    keeps_out: Callable[[str], bool] = is_secret,
    stopped: Callable[[], bool] = lambda: False,
) -> Snapshot:
    """Take a snapshot of a workspace; new contents are added to `pieces`.

    What `base` has is kept whatever the ignore rules say now, and not read again where its status proves that nothing
    changed. `keeps_out` is a test for secret paths.
    """
    entries: dict[str, Entry] = {}
    statuses: dict[str, Status] = {}
    size = 0
    for path, folder, name in _list_kept(root, base.entries if base else (), keeps_out):
        if stopped():
            raise StateError("the snapshot was stopped")
        began = time.time_ns()
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:  # gone since it was listed
            continue
        try:
            entry = _known_entry(path, status, base) or _read_entry(folder, name, status, pieces)
        except PermissionError:  # it exists, so it must not look deleted
            entry = base.entries.get(path) if base else None
        except OSError:  # gone since it was listed
            continue
        if entry is None:
            continue
        entries[path] = entry
        size += entry.size
        if status.st_ctime_ns < began - SETTLED_NS:
            statuses[path] = _status(status)
        if len(entries) > MOST_ENTRIES or size > MOST_BYTES:
            limits = f"{MOST_ENTRIES:,} files or {MOST_BYTES >> 30} GiB"
            raise StateError(f"{root} holds more than {limits} that no ignore rule leaves out")
    return Snapshot(entries, statuses)


def with_statuses(snapshot: Snapshot, root: str) -> Snapshot:
    """Add the status of files to a snapshot that was just restored, which later proves that they are unchanged."""
    statuses: dict[str, Status] = {}
    settled = time.time_ns() - SETTLED_NS
    for path in snapshot.entries:
        try:
            status = os.lstat(os.path.join(root, path))
        except OSError:
            continue
        if status.st_ctime_ns < settled:
            statuses[path] = _status(status)
    return Snapshot(snapshot.entries, statuses)


def restore(snapshot: Snapshot, root: str, pieces: Pieces) -> None:
    """Restore a snapshot into an existing folder, in which none of its paths may exist."""
    folders: dict[str, int] = {}
    try:
        for path, entry in sorted(snapshot.entries.items()):
            parent, name = os.path.split(path)
            if parent not in folders:
                for fd in folders.values():  # sorted, so that one folder is open at a time
                    os.close(fd)
                folders = {parent: open_folder(os.path.join(root, parent) if parent else root, [root], make=True)[0]}
            if entry.kind == "symlink":
                os.symlink(os.fsdecode(pieces.read(entry.digest)), name, dir_fd=folders[parent])
            else:
                pieces.write_file(entry.digest, folders[parent], name, stat.S_IMODE(entry.mode) & 0o777)
    finally:
        for fd in folders.values():
            os.close(fd)


def _list_kept(root: str, always: Iterable[str], keeps_out: Callable[[str], bool]) -> Iterator[tuple[str, int, str]]:
    """Yield the files that people keep: path, descriptor of the folder (valid until the next item), and name in it."""
    seen: set[str] = set()
    walk = Walk(os.fsencode(root), keeps_out=keeps_out, enters=lambda path: not is_cache(os.path.basename(path)))
    for prefix, names, folder in walk.folders():
        for name in names:
            if not is_cache(name):
                path = os.fsdecode(prefix + name)
                seen.add(path)
                yield path, folder, os.fsdecode(name)
    for path in sorted({*always, *_list_tracked(root)} - seen):
        if keeps_out(os.path.join(root, path)) or ".git" in path.split("/"):
            continue
        try:
            folder, _ = open_folder(os.path.join(root, os.path.dirname(path)).rstrip("/"), [root])
        except OSError:
            continue
        try:
            yield path, folder, os.path.basename(path)
        finally:
            os.close(folder)


def _list_tracked(root: str) -> list[str]:
    place = repository_at(root)
    if place is None or place.git_dir == root:
        return []
    return [each.path for each in read_tracked(place.git_dir) if stat.S_IFMT(each.mode) in (stat.S_IFREG, stat.S_IFLNK)]


def _status(status: os.stat_result) -> Status:
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _known_entry(path: str, status: os.stat_result, base: Snapshot | None) -> Entry | None:
    known = base.statuses.get(path) if base else None
    return base.entries.get(path) if base is not None and known is not None and known == _status(status) else None


def _read_entry(folder: int, name: str, status: os.stat_result, pieces: Pieces) -> Entry | None:
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        target = os.fsencode(os.readlink(name, dir_fd=folder))
        return Entry("symlink", mode, pieces.add(target), len(target))
    if not stat.S_ISREG(status.st_mode):
        return None
    descriptor = os.open(name, _OPEN, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        digest, size = pieces.add_open(descriptor)
    finally:
        os.close(descriptor)
    return Entry("file", mode, digest, size)


# Pieces: whole contents of files, each stored once under its digest in a folder.

_BLOCK: Final = 1 << 20
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Pieces:
    """A content store in a folder, to which several processes may add at once."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def path(self, digest: str) -> str:
        """Return the path of a piece, which may not exist."""
        return os.path.join(self.folder, digest[:2], digest)

    def has(self, digest: str) -> bool:
        """Whether a piece exists."""
        return os.path.exists(self.path(digest))

    def find_missing(self, digests: Iterable[str]) -> list[str]:
        """Return the distinct digests whose pieces are missing."""
        return [digest for digest in dict.fromkeys(digests) if not self.has(digest)]

    def add(self, data: bytes) -> str:
        """Store a content and return its digest."""
        digest = digest_of(data)
        if not self.has(digest):
            fresh, descriptor = self._begin()
            with open(descriptor, "wb") as file:
                file.write(data)
            self._finish(fresh, digest)
        return digest

    def add_open(self, source: int) -> tuple[str, int]:
        """Store the contents of an open file; return digest and size of what was copied, even if the file changes."""
        digest, size = _digest_open(source)
        if self.has(digest):
            return digest, size
        os.lseek(source, 0, os.SEEK_SET)
        fresh, descriptor = self._begin()
        try:
            copy_data(source, descriptor)
            os.lseek(descriptor, 0, os.SEEK_SET)
            digest, size = _digest_open(descriptor)
        except BaseException:
            os.unlink(fresh)
            raise
        finally:
            os.close(descriptor)
        if self.has(digest):
            os.unlink(fresh)
        else:
            self._finish(fresh, digest)
        return digest, size

    def read(self, digest: str) -> bytes:
        """Read a piece; raise StateError if it is missing or damaged."""
        try:
            with open(os.open(self.path(digest), _READ), "rb") as file:
                data = file.read()
        except OSError as problem:
            raise StateError(f"a piece of the workspace is missing: {digest} ({problem.strerror})") from None
        if digest_of(data) != digest:
            raise StateError(f"a piece of the workspace is damaged: {self.path(digest)}")
        return data

    def write_file(self, digest: str, folder: int, name: str, mode: int) -> None:
        """Write a piece to a new file in an open folder, as a reflink if the file system supports it."""
        source = os.open(self.path(digest), _READ)
        try:
            target = os.open(name, _NEW, 0o600, dir_fd=folder)
            try:
                copy_data(source, target)
                os.fchmod(target, mode)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _begin(self) -> tuple[str, int]:
        fresh = os.path.join(self.folder, f"{os.getpid()}.{os.urandom(6).hex()}.new")
        return fresh, os.open(fresh, _NEW, 0o600)

    def _finish(self, fresh: str, digest: str) -> None:
        path = self.path(digest)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.replace(fresh, path)


def _digest_open(descriptor: int) -> tuple[str, int]:
    found, size = hashlib.sha256(), 0
    while block := os.read(descriptor, _BLOCK):
        found.update(block)
        size += len(block)
    return found.hexdigest(), size
