"""What a command prints, held in bounded memory: beginning and end to show, the whole in a file when it is long.

Whatever is printed, a stream keeps no more than its limit (80% of it from the head, 20% from the tail); once more
than that has come, everything goes to a file as well, up to `FILE_LIMIT`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Final

from surehand.core.frozen import frozen
from surehand.host.output_text import binary_kind, decoded, stray_note
from surehand.host.progress import Watcher

STDOUT_LIMIT: Final = 200 * 1024
STDERR_LIMIT: Final = 56 * 1024
HEAD_SHARE: Final = 0.8
FILE_LIMIT: Final = 512 * 1024 * 1024
"""Bytes of one stream that are kept on disk; a command that prints for ever must not fill it."""

SNIFFED: Final = 512

Spill = Callable[[], str | None]
"""Names the file a stream's whole output goes to, or None to keep none."""


@frozen
class Shown:
    """A stream as it is shown: its text, how much was printed, what was left out, where all of it is."""

    text: str
    total: int
    cut: int = 0
    binary: str = ""
    file: str | None = None
    stray: int = 0
    """Bytes in it that are no text."""


class Stream:
    """One output stream: feed it bytes, then ask what to show."""

    def __init__(self, limit: int, spill: Spill = lambda: None, watcher: Watcher | None = None) -> None:
        self._head_limit = int(limit * HEAD_SHARE)
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._spill = spill
        self._watcher = watcher
        self._file = -1
        self._written = 0
        self.total = 0
        self.file: str | None = None

    def feed(self, data: bytes) -> None:
        """Take what was printed next."""
        if self._watcher is not None:
            self._watcher.feed(data)
        self.total += len(data)
        if self._file >= 0:
            self._write(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._keep_tail(data)

    def _keep_tail(self, data: bytes) -> None:
        if self._file < 0 and self._tail_size + len(data) > self._tail_limit and self.file is None:
            self._begin_file(data)
        if len(data) >= self._tail_limit:
            self._tail.clear()
            self._tail_size = 0
            data = data[-self._tail_limit :]
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= self._tail_limit:
            self._tail_size -= len(self._tail.popleft())

    def _begin_file(self, data: bytes) -> None:
        """From the first byte that will not be shown, all that was printed is on disk too."""
        self.file = self._spill()
        if self.file is None:
            self.file = ""
            return
        try:
            self._file = os.open(self.file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except OSError:
            self.file = ""
            return
        self._write(b"".join((bytes(self._head), *self._tail, data)))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)[: FILE_LIMIT - self._written]
        try:
            while view:
                sent = os.write(self._file, view)
                self._written += sent
                view = view[sent:]
        except OSError:
            os.close(self._file)  # a full disk ends the file, not the command
            self._file = -1

    def close(self) -> None:
        """Let go of the file; what is in it stays."""
        if self._watcher is not None:
            self._watcher.close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def since(self, position: int) -> tuple[bytes, int]:
        """Return what was printed after `position` and is still in memory, and how many bytes before it are not."""
        start = self.total - self._tail_size
        if position >= start:
            return b"".join(self._tail)[position - start :], 0
        if position <= len(self._head):
            lost = start - len(self._head)
            return bytes(self._head[position:]) + b"".join(self._tail), lost
        return b"".join(self._tail), start - position

    def show(self) -> Shown:
        """Return what a reader gets: text, with the middle left out when it was too long."""
        file = self.file or None
        if kind := binary_kind(bytes(self._head[:SNIFFED]), whole=self.total <= SNIFFED):
            return Shown(f"[{kind}, {self.total:,} bytes: not shown]", self.total, self.total, kind, file)
        tail = b"".join(self._tail)[-self._tail_limit :]
        cut = self.total - len(self._head) - len(tail)
        if not cut:
            text, stray = decoded(bytes(self._head) + tail)
            return Shown(_noted(text, stray), self.total, 0, "", file, stray)
        where = f"; all of it is in {file}" if file else ""
        middle = f"\n\n[{cut:,} bytes left out here{where}]\n\n"
        (before, early), (after, late) = decoded(bytes(self._head), ends=False), decoded(tail, begins=False)
        return Shown(_noted(before + middle + after, early + late), self.total, cut, "", file, early + late)


def _noted(text: str, stray: int) -> str:
    """Return a text with a word on the bytes in it that are none, on a line of its own."""
    if not stray:
        return text
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}{stray_note(stray)}\n"


def width(text: str) -> int:
    """Return the columns a text takes on a terminal: two for full-width characters, none for those that combine."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    columns = wcswidth(text)
    return columns if columns >= 0 else len(text)


def marked(text: str) -> str:
    """Return stderr as it stands in the output a model reads: each line marked."""
    return "\n".join(f"[stderr] {line}" for line in text.rstrip("\n").split("\n")) if text else ""
