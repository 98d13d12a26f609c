"""Trees of folders removed whole, or of what is old in them. Not by `shutil`, which imports four compressors."""

from __future__ import annotations

import fcntl
import os
import time
from typing import Final

OLD_S: Final = 7 * 24 * 3600
KEPT_FILES: Final = 200


def remove_tree(path: str) -> None:
    """Remove a file or a folder and all in it, also what its owner may not enter; never fails."""
    try:
        if os.path.islink(path) or not os.path.isdir(path):
            os.unlink(path)
            return
        os.chmod(path, 0o700)
        for name in os.listdir(path):
            remove_tree(os.path.join(path, name))
        os.rmdir(path)
    except OSError:
        pass


def drop_old(folder: str) -> None:
    """Remove the files of a folder that are a week old, and the oldest when there are very many."""
    with os.scandir(folder) as entries:
        files = sorted((entry.stat().st_mtime, entry.path) for entry in entries if entry.is_file(follow_symlinks=False))
    limit = time.time() - OLD_S
    for at, (changed, path) in enumerate(files):
        if changed < limit or at < len(files) - KEPT_FILES:
            remove_tree(path)


# Cloning of open files: shared until one is written where the file system can (a reflink), bytes otherwise.

_FICLONE: Final = 0x40049409
_BLOCK: Final = 1 << 24


def copy_data(source: int, target: int) -> None:
    """Copy all of an open file into another, from where it stands."""
    if clone(source, target):
        return
    try:
        while os.sendfile(target, source, None, _BLOCK):
            pass
    except OSError:  # a system that sends to sockets only
        while block := os.read(source, 1 << 20):
            os.write(target, block)


def clone(source: int, target: int) -> bool:
    """Let two files share their bytes until one is written; False where the file system cannot."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
        return True
    except OSError:
        return False
