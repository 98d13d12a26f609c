"""Text as bytes: which encoding and line ends a file has, and replacements that touch nothing but the match.

Nothing here decodes a file and encodes it again. The string to find is encoded the way the file is, found among the
bytes, and only those bytes are replaced; what lies outside a match cannot change. A match must begin and end between
characters (UTF-16 by position, GBK and its kin by decoding the line around it).

Line ends: a string spelled with LF matches CRLF (and CR) too; every matched line end keeps its own, lines added take
the style around them. A string that spells out CR is taken literally.

A file is text unless a NUL stands in its first 8,000 bytes (git's rule) and it is not UTF-16 or UTF-32. Bytes that
are valid in no encoding we know do not hinder an edit elsewhere in the file.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, Literal

from surehand.core.frozen import frozen
from surehand.host.guessing import LEGACY, PAIRS, guess_beside_strays, guesses, western

Newline = Literal["\n", "\r\n", "\r"]

HEAD_BYTES: Final = 8000
_SAMPLE_BYTES: Final = 64 * 1024
_SAMPLED_BYTES: Final = 8 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_STRAYS_ONE_IN: Final = 50
_PARTS_LIMIT: Final = 1000
"""More parts than this are joined: handling them one by one costs more than a copy."""
# Patterns as texts: most files are UTF-8 and need none of them, so none is compiled before it is used.
_SINGLE_BYTE: Final = r"cp125\d|koi8|iso8859|latin|ascii|mac|cp437|cp8|tis"
_CONTROL: Final = r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]"
_UNCOMMON: Final = (
    "[^\t-\r\x1b -\u024f\u0300-\u06ff\u0900-\u109f\u10d0-\u11ff\u1780-\u17ff\u1e00-\u206f\u20a0-\u20bf\u2100-\u27bf"
    "\u3000-\u9fff\uac00-\ud7af\uff00-\uffef\U0001f300-\U0001faff]"
)
_CONTROL_BYTES: Final = bytes(set(range(32)) - set(b"\t\n\r\f\v\b\x1b"))


@frozen
class Encoding:
    """How a file's bytes stand for characters. `unit` is the size of the smallest step in bytes."""

    codec: str
    bom: bytes = b""
    unit: int = 1
    errors: str = "strict"

    @property
    def label(self) -> str:
        """The name a person knows it by."""
        return self.codec.replace("_", "-") + (" with BOM" if self.bom else "")

    @property
    def self_synchronizing(self) -> bool:
        """Whether an encoded string can only be found between characters, never inside one."""
        return self.codec == "utf-8" or self.unit > 1 or bool(re.match(_SINGLE_BYTE, self.codec))

    def encode(self, text: str) -> bytes:
        """Return the bytes of `text`, without a BOM; raises UnicodeEncodeError for what it cannot hold."""
        if self.codec == "gb18030" and (found := re.search("[\x80-\x9f]", text)):
            # It has room for these controls, no text has them: they are bytes of another encoding, shown as Latin-1.
            raise UnicodeEncodeError(self.codec, text, found.start(), found.end(), "a control character")
        return text.encode(self.codec, self.errors)

    def decode(self, data: bytes, errors: str = "strict") -> str:
        """Return the text of `data`, without its BOM."""
        return data[len(self.bom) if self.bom and data.startswith(self.bom) else 0 :].decode(self.codec, errors)


UTF8: Final = Encoding("utf-8")
_NEARLY_UTF8: Final = Encoding("utf-8", errors="surrogateescape")
"""UTF-8 with stray bytes, which a caller may spell as Python does (U+DC80 to U+DCFF)."""
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


def detect(data: bytes) -> Encoding | None:
    """Return the encoding of a file's bytes, or None for a binary file."""
    for encoding in _BOMS:
        if data.startswith(encoding.bom) and (encoding.codec == "utf-8" or _decodes(data, encoding)):
            return encoding
    if b"\0" in data[:HEAD_BYTES]:
        return next((encoding for encoding in _BARE_WIDE if _is_wide(data, encoding)), None)
    if data.isascii():
        return None if _mostly_control(data) else UTF8
    if _decodes(data, UTF8):
        return UTF8
    if _mostly_control(data):
        return None
    nearly = mostly_valid(data[:_SAMPLED_BYTES].decode("utf-8", "replace"))
    return _NEARLY_UTF8 if nearly else _legacy(data)


def mostly_valid(text: str) -> bool:
    """Say whether a text, decoded with U+FFFD for what is invalid, is in that encoding apart from a few stray bytes."""
    invalid = text.count("\ufffd")
    valid = len(text) - len(text.encode("ascii", "ignore")) - invalid
    return invalid * 2 <= valid


