"""Quoting as bash undoes it: backslashes, `$'...'`, and the escapes inside double quotes and heredocs."""

from __future__ import annotations

import re

_DOUBLE_ESCAPE = re.compile(r'\\([$`"\\])')
_HEREDOC_ESCAPE = re.compile(r"\\([$`\\])")
_ANSI = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{1,2})|u(?P<u>[0-9A-Fa-f]{1,4})|U(?P<U>[0-9A-Fa-f]{1,8})"
    r"|c(?P<control>.)|(?P<plain>.))",
    re.DOTALL,
)
_ANSI_PLAIN = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


def undo_double(text: str) -> str:
    """Remove the backslashes that mean something inside double quotes."""
    return _DOUBLE_ESCAPE.sub(r"\1", text) if "\\" in text else text


def undo_heredoc(text: str) -> str:
    """Remove the backslashes that mean something in an expanding heredoc."""
    return _HEREDOC_ESCAPE.sub(r"\1", text) if "\\" in text else text


def undo_ansi(text: str) -> str | None:
    """Decode the inside of `$'...'`; `None` when the result is not text."""
    out = bytearray()
    last = 0
    for hit in _ANSI.finditer(text):
        out += text[last : hit.start()].encode()
        last = hit.end()
        piece = _ansi_bytes(hit)
        if piece is None:
            return None
        if piece == b"\0":  # bash ends the quoted text at a NUL
            return _text(bytes(out))
        out += piece
    return _text(bytes(out) + text[last:].encode())


def _ansi_bytes(hit: re.Match[str]) -> bytes | None:
    if octal := hit["octal"]:
        return bytes([int(octal, 8) & 0xFF])
    if digits := hit["hex"]:
        return bytes([int(digits, 16)])
    if digits := hit["u"] or hit["U"]:
        return _code_point(int(digits, 16))
    if control := hit["control"]:
        # `\c` on a backslash or outside ASCII reads differently in versions of bash.
        return bytes([ord(control) & 0x1F]) if control.isascii() and control != "\\" else None
    plain = hit["plain"]
    return _ANSI_PLAIN.get(plain, "\\" + plain).encode()


def _code_point(value: int) -> bytes | None:
    if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
        return None
    return chr(value).encode()


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
