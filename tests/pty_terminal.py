"""A command on a real pseudo-terminal, driven by what it shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

SUREHAND = (sys.executable, "-m", "surehand")


class Terminal:
    """`surehand` with a terminal of its own: type, and wait for what is shown."""

    def __init__(
        self, *words: str, cwd: Path, env: Mapping[str, str] | None = None, columns: int = 100, rows: int = 30
    ) -> None:
        self._bytes = b""
        self._seen = 0
        self._leader, follower = pty.openpty()
        self.resize(columns, rows)
        # The size of a terminal is its own; whoever set these meant another.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [*SUREHAND, *words],
            cwd=cwd,
            env={**inherited, "TERM": "xterm-256color", **(env or {})},
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self._follower = follower

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._leader)
        os.close(self._follower)
        assert "Traceback" not in self.shown, self.shown

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._leader, text.encode())

    def wait_for(self, text: str, within_s: float = 20.0) -> str:
        """Wait until a text is shown after what was waited for before; return all that came up to it."""
        deadline = time.monotonic() + within_s
        while (at := self.plain.find(text, self._seen)) < 0:
            left = deadline - time.monotonic()
            if left <= 0 or not (self._read(min(left, 0.2)) or self.process.poll() is None):
                raise AssertionError(f"{text!r} was not shown in:\n{self.plain[self._seen :]}")
        before, self._seen = self._seen, at + len(text)
        return self.plain[before : self._seen]

    def _read(self, within_s: float) -> bool:
        if not select.select([self._leader], [], [], within_s)[0]:
            return False
        self._bytes += os.read(self._leader, 65536)
        return True

    @property
    def shown(self) -> str:
        """All that was written to the terminal."""
        return self._bytes.decode("utf-8", "replace")

    @property
    def plain(self) -> str:
        """What was shown, without colours and movements of the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r", "", self.shown)

    @property
    def echoes(self) -> bool:
        """Whether the terminal shows what is typed."""
        return bool(termios.tcgetattr(self._follower)[3] & termios.ECHO)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.type("\x03")

    def ended(self, within_s: float = 20.0) -> int:
        """Read to the end and return the exit code."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline and (self.process.poll() is None or self._read(0)):
            self._read(0.05)
        return self.process.wait(0.1)

    def eventually(self, happened: Callable[[], bool], within_s: float = 20.0) -> bool:
        """Read on until something has happened; False when it has not in time."""
        deadline = time.monotonic() + within_s
        while not happened():
            if time.monotonic() > deadline:
                return False
            self._read(0.05)
        return True

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
