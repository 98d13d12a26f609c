"""Text as bytes: which encoding and line ends a file has, and replacements that touch nothing but the match.

Nothing here decodes a file and encodes it again. The string to find is encoded the way the file is, found among the
bytes, and only those bytes are replaced; what lies outside a match cannot change. A match must begin and end between
characters (UTF-16 by position, GBK and its kin by decoding the line around it).

Line ends: a string spelled with LF matches CRLF too (and CR, where no LF or CRLF fits); every matched line end keeps
its own, lines added take the style around them. A string that spells out CR is taken literally. No match begins inside
a CRLF: an LF there stands for the whole of it.

A file is text unless a NUL stands in its first 8,000 bytes (git's rule) and it is not UTF-16 or UTF-32. Bytes that
are valid in no encoding we know do not prevent an edit elsewhere in the file.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, Literal

from surehand.core.frozen import frozen
from surehand.files.encodings import (
    LEGACY,
    PAIRS,
    declared_codec,
    find_escaped_codec,
    guess_beside_strays,
    guesses,
    western,
)
from surehand.files.streamed import Bytes, LargeBytes, Part, Streamed, join_parts

Newline = Literal["\n", "\r\n", "\r"]

HEAD_BYTES: Final = 8000
_SAMPLE_BYTES: Final = 64 * 1024
_SAMPLED_BYTES: Final = 8 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_STRAYS_ONE_IN: Final = 50
_PARTS_LIMIT: Final = 1000
"""More parts than this are joined: handling them one by one costs more than a copy."""
# Patterns are strings, compiled on first use: most files are UTF-8 and need none of them.
_SINGLE_BYTE: Final = r"cp125\d|koi8|iso8859|latin|ascii|mac|cp437|cp8|tis"
_CONTROL: Final = r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]"
_UNCOMMON: Final = (
    "[^\t-\r\x1b -\u024f\u0300-\u06ff\u0900-\u109f\u10d0-\u11ff\u1780-\u17ff\u1e00-\u206f\u20a0-\u20bf\u2100-\u27bf"
    "\u3000-\u9fff\uac00-\ud7af\uff00-\uffef\U0001f300-\U0001faff]"
)
_CONTROL_BYTES: Final = bytes(set(range(32)) - set(b"\t\n\r\f\v\b\x1b"))


@frozen
class Encoding:
    """The encoding of a file. `unit` is the size of its code units in bytes."""

    codec: str
    bom: bytes = b""
    unit: int = 1
    errors: str = "strict"

    @property
    def label(self) -> str:
        """The name for people."""
        return ("iso-2022-jp" if self.has_escapes else self.codec.replace("_", "-")) + (" with BOM" if self.bom else "")

    @property
    def self_synchronizing(self) -> bool:
        """Whether an encoded string can only match between characters, never inside one."""
        return self.codec == "utf-8" or self.unit > 1 or bool(re.match(_SINGLE_BYTE, self.codec))

    @property
    def has_escapes(self) -> bool:
        """Whether escape sequences switch between alphabets, so that the same bytes may be other characters."""
        return self.codec == "iso2022_jp"

    @property
    def feed(self) -> bytes:
        """The bytes of a line feed."""
        return b"\n" if self.unit == 1 else self.encode("\n")

    def encode(self, text: str) -> bytes:
        """Return the bytes of `text`, without a BOM; raises UnicodeEncodeError for what it cannot hold."""
        if self.codec == "gb18030" and (found := re.search("[\x80-\x9f]", text)):
            # GB18030 can encode these controls, but they are no text: they are bytes of another encoding as Latin-1.
            raise UnicodeEncodeError(self.codec, text, found.start(), found.end(), "a control character")
        return text.encode(self.codec, self.errors)

    def decode(self, data: bytes, errors: str = "strict") -> str:
        """Return the text of `data`, without its BOM."""
        return data[len(self.bom) if self.bom and data.startswith(self.bom) else 0 :].decode(self.codec, errors)


UTF8: Final = Encoding("utf-8")
_NEARLY_UTF8: Final = Encoding("utf-8", errors="surrogateescape")
"""UTF-8 with stray bytes, spelled as surrogates (U+DC80 to U+DCFF) as Python does."""
_BOMS: Final = (
    Encoding("utf-8", codecs.BOM_UTF8),
    Encoding("utf-32-le", codecs.BOM_UTF32_LE, 4),
    Encoding("utf-32-be", codecs.BOM_UTF32_BE, 4),
    Encoding("utf-16-le", codecs.BOM_UTF16_LE, 2),
    Encoding("utf-16-be", codecs.BOM_UTF16_BE, 2),
)
_BARE_WIDE: Final = (
    Encoding("utf-32-le", unit=4),
    Encoding("utf-32-be", unit=4),
    Encoding("utf-16-le", unit=2),
    Encoding("utf-16-be", unit=2),
)


def detect(data: Bytes) -> Encoding | None:
    """Return the encoding of a file's bytes, or None for a binary file."""
    if isinstance(data, LargeBytes):
        return _BOMS[0] if data.bom else UTF8
    for encoding in _BOMS:
        if data.startswith(encoding.bom) and (encoding.codec == "utf-8" or _decodes(data, encoding)):
            return encoding
    if b"\0" in data[:HEAD_BYTES]:
        return next((encoding for encoding in _BARE_WIDE if _is_wide(data, encoding)), None)
    if data.isascii():
        if _mostly_control(data):
            return None
        escaped = find_escaped_codec(data)
        return UTF8 if escaped is None else Encoding(escaped)
    if _decodes(data, UTF8):
        return UTF8
    if _mostly_control(data):
        return None
    nearly = mostly_valid(data[:_SAMPLED_BYTES].decode("utf-8", "replace"))
    return _NEARLY_UTF8 if nearly else _legacy(data)


