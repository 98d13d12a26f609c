"""What a command changed, from the journal its keeper wrote, brought into the history: undone like any edit.

What could not be kept (a file above the limit, a full disk) is no part of the change; its note and the result
say so.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from surehand.core.frozen import frozen
from surehand.core.read_state import digest_of
from surehand.files.protected_paths import inside
from surehand.files.trees import remove_tree
from surehand.history import change_logs
from surehand.history.contents import SMALL_BYTES
from surehand.history.disk import put, state_at
from surehand.history.words import ABSENT, Author, FileChange, FileState

if TYPE_CHECKING:
    from surehand.history.history import History

KEPT_FILE: Final = 16 * 1024 * 1024
"""The largest new content that is kept for a redo; an old content is always kept."""
KEPT_TOTAL: Final = 128 * 1024 * 1024
LOOKED_AT: Final = 50_000
"""Files looked at for changes past the recorder, after a program with several threads changed something."""
INTERRUPTED: Final = "interrupted"
"""The note of a change whose program was killed before it was brought in."""
_BLOCK: Final = 1 << 20


@frozen
class Recorded:
    """What went into the history: the change's id, the files, and what could not be kept."""

    change_id: str
    files: tuple[FileChange, ...]
    lost: str = ""
    put_back: tuple[str, ...] = ()
    """What it had changed where no command may, and what is as it was again."""

    def to_dict(self, limit: int = 100) -> list[dict[str, str]]:
        """Return the paths with what happened to each; the first of very many."""
        return [{"path": each.path, "action": action(each)} for each in self.files[:limit]]


def action(change: FileChange) -> str:
    """Return what happened to a path, in a word."""
    after = change.after or ABSENT
    if change.before.kind == "absent":
        return "created"
    if after.kind == "absent":
        return "deleted"
    return "changed" if not change.before.same_content(after) else "mode changed"


def paths_in(folder: str, count: int) -> list[str]:
    """Return the paths that stand in a journal of so many entries."""
    return list(change_logs.entries(folder)) if count else []


def put_back(folder: str, forbidden: Callable[[str], bool]) -> tuple[str, ...]:
    """Make what the command in whose journal it stands changed on `forbidden` paths as it was; return those paths."""
    entries = [
        (path, entry) for path, entry in change_logs.entries(folder).items() if entry[0] != "other" and forbidden(path)
    ]
    # Folders are made before what stands in them; what was not there goes with all that is in it.
    entries.sort(key=lambda each: (each[1][0] == "absent", each[0]))
    return tuple(sorted(path for path, entry in entries if _restored(folder, path, entry)))


def _restored(folder: str, path: str, entry: list[Any]) -> bool:
    """Put back one path from its entry in the journal; False when it is as it was."""
    kind = entry[0]
    now, _ = state_at(path)
    if kind == "absent":
        there = os.path.lexists(path)
        remove_tree(path)
        return there
    wanted, data = _read_before(folder, now, entry)
    if now == wanted:
        return False
    if now.kind != wanted.kind:
        remove_tree(path)
        now = ABSENT
    os.makedirs(os.path.dirname(path), exist_ok=True)
    parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    name = os.path.basename(path)
    try:
        put(parent, name, now, wanted, data, f".{name[:200]}.{os.urandom(4).hex()}")
    finally:
        os.close(parent)
    return True


def _read_before(folder: str, now: FileState, entry: list[Any]) -> tuple[FileState, bytes | None]:
    """Return what stood there before, and its content."""
    kind, mode, target, kept, _links, _mtime = entry
    if kind == "folder":
        return FileState("directory", "", mode), None
    if kind == "link":
        data = os.fsencode(target)
        return FileState("symlink", digest_of(data), mode, len(data)), data
    if kept is None:  # its content was never in danger
        return replace(now, mode=mode), b""
    digest, size, data = _content(os.path.join(folder, kept), whole=True)
    return FileState("file", digest, mode, size), data


def record(history: History, folder: str, who: Author, lost: str = "") -> Recorded | None:
    """Compare the journal in `folder` with what is there now and write the differences down; None when none are."""
    change_logs.free_reserve(folder)
    kept = _Keeping(history, folder)
    entries = change_logs.entries(folder)
    with history.transaction():
        changes = [change for entry in entries.items() if (change := kept.compare(entry)) is not None]
    lost = "; ".join(filter(None, (lost, kept.told())))
    if not changes:
        return Recorded("", (), lost) if lost else None
    changes.sort(key=lambda each: each.path)
    note = "; ".join(filter(None, (who.note, f"not covered: {lost}" if lost else "")))
    return Recorded(history.record(replace(who, note=note), changes), tuple(changes), lost)


