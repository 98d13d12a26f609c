"""Removing trees and old files, and cloning files. Without `shutil`, which imports four compressors."""

from __future__ import annotations

import fcntl
import os
import time
from typing import Final

OLD_S: Final = 7 * 24 * 3600
KEPT_FILES: Final = 200


def remove_tree(path: str) -> None:
    """Remove a file or a folder with all in it, also folders without permissions; never raises."""
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
    """Remove files of a folder that are older than a week, and all but the newest `KEPT_FILES`."""
    with os.scandir(folder) as entries:
        files = sorted((entry.stat().st_mtime, entry.path) for entry in entries if entry.is_file(follow_symlinks=False))
    limit = time.time() - OLD_S
    for at, (changed, path) in enumerate(files):
        if changed < limit or at < len(files) - KEPT_FILES:
            remove_tree(path)


# Cloning open files: as a reflink where the file system can, otherwise by copying the bytes.

_FICLONE: Final = 0x40049409
_BLOCK: Final = 1 << 24


def copy_data(source: int, target: int) -> None:
    """Copy an open file into another, from their current positions."""
    if clone(source, target):
        return
    try:
        while os.sendfile(target, source, None, _BLOCK):
            pass
    except OSError:  # a system on which sendfile writes to sockets only
        while block := os.read(source, 1 << 20):
            os.write(target, block)


def clone(source: int, target: int) -> bool:
    """Make `target` a reflink of `source`; return False if the file system cannot."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
        return True
    except OSError:
        return False