def possible(data: bytes) -> Iterator[Encoding]:
    """Yield the encodings an edit may read `data` in, the likeliest first; none for a binary file."""
    found = detect(data)
    if found is None:
        return
    yield found
    if (found.codec != "utf-8" or found is _NEARLY_UTF8) and found.unit == 1:
        if found is not _NEARLY_UTF8:
            yield _NEARLY_UTF8
        for codec in LEGACY:  # a guess may be wrong; a text that is found, character by character, is right
            if codec != found.codec and _decodes(data, encoding := Encoding(codec)):
                yield encoding


@frozen
class Span:
    """Where a string was found: the bytes from `start` to `end`, and the line ends among them."""

    start: int
    end: int
    newlines: tuple[Newline, ...] = ()


@frozen
class Splice:
    """One replacement: the bytes from `start` to `end` become `new`."""

    start: int
    end: int
    new: bytes


def find(data: bytes, text: str, encoding: Encoding, *, every: bool = False, limit: int | None = None) -> list[Span]:
    """Return where `text` stands in `data`, without overlaps (as `str.count` and `str.replace` see it).

    A spelling equal to the last byte comes first; only without one (or with `every`) do line ends match each other.
    """
    exact = [
        Span(start, end, _newlines(text))
        for start, end in islice(_occurrences(data, encoding.encode(text), encoding), limit)
    ]
    if "\n" not in text or "\r" in text or (exact and not every) or encoding.encode("\r") not in data:
        return exact
    return list(islice(_loose(data, text, encoding), limit))


def replacement(data: bytes, span: Span, old: str, new: str, encoding: Encoding) -> Splice:
    """Return the splice that puts `new` where `old` was found; raises UnicodeEncodeError for what cannot be held."""
    return Splice(span.start, span.end, encoding.encode(_with_newlines(data, span, old, new, encoding)))


def spliced(data: bytes, splices: Sequence[Splice]) -> list[bytes | memoryview]:
    """Return the parts of `data` with `splices` (in order, apart) applied; untouched parts are views, not copies."""
    view, parts, position = memoryview(data), list[bytes | memoryview](), 0
    for splice in splices:
        parts += [view[position : splice.start], splice.new]
        position = splice.end
    parts = [part for part in (*parts, view[position:]) if len(part)]
    return parts if len(parts) <= _PARTS_LIMIT else [b"".join(parts)]


def between_characters(data: bytes, splice: Splice, old: str, encoding: Encoding) -> bool:
    """Say whether a match begins and ends between characters and the new line reads as intended."""
    if encoding.self_synchronizing:
        return True
    first = data.rfind(b"\n", 0, splice.start) + 1
    last = data.find(b"\n", splice.end)
    last = len(data) if last < 0 else last
    before, after = data[first : splice.start], data[splice.end : last]
    try:
        head, tail = before.decode(encoding.codec), after.decode(encoding.codec)
        found = data[splice.start : splice.end].decode(encoding.codec)
        whole = data[first:last].decode(encoding.codec)
        return head + found + tail == whole
    except UnicodeDecodeError:
        return False


def newline_style(data: bytes, encoding: Encoding) -> Newline:
    """Return the line end most lines of a file have; LF for a file without any."""
    feed, carriage = encoding.encode("\n"), encoding.encode("\r")
    if carriage not in data:
        return "\n"
    pairs, feeds = data.count(carriage + feed), data.count(feed)
    if feeds == 0:
        return "\r"
    return "\r\n" if pairs * 2 > feeds else "\n"


def newline_near(data: bytes, start: int, end: int, encoding: Encoding) -> Newline:
    """Return the style of the line that holds the bytes from `start` to `end`, or of the line before it."""
    feed, carriage = encoding.encode("\n"), encoding.encode("\r")
    at = _aligned_find(data, feed, end, encoding)
    if at < 0:
        at = data.rfind(feed, 0, start)
    if at < 0:
        return "\r" if carriage in data else "\n"
    return "\r\n" if data[max(0, at - encoding.unit) : at] == carriage else "\n"


def only_returns(data: bytes, encoding: Encoding) -> bool:
    """Say whether the lines of a file end with CR alone, judged by its beginning as Read does."""
    head = data[:HEAD_BYTES]
    if encoding.unit > 1:
        head = encoding.decode(head, "ignore").encode(errors="ignore")
    return b"\n" not in head and b"\r" in head[:-1]  # the last may be half of a CRLF