def changed_unrecorded(folder: str, roots: Sequence[str]) -> str:
    """Say which files below the roots changed since the journal began and do not stand in it; a bounded look.

    A program with several threads can change the path of a call between the recorder's look and the kernel's.
    """
    known = change_logs.entries(folder)
    began = os.stat(os.path.join(folder, change_logs.ABOUT)).st_mtime_ns
    files = islice(_files_below(roots), LOOKED_AT)
    found = sorted(path for path in files if path not in known and _changed_at(path) > began)
    if not found:
        return ""
    named = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
    return f"{named} changed while it ran, past the recorder (by one of its threads, or by somebody else)"


def _files_below(roots: Sequence[str]) -> Iterator[str]:
    for root in roots:
        for place, folders, names in os.walk(root):
            folders[:] = [each for each in folders if each != ".git"]  # what git keeps is git's to take back
            yield from (os.path.join(place, name) for name in names)


def _changed_at(path: str) -> int:
    try:
        return os.lstat(path).st_ctime_ns
    except OSError:
        return 0


def recover_commands(history: History, base: str) -> list[str]:
    """Bring in what commands had changed whose program was killed; return the ids of those changes."""
    found: list[str] = []
    for folder, about in change_logs.abandoned(base):
        forbidden: list[str] = about["forbidden"]
        if forbidden:
            put_back(folder, lambda path, kept=tuple(forbidden): inside(path, kept))
        recorded = record(history, folder, Author(*about["who"], note=INTERRUPTED))
        remove_tree(folder)
        if recorded is not None and recorded.change_id:
            found.append(recorded.change_id)
    return found


class _Keeping:
    """Turns journal entries into changes; the caller holds the history's transaction."""

    def __init__(self, history: History, folder: str) -> None:
        self._contents = history.contents
        self._folder = folder
        self._room = KEPT_TOTAL
        self._room_before = history.most_bytes
        self._uncovered: list[str] = []

    def told(self) -> str:
        """Say which files would have taken more room than one change may take in the history."""
        if not self._uncovered:
            return ""
        named = ", ".join(self._uncovered[:5]) + (f" and {len(self._uncovered) - 5} more" * (len(self._uncovered) > 5))
        return f"{named}: more than one change may take in the history (history.limit_mb)"

    def compare(self, entry: tuple[str, list[Any]]) -> FileChange | None:
        path, (kind, mode, target, kept, _links, _mtime) = entry
        if kind == "other" or kept == "":  # its keeper has told why it is not covered
            return None
        if kind == "file" and kept is not None:
            size = os.path.getsize(os.path.join(self._folder, kept))
            if size > self._room_before:
                self._uncovered.append(path)
                return None
            self._room_before -= size
        after = self._after(path)
        if kind == "file" and kept is None:
            # Its content was never in danger: only its mode can differ.
            before = replace(after, mode=mode) if after.kind == "file" else FileState("file", "", mode)
        else:
            before = self._before(kind, mode, target, kept)
        return None if before == after else FileChange(path, before, after)

    def _before(self, kind: str, mode: int, target: str, kept: str | None) -> FileState:
        if kind == "absent":
            return ABSENT
        if kind == "folder":
            return FileState("directory", "", mode)
        if kind == "link":
            return self._link(target, mode)
        path = os.path.join(self._folder, kept or "")
        large = os.path.getsize(path) > SMALL_BYTES
        digest, size, data = _content(path, whole=not large)
        if large:
            self._contents.keep_file(digest, size, path)
        else:
            self._contents.keep(digest, [data])
        return FileState("file", digest, mode, size)

    def _after(self, path: str) -> FileState:
        try:
            found = os.lstat(path)
        except OSError:
            return ABSENT
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISDIR(found.st_mode):
            return FileState("directory", "", mode)
        if stat.S_ISLNK(found.st_mode):
            return self._link(os.readlink(path), mode)
        if not stat.S_ISREG(found.st_mode):
            return ABSENT
        wanted = found.st_size <= min(KEPT_FILE, self._room)
        try:
            digest, size, data = _content(path, whole=wanted)
        except OSError:
            return FileState("file", "", mode, found.st_size)
        if wanted:
            self._room -= size
            self._contents.keep(digest, [data])
        return FileState("file", digest, mode, size)

    def _link(self, target: str, mode: int) -> FileState:
        data = os.fsencode(target)
        digest = digest_of(data)
        self._contents.keep(digest, [data])
        return FileState("symlink", digest, mode, len(data))


def _content(path: str, *, whole: bool) -> tuple[str, int, bytes]:
    """Return digest, size and (when wanted) the bytes of a file; a large one is only passed through."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if whole:
            data = file.read()
            return digest_of(data), len(data), data
        hasher, size = hashlib.sha256(), 0
        while block := file.read(_BLOCK):
            hasher.update(block)
            size += len(block)
        return hasher.hexdigest(), size, b""
