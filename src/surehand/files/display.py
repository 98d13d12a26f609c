"""Display of file names and lines as text that is safe to show and stays on its line."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

LINE_LIMIT: Final = 500
"""Characters of a line that are shown; a longer one is cut round its match."""
_ODD: Final = r"\x7f-\x9f\"\u2028\u2029\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_PLAIN_NAME: Final = re.compile(rf"[^\x00-\x1f{_ODD}]+")
_PLAIN_NAMES: Final = re.compile(rf"[^\x00-\x09\x0b-\x1f{_ODD}]+")
_ESCAPES: Final = {0x07: "\\a", 0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0B: "\\v", 0x0C: "\\f", 0x0D: "\\r"}


def shown_name(path: bytes | str) -> str:
    """Return a path as it is shown: itself, or in double quotes with escapes as git prints odd names."""
    text = os.fsdecode(path)
    if _PLAIN_NAME.fullmatch(text):
        return text
    return '"' + "".join(map(_escape_letter, text)) + '"'


def shown_names(paths: Sequence[bytes]) -> list[str]:
    """Return many paths as they are shown; odd names are few, so all are looked at at once first."""
    text = os.fsdecode(b"\n".join(paths))
    names = text.split("\n")
    plain = len(names) == len(paths) and _PLAIN_NAMES.fullmatch(text)
    return names if plain else [shown_name(path) for path in paths]


def _escape_letter(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    if _PLAIN_NAME.fullmatch(letter):
        return letter
    code = ord(letter)
    return _ESCAPES.get(code) or "".join(f"\\{byte:03o}" for byte in letter.encode("utf-8", "surrogateescape"))


def marked_line(text: bytes, places: tuple[tuple[int, int], ...], limit: int = LINE_LIMIT) -> str:
    """Return a line with `>> <<` round each match; what is over the limit is cut, the first match staying in sight."""
    if not text.isascii() and any(low == high for low, high in places):
        places = _between_letters(text, places)
    if len(text) <= limit:
        return _text(_mark_matches(text, places))
    pieces: list[tuple[str, bool]] = []
    at = 0
    for begin, end in places:
        pieces += [(_text(text[at:begin]), False), (_text(text[begin:end]), True)]
        at = end
    pieces.append((_text(text[at:]), False))
    low, high = _window(pieces, limit)
    shown = "".join(_slice_pieces(pieces, low, high))
    total = sum(len(piece) for piece, _ in pieces)
    before = f"[{low} characters] ..." if low else ""
    after = f"... [{total - high} characters]" if high < total else ""
    return before + shown + after


def _between_letters(text: bytes, places: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Return places without those of nothing between the bytes of one letter: a mark there would split it."""
    letters = text.decode("utf-8", "surrogateescape")
    borders = {0, *accumulate(len(letter.encode("utf-8", "surrogateescape")) for letter in letters)}
    return tuple((low, high) for low, high in places if low < high or low in borders)


def _mark_matches(text: bytes, places: tuple[tuple[int, int], ...]) -> bytes:
    if not places:
        return text
    parts: list[bytes] = []
    at = 0
    for begin, end in places:
        parts += (text[at:begin], b">>", text[begin:end], b"<<")
        at = end
    return b"".join((*parts, text[at:]))


def _window(pieces: list[tuple[str, bool]], limit: int) -> tuple[int, int]:
    """Return which characters of the joined pieces to show: all, or `limit` of them round the first match."""
    total = sum(len(piece) for piece, _ in pieces)
    if total <= limit:
        return 0, total
    begin = len(pieces[0][0])
    matched = min(len(pieces[1][0]), limit) if len(pieces) > 1 else 0
    low = max(0, min(begin - (limit - matched) // 2, total - limit))
    return (low, low + limit) if len(pieces) > 1 else (0, limit)


def _slice_pieces(pieces: list[tuple[str, bool]], low: int, high: int) -> list[str]:
    """Return the parts of the pieces between two places; a match cut off at an edge still has its marks."""
    parts: list[str] = []
    at = 0
    for piece, matched in pieces:
        part = piece[max(0, low - at) : max(0, high - at)]
        if matched and (part or (not piece and low <= at <= high)):
            part = f">>{part}<<"
        parts.append(part)
        at += len(piece)
    return parts


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "\\0")
