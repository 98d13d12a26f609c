"""Translates git's wildcard patterns (`wildmatch`) to regular expressions without catastrophic backtracking.

With `pathname`, `*`, `?` and classes do not match `/`, and `**` between slashes does; without it a pattern is matched
against one name. Everything is bytes: to git a `?` is one byte, and a file name need not be UTF-8.

In a naive translation, many stars take exponential time. Here each star but the last of its kind is an atomic group
with a lazy match: the first fit suffices, since a later star takes up the slack. Time stays near linear.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

SPECIAL: Final = b"*?[\\"

Star: TypeAlias = Literal["star", "folders", "crossing"]
"""`*`; `**/`, any number of whole folders; `**` at the end."""
Member: TypeAlias = tuple[int, int] | bytes
"""A member of a bracket expression: a range of bytes, or the name of a POSIX class."""

_POSIX: Final[dict[bytes, frozenset[int]]] = {
    name: frozenset(byte for byte in range(128) if chr(byte) in letters)
    for name, letters in {
        b"alnum": "".join(filter(str.isalnum, map(chr, range(128)))),
        b"alpha": "".join(filter(str.isalpha, map(chr, range(128)))),
        b"blank": " \t",
        b"cntrl": "".join(map(chr, (*range(32), 127))),
        b"digit": "0123456789",
        b"graph": "".join(map(chr, range(33, 127))),
        b"lower": "abcdefghijklmnopqrstuvwxyz",
        b"print": "".join(map(chr, range(32, 127))),
        b"punct": "".join(letter for letter in map(chr, range(33, 127)) if not letter.isalnum()),
        b"space": " \t\n\r\v\f",
        b"upper": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        b"xdigit": "0123456789abcdefABCDEF",
    }.items()
}


class _NeverError(Exception):
    """A pattern that git accepts and that never matches: an unclosed bracket, a trailing backslash."""


def literal_length(pattern: bytes) -> int:
    """Return the length of the literal prefix."""
    return next((at for at, byte in enumerate(pattern) if byte in SPECIAL), len(pattern))


def translate(pattern: bytes, *, pathname: bool, fold: bool = False) -> bytes | None:
    """Return a regular expression for `fullmatch` with DOTALL; None if the pattern can never match."""
    try:
        return _assemble(_tokens(pattern, pathname, fold), b"[^/]" if pathname else b".")
    except _NeverError:
        return None


def _tokens(pattern: bytes, pathname: bool, fold: bool) -> list[bytes | Star]:
    tokens: list[bytes | Star] = []
    at = 0
    while at < len(pattern):
        token: bytes | Star
        byte = pattern[at : at + 1]
        if byte == b"*":
            token, at = _stars(pattern, at, pathname)
        elif byte == b"?":
            token, at = b"[^/]" if pathname else b".", at + 1
        elif byte == b"[":
            token, at = _class(pattern, at + 1, pathname, fold)
        else:
            escaped = byte == b"\\"
            token, at = _letter(_byte_at(pattern, at + escaped), fold, escaped), at + escaped + 1
        tokens.append(token)
    return tokens


def _stars(pattern: bytes, at: int, pathname: bool) -> tuple[Star, int]:
    """Classify a run of stars and return the position after it; `**` counts only between slashes or ends."""
    end = at
    while pattern[end : end + 1] == b"*":
        end += 1
    bounded = (at == 0 or pattern[at - 1 : at] == b"/") and (
        end == len(pattern) or pattern.startswith((b"/", b"\\/"), end)
    )
    if not pathname or end - at < 2 or not bounded:
        return "star", end
    return ("folders", end + 1) if pattern[end : end + 1] == b"/" else ("crossing", end)


def _letter(byte: int, fold: bool, escaped: bool) -> bytes:
    letter = bytes((byte,))
    if (
        fold and escaped and letter.isupper()
    ):  # git lowers name and pattern, but not an escaped letter: it never matches
        raise _NeverError
    return b"[" + letter.lower() + letter.upper() + b"]" if fold and letter.isalpha() else re.escape(letter)


def _byte_at(pattern: bytes, at: int) -> int:
    if at >= len(pattern):
        raise _NeverError
    return pattern[at]


def _class(pattern: bytes, at: int, pathname: bool, fold: bool) -> tuple[bytes, int]:
    """Parse a bracket expression after its `[`; return its expression and the position after its `]`."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    members: list[Member] = []
    start = at
    while at == start or pattern[at : at + 1] != b"]":
        at = _member(pattern, at, members)
    chosen = [byte for byte in range(256) if _is_in(byte, members, fold) != negated and not (pathname and byte == 0x2F)]
    if not chosen:
        raise _NeverError
    return b"[" + b"".join(b"\\x%02x" % byte for byte in chosen) + b"]", at + 1