def line_at(data: bytes, position: int, encoding: Encoding, since: int = 0) -> int:
    """Return the number of the line that holds `position`, from 1 for the one that holds `since`."""
    if encoding.unit == 1:
        line = data.count(b"\n", since, position) + 1
        if only_returns(data, encoding):
            line += data.count(b"\r", since, position) - data.count(b"\r\n", since, position)
        return line
    text = data[since:position].decode(encoding.codec, "replace")
    returns = text.count("\r") - text.count("\r\n") if only_returns(data, encoding) else 0
    return text.count("\n") + returns + 1


def with_feeds(data: bytes, encoding: Encoding) -> bytes:
    """Return `data` with LF where it has CR alone as its line end; nothing moves."""
    if not only_returns(data, encoding):
        return data
    if encoding.unit == 1:
        return data.replace(b"\r", b"\n")
    return data.decode(encoding.codec, "replace").replace("\r", "\n").encode(encoding.codec)


def _decodes(data: bytes, encoding: Encoding) -> bool:
    """Say whether all of `data` is valid, in chunks: a whole decoded copy costs more than the edit itself."""
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
    """Say whether bytes without a BOM are UTF-16 or UTF-32: all valid, no controls, nearly all of living scripts.

    Almost any two bytes are a character of UTF-16: blanks or line ends must prove that it is text.
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
    """Return the likeliest encoding of text that is not Unicode; Latin-1, which holds every byte, when none fits."""
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


def _occurrences(data: bytes, wanted: bytes, encoding: Encoding) -> Iterator[tuple[int, int]]:
    if not wanted:
        return
    at = _aligned_find(data, wanted, 0, encoding)
    while at >= 0:
        step = len(wanted)
        if between_characters(data, Splice(at, at + step, b""), "", encoding):
            yield at, at + step
        else:
            step = 1
        at = _aligned_find(data, wanted, at + step, encoding)


def _aligned_find(data: bytes, wanted: bytes, start: int, encoding: Encoding) -> int:
    at = data.find(wanted, start)
    while at >= 0 and at % encoding.unit:
        at = data.find(wanted, at + 1)
    return at


def _loose(data: bytes, text: str, encoding: Encoding) -> Iterator[Span]:
    """Find `text` with every LF standing for any line end."""
    feed, carriage = (re.escape(encoding.encode(each)) for each in "\n\r")
    # A CRLF is one line end: without the looks around, two LF would match its halves.
    end = b"(?:%b%b|(?<!%b)%b|%b(?!%b))" % (carriage, feed, carriage, feed, carriage, feed)
    pieces = [re.escape(encoding.encode(piece)) for piece in text.split("\n")]
    pattern = re.compile(end.join(pieces))
    position = 0
    while found := pattern.search(data, position):
        start, stop = found.span()
        if start % encoding.unit or not between_characters(data, Splice(start, stop, b""), "", encoding):
            position = start + 1
            continue
        yield Span(start, stop, _newlines(data[start:stop].decode(encoding.codec)))
        position = stop


def _newlines(text: str) -> tuple[Newline, ...]:
    if "\r" not in text:
        return ("\n",) * text.count("\n")
    return tuple(re.findall("\r\n|\n|\r", text))  # pyright: ignore[reportReturnType]


def _with_newlines(data: bytes, span: Span, old: str, new: str, encoding: Encoding) -> str:
    """Return `new` with the line ends it shall have in the file."""
    if "\n" not in new or "\r" in new or "\r" in old:
        return new
    near = newline_near(data, span.start, span.end, encoding) if not span.newlines else span.newlines[-1]
    styles = set(span.newlines) or {near}
    if len(styles) == 1:
        return new.replace("\n", styles.pop())
    return _keep_each(span.newlines, old.split("\n"), new.split("\n"))


def _keep_each(ends: tuple[Newline, ...], old: list[str], new: list[str]) -> str:
    """Join lines so that a line kept from the front or the back keeps its own end; others take the one before."""
    wanted, limit = len(new) - 1, min(len(old), len(new)) - 1
    front = next((i for i in range(limit) if old[i] != new[i]), limit)
    back = next((i for i in range(limit - front) if old[-1 - i] != new[-1 - i]), limit - front)
    middle = wanted - front - back
    same_count = wanted == len(ends)
    filler = ends[front : front + middle] if same_count else (ends[min(front, len(ends) - 1)],) * middle
    joined = (*ends[:front], *filler, *ends[len(ends) - back :])
    return "".join(line + end for line, end in zip(new, (*joined, ""), strict=True))
