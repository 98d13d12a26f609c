"""Progress: lines of output for subscribers, the first at once, then a few batches a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

INTERVAL_S: Final = 0.1
BUNDLE_BYTES: Final = 4096

Report = Callable[[str, str], None]


class Watcher:
    """One stream's part; `close` sends what is still waiting."""

    def __init__(self, report: Report, stream: str) -> None:
        self._report = report
        self._stream = stream
        self._waiting = b""
        self._last = -1.0
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, data: bytes) -> None:
        """Take what was printed; only the end of a flood is passed on."""
        self._waiting = (self._waiting + data[-BUNDLE_BYTES:])[-BUNDLE_BYTES:]
        if self._timer is None and b"\n" in data:
            wait = INTERVAL_S - (time.monotonic() - self._last)
            if wait <= 0:
                self._send()
            else:
                self._timer = asyncio.get_running_loop().call_later(wait, self._send)

    def _send(self) -> None:
        self._timer = None
        lines, end, rest = self._waiting.rpartition(b"\n")
        if end:
            self._waiting = rest
            self._pass_on(lines)

    def _pass_on(self, lines: bytes) -> None:
        self._last = time.monotonic()
        if b"\0" not in lines:
            self._report(lines.decode("utf-8", "replace"), self._stream)

    def close(self) -> None:
        """Send what is left, and nothing afterwards."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            waiting, self._waiting = self._waiting, b""
            self._pass_on(waiting.rstrip(b"\n"))
