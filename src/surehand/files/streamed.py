"""Streams for contents too large to be held: a text file read through windows, a text encoded in pieces.

    data, digest = snapshot(folder, fd)   # of an unnamed copy, which nobody else can change
    data.find(b"old"), data[10:20], data.count(b"\\n", 0, 500)

`LargeBytes` has the methods of `bytes` that an edit needs, and reads windows of a megabyte. Only for UTF-8: in it an
encoded string matches between characters only, and validity is checked while copying.
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
"""A larger file is not held in memory."""
LARGE_CHARACTERS: Final = 8 << 20
"""A longer text is encoded in pieces."""


class Streamed:
    """Bytes made or read block by block; may be iterated more than once."""

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
    """An open unnamed file; closed when it is garbage-collected."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def read(self, start: int, end: int) -> bytes:
        """Return all bytes between two positions."""
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
    """A range of bytes of a `_Copy`."""

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
        except OSError:  # not supported between these two file systems
            while position < self.end:
                block = self.copy.read(position, min(position + WINDOW_BYTES, self.end))
                _write_block(fd, block)
                position += len(block)


_Piece: TypeAlias = "bytes | _Range"


class LargeBytes(Streamed):
    """Immutable UTF-8 bytes in pieces, most of them ranges of a file."""

    def __init__(self, pieces: Sequence[_Piece], bom: bytes = b"", ascii: bool = False) -> None:
        self._pieces = [piece for piece in pieces if len(piece)]
        self._starts = [0]
        for piece in self._pieces:
            self._starts.append(self._starts[-1] + len(piece))
        self.bom = bom
        self._ascii = ascii
        self._latest: tuple[tuple[int, int, int], bytes] = (-1, 0, 0), b""
        """The window read last: consecutive searches are often in the same one."""

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
        """Yield the pieces between two positions, each with the range of it that is there."""
        index = max(0, bisect_right(self._starts, start) - 1)
        while index < len(self._pieces) and self._starts[index] < end:
            piece, at = self._pieces[index], self._starts[index]
            low, high = max(0, start - at), min(len(piece), end - at)
            if low < high:
                yield piece, low, high
            index += 1

    def replace(self, changes: Iterable[tuple[int, int, bytes]]) -> LargeBytes:
        """Return the bytes with `changes` (start, end, new) applied; they are in order and do not overlap."""
        pieces, position = list[_Piece](), 0
        for start, end, new in changes:
            pieces += [*self._between(position, start), new]
            position = end
        return LargeBytes([*pieces, *self._between(position, len(self))], self.bom)

    def _between(self, start: int, end: int) -> Iterator[_Piece]:
        """Yield the pieces between two positions, without reading them."""
        for piece, low, high in self._overlaps(start, end):
            yield piece.part(low, high) if isinstance(piece, _Range) else piece[low:high]

    def blocks(self) -> Iterator[bytes]:
        """Yield all of the bytes, in order."""
        for start in range(0, len(self), WINDOW_BYTES):
            yield self[start : start + WINDOW_BYTES]

    def write_to(self, fd: int) -> None:
        """Write all of the bytes to an open file, copying in the kernel if possible."""
        for piece in self._pieces:
            if isinstance(piece, _Range):
                piece.write_to(fd)
            else:
                _write_block(fd, piece)

    def isascii(self) -> bool:
        """Return whether all of it is ASCII."""
        return self._ascii

    def startswith(self, wanted: bytes, start: int = 0) -> bool:
        """Return whether these bytes are at a position."""
        return self[start : start + len(wanted)] == wanted

    def _window(self, number: int, before: int, after: int) -> bytes:
        """Return a window with some bytes before and after it; the last one is cached."""
        if self._latest[0] != (number, before, after):
            start = number * WINDOW_BYTES
            self._latest = (number, before, after), self[max(0, start - before) : start + WINDOW_BYTES + after]
        return self._latest[1]

    def find(self, wanted: bytes, start: int = 0, end: int | None = None) -> int:
        """Return the first position of some bytes between two positions, or -1."""
        stop = len(self) if end is None else min(end, len(self))
        for number in range(start // WINDOW_BYTES, (stop - 1) // WINDOW_BYTES + 1):
            base = number * WINDOW_BYTES
            at = self._window(number, 0, len(wanted) - 1).find(wanted, max(0, start - base), stop - base)
            if at >= 0:
                return base + at
        return -1

    def rfind(self, wanted: bytes, start: int = 0, end: int | None = None) -> int:
        """Return the last position of some bytes between two positions, or -1."""
        stop = len(self) if end is None else min(end, len(self))
        for number in range((stop - 1) // WINDOW_BYTES, start // WINDOW_BYTES - 1, -1):
            base = number * WINDOW_BYTES
            at = self._window(number, 0, len(wanted) - 1).rfind(wanted, max(0, start - base), max(0, stop - base))
            if at >= 0:
                return base + at
        return -1

    def count(self, wanted: bytes, start: int = 0, end: int | None = None) -> int:
        """Count some bytes, which cannot overlap with themselves, between two positions."""
        stop, found = len(self) if end is None else min(end, len(self)), 0
        for number in range(start // WINDOW_BYTES, (stop - 1) // WINDOW_BYTES + 1):
            base = number * WINDOW_BYTES
            window = self._window(number, 0, len(wanted) - 1)
            found += window.count(wanted, max(0, start - base), max(0, stop - base))
        return found

    def search(self, pattern: re.Pattern[bytes], start: int, longest: int) -> tuple[int, int] | None:
        """Return the first match of a pattern from a position on; `longest` bounds a match with its lookarounds.

        Lookbehinds see the bytes before the position, as in `pattern.search(data, start)`.
        """
        for number in range(start // WINDOW_BYTES, len(self) // WINDOW_BYTES + 1):
            base = number * WINDOW_BYTES
            window, shift = self._window(number, longest, longest), max(0, base - longest)
            found = pattern.search(window, max(start, base) - shift)
            if found and shift + found.start() < base + WINDOW_BYTES:
                return shift + found.start(), shift + found.end()
        return None


class EncodedText(Streamed):
    """The bytes of a long text, encoded in pieces; `newline` replaces every LF.

    The constructor raises UnicodeEncodeError for what cannot be encoded, with the position in the whole text.
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
"""A part of a new content."""


def join_parts(parts: Sequence[Part]) -> bytes:
    """Return a content as bytes."""
    return b"".join([bytes(part) if isinstance(part, Streamed) else part for part in parts])


def part_blocks(parts: Sequence[Part]) -> Iterator[bytes | memoryview]:
    """Yield a content block by block."""
    for part in parts:
        if isinstance(part, Streamed):
            yield from part.blocks()
        else:
            yield part


def holds_parts(data: Bytes, parts: Sequence[Part]) -> bool:
    """Return whether a content equals these parts, without joining them."""
    at = 0
    for block in part_blocks(parts):
        if not data.startswith(bytes(block), at):
            return False
        at += len(block)
    return at == len(data)


def snapshot(folder: int, fd: int) -> tuple[LargeBytes, str] | None:
    """Copy an open file into an unnamed file in `folder`; return its bytes and their digest.

    None if it is not UTF-8, the disk is full, or the file system has no unnamed files.
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
