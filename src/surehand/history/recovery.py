"""Recovery of what a killed process left behind: changes begun and not confirmed, and their temporary files.

A live process holds the lock of the folder it writes in; a dead one holds nothing. So a change whose folder can be
locked has nobody left who would finish it. Old content at its path: it did not happen, and is struck from the log.
Anything else: it happened, and is confirmed with what is there now. An undo that was cut off half way is finished.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from surehand.core.errors import ToolFailure
from surehand.files.atomic import try_lock
from surehand.history.command_changes import recover_commands
from surehand.history.disk import HELD_BYTES, put, state_in
from surehand.history.words import ABSENT, Change, FileChange, FileState

if TYPE_CHECKING:
    from surehand.history.history import History


def recover(history: History) -> list[str]:
    """Recover every change whose process is gone; return the ids of those that turned out to have happened."""
    happened = _recover_commands(history)
    abandoned = False
    for change in history.begun():
        with ExitStack() as stack:
            folders = open_folders(change, stack)
            if all(try_lock(fd) for fd in folders.values() if fd is not None):
                abandoned = True
                try:
                    happened += recover_change(history, change, folders)
                except OSError:  # what stands there cannot be read now; whoever looks when it can be recovers it
                    continue
    if abandoned:
        history.remove_strays()
    return happened


def _recover_commands(history: History) -> list[str]:
    """Bring in what commands had changed whose program was killed."""
    base = _change_logs(history)
    return recover_commands(history, base) if _has_entries(base) else []


def _has_entries(folder: str) -> bool:
    try:
        with os.scandir(folder) as found:
            return next(found, None) is not None
    except OSError:
        return False


def recover_interrupted(history: History) -> str:
    """Recover what killed processes left, if the history can be written; return why something is left, or ""."""
    problem = history.unwritable
    try:
        if not problem:
            _recover_new(history)
    except ToolFailure as failure:
        problem = str(failure)
    if not problem:
        return ""
    left = "; interrupted calls are not recovered until then" if _has_interrupted(history) else ""
    return f"{problem}: it is shown as it was last written{left}"


def _recover_new(history: History) -> None:
    """Recover, twice if need be: a damaged history has given way to a new one, which has nothing to recover."""
    try:
        recover(history)
    except ToolFailure:
        recover(history)


def _has_interrupted(history: History) -> bool:
    return _has_entries(_change_logs(history)) or bool(history.begun())


def _change_logs(history: History) -> str:
    """Return the folder of what commands write down while they run."""
    return os.path.join(os.path.dirname(history.folder), "journals") if history.folder else ""


def open_folders(change: Change, stack: ExitStack) -> dict[str, int | None]:
    """Open the folder of every path of a change, each once; None for one that is gone."""
    opened: dict[str, int | None] = {}
    for each in change.files:
        folder = os.path.dirname(each.path)
        if folder not in opened:
            try:
                fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:
                opened[folder] = None
            else:
                stack.callback(os.close, fd)
                opened[folder] = fd
    return opened


def recover_change(history: History, change: Change, folders: Mapping[str, int | None]) -> list[str]:
    """Strike a change that was only begun, or confirm it, by what its paths hold; the caller has their folders' locks.

    Returns its id when it turned out to have happened.
    """
    _remove_temporary(change, folders)
    found = [_now(each, folders) for each in change.files]
    if not any(_happened(each, now) for each, now, _ in _zip(change, found)):
        strike(history, change, folders)
        return []
    files: list[FileChange] = []
    for each, now, _ in _zip(change, found):
        if each.after is not None and now.same_content(each.before) and not now.same_content(each.after):
            now = _finish(history, each, now, folders)
        files.append(FileChange(each.path, each.before, each.after if each.after is not None else now))
    with history.transaction():  # what is kept and not yet in the log, another process that prunes takes for unused
        for each, now, data in _zip(change, found):
            fd = folders[os.path.dirname(each.path)]
            if each.after is None and data is not None:
                history.keep_bytes(data)
            elif each.after is None and now.kind == "file" and fd is not None and now.size <= history.most_bytes:
                history.keep_file(now, fd, os.path.basename(each.path))
        history.log.finish(change.id, files)
        if change.about:
            history.log.update_reversed(change)
    return [change.id]


def _zip(
    change: Change, found: list[tuple[FileState, bytes | None]]
) -> list[tuple[FileChange, FileState, bytes | None]]:
    return [(each, now, data) for each, (now, data) in zip(change.files, found, strict=True)]


def _now(each: FileChange, folders: Mapping[str, int | None]) -> tuple[FileState, bytes | None]:
    fd = folders[os.path.dirname(each.path)]
    return (ABSENT, None) if fd is None else state_in(fd, os.path.basename(each.path), HELD_BYTES)


def _happened(each: FileChange, now: FileState) -> bool:
    """Say whether a path shows that its change was made; folders made on the way to a file prove nothing."""
    after = each.after
    if after is not None and after.kind == "directory":
        return False
    only_mode = after is not None and now.same_content(after) and now.mode == after.mode != each.before.mode
    return only_mode or not now.same_content(each.before)


def _finish(history: History, each: FileChange, now: FileState, folders: Mapping[str, int | None]) -> FileState:
    fd, after = folders[os.path.dirname(each.path)], each.after
    if fd is None or after is None:
        return now
    data = history.source(after) if after.digest else None
    try:
        put(fd, os.path.basename(each.path), now, after, data, f".surehand-{os.urandom(6).hex()}.tmp")
    except (OSError, ToolFailure):
        return now
    return after


def strike(history: History, change: Change, folders: Mapping[str, int | None]) -> None:
    """Take a change that did not happen out of the log, with what was kept and made for it."""
    with history.transaction():
        history.log.remove([change.id])
        for each in reversed(change.files):
            fd, name = folders[os.path.dirname(each.path)], os.path.basename(each.path)
            if fd is not None and each.before.digest:
                history.contents.withdraw(each.before.digest, fd, name)
            elif fd is not None and each.after is not None and each.after.kind == "directory":
                _remove_folder(fd, name)


def _remove_folder(fd: int, name: str) -> None:
    try:
        os.rmdir(name, dir_fd=fd)
    except OSError:  # somebody uses it by now
        pass


def _remove_temporary(change: Change, folders: Mapping[str, int | None]) -> None:
    for fd in folders.values():
        if fd is None or not change.temporary:
            continue
        try:
            os.unlink(change.temporary, dir_fd=fd)
        except OSError:
            pass
