"""What Python has no name for: `openat2`, the type of the file system a descriptor is on, and a head start for a flush.

`ctypes` is loaded on first use. Off Linux, on old kernels and under sandboxes that forbid it, `available()` is false.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final

NO_MAGIC_LINKS: Final = 0x02
NO_SYMLINKS: Final = 0x04
BENEATH: Final = 0x08
CACHED: Final = 0x20
"""Fail with EAGAIN unless every name on the way is in memory (Linux 5.12)."""
PATH_ONLY: Final = getattr(os, "O_PATH", os.O_RDONLY)
"""Open a folder to find others from it, not to read it; other systems than Linux know no such thing."""
_NUMBER: Final = 437  # the same on every Linux architecture
AT_FDCWD: Final = -100
"""In place of a folder: the name is an absolute one."""
_SYNC_FILE_RANGE_WRITE: Final = 2


@cache
def available() -> bool:
    """Say whether the kernel answers `openat2`."""
    if sys.platform != "linux":
        return False
    try:
        os.close(openat2(AT_FDCWD, "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0, 0))
    except OSError:
        return False
    return True


def openat2(top: int, name: str, flags: int, mode: int, resolve: int) -> int:
    """Open `name` relative to the folder `top` under the `resolve` rules; raises OSError as `os.open` does."""
    encoded = os.fsencode(name)
    while True:
        fd, number = _calls()[0](top, encoded, flags, mode, resolve)
        if fd >= 0:
            return fd
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number), name)


def start_flush(fd: int) -> None:
    """Have the system begin to write what it holds of a file, without a wait: `fsync` has the less to wait for."""
    if sys.platform == "linux":
        _calls()[2](fd)


def file_system_type(fd: int) -> int:
    """Return the magic number of the file system `fd` is on, 0 where that cannot be told."""
    return _calls()[1](fd) if sys.platform == "linux" else 0


# File systems whose times are as fine as their changes since Linux 6.13: ext4, xfs, btrfs, tmpfs.
_FINE: Final = frozenset({0xEF53, 0x58465342, 0x9123683E, 0x01021994})


def exact_times(fd: int) -> bool:
    """Say whether every change of a file after a look at its status moves its change time, however soon."""
    return _fine_kernel() and file_system_type(fd) in _FINE


@cache
def _fine_kernel() -> bool:
    if sys.platform != "linux":
        return False
    major, _, rest = os.uname().release.partition(".")
    minor = rest.partition(".")[0]
    return major.isdigit() and minor.isdigit() and (int(major), int(minor)) >= (6, 13)


@cache
def _calls() -> tuple[
    Callable[[int, bytes, int, int, int], tuple[int, int]], Callable[[int], int], Callable[[int], None]
]:
    import ctypes

    class OpenHow(ctypes.Structure):
        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    size = ctypes.sizeof(OpenHow)

    @cache
    def how(flags: int, mode: int, resolve: int) -> Any:
        return ctypes.byref(OpenHow(flags, mode, resolve))  # the kernel only reads it

    def call_openat2(top: int, name: bytes, flags: int, mode: int, resolve: int) -> tuple[int, int]:
        return library.syscall(_NUMBER, top, name, how(flags, mode, resolve), size), ctypes.get_errno()

    def call_fstatfs(fd: int) -> int:
        answer = (ctypes.c_long * 32)()  # larger than any struct statfs; its first word is the type
        return answer[0] if library.fstatfs(fd, ctypes.byref(answer)) == 0 else 0

    zero, known = ctypes.c_int64(0), hasattr(library, "sync_file_range")

    def call_sync_file_range(fd: int) -> None:
        if known:
            library.sync_file_range(fd, zero, zero, _SYNC_FILE_RANGE_WRITE)

    return call_openat2, call_fstatfs, call_sync_file_range
