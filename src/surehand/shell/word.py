"""One word of a command, as far as it is known before the shell runs, and what quoting means in it."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern

Kind: TypeAlias = Literal["literal", "glob", "opaque"]
Many: TypeAlias = Literal["", "names", "split"]
Token: TypeAlias = Literal["", "revision", "date"]


@frozen
class Word:
    """One argument of a command, as far as it is known before the shell runs.

    `many` says that it may become several arguments: the `names` of files a glob matches, or the parts an unquoted
    expansion is `split` into.
    """

    text: str
    kind: Kind = "literal"
    fixed: str = ""  # the certain prefix of its text
    path: str = ""  # for the `{}` of `find`: a pattern of the paths it may stand for
    many: Many = ""
    no_flag: bool = False  # it certainly does not begin with a dash
    number: bool = False  # some number: safe in arithmetic, and never split
    token: Token = ""  # a revision or a date that a command prints: neither an option nor a path
    items: tuple[Word, ...] | None = None  # the elements of an array, if they are known
    keyed: bool = False  # certainly an associative array, whose subscripts are not evaluated

    @property
    def literal(self) -> bool:
        """Whether its text is certain."""
        return self.kind == "literal"

    @property
    def single(self) -> bool:
        """Whether it is certainly one word; an unquoted number vanishes if the command that prints it fails."""
        return not self.many and (not self.number or self.text[:1] == '"')

    @property
    def may_be_flag(self) -> bool:
        """Whether it could begin with a dash."""
        if self.kind == "literal":
            return self.text.startswith("-")
        return not self.no_flag and (not self.fixed or self.fixed[0] == "-")


KEYED = Word("an associative array", "opaque", keyed=True)
NUMBER = Word("a number", "opaque", number=True)


# -- quoting as bash undoes it: backslashes, `$'...'`, escapes in double quotes and heredocs --------------------------

_DOUBLE_ESCAPE = lazy_pattern(r'\\([$`"\\])')
_HEREDOC_ESCAPE = lazy_pattern(r"\\([$`\\])")
_ANSI = lazy_pattern(
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
            return _decode_text(bytes(out))
        out += piece
    return _decode_text(bytes(out) + text[last:].encode())


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


def _decode_text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
