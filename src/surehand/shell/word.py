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
    """One argument; `fixed` is the part of its beginning that is certain.

    It may turn out to be several: the `names` of files that a pattern finds, each whole, or what an unquoted expansion
    is `split` into, which may be anything.
    """

    text: str
    kind: Kind = "literal"
    fixed: str = ""
    path: str = ""  # what the `{}` of `find` stands for: a pattern of the paths it may be
    many: Many = ""
    no_flag: bool = False  # a pattern that was looked at: no name it finds begins with a dash
    number: bool = False  # nobody knows which, but a number: no arithmetic on it runs anything, and nothing splits it
    token: Token = ""  # what a command prints that prints one such word: no option, and no path outside a repository
    items: tuple[Word, ...] | None = None  # the words of a list, where it is one and they are known
    keyed: bool = False  # an associative array for certain: its subscripts are plain text, and not evaluated

    @property
    def literal(self) -> bool:
        """Whether the word has no expansion: its text is known."""
        return self.kind == "literal"

    @property
    def single(self) -> bool:
        """Whether it is one word for certain; an unquoted number is none where the command that counts fails."""
        return not self.many and (not self.number or self.text[:1] == '"')

    @property
    def may_be_flag(self) -> bool:
        """Whether the word could turn out to begin with a dash."""
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