def stays_readable(before: Encoding, parts: Sequence[Part]) -> bool:
    """Return whether a new content would still be detected as text, judged by its bytes."""
    if before.unit > 1:
        found = detect(join_parts(parts))
        return found is not None and found.codec == before.codec
    heads = (part.first(HEAD_BYTES) if isinstance(part, Streamed) else part[:HEAD_BYTES] for part in parts)
    head = b"".join(islice(heads, _PARTS_LIMIT))[:HEAD_BYTES]
    return b"\0" not in head and not _mostly_control(head)


def mostly_valid(text: str) -> bool:
    """Return whether a text, decoded with U+FFFD for invalid bytes, has few of them."""
    invalid = text.count("\ufffd")
    valid = len(text) - len(text.encode("ascii", "ignore")) - invalid
    return invalid * 2 <= valid


def possible(data: Bytes) -> Iterator[Encoding]:
    """Yield the encodings an edit may read `data` in, the likeliest first; none for a binary file."""
    found = detect(data)
    if found is None:
        return
    yield found
    if isinstance(data, LargeBytes):
        return
    if (found.codec != "utf-8" or found is _NEARLY_UTF8) and found.unit == 1:
        if found is not _NEARLY_UTF8:
            yield _NEARLY_UTF8
        for codec in LEGACY:  # the guess may be wrong, but an encoding in which the text is found is right
            if codec != found.codec and _decodes(data, encoding := Encoding(codec)):
                yield encoding


@frozen
class Span:
    """A match: the bytes from `start` to `end`, and the line ends among them."""

    start: int
    end: int
    newlines: tuple[Newline, ...] = ()


@frozen
class Splice:
    """One replacement: the bytes from `start` to `end` become `new`."""

    start: int
    end: int
    new: bytes


def find(data: Bytes, text: str, encoding: Encoding, *, limit: int | None = None) -> list[Span]:
    """Return the matches of `text` in `data`, without overlaps (as `str.count` and `str.replace`).

    An LF in `text` also matches CRLF.
    """
    return list(islice(_spans(data, text, encoding), limit))


def replacements(data: Bytes, spans: Sequence[Span], old: str, new: str, encoding: Encoding) -> list[Splice]:
    """Return the splices that replace the matches of `old` by `new`, or raise UnicodeEncodeError."""
    if "\n" not in new:
        plain = encoding.encode(new)
        return [Splice(span.start, span.end, plain) for span in spans]
    near, encoded = _NearbyNewlines(data, encoding), dict[str, bytes]()
    splices: list[Splice] = []
    for span in spans:
        text = _with_newlines(near, span, old, new)
        if text not in encoded:
            encoded[text] = encoding.encode(text)
        splices.append(Splice(span.start, span.end, encoded[text]))
    return splices


