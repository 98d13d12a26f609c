"""Cloning of open files: shared until one is written where the file system can (a reflink), bytes otherwise."""

from __future__ import annotations

import fcntl
import os
from typing import Final

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
