"""Recovery of what killed processes left: changes that began and were not confirmed, and their temporary files.

A live process holds the locks of the folders it writes in, so a change whose folders can all be locked has been
abandoned. If its paths hold the old contents, it did not happen and is removed from the log. Otherwise it happened and
is confirmed with what is there now. An undo that was interrupted half-way is completed.
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
    """Recover every change whose process is gone; return the ids of those that have happened."""
    happened = _recover_commands(history)
    abandoned = False
    for change in history.begun():
        with ExitStack() as stack:
            folders = open_folders(change, stack)
            if all(try_lock(fd) for fd in folders.values() if fd is not None):
                abandoned = True
                try:
                    happened += recover_change(history, change, folders)
                except OSError:  # a path cannot be read now: a later opening recovers the change
                    continue
    if abandoned:
        history.remove_strays()
    return happened


def _recover_commands(history: History) -> list[str]:
    """Record what commands changed whose program was killed."""
    base = _change_logs(history)
    return recover_commands(history, base) if _has_entries(base) else []


def _has_entries(folder: str) -> bool:
    try:
        with os.scandir(folder) as found:
            return next(found, None) is not None
    except OSError:
        return False


def recover_interrupted(history: History) -> str:
    """Recover what killed processes left, if the history can be written; return why that failed, or ""."""
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
    """Recover; try again after a failure, which may have replaced a damaged history by a new one."""
    try:
        recover(history)
    except ToolFailure:
        recover(history)


def _has_interrupted(history: History) -> bool:
    return _has_entries(_change_logs(history)) or bool(history.begun())


def _change_logs(history: History) -> str:
    """Return the folder of the change logs of commands."""
    return os.path.join(os.path.dirname(history.folder), "journals") if history.folder else ""


def open_folders(change: Change, stack: ExitStack) -> dict[str, int | None]:
    """Open the folder of every path of a change, each once; None for a folder that does not exist."""
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
    """Confirm or remove a change that has begun, by what its paths hold; the caller holds the locks of their folders.

    Returns its id if it has happened.
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
    with history.transaction():  # a single one: another process prunes contents that no entry refers to
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
    """Return whether a path shows that the change was made; folders made for a file do not prove it."""
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
    """Remove a change that did not happen from the log, with the contents and folders made for it."""
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
    except OSError:  # it is in use by now
        pass


def _remove_temporary(change: Change, folders: Mapping[str, int | None]) -> None:
    for fd in folders.values():
        if fd is None or not change.temporary:
            continue
        try:
            os.unlink(change.temporary, dir_fd=fd)
        except OSError:
            pass
