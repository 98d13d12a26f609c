"""A text file by pages of lines, numbered as `cat -n` does, whatever its encoding, line ends and size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from surehand.core.frozen import frozen
from surehand.files import lines
from surehand.files.encodings import find_escaped_codec, is_weak_guess
from surehand.files.sniff import wide_encoding
from surehand.files.text import UTF8, Encoding, detect, mostly_valid, only_returns

CHEAP_BYTES: Final = 1024 * 1024
"""Counting the lines of a file up to this size costs next to nothing."""
_UTF8_MARK: Final = b"\xef\xbb\xbf"


@frozen
class TextPage:
    """Some lines of a text: numbered for a model, plain for a program."""

    numbered: str
    content: str
    offset: int
    lines: int
    encoding: Encoding
    more: bool
    whole: bool
    """Whether this is all of the file, no line cut."""
    at_budget: bool
    """Whether it ends early because it would have become too long."""
    invalid: int
    """How many characters stand for bytes that are invalid in the encoding."""
    weak: bool = False
    """Whether the encoding is a guess that may well be wrong."""


class TextFile:
    """An open text file; `head` is its beginning, `index` remembers where its lines are."""

    def __init__(self, file: lines.Bytes, head: bytes, index: lines.LineIndex, named: str = "") -> None:
        self.file = file
        self.index = index
        self.named = Encoding(named) if named and named != "utf-8" else None
        """The encoding a caller says it has."""
        self.wide = wide_encoding(head) if self.named is None else None
        self.only_returns = only_returns(head, self.wide or UTF8)

    def page(self, offset: int, limit: int, budget: int) -> TextPage | None:
        """Return at most `limit` lines from line `offset` (from 0) on; None when there are none."""
        found = lines.page(self._parts(offset), limit, budget)
        if not found.lines:
            return None
        encoding = self.wide or UTF8
        if offset == 0 and found.lines[0].startswith(_UTF8_MARK):
            found.lines[0], found.raw = found.lines[0][3:], None
            if found.lines == [b""]:
                return None
            encoding = encoding if self.wide else Encoding("utf-8", _UTF8_MARK)
        cut = found.long_lines and _truncate_long_lines(found)
        numbered = lines.number_lines(found.lines, offset + 1)
        if b"\r" in numbered:
            found.lines, found.raw = [_without_return(line) for line in found.lines], None
            numbered = lines.number_lines(found.lines, offset + 1)
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
            shown = lines.number_lines([f"{line}\n".encode() for line in text.split("\n")], offset + 1).decode()
        whole = offset == 0 and not found.more and not cut
        count = len(found.lines)
        return TextPage(shown, text, offset, count, encoding, found.more, whole, found.cut_by_budget, invalid, weak)

    def known_total(self, page: TextPage) -> int | None:
        """Return how many lines the file has, where that is known or cheap to find out."""
        if not page.more:
            return page.offset + page.lines
        if self.file.size > CHEAP_BYTES and (not self._plain or self.index.feeds is None):
            return None
        return self.total()

    def total(self) -> int:
        """Return how many lines the file has."""
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
        """Return the bytes from line `offset` on, in an encoding in which LF is one byte."""
        if self._plain:
            start = self.index.start_of(offset, self.file)
            return lines.chunks(self.file, self.file.size if start is None else start)
        parts = lines.chunks(self.file, len(self.wide.bom) if self.wide else 0)
        if self.wide is not None:
            parts = lines.decoded_chunks(parts, self.wide.codec)
        return lines.skip_lines(lines.with_line_feeds(parts) if self.only_returns else parts, offset)

    def _sample(self, content: bytes) -> bytes:
        """Return what the encoding is judged by: the whole of a small file, otherwise what is shown."""
        return self.file.read(0, CHEAP_BYTES) if self.file.size <= CHEAP_BYTES else content


def decode_text(
    content: bytes, sample: bytes | None = None, named: Encoding | None = None
) -> tuple[str, Encoding, int]:
    """Return the text of `content`, how it was read, and how many characters stand for invalid bytes.

    A UTF-8 text with a few stray bytes is still UTF-8: only where most of what is not ASCII is invalid is another
    encoding looked for (in `sample`, when that says more than the content alone).
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


def _truncate_long_lines(page: lines.Page) -> bool:
    """Cut what is over LINE_CHARACTERS, each with a word on how long the line really is; say whether any was."""
    cut = False
    for number, ended in enumerate(page.lines):
        line = ended.removesuffix(b"\n")
        if len(line) <= lines.LINE_CHARACTERS:
            continue
        text = line.decode(errors="surrogateescape")
        if len(text) > lines.LINE_CHARACTERS:
            size = len(line) + page.left_out.get(number, 0)
            kept = text[: lines.LINE_CHARACTERS].encode(errors="surrogateescape")
            least = "more than " if page.endless and number == len(page.lines) - 1 else ""
            page.lines[number] = (
                kept + f"... [line cut; it is {least}{size:,} bytes long]".encode() + ended[len(line) :]
            )
            cut = True
    return cut
