"""Read lines of files of any size; the cost depends on the lines read, not on the size of the file.

A page of lines is taken from blocks of bytes; only its lines are decoded. To find the first line of a page deep in a
file, `LineIndex` counts line feeds block by block and remembers the count at every 64 KiB, so that the next page starts
from there. Lines end with LF, a byte that means nothing else in UTF-8 and in all encodings whose units are one byte.
UTF-16, UTF-32 and the rare file whose lines end with CR alone are converted to UTF-8 with LF, from the beginning on.

Memory is limited whatever a file contains: only the first `LINE_BYTES` of a line are kept, and a page ends at `budget`
bytes.
"""

from __future__ import annotations

import codecs
import errno
import os
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from io import BytesIO
from itertools import islice
from threading import Lock
from typing import Final, Protocol

from surehand.core.frozen import frozen
from surehand.core.text import LINE_CHARACTERS
from surehand.files.encodings import find_escaped_codec, is_weak_guess
from surehand.files.sniff import wide_encoding
from surehand.files.text import UTF8, Encoding, detect, mostly_valid, only_returns

BLOCK: Final = 64 * 1024
CHEAP_BYTES: Final = 1024 * 1024
"""The lines of files up to this size are always counted: it takes hardly any time."""
_UTF8_MARK: Final = b"\xef\xbb\xbf"
SCAN: Final = 16 * BLOCK
FIRST_CHUNK: Final = 96 * 1024  # below the size from which malloc uses mmap, which costs a page fault for every page
LINE_BYTES: Final = 4 * LINE_CHARACTERS
"""Bytes kept of a line; a character has at most four."""
SHORT_LINE: Final = LINE_CHARACTERS
"""A line of up to this many bytes cannot have more characters, and need not be decoded to be counted."""
SCAN_LIMIT: Final = 1024 * 1024 * 1024
"""Maximum bytes read for one page: the end of a line of many gigabytes is not searched for."""
KEPT_INDEXES: Final = 64
NUMBER_WIDTH: Final = 6


class Bytes(Protocol):
    """A source of bytes that can be read at any position."""

    @property
    def size(self) -> int:
        """The number of bytes."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`; fewer only at the end."""
        ...

    def data_from(self, position: int) -> int:
        """Return the first position at or after `position` that is not in a hole of a sparse file."""
        ...


@frozen
class FileBytes:
    """The bytes of an open file."""

    fd: int
    size: int

    def read(self, position: int, size: int) -> bytes:
        """Return bytes from a position on."""
        part = os.pread(self.fd, size, position)
        if len(part) == size or not part or position + len(part) >= self.size:
            return part
        return part + self.read(position + len(part), size - len(part))

    def data_from(self, position: int) -> int:
        """Return where data begin at or after a position; holes are skipped."""
        try:
            return os.lseek(self.fd, position, os.SEEK_DATA)
        except OSError as problem:  # ENXIO: a hole up to the end; others: the file system does not support SEEK_DATA
            return self.size if problem.errno == errno.ENXIO else position


@frozen
class HeldBytes:
    """Bytes already in memory."""

    content: bytes

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self.content)

    def read(self, position: int, size: int) -> bytes:
        """Return bytes from a position on."""
        return self.content[position : position + size]

    def data_from(self, position: int) -> int:
        """Return where data begin at or after a position; holes are skipped."""
        return position


@frozen
class FirstBytes:
    """The beginning of a file, already in memory; reading further raises BlockingIOError."""

    content: bytes
    size: int

    def read(self, position: int, size: int) -> bytes:
        """Return bytes from a position on."""
        if position + size > len(self.content) < self.size:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return self.content[position : position + size]

    def data_from(self, position: int) -> int:
        """Return where data begin at or after a position; holes are skipped."""
        return position


