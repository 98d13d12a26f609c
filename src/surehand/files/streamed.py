"""Bytes too large to be held are streamed: a text file read through windows, a text encoded piece by piece.

    data = snapshot(folder, fd, size)     # a copy without a name, which nobody else can change; None: hold the bytes
    data.find(b"old"), data[10:20], data.count(b"\\n", 0, 500)

`LargeBytes` answers what an edit asks of `bytes`, from windows of a megabyte. Only UTF-8 is read so: in it a string is
found between characters alone, and whether a file is UTF-8 shows while it is copied.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

WINDOW_BYTES: Final = 1 << 20
LARGE_BYTES: Final = 48 << 20
"""A larger file is not held."""
LARGE_CHARACTERS: Final = 8 << 20
"""A longer text is not encoded as a whole."""


class Streamed:
    """Bytes that are made or read block by block, as often as wanted."""

    def __len__(self) -> int:
        raise NotImplementedError

    def blocks(self) -> Iterator[bytes]:
        """Yield all of the bytes, in order."""
        raise NotImplementedError

    def __bytes__(self) -> bytes:
        return b"".join(self.blocks())

    def first(self, size: int) -> bytes:
        """Return the first bytes."""
        return next(self.blocks(), b"")[:size]

    def write_to(self, fd: int) -> None:
        """Write all of the bytes to an open file."""
        for block in self.blocks():
            _write_block(fd, block)


def _write_block(fd: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(fd, view) :]


class _Copy:
    """An open file without a name; closed when nobody refers to it any more."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes between two positions, all of them."""
        parts = list[bytes]()
        while start < end:
            part = os.pread(self.fd, end - start, start)
            if not part:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __del__(self) -> None:
        os.close(self.fd)


class _Range:
    """Some bytes of such a file."""

    __slots__ = ("copy", "end", "start")

    def __init__(self, copy: _Copy, start: int, end: int) -> None:
        self.copy, self.start, self.end = copy, start, end

    def __len__(self) -> int:
        return self.end - self.start

    def part(self, start: int, end: int) -> _Range:
        return _Range(self.copy, self.start + start, self.start + end)

    def read(self, start: int, end: int) -> bytes:
        return self.copy.read(self.start + start, self.start + end)

    def write_to(self, fd: int) -> None:
        position = self.start
        try:
            while position < self.end:
                copied = os.copy_file_range(self.copy.fd, fd, self.end - position, position)
                if not copied:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                position += copied
        except OSError:  # between these two file systems it cannot be done in the kernel
            while position < self.end:
                block = self.copy.read(position, min(position + WINDOW_BYTES, self.end))
                _write_block(fd, block)
                position += len(block)


_Piece: TypeAlias = "bytes | _Range"