def apply_splices(data: Bytes, splices: Sequence[Splice]) -> list[Part]:
    """Return the parts of `data` with `splices` (in order, not overlapping) applied; the rest are views, not copies."""
    if isinstance(data, LargeBytes):
        changed = data.replace((each.start, each.end, each.new) for each in splices)
        return [changed] if len(changed) else []
    return [*splice_bytes(data, splices)]


def splice_bytes(data: bytes, splices: Sequence[Splice]) -> list[bytes | memoryview]:
    """Return the parts of bytes in memory with `splices` applied."""
    view, parts, position = memoryview(data), list[bytes | memoryview](), 0
    for splice in splices:
        parts += [view[position : splice.start], splice.new]
        position = splice.end
    parts = [part for part in (*parts, view[position:]) if len(part)]
    return parts if len(parts) <= _PARTS_LIMIT else [b"".join(parts)]


def newline_style(data: Bytes, encoding: Encoding) -> Newline:
    """Return the most frequent line end; LF for a file without any."""
    feed, carriage = encoding.encode("\n"), encoding.encode("\r")
    if carriage not in data:
        return "\n"
    pairs, feeds = data.count(carriage + feed), data.count(feed)
    if feeds == 0:
        return "\r"
    return "\r\n" if pairs * 2 > feeds else "\n"


class _NearbyNewlines:
    """The line ends for text added to a line: that line's own, or that of the line before it.

    To be asked from front to back: a long line is searched for its end once, not for every match in it.
    """

    def __init__(self, data: Bytes, encoding: Encoding) -> None:
        self._data = data
        self._encoding = encoding
        self._feed, self._carriage = encoding.encode("\n"), encoding.encode("\r")
        self._next = 0
        """The first line feed at or after the position asked for last; -1 if there is none."""
        self._asked = -1

    def style_at(self, start: int, end: int) -> Newline:
        """Return the line end of the line that contains the bytes from `start` to `end`."""
        if self._asked < 0 or 0 <= self._next < end or end < self._asked:
            self._next = _aligned_find(self._data, self._feed, end, self._encoding)
        self._asked = end
        at = self._next if self._next >= 0 else self._last_feed(start)
        if at < 0:
            return "\r" if self._carriage in self._data else "\n"
        return "\r\n" if self._data[max(0, at - self._encoding.unit) : at] == self._carriage else "\n"

    def _last_feed(self, before: int) -> int:
        at = self._data.rfind(self._feed, 0, before)
        while at >= 0 and at % self._encoding.unit:
            at = self._data.rfind(self._feed, 0, at + len(self._feed) - 1)
        return at


def only_returns(data: Bytes, encoding: Encoding) -> bool:
    """Return whether the lines of a file end with CR, judged by its beginning as Read does."""
    head = data[:HEAD_BYTES]
    if encoding.unit > 1:
        head = encoding.decode(head, "ignore").encode(errors="ignore")
    return b"\n" not in head and b"\r" in head[:-1]  # the last byte may be half of a CRLF


def line_at(data: Bytes, position: int, encoding: Encoding, since: int = 0) -> int:
    """Return the number of the line at `position`, counted from 1 for the line at `since`."""
    if encoding.unit == 1:
        line = data.count(b"\n", since, position) + 1
        if only_returns(data, encoding):
            line += data.count(b"\r", since, position) - data.count(b"\r\n", since, position)
        return line
    text = data[since:position].decode(encoding.codec, "replace")
    returns = text.count("\r") - text.count("\r\n") if only_returns(data, encoding) else 0
    return text.count("\n") + returns + 1


def with_feeds(data: bytes, encoding: Encoding) -> bytes:
    """Return `data` with CR line ends, if it has only these, replaced by LF; positions stay the same."""
    if not only_returns(data, encoding):
        return data
    if encoding.unit == 1:
        return data.replace(b"\r", b"\n")
    return data.decode(encoding.codec, "replace").replace("\r", "\n").encode(encoding.codec)


