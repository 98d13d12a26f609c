"""The charset of bytes of the web: by mark, header, declaration in the page, and only then by guessing."""

from __future__ import annotations

import codecs
import re
from typing import Final

_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))

_WIDER: Final[dict[str, str]] = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "utf-16": "utf-16-le",
}
"""Encodings that browsers read as a wider one, because pages that declare the first use the second."""

_ALIASES: Final[dict[str, str]] = {"x-sjis": "cp932", "x-gbk": "gb18030", "unicode": "utf-16-le", "x-euc-jp": "euc_jp"}

_KNOWN: Final = frozenset(
    ["utf-8", "utf-16-le", "utf-16-be", "gb18030", "big5hkscs", "cp932", "euc_jp", "iso2022_jp", "cp949", "hz"]
    + ["cp437", "cp850", "cp852", "cp866", "cp874", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic"]
    + [f"cp{number}" for number in range(1250, 1259)]
    + [f"iso8859-{number}" for number in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)]
)
"""What is taken from a declaration; Python knows more names, and some of them are no encodings of text."""

_GUESSED_WESTERN: Final = frozenset({"cp1250", "iso8859_2"})
_WESTERN_LANGUAGES: Final = re.compile(rb"<html\b[^>]*\blang=[\"']?(?:en|fr|de|es|it|pt|nl|sv|da|nb|no|fi|is)\b", re.I)
_IN_HEADER: Final = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]+)", re.I)
_IN_META: Final = re.compile(rb"<meta\b[^>]{0,500}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.I)
_IN_XML: Final = re.compile(rb"\s*<\?xml\b[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]+)", re.I)
_TELLING: Final = re.compile(rb"[\x80-\xff][^<>]{0,2000}")
_HEAD_BYTES: Final = 16 * 1024
_SAMPLE_BYTES: Final = 16 * 1024
_WORDS_BYTES: Final = 200


def decode(body: bytes, content_type: str = "", *, cut: bool = False) -> str:
    """Return the text of a body; never fails. With `cut` a character that is cut off at the end is dropped."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return _decode_as(body[len(mark) :], name, cut)
    declared = _find_declared(body, content_type)
    if declared and declared != "cp1252" and (text := _strictly(body, declared, cut)) is not None:
        return text
    if b"\x1b$" in body and (text := _strictly(body, "iso2022_jp", cut)) is not None:  # plain ASCII to the eye
        return text
    if (text := _strictly(body, "utf-8", cut)) is not None:  # also where a server says latin-1 to everything
        return text
    return _decode_as(body, declared or _guess_encoding(body), cut)


def _find_declared(body: bytes, content_type: str) -> str | None:
    if (found := _IN_HEADER.search(content_type)) and (name := _codec(found[1])):
        return name
    head = body[:_HEAD_BYTES]
    for found in (_IN_XML.match(head), _IN_META.search(head)):
        # a page whose ASCII bytes spell its encoding is not written in 16-bit characters
        if found and (name := _codec(found[1].decode("ascii"))):
            return "utf-8" if name.startswith("utf-16") else name
    return None


def _codec(label: str) -> str | None:
    label = label.strip().lower()
    try:
        name = _ALIASES.get(label) or codecs.lookup(label).name
    except (LookupError, ValueError):
        return None
    name = _WIDER.get(name, name)
    return name if name in _KNOWN else None


def _guess_encoding(body: bytes) -> str:
    """Return the likeliest encoding, from the parts of the page that have more than ASCII in them."""
    import charset_normalizer

    best = charset_normalizer.from_bytes(_sample(body)).best()
    if best is None:
        return "cp1252"
    western = best.encoding in _GUESSED_WESTERN and _WESTERN_LANGUAGES.search(body[:_HEAD_BYTES])
    return "cp1252" if western else best.encoding


def _sample(body: bytes) -> bytes:
    """Return text with characters beyond ASCII, and the words before them: a page is mostly markup."""
    parts: list[bytes] = []
    size = 0
    for found in _TELLING.finditer(body):
        before = body[max(0, found.start() - _WORDS_BYTES) : found.start()]
        parts.append(before[max(before.rfind(b"<"), before.rfind(b">")) + 1 :] + found[0])
        size += len(parts[-1])
        if size > _SAMPLE_BYTES:
            break
    return b" ".join(parts)[:_SAMPLE_BYTES]


def _strictly(body: bytes, name: str, cut: bool) -> str | None:
    try:
        return _decode_as(body, name, cut, "strict")
    except UnicodeError:
        return None


def _decode_as(body: bytes, name: str, cut: bool, errors: str = "replace") -> str:
    return codecs.getincrementaldecoder(name)(errors).decode(body, final=not cut)