class LargeBytes(Streamed):
    """Immutable bytes in pieces, most of them ranges of a file. UTF-8 throughout."""

    def __init__(self, pieces: Sequence[_Piece], bom: bytes = b"", ascii: bool = False) -> None:
        self._pieces = [piece for piece in pieces if len(piece)]
        self._starts = [0]
        for piece in self._pieces:
            self._starts.append(self._starts[-1] + len(piece))
        self.bom = bom
        self._ascii = ascii
        self._latest: tuple[tuple[int, int, int], bytes] = (-1, 0, 0), b""
        """The window that was read last: a text is looked for from place to place, often in the same one."""

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, wanted: slice) -> bytes:
        start, end, _ = wanted.indices(len(self))
        parts = [
            piece.read(low, high) if isinstance(piece, _Range) else piece[low:high]
            for piece, low, high in self._overlaps(start, end)
        ]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __contains__(self, wanted: bytes) -> bool:
        return self.find(wanted) >= 0

    def _overlaps(self, start: int, end: int) -> Iterator[tuple[_Piece, int, int]]:
        """Yield the pieces between two positions, each with the part of it that lies there."""
        index = max(0, bisect_right(self._starts, start) - 1)
        while index < len(self._pieces) and self._starts[index] < end:
            piece, at = self._pieces[index], self._starts[index]
            low, high = max(0, start - at), min(len(piece), end - at)
            if low < high:
                yield piece, low, high
            index += 1

    def replace(self, changes: Iterable[tuple[int, int, bytes]]) -> LargeBytes:
        """Return the bytes with others in the place of some: (start, end, new), in order, apart."""
        pieces, position = list[_Piece](), 0
        for start, end, new in changes:
            pieces += [*self._between(position, start), new]
            position = end
        return LargeBytes([*pieces, *self._between(position, len(self))], self.bom)

    def _between(self, start: int, end: int) -> Iterator[_Piece]:
        """Yield the pieces between two positions, not read yet."""
        for piece, low, high in self._overlaps(start, end):
            yield piece.part(low, high) if isinstance(piece, _Range) else piece[low:high]

    def blocks(self) -> Iterator[bytes]:
        """Yield all of the bytes, in order."""
        for start in range(0, len(self), WINDOW_BYTES):
            yield self[start : start + WINDOW_BYTES]

    def write_to(self, fd: int) -> None:
        """Write all of the bytes to an open file; in the kernel where it can."""
        for piece in self._pieces:
            if isinstance(piece, _Range):
                piece.write_to(fd)
            else:
                _write_block(fd, piece)

    def isascii(self) -> bool:
        """Say whether all of it is ASCII."""
        return self._ascii

    def startswith(self, wanted: bytes, start: int = 0) -> bool:
        """Say whether these bytes stand at a position."""
        return self[start : start + len(wanted)] == wanted

    def _window(self, number: int, before: int, after: int) -> bytes:
        """Return a window with so many bytes before and after it; the one read last is at hand."""
        if self._latest[0] != (number, before, after):
            start = number * WINDOW_BYTES
            self._latest = (number, before, after), self[max(0, start - before) : start + WINDOW_BYTES + after]
        return self._latest[1]

    def find(self, wanted: bytes, start: int = 0, end: int | None = None) -> int:
        """Return the first place of some bytes between two positions, or -1."""
        stop = len(self) if end is None else min(end, len(self))
        for number in range(start // WINDOW_BYTES, (stop - 1) // WINDOW_BYTES + 1):
            base = number * WINDOW_BYTES
            at = self._window(number, 0, len(wanted) - 1).find(wanted, max(0, start - base), stop - base)
            if at >= 0:
                return base + at
        return -1

    def rfind(self, wanted: bytes, start: int = 0, end: int | None = None) -> int:
        """Return the last place of some bytes between two positions, or -1."""
        stop = len(self) if end is None else min(end, len(self))
        for number in range((stop - 1) // WINDOW_BYTES, start // WINDOW_BYTES - 1, -1):
            base = number * WINDOW_BYTES
            at = self._window(number, 0, len(wanted) - 1).rfind(wanted, max(0, start - base), max(0, stop - base))
            if at >= 0:
                return base + at
        return -1

    def count(self, wanted: bytes, start: int = 0, end: int | None = None) -> int:
        """Return how often some bytes, which cannot overlap with themselves, stand between two positions."""
        stop, found = len(self) if end is None else min(end, len(self)), 0
        for number in range(start // WINDOW_BYTES, (stop - 1) // WINDOW_BYTES + 1):
            base = number * WINDOW_BYTES
            window = self._window(number, 0, len(wanted) - 1)
            found += window.count(wanted, max(0, start - base), max(0, stop - base))
        return found

    def search(self, pattern: re.Pattern[bytes], start: int, longest: int) -> tuple[int, int] | None:
        """Return where a pattern matches first from a position on; `longest` is the most one match and its looks take.

        The bytes before the position are seen by what looks back, as in `pattern.search(data, start)`.
        """
        for number in range(start // WINDOW_BYTES, len(self) // WINDOW_BYTES + 1):
            base = number * WINDOW_BYTES
            window, shift = self._window(number, longest, longest), max(0, base - longest)
            found = pattern.search(window, max(start, base) - shift)
            if found and shift + found.start() < base + WINDOW_BYTES:
                return shift + found.start(), shift + found.end()
        return None


class EncodedText(Streamed):
    """The bytes of a long text, encoded in pieces; `newline` takes the place of every LF.

    Raises UnicodeEncodeError at once for what cannot be held, with its place in the whole text.
    """

    def __init__(self, text: str, encode: Callable[[str], bytes], newline: str = "\n") -> None:
        self._text, self._encode, self._newline = text, encode, newline
        self._size = sum(map(len, self.blocks()))

    def __len__(self) -> int:
        return self._size

    def blocks(self) -> Iterator[bytes]:
        """Yield all of the bytes, in order."""
        for start in range(0, len(self._text), WINDOW_BYTES):
            piece = self._text[start : start + WINDOW_BYTES]
            try:
                yield self._encode(piece if self._newline == "\n" else piece.replace("\n", self._newline))
            except UnicodeEncodeError as problem:
                wrong = problem.object[problem.start]
                at = self._text.index(wrong, start)
                raise UnicodeEncodeError(problem.encoding, self._text, at, at + 1, problem.reason) from None


Bytes: TypeAlias = bytes | LargeBytes
Part: TypeAlias = bytes | memoryview | Streamed
"""What a new content is made of."""


def join_parts(parts: Sequence[Part]) -> bytes:
    """Return a content as a whole."""
    return b"".join([bytes(part) if isinstance(part, Streamed) else part for part in parts])


def part_blocks(parts: Sequence[Part]) -> Iterator[bytes | memoryview]:
    """Yield a content block by block."""
    for part in parts:
        if isinstance(part, Streamed):
            yield from part.blocks()
        else:
            yield part


def holds_parts(data: Bytes, parts: Sequence[Part]) -> bool:
    """Say whether a content is these parts in a row, without putting them together."""
    at = 0
    for block in part_blocks(parts):
        if not data.startswith(bytes(block), at):
            return False
        at += len(block)
    return at == len(data)


def snapshot(folder: int, fd: int) -> tuple[LargeBytes, str] | None:
    """Copy an open file into one without a name beside it; return its bytes and their digest.

    None for what is not UTF-8, and where there is no room or the file system makes no such files.
    """
    try:
        copy = _Copy(os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=folder))
    except (OSError, AttributeError):
        return None
    hasher, decoder = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
    size, whole_ascii, head = 0, True, b""
    try:
        while block := os.pread(fd, WINDOW_BYTES, size):
            head = head or block
            if not block.isascii() or decoder.getstate()[0]:
                decoder.decode(block)
                whole_ascii = False
            hasher.update(block)
            _write_block(copy.fd, block)
            size += len(block)
        decoder.decode(b"", final=True)
    except (OSError, UnicodeDecodeError):
        return None
    bom = codecs.BOM_UTF8 if head.startswith(codecs.BOM_UTF8) else b""
    return LargeBytes([_Range(copy, 0, size)], bom, whole_ascii), hasher.hexdigest()