def _member(pattern: bytes, at: int, members: list[Member]) -> int:
    """Parse one member of a bracket expression into `members`; return the position after it."""
    byte = _byte_at(pattern, at)
    if byte == 0x5C:
        members.append((_byte_at(pattern, at + 1), pattern[at + 1]))
        return at + 2
    # A range begins with a single byte: not with another range or a POSIX class.
    begins = members[-1] if members and isinstance(members[-1], tuple) and members[-1][0] == members[-1][1] else None
    if byte == 0x2D and begins and pattern[at + 1 : at + 2] not in (b"", b"]"):
        at += 1 + (pattern[at + 1 : at + 2] == b"\\")
        members[-1:] = [begins, (int(begins[0]), _byte_at(pattern, at)), b""]
        return at + 1
    if byte == 0x5B and pattern[at + 1 : at + 2] == b":":
        end = pattern.find(b"]", at + 2)
        if end < 0:
            raise _NeverError
        if end > at + 2 and pattern[end - 1] == 0x3A:
            if (name := pattern[at + 2 : end - 1]) not in _POSIX:
                raise _NeverError
            members.append(name)
            return end + 1
    members.append((byte, byte))
    return at + 1


def _is_in(byte: int, members: list[Member], fold: bool) -> bool:
    """Return whether a byte matches; folding case, git lowers it first and also tries ranges in upper case."""
    lowered = byte + 32 if fold and 65 <= byte <= 90 else byte
    raised = lowered - 32 if fold and 97 <= lowered <= 122 else lowered
    for member in members:
        if isinstance(member, bytes):
            if lowered in _POSIX.get(member, ()) or (member == b"upper" and raised in _POSIX[b"upper"]):
                return True
        elif member[0] <= lowered <= member[1] or (member[0] != member[1] and member[0] <= raised <= member[1]):
            return True
    return False


def _assemble(tokens: list[bytes | Star], other: bytes) -> bytes:
    """Join the tokens; a star is atomic wherever a later star can take up the slack."""
    groups: list[tuple[Star | None, list[bytes | Star]]] = [(None, [])]
    for token in tokens:
        if token in ("folders", "crossing"):
            groups.append((token, []))
        else:
            groups[-1][1].append(token)
    parts: list[bytes] = []
    for number, (kind, group) in enumerate(groups):
        inside = _within_group(group, other)
        last = number == len(groups) - 1
        skip = {None: b"", "folders": b"(?:[^/]*/)*", "crossing": b".*", "star": b""}[kind]
        if not kind or last:
            parts.append(skip + inside)
        else:
            parts.append(b"(?>" + skip + b"?" + inside + b")")
    return b"".join(parts)


def _within_group(tokens: list[bytes | Star], other: bytes) -> bytes:
    """Join tokens without `**`; between two stars with no slash in between, the first fit suffices."""
    pieces: list[list[bytes]] = [[]]
    for token in tokens:
        if token == "star":
            pieces.append([])
        else:
            pieces[-1].append(token if isinstance(token, bytes) else token.encode())
    first, *rest = (b"".join(piece) for piece in pieces)
    joined = first
    for number, piece in enumerate(rest):
        # A piece followed by a slash must match at the end of its path component, so its star must backtrack.
        settled = number < len(rest) - 1 and b"/" not in pieces[number + 1]
        joined += b"(?>" + other + b"*?" + piece + b")" if settled else other + b"*" + piece
    return joined
