"""Output of a command in bounded memory: its head and tail to show, all of it in a file if it is long.

A stream keeps at most its limit in memory (by default 80% from the head, the rest from the tail); longer output also
goes to a file, up to `FILE_LIMIT`. Questions in it are recognised, because nobody can answer them.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from surehand.core.frozen import frozen
from surehand.core.text import HEAD_SHARE, lazy_pattern

# Progress: lines of output for subscribers, the first at once, then in batches.

INTERVAL_S: Final = 0.1
BUNDLE_BYTES: Final = 4096

Report = Callable[[str, str], None]


class Watcher:
    """Reports the lines of one stream; `close` sends what is left."""

    def __init__(self, report: Report, stream: str) -> None:
        self._report = report
        self._stream = stream
        self._waiting = b""
        self._last = -1.0
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, data: bytes) -> None:
        """Add output; of a flood only the last bytes are reported."""
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
            self._report_lines(lines)

    def _report_lines(self, lines: bytes) -> None:
        self._last = time.monotonic()
        if b"\0" not in lines:
            self._report(lines.decode("utf-8", "replace"), self._stream)

    def close(self) -> None:
        """Send what is left; feed nothing afterwards."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            waiting, self._waiting = self._waiting, b""
            self._report_lines(waiting.rstrip(b"\n"))


# Decoding: whether output is text, and how bytes that are not are shown.

_ASCII_MAGIC: Final = (b"\x7fELF", b"%PDF", b"GIF8", b"BM", b"RIFF", b"PK")
"""Signatures of binary formats without a byte over 127, which the quick ASCII check would take for text."""
_CONTROLS: Final = bytes([*range(7), *range(14, 27), *range(28, 32), 127])
"""Control characters that no terminal program prints."""
_MOST_STRAY: Final = 0.3
"""The share of invalid bytes up to which output counts as text: names in Latin-1, truncated characters."""


def binary_kind(head: bytes, *, whole: bool = True) -> str:
    """Describe the binary data that begins with `head`; empty for text, also with some invalid bytes."""
    if head.isascii() and not head.count(0) and not head.startswith(_ASCII_MAGIC):
        return ""
    from surehand.files.sniff import signature  # lazy: sniff, 9 ms

    if (found := signature(head)) is not None:
        return f"binary output: {found.format}"
    if b"\0" in head:
        return r"binary output: it has NUL bytes (`| tr '\0' '\n'` shows what they part)"
    stray = _stray(head if whole else head[: whole_characters(head)])
    odd = len(head) - len(head.translate(None, _CONTROLS))
    if stray and stray + odd > len(head) * _MOST_STRAY:
        return "binary output: it is not valid UTF-8 (`| cat -v` shows it, or `iconv` from its encoding)"
    return ""


def decode_output(data: bytes, *, begins: bool = True, ends: bool = True) -> tuple[str, int]:
    r"""Decode output; return the text and how many invalid bytes are shown in it as `\xNN`.

    Where the output does not begin or end here, a partial character at that end is dropped.
    """
    if not begins:
        data = data[next((at for at in range(min(3, len(data))) if data[at] & 0xC0 != 0x80), min(3, len(data))) :]
    if not ends:
        data = data[: whole_characters(data)]
    try:
        text, stray = data.decode(), 0
    except UnicodeDecodeError:
        text, stray = data.decode("utf-8", "backslashreplace"), _stray(data)
    if nuls := text.count("\0"):
        text = text.replace("\0", r"\x00")
    return text, stray + nuls


def stray_note(count: int) -> str:
    """Return a note on the number of invalid bytes; empty for none."""
    if not count:
        return ""
    counted = "1 binary byte" if count == 1 else f"{count:,} binary bytes"
    return rf"[{counted} in it, NUL or not valid UTF-8, shown as \xNN]"


def whole_characters(data: bytes) -> int:
    """Return the length of `data` without a partial UTF-8 character at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        need = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return len(data) - back if need > back else len(data)
    return len(data)


def _stray(data: bytes) -> int:
    return len(data) - len(data.decode("utf-8", "ignore").encode())


FILE_LIMIT: Final = 512 * 1024 * 1024
"""Bytes of one stream saved on disk at most, so that endless output does not fill it."""

SNIFFED: Final = 512

Spill = Callable[[], str | None]
"""Returns the path for a stream's full output, or None to save none."""


@frozen
class Shown:
    """A stream as shown: its text, the bytes printed, the bytes left out, and the file with all of it."""

    text: str
    total: int
    cut: int = 0
    binary: str = ""
    file: str | None = None
    stray: int = 0
    """Invalid bytes in it."""


