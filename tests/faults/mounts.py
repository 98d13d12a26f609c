"""Small and read-only disks for tests, in a process of their own."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from pathlib import Path

from tests.forks import fork

RDONLY, REMOUNT = 1, 32
_NEWNS, _NEWUSER, _BIND, _REC_PRIVATE = 0x20000, 0x10000000, 4096, 0x44000


def in_child(action: Callable[[], None]) -> None:
    """Run an action in a forked process, so that its limits and mounts end with it."""
    assert os.waitpid(fork(action), 0)[1] == 0


def mount(target: Path, flags: int = 0, data: bytes | None = b"size=128k") -> None:
    """Mount a small tmpfs."""
    _mount(b"none", target, b"tmpfs", flags, data)


def bind_read_only(source: Path, target: Path) -> None:
    """Bind-mount a folder read-only at another path."""
    _mount(os.fsencode(source), target, None, _BIND, None)
    _mount(b"none", target, None, _BIND | REMOUNT | RDONLY, None)


def _mount(source: bytes, target: Path, kind: bytes | None, flags: int, data: bytes | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source, os.fsencode(target), kind, flags, data) != 0:
        raise OSError(ctypes.get_errno(), "mount")


def fill(folder: Path) -> Path:
    """Fill the disk of a folder; return the file that takes the space."""
    filler = folder / "filler"
    for size in (4096, 1):
        with contextlib.suppress(OSError), open(filler, "ab", buffering=0) as file:
            while True:
                file.write(b"x" * size)
    return filler


def own_mounts() -> None:
    """Enter a private mount namespace, which ends with this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_NEWNS | (0 if user == 0 else _NEWUSER)) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if user != 0:  # without a map nothing can be made on the new disks: EOVERFLOW
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    libc.mount(b"none", b"/", None, _REC_PRIVATE, None)


def can_mount(folder: Path) -> bool:
    """True if this system lets a test mount."""

    def attempt() -> None:
        own_mounts()
        mount(folder)

    try:
        in_child(attempt)
    except AssertionError:
        return False
    return True
