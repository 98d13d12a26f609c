"""Stdio of this process: reserving it for a protocol, and switching the terminal's echo.

While reserved, anything else that this process or its children print goes to stderr, and their stdin is empty.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager


def is_stream(descriptor: int) -> bool:
    """Whether an event loop can wait for a descriptor: not for regular files, nor for devices other than terminals."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


async def own_stdio(line_limit: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Reserve stdin and stdout for a protocol; both must be streams (see `is_stream`)."""
    own_in, own_out = _private(0, os.open(os.devnull, os.O_RDONLY)), _private(1, os.dup(2))
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=line_limit)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(own_in, "rb", 0))
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(own_out, "wb", 0))
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


def _private(descriptor: int, instead: int) -> int:
    """Return a duplicate of a standard stream, and replace the original."""
    sys.stdout.flush()
    kept = os.dup(descriptor)
    os.dup2(instead, descriptor)
    os.close(instead)
    return kept


def set_echo(descriptor: int, shown: bool) -> bool:
    """Switch a terminal's echo on or off; return the previous state. Anything but a terminal is left alone."""
    if not os.isatty(descriptor):
        return True
    import termios

    flags = termios.tcgetattr(descriptor)
    before = bool(flags[3] & termios.ECHO)
    if before != shown:
        flags[3] ^= termios.ECHO
        termios.tcsetattr(descriptor, termios.TCSADRAIN, flags)
    return before


@contextmanager
def echoing(descriptor: int) -> Generator[None]:
    """Switch the terminal's echo on for the block."""
    before = set_echo(descriptor, True)
    try:
        yield
    finally:
        set_echo(descriptor, before)