class Stream:
    """One output stream: `feed` it bytes, then `show` it."""

    def __init__(
        self,
        limit: int,
        spill: Spill = lambda: None,
        watcher: Watcher | None = None,
        head_share: float = HEAD_SHARE,
    ) -> None:
        self._limit = limit
        self._head_limit = int(limit * head_share)
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
        """Add output."""
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
        if not self._tail_limit:
            return
        if len(data) >= self._tail_limit:
            self._tail.clear()
            self._tail_size = 0
            data = data[-self._tail_limit :]
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= self._tail_limit:
            self._tail_size -= len(self._tail.popleft())

    def _begin_file(self, data: bytes) -> None:
        """Start the file, with everything printed so far: `data` no longer fits into memory."""
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
            os.close(self._file)  # on a full disk the command goes on without the file
            self._file = -1

    def close(self) -> None:
        """Close the file, and send the last progress."""
        if self._watcher is not None:
            self._watcher.close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def since(self, position: int) -> tuple[bytes, int]:
        """Return what was printed after `position` and is in memory, and how many bytes between are not."""
        start = self.total - self._tail_size
        if position >= start:
            return b"".join(self._tail)[position - start :], 0
        if position <= len(self._head):
            lost = start - len(self._head)
            return bytes(self._head[position:]) + b"".join(self._tail), lost
        return b"".join(self._tail), start - position

    def show(self) -> Shown:
        """Return the text to show; the middle of a long one is left out."""
        file = self.file or None
        if kind := binary_kind(bytes(self._head[:SNIFFED]), whole=self.total <= SNIFFED):
            return Shown(f"[{kind}, {self.total:,} bytes: not shown]", self.total, self.total, kind, file)
        head, tail = bytes(self._head), b"".join(self._tail)[-self._tail_limit :] if self._tail_limit else b""
        if self.total <= len(head) + len(tail):
            text, stray = decode_output(head + tail)
            return Shown(truncate_bytes(_add_stray_note(text, stray), self._limit), self.total, 0, "", file, stray)
        text, cut, stray = self._without_middle(head, tail, f"; all of it is in {file}" if file else "")
        return Shown(truncate_bytes(text, self._limit), self.total, cut, "", file, stray)

    def _without_middle(self, head: bytes, tail: bytes, where: str) -> tuple[str, int, int]:
        """Return head, mark and tail within the limit, the bytes left out, and the invalid bytes."""
        text, cut, stray = "", 0, 0
        for _ in range(3):  # the mark and escaped bytes take space as well
            cut = self.total - len(head) - len(tail)
            middle = f"\n\n[{cut:,} bytes left out here{where}]\n\n"
            (before, early), (after, late) = decode_output(head, ends=not tail), decode_output(tail, begins=False)
            text, stray = _add_stray_note(before + middle + after, early + late), early + late
            over = len(text.encode(errors="surrogatepass")) - self._limit
            if over <= 0:
                break
            if len(head) >= len(tail):
                head = head[: max(len(head) - over - 2, 0)]  # 2: the count in the mark may get longer
            else:
                tail = tail[over + 2 :]
            if not tail:
                head = head[: head.rfind(b"\n") + 1] or head  # whole lines
        return text, cut, stray


def truncate_bytes(text: str, limit_bytes: int) -> str:
    """Truncate a text in the middle to a limit in bytes, mark included."""
    data = text.encode(errors="surrogatepass")
    if len(data) <= limit_bytes:
        return text
    mark = f"\n[{len(data) - limit_bytes:,} bytes and more left out here]\n"
    room = max(limit_bytes - len(mark), 0)
    head = int(room * HEAD_SHARE)
    before, after = data[:head], data[len(data) - (room - head) :] if room > head else b""
    return before.decode(errors="ignore") + mark + after.decode(errors="ignore")


def _add_stray_note(text: str, stray: int) -> str:
    """Append the note on invalid bytes, if any, on a line of its own."""
    if not stray:
        return text
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}{stray_note(stray)}\n"


def mark_stderr(text: str) -> str:
    """Mark each line of stderr, for output that a model reads."""
    return "\n".join(f"[stderr] {line}" for line in text.rstrip("\n").split("\n")) if text else ""


# Prompts: what a command prints when it waits for input.

_ASKED: Final = lazy_pattern(
    r"a (?:terminal|tty) is required|no tty present|must be run from a terminal|not a (?:tty|terminal)"
    r"|could not read (?:Username|Password)|terminal prompts disabled|Host key verification failed"
    r"|EOFError: EOF when reading a line|Inappropriate ioctl for device|cannot open '?/dev/tty|/dev/tty: No such device"
    r"|No such device or address: '/dev/tty'|non[- ]TTY device|[Ii]nput is not from a terminal|failed tty get"
    r"|[Pp]ass ?(?:word|phrase)[^\n]{0,60}:(?:\s*$| Password change)|\[[Yy]/[Nn]\]|\([Yy](?:es)?/[Nn](?:o)?\)"
    r"|Are you sure you want to continue connecting|Aborted by user|Need to install the following packages"
    r"|input: device|stdin is not a t",
    re.MULTILINE,
)

NO_INPUT_HINT: Final = (
    "Commands get no input: standard input is empty and there is no terminal. Use a flag that answers (-y, --yes, "
    "--no-input, --batch), pipe the answer in, or ask the user to run it."
)

_PROMPT: Final = lazy_pattern(r"\S[?:>] \Z|#\? \n?\Z")
_READERS: Final = frozenset({"read", "select"})


def describe_wait(name: str) -> str:
    """Return the message for a program that waits for input."""
    return f"{name} waits for input, and nobody can type"


def wanted_input(stdout: str, stderr: str, last: str = "") -> bool:
    """Tell whether a failed command wanted input, by its output, or by `last`, the command whose exit code counts.

    `read` and `select` fail for no other reason.
    """
    if last in _READERS or asked_last(stdout) or asked_last(stderr):
        return True
    return _ASKED.search(stderr[-4000:] + stdout[-4000:]) is not None


def asked_last(text: str) -> bool:
    """Tell whether a text ends in a prompt, on a last line without a line feed."""
    return _PROMPT.search(text[-400:]) is not None