def _decodes(data: bytes, encoding: Encoding) -> bool:
    """Return whether all of `data` is valid; decoded in chunks, as a decoded copy costs more than the edit."""
    decoder = codecs.getincrementaldecoder(encoding.codec)()
    view = memoryview(data)
    try:
        for start in range(0, len(data), _CHUNK_BYTES):
            decoder.decode(bytes(view[start : start + _CHUNK_BYTES]))
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _is_wide(data: bytes, encoding: Encoding) -> bool:
    """Return whether bytes without a BOM are UTF-16 or UTF-32: valid, no controls, nearly all in common scripts.

    Almost any two bytes are a UTF-16 character, so spaces or line ends have to prove that it is text.
    """
    if len(data) % encoding.unit or not _decodes(data, encoding):
        return False
    head = data[: HEAD_BYTES - HEAD_BYTES % encoding.unit].decode(encoding.codec, "ignore")
    if not any(blank in head for blank in " \n\r"):
        return False
    return not re.search(_CONTROL, head) and len(re.findall(_UNCOMMON, head)) * 20 <= len(head)


def _mostly_control(data: bytes) -> bool:
    head = data[:HEAD_BYTES]
    return len(head) - len(head.translate(None, _CONTROL_BYTES)) > len(head) * 0.1


def _legacy(data: bytes) -> Encoding:
    """Return the likeliest encoding of text that is not Unicode; Latin-1, which allows every byte, if none fits."""
    if declared := declared_codec(data):
        return Encoding(declared)
    first = next(index for index in range(0, len(data), 4096) if not data[index : index + 4096].isascii())
    start = data.rfind(b"\n", 0, first + 1) + 1
    sample = data[start : start + _SAMPLE_BYTES]
    likely = (*guesses(sample), "cp1252")
    whole = next((each for codec in likely if _decodes(data, each := Encoding(codec))), None)
    sure = western(sample) or (whole is not None and whole.codec in PAIRS)
    if not sure and (codec := guess_beside_strays(sample)):
        whole = Encoding(codec) if _nearly_decodes(data, codec) else whole
    return whole or Encoding("latin_1")


def _nearly_decodes(data: bytes, codec: str) -> bool:
    text = data[:_SAMPLED_BYTES].decode(codec, "replace")
    return text.count("\ufffd") * _STRAYS_ONE_IN <= len(text) - len(text.encode("ascii", "ignore"))


def _spans(data: Bytes, text: str, encoding: Encoding) -> Iterator[Span]:
    wanted, carriage = encoding.encode(text), encoding.encode("\r")
    if not wanted:
        return
    if "\n" not in text or "\r" in text or carriage not in data:
        yield from _literal(data, wanted, _newlines(text), encoding)
        return
    if _all_crlf(data, encoding):
        spelled = text.replace("\n", "\r\n")
        yield from _literal(data, encoding.encode(spelled), _newlines(spelled), encoding)
        return
    found = _loose(data, text, encoding, _LF_OR_CRLF)
    first = next(found, None)
    if first is None:  # a CR alone counts as a line end only if nothing else matches
        found = _loose(data, text, encoding, _ANY_END)
        first = next(found, None)
    if first is not None:
        yield first
        yield from found


def _literal(data: Bytes, wanted: bytes, newlines: tuple[Newline, ...], encoding: Encoding) -> Iterator[Span]:
    """Find exactly these bytes between characters; a leading LF that is half of a CRLF matches the whole."""
    characters, unit = _Characters(data, encoding), encoding.unit
    carriage, begins_with_feed = encoding.encode("\r"), wanted.startswith(encoding.encode("\n"))
    at = _aligned_find(data, wanted, 0, encoding)
    while at >= 0:
        end = at + len(wanted)
        if not characters.between(at):
            end = at + 1
        elif begins_with_feed and at >= unit and data.startswith(carriage, at - unit):
            yield Span(at - unit, end, ("\r\n", *newlines[1:]))
        else:
            yield Span(at, end, newlines)
        at = _aligned_find(data, wanted, end, encoding)


