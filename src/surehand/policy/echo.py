"""Echo: whether a terminal shows what is typed, not while something else is written there, but for a question."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager


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