class LineIndex:
    """The number of line feeds before each block of a file, counted as far as it was needed.

    Shared by calls that read the same file at the same time.
    """

    __slots__ = ("_counts", "_lock", "feeds")

    def __init__(self) -> None:
        self._counts = array("Q", (0,))
        self._lock = Lock()
        self.feeds: int | None = None
        """Number of line feeds in the file; None until it was scanned to its end."""

    def start_of(self, line: int, source: Bytes) -> int | None:
        """Return the position where `line` (from 0) begins; None when the file has fewer line feeds."""
        if line == 0:
            return 0
        if source.size <= BLOCK:  # one block: nothing to remember
            *before, rest = (data := source.read(0, BLOCK)).split(b"\n", line)
            return len(data) - len(rest) if len(before) == line else None
        with self._lock:
            while self._counts[-1] < line:
                if self.feeds is not None:
                    return None
                self._scan(source)
        block = bisect_left(self._counts, line) - 1
        return block * BLOCK + _after_feed(source.read(block * BLOCK, BLOCK), line - self._counts[block])

    def all_feeds(self, source: Bytes) -> int:
        """Return the number of line feeds in the file."""
        with self._lock:
            while self.feeds is None:
                self._scan(source)
            return self.feeds

    def _scan(self, source: Bytes) -> None:
        """Count the line feeds of the next SCAN bytes, or skip a hole."""
        counts = self._counts
        position, total = (len(counts) - 1) * BLOCK, counts[-1]
        hole = min(source.data_from(position), source.size) - position
        if hole >= BLOCK:
            counts.extend([total] * (hole // BLOCK))
            return
        data = source.read(position, SCAN)
        for start in range(0, len(data), BLOCK):
            total += data.count(b"\n", start, start + BLOCK)
            counts.append(total)
        if len(data) < SCAN:
            self.feeds = total


def _after_feed(block: bytes, number: int) -> int:
    """Return the position after the line feed with this number (from 1)."""
    return len(block) - len(block.split(b"\n", number)[-1])


class LineIndexes:
    """An LRU cache of a session's line indexes, keyed by the identity, size and times of a file."""

    __slots__ = ("_kept", "_lock")

    def __init__(self) -> None:
        self._kept: OrderedDict[object, LineIndex] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, status: os.stat_result) -> LineIndex:
        """Return the index for a file in this state; a new one is empty."""
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        with self._lock:
            index = self._kept.pop(key, None) or LineIndex()
            self._kept[key] = index
            if len(self._kept) > KEPT_INDEXES:
                self._kept.popitem(last=False)
        return index


class Page:
    """Some lines of a file, as bytes; each ends with its line feed, except perhaps the last."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.left_out: dict[int, int] = {}
        """By index in `lines`: how many bytes of a line beyond LINE_BYTES were left out."""
        self.long_lines = False
        """Whether any line is longer than SHORT_LINE bytes."""
        self.more = False
        """Whether anything follows the last line."""
        self.cut_by_budget = False
        self.endless = False
        """Whether reading stopped at SCAN_LIMIT before the end of the last line was found."""
        self.held = 0
        """Size of the page in bytes, with line numbers."""
        self.raw: bytes | None = None
        """The lines as one block, without the last line feed, if they were read as one; saves joining them."""

    @property
    def content(self) -> bytes:
        """The lines as one block, without the last line feed."""
        return b"".join(self.lines).removesuffix(b"\n") if self.raw is None else self.raw

    def add(self, pieces: list[bytes], whole: bytes, size: int) -> None:
        """Add lines, which are the first `size` bytes of `whole`; truncate those over LINE_BYTES."""
        self.held += size + len(pieces) * (NUMBER_WIDTH + 1)
        self.raw = whole[: size - whole.endswith(b"\n", 0, size)] if not self.lines else None
        if not _has_long(whole, size):
            self.lines += pieces
            return
        self.long_lines, self.raw = True, None
        for piece in pieces:
            line = piece.removesuffix(b"\n")
            kept = self.shorten(line)
            self.held -= len(line) - len(kept)
            self.lines.append(kept + piece[len(line) :])

    def shorten(self, rest: bytes) -> bytes:
        """Truncate the line being read to LINE_BYTES and note what was left out."""
        if len(rest) <= LINE_BYTES:
            return rest
        self.leave_out(len(rest) - LINE_BYTES)
        return rest[:LINE_BYTES]

    def leave_out(self, size: int) -> None:
        """Count `size` more bytes left out of the line that is added next."""
        number = len(self.lines)
        self.left_out[number] = self.left_out.get(number, 0) + size

    def within(self, budget: int) -> Page:
        """Drop lines at the end until the page fits the budget; at least one line stays."""
        if self.held <= budget:
            return self
        used = 0
        for number, line in enumerate(self.lines):
            used += len(line) + NUMBER_WIDTH + 1  # its number and a tab
            if used > budget and number:
                del self.lines[number:]
                self.raw, self.more, self.cut_by_budget = None, True, True
                break
        return self


def _has_long(whole: bytes, size: int) -> bool:
    """Whether a line in the first `size` bytes is longer than SHORT_LINE bytes.

    Jumps from a line feed to the last one at most SHORT_LINE bytes later, instead of looking at every line.
    """
    position = 0
    while size - position > SHORT_LINE:
        position = whole.rfind(b"\n", position, position + SHORT_LINE + 1) + 1
        if position == 0:
            return True
    return False


def chunks(source: Bytes, position: int) -> Iterator[bytes]:
    """Yield the bytes from `position` on. The first chunk is small, as most pages need no more."""
    size = FIRST_CHUNK
    while data := source.read(position, size):
        yield data
        position += len(data)
        size = SCAN


def decoded_chunks(parts: Iterable[bytes], codec: str) -> Iterator[bytes]:
    """Convert chunks from another encoding to UTF-8; invalid bytes become replacement characters."""
    decoder = codecs.getincrementaldecoder(codec)("replace")
    for part in parts:
        yield decoder.decode(part).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def with_line_feeds(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Convert the line ends of a file that uses CR alone to LF; a CRLF further on becomes one LF too."""
    half = False
    for part in parts:
        whole = part[1:] if half and part.startswith(b"\n") else part
        half = part.endswith(b"\r") if part else half
        yield whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def skip_lines(parts: Iterator[bytes], lines: int) -> Iterator[bytes]:
    """Yield the chunks after the first `lines` lines."""
    for part in parts:
        feeds = part.count(b"\n")
        if feeds >= lines:
            yield part[_after_feed(part, lines) :] if lines else part
            yield from parts
            return
        lines -= feeds


def page(parts: Iterator[bytes], limit: int, budget: int) -> Page:
    """Read at most `limit` lines, and about `budget` bytes."""
    found = Page()
    rest, scanned = b"", 0
    for part in parts:
        scanned += len(part)
        if scanned > SCAN_LIMIT:
            found.more = True
            break
        if len(rest) == LINE_BYTES and b"\n" not in part:
            found.leave_out(len(part))
            continue
        whole = rest + part if rest else part
        if not whole:  # a decoder waits for the rest of a character
            continue
        stream = BytesIO(whole)  # iterating over it takes two thirds of the time of `split`
        pieces = list(islice(stream, limit - len(found.lines)))
        rest = b"" if pieces[-1].endswith(b"\n") else pieces.pop()
        size = stream.tell() - len(rest)
        found.add(pieces, whole, size)
        if len(found.lines) == limit:
            found.more = bool(size < len(whole) or next(parts, b""))
            return found.within(budget)
        if found.held >= budget:
            found.more = True
            return found.within(budget)
        rest = found.shorten(rest)
    if rest:
        found.endless = found.more
        found.add([rest], rest, len(rest))
    return found.within(budget)


def number_lines(lines: list[bytes], first: int) -> bytes:
    """Number lines as `cat -n` does; `first` is the number of the first line."""
    parts = _prefixes(first, len(lines)).copy()
    parts[1::2] = lines
    parts[-1] = parts[-1].removesuffix(b"\n")
    return b"".join(parts)


@lru_cache(maxsize=8)
def _prefixes(first: int, count: int) -> list[bytes]:
    """Return `[number of the first line, b"", number of the second, b"", ...]`, where b"" is replaced by the line."""
    parts: list[bytes] = []
    number = first
    while count > 0:
        thousand, start = divmod(number, 1000)
        taken = min(1000 - start, count)
        parts += _thousand(thousand)[2 * start : 2 * (start + taken)]
        number += taken
        count -= taken
    return parts


@lru_cache(maxsize=16)
def _thousand(thousand: int) -> list[bytes]:
    """Return the prefixes of a thousand lines; cached, because formatting numbers is most of the work of a page."""
    parts = [b""] * 2000
    parts[0::2] = [b"%6d\t" % number for number in range(thousand * 1000, thousand * 1000 + 1000)]
    return parts


# Pages of numbered lines of a text file, in any encoding, with any line ends and of any size.


@frozen
class TextPage:
    """Some lines of a text: numbered for a model, and plain for a program."""

    numbered: str
    content: str
    offset: int
    lines: int
    encoding: Encoding
    more: bool
    whole: bool
    """Whether this is the whole file, without a truncated line."""
    at_budget: bool
    """Whether the page ended at its budget before its limit of lines."""
    invalid: int
    """Number of replacement characters for bytes that are invalid in the encoding."""
    weak: bool = False
    """Whether the encoding is a weak guess."""


class TextFile:
    """An open text file; `head` is its beginning, `index` the positions of its lines."""

    def __init__(self, file: Bytes, head: bytes, index: LineIndex, named: str = "") -> None:
        self.file = file
        self.index = index
        self.named = Encoding(named) if named and named != "utf-8" else None
        """The encoding named by the caller; None for UTF-8 or none."""
        self.wide = wide_encoding(head) if self.named is None else None
        self.only_returns = only_returns(head, self.wide or UTF8)

    def page(self, offset: int, limit: int, budget: int) -> TextPage | None:
        """Return at most `limit` lines from line `offset` (from 0) on; None when there are none."""
        found = page(self._parts(offset), limit, budget)
        if not found.lines:
            return None
        encoding = self.wide or UTF8
        if offset == 0 and found.lines[0].startswith(_UTF8_MARK):
            found.lines[0], found.raw = found.lines[0][3:], None
            if found.lines == [b""]:
                return None
            encoding = encoding if self.wide else Encoding("utf-8", _UTF8_MARK)
        cut = found.long_lines and _truncate_long_lines(found)
        numbered = number_lines(found.lines, offset + 1)
        if b"\r" in numbered:
            found.lines, found.raw = [_without_return(line) for line in found.lines], None
            numbered = number_lines(found.lines, offset + 1)
        content = found.content
        invalid, weak = 0, False
        try:
            shown, text = numbered.decode("ascii" if self.named else "utf-8"), content.decode()
            plain = self.named is not None or find_escaped_codec(content) is None
        except UnicodeDecodeError:
            plain, shown, text = False, "", ""
        if not plain:
            sample = self._sample(content)
            text, encoding, invalid = decode_text(content, sample, self.named)
            weak = self.named is None and encoding.codec != "utf-8" and is_weak_guess(sample, encoding.codec)
            shown = number_lines([f"{line}\n".encode() for line in text.split("\n")], offset + 1).decode()
        whole = offset == 0 and not found.more and not cut
        count = len(found.lines)
        return TextPage(shown, text, offset, count, encoding, found.more, whole, found.cut_by_budget, invalid, weak)

    def known_total(self, page: TextPage) -> int | None:
        """Return the number of lines in the file; None if it is neither known nor quickly counted."""
        if not page.more:
            return page.offset + page.lines
        if self.file.size > CHEAP_BYTES and (not self._plain or self.index.feeds is None):
            return None
        return self.total()

    def total(self) -> int:
        """Return the number of lines in the file."""
        if self.file.size == 0:
            return 0
        if self._plain:
            return self.index.all_feeds(self.file) + (self.file.read(self.file.size - 1, 1) != b"\n")
        feeds, last = 0, b""
        for part in self._parts(0):
            feeds += part.count(b"\n")
            last = part or last
        return feeds + (not last.endswith(b"\n"))

    @property
    def _plain(self) -> bool:
        return self.wide is None and not self.only_returns

    def _parts(self, offset: int) -> Iterator[bytes]:
        """Return chunks from line `offset` on, in an encoding in which LF is one byte."""
        if self._plain:
            start = self.index.start_of(offset, self.file)
            return chunks(self.file, self.file.size if start is None else start)
        parts = chunks(self.file, len(self.wide.bom) if self.wide else 0)
        if self.wide is not None:
            parts = decoded_chunks(parts, self.wide.codec)
        return skip_lines(with_line_feeds(parts) if self.only_returns else parts, offset)

    def _sample(self, content: bytes) -> bytes:
        """Return the bytes to guess the encoding from: all of a small file, otherwise those of the page."""
        return self.file.read(0, CHEAP_BYTES) if self.file.size <= CHEAP_BYTES else content


def decode_text(
    content: bytes, sample: bytes | None = None, named: Encoding | None = None
) -> tuple[str, Encoding, int]:
    """Decode `content`; return the text, its encoding, and the number of invalid bytes that were replaced.

    UTF-8 with a few invalid bytes is still read as UTF-8. Another encoding is guessed (from `sample`, if given) only if
    most of the text that is not ASCII is invalid.
    """
    text = content.decode("utf-8", "replace")
    if named is None and (escaped := find_escaped_codec(content)):
        return content.decode(escaped), Encoding(escaped), 0
    if named is None and mostly_valid(text):
        return _without_mark(content, text), UTF8, text.count("\ufffd")
    encoding = named or detect(content if sample is None else sample) or Encoding("latin_1")
    text = encoding.decode(content, "replace")
    return text, encoding, text.count("\ufffd") if encoding.codec != "latin_1" else 0


def _without_mark(content: bytes, text: str) -> str:
    return text[1:] if content.startswith(_UTF8_MARK) else text


def _without_return(line: bytes) -> bytes:
    return line[:-2] + b"\n" if line.endswith(b"\r\n") else line.removesuffix(b"\r")


def _truncate_long_lines(page: Page) -> bool:
    """Truncate lines over LINE_CHARACTERS, with a note of their real length; return whether there were any."""
    cut = False
    for number, ended in enumerate(page.lines):
        line = ended.removesuffix(b"\n")
        if len(line) <= LINE_CHARACTERS:
            continue
        text = line.decode(errors="surrogateescape")
        if len(text) > LINE_CHARACTERS:
            size = len(line) + page.left_out.get(number, 0)
            kept = text[:LINE_CHARACTERS].encode(errors="surrogateescape")
            least = "more than " if page.endless and number == len(page.lines) - 1 else ""
            page.lines[number] = (
                kept + f"... [line cut; it is {least}{size:,} bytes long]".encode() + ended[len(line) :]
            )
            cut = True
    return cut