class _Characters:
    """Whether positions are between characters; to be asked from front to back, so that each line is decoded once.

    In GBK and similar encodings the second byte of a character may also begin one, so a line has to be decoded from its
    beginning. In a line with invalid bytes nothing is found.
    """

    def __init__(self, data: Bytes, encoding: Encoding) -> None:
        self._data = data
        self._sure = encoding.self_synchronizing
        self._codec = encoding.codec
        self._line_end = -1
        self._readable = False
        self._read = 0
        """Up to where the line has been decoded."""
        if not self._sure:
            self._decoder = codecs.getincrementaldecoder(encoding.codec)()

    def between(self, position: int) -> bool:
        if self._sure:
            return True
        if position > self._line_end:
            self._enter_line(position)
        if not self._readable:
            return False
        self._decoder.decode(self._data[self._read : position])
        self._read = position
        return not self._decoder.getstate()[0]

    def _enter_line(self, position: int) -> None:
        self._read = self._data.rfind(b"\n", max(self._line_end, 0), position) + 1
        end = self._data.find(b"\n", position)
        self._line_end = len(self._data) if end < 0 else end
        self._decoder.reset()
        try:
            self._data[self._read : self._line_end].decode(self._codec)
            self._readable = True
        except UnicodeDecodeError:
            self._readable = False


def _aligned_find(data: Bytes, wanted: bytes, start: int, encoding: Encoding) -> int:
    at = data.find(wanted, start)
    while at >= 0 and at % encoding.unit:
        at = data.find(wanted, at + 1)
    return at


def _all_crlf(data: Bytes, encoding: Encoding) -> bool:
    """Return whether every line end is a CRLF; False if counting bytes cannot tell."""
    return encoding.unit == 1 and data.count(b"\r\n") == data.count(b"\n") == data.count(b"\r")


# A CRLF is one line end: without the looks around, two LF would match its halves.
_LF_OR_CRLF: Final = b"(?:%(cr)b%(lf)b|(?<!%(cr)b)%(lf)b)"
_ANY_END: Final = b"(?:%(cr)b%(lf)b|(?<!%(cr)b)%(lf)b|%(cr)b(?!%(lf)b))"


def _loose(data: Bytes, text: str, encoding: Encoding, end: bytes) -> Iterator[Span]:
    """Find `text` with every LF matching any line end of the pattern `end`."""
    signs = {b"cr": re.escape(encoding.encode("\r")), b"lf": re.escape(encoding.encode("\n"))}
    pieces = [re.escape(encoding.encode(piece)) for piece in text.split("\n")]
    pattern = re.compile((end % signs).join(pieces))
    longest = 2 * len(encoding.encode(text)) + 2 * encoding.unit
    characters, position = _Characters(data, encoding), 0
    while found := _search(data, pattern, position, longest):
        start, stop = found
        if start % encoding.unit or not characters.between(start):
            position = start + 1
            continue
        yield Span(start, stop, _newlines(data[start:stop].decode(encoding.codec, encoding.errors)))
        position = stop


def _search(data: Bytes, pattern: re.Pattern[bytes], position: int, longest: int) -> tuple[int, int] | None:
    if isinstance(data, LargeBytes):
        return data.search(pattern, position, longest)
    found = pattern.search(data, position)
    return found.span() if found else None


def _newlines(text: str) -> tuple[Newline, ...]:
    if "\r" not in text:
        return ("\n",) * text.count("\n")
    return tuple(re.findall("\r\n|\n|\r", text))  # pyright: ignore[reportReturnType]


def _with_newlines(nearby: _NearbyNewlines, span: Span, old: str, new: str) -> str:
    """Return `new` with the line ends of the file."""
    if "\r" in old:  # literal, except for half a CRLF at its beginning
        halved = old.startswith("\n") and span.newlines[0] == "\r\n"
        return f"\r{new}" if halved and new.startswith("\n") else new
    if "\n" not in new or "\r" in new:
        return new
    styles: set[Newline] = set(span.newlines) or {nearby.style_at(span.start, span.end)}
    if len(styles) == 1:
        return new.replace("\n", styles.pop())
    return _keep_each(span.newlines, old.split("\n"), new.split("\n"))


def _keep_each(ends: tuple[Newline, ...], old: list[str], new: list[str]) -> str:
    """Join lines: unchanged lines at the front and back keep their line ends, others take the end before them."""
    wanted, limit = len(new) - 1, min(len(old), len(new)) - 1
    front = next((i for i in range(limit) if old[i] != new[i]), limit)
    back = next((i for i in range(limit - front) if old[-1 - i] != new[-1 - i]), limit - front)
    middle = wanted - front - back
    same_count = wanted == len(ends)
    filler = ends[front : front + middle] if same_count else (ends[min(front, len(ends) - 1)],) * middle
    joined = (*ends[:front], *filler, *ends[len(ends) - back :])
    return "".join(line + end for line, end in zip(new, (*joined, ""), strict=True))
