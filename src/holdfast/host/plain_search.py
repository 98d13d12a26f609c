"""Searching a few small files in this process, where starting a program would cost more than the search.

Only patterns whose cost is known beforehand are taken: words, classes, groups and alternatives, at most two open-ended
repeats, nothing that can match nothing. On ASCII text such a pattern means the same to Python's engine and to `rg`'s.
Whatever does not fit (another pattern, other text, a long line, a carriage return) is left to `rg`.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import Final

SIZE_LIMIT: Final = 256 << 10
LINE_LIMITS: Final = (SIZE_LIMIT, 2000, 300)
"""The longest line a pattern with so many open-ended repeats is tried on: backtracking grows with its power."""
MARKS: Final = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")
"""How files begin that `rg` decodes first."""
_SPECIAL: Final = frozenset("\\.^$*+?{}[]()|")
_PUNCTUATION: Final = frozenset("!\"#%&',-/:;=@_`~ <>") | _SPECIAL
_ESCAPES: Final = {
    "d": "[0-9]",
    "w": "[0-9A-Za-z_]",
    "s": "[\\t\\x0b\\x0c ]",
    "D": "[^0-9\\n]",
    "W": "[^0-9A-Za-z_\\n]",
    "S": "[^\\t\\n\\x0b\\x0c ]",
    "t": "\\t",
}
_INSIDE: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": "\\t\\x0b\\x0c ", "t": "\\t"}
_QUANTIFIER: Final = re.compile(r"(?:[*+?]|\{(\d{1,3})(?:,(\d{1,3}))?\})\??")
_MEMBER: Final = re.compile(r"\\([dwst])|\\?([!\"#$%'()*+,./:;<=>?@`{|}])|([A-Za-z0-9_ ])(?:-([A-Za-z0-9]))?")


class _NotPlainError(Exception):
    """The pattern is for `rg`."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A pattern that can be searched for here."""

    expression: re.Pattern[bytes]
    literal: bytes | None
    """The pattern itself when it is a plain word; the same to everybody in any text."""
    repeats: int

    def search(self, data: bytes) -> list[tuple[int, bytes, list[tuple[int, int]]]] | None:
        """Return number, text and matched places of each line with a match; None when `rg` has to do it."""
        if data.startswith(MARKS):
            return None
        if self.literal is not None:
            if self.literal not in data:
                return []
        elif not data.isascii() or b"\r" in data:
            return None
        if self.repeats and max(map(len, data.split(b"\n"))) > LINE_LIMITS[self.repeats]:
            return None
        return _lines(self.expression, data)


def _lines(expression: re.Pattern[bytes], data: bytes) -> list[tuple[int, bytes, list[tuple[int, int]]]]:
    found: list[tuple[int, bytes, list[tuple[int, int]]]] = []
    number, counted, begin, end = 1, 0, 0, -1
    for match in expression.finditer(data):
        if match.start() > end:
            begin = data.rfind(b"\n", 0, match.start()) + 1
            end = data.find(b"\n", match.end())
            end = len(data) if end < 0 else end
            number += data.count(b"\n", counted, begin)
            counted = begin
            found.append((number, data[begin:end], []))
        found[-1][2].append((match.start() - begin, match.end() - begin))
    return found


def read_small(path: bytes) -> bytes | None:
    """Return the content of a small regular file, following no link; None for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return b""
        return os.read(fd, SIZE_LIMIT + 1) if 0 < status.st_size <= SIZE_LIMIT else None if status.st_size else b""
    except OSError:
        return b""
    finally:
        os.close(fd)


def compile_plain(pattern: str, *, ignore_case: bool) -> Plain | None:
    """Return the pattern in a form that is safe and exact here, or None."""
    if not pattern or "\n" in pattern or "\r" in pattern or "\0" in pattern:
        return None
    if not any(letter in _SPECIAL for letter in pattern) and (not ignore_case or pattern.isascii()):
        word = pattern.encode("utf-8", "surrogatepass")
        return Plain(re.compile(re.escape(word), re.IGNORECASE if ignore_case else 0), None if ignore_case else word, 0)
    if not pattern.isascii():
        return None
    try:
        text, at, repeats, least = _alternatives(pattern, 0, 0)
        if at != len(pattern) or repeats >= len(LINE_LIMITS) or least == 0:
            return None
        expression = re.compile(text.encode(), re.MULTILINE | (re.IGNORECASE if ignore_case else 0))
    except (_NotPlainError, re.error):  # what both engines refuse is for `rg` to explain
        return None
    return Plain(expression, None, repeats)


def _alternatives(text: str, at: int, depth: int) -> tuple[str, int, int, int]:
    """Read alternatives up to a closing bracket; return expression, place, repeats and the least length of a match."""
    branches: list[str] = []
    repeats, least = 0, 1 << 30
    while True:
        branch, at, more, shortest = _sequence(text, at, depth)
        branches.append(branch)
        repeats, least = max(repeats, more), min(least, shortest)
        if text[at : at + 1] != "|":
            return "|".join(branches), at, repeats, least
        at += 1


def _sequence(text: str, at: int, depth: int) -> tuple[str, int, int, int]:
    parts: list[str] = []
    repeats = least = 0
    while at < len(text) and text[at] not in "|)":
        atom, at, more, shortest = _atom(text, at, depth)
        quantifier = _QUANTIFIER.match(text, at)
        if quantifier:
            if more or shortest != 1 or atom.startswith("("):
                raise _NotPlainError
            at = quantifier.end()
            more, shortest = _repeated(quantifier)
            atom += quantifier[0]
        parts.append(atom)
        repeats, least = repeats + more, least + shortest
    return "".join(parts), at, repeats, least


def _repeated(quantifier: re.Match[str]) -> tuple[int, int]:
    """Return how many open-ended repeats a quantifier is, and the least number of letters it takes."""
    symbol = quantifier[0][0]
    if symbol in "*+":
        return 1, int(symbol == "+")
    if symbol == "?":
        return 0, 0
    low, high = int(quantifier[1]), int(quantifier[2] or quantifier[1])
    if high > 100 or low > high:
        raise _NotPlainError
    return int(high - low > 8), low


def _atom(text: str, at: int, depth: int) -> tuple[str, int, int, int]:
    """Read one unit; return it as for `_alternatives`."""
    letter, following = text[at], text[at + 1 : at + 2]
    if letter == "(":
        return _group(text, at + 1, depth)
    if letter == "[":
        end = text.find("]", at + 2)
        if end < 0:
            raise _NotPlainError
        return _class(text[at + 1 : end]), end + 1, 0, 1
    if letter == "\\" and following in ("b", "B"):
        return "\\" + following, at + 2, 0, 0
    if letter == "\\":
        return _escape(following), at + 2, 0, 1
    if letter in "*+?{}]":
        raise _NotPlainError
    if letter in "^$":
        return letter, at + 1, 0, 0
    return "[^\\n]" if letter == "." else re.escape(letter), at + 1, 0, 1


def _group(text: str, at: int, depth: int) -> tuple[str, int, int, int]:
    at += 2 if text.startswith("?:", at) else 0
    if depth > 3 or text[at : at + 1] == "?":
        raise _NotPlainError
    inside, at, repeats, least = _alternatives(text, at, depth + 1)
    if text[at : at + 1] != ")":
        raise _NotPlainError
    return f"(?:{inside})", at + 1, repeats, least


def _escape(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter not in _PUNCTUATION or letter in "<>":
        raise _NotPlainError
    return re.escape(letter)


def _class(inside: str) -> str:
    """Return a class of plain letters, ranges and the usual escapes; a negated one never takes a line's end."""
    negated = inside.startswith("^")
    members: list[str] = []
    at = int(negated)
    while at < len(inside):
        member = _MEMBER.match(inside, at)
        if member is None:
            raise _NotPlainError
        escape, sign, low, high = member.groups()
        members.append(_INSIDE[escape] if escape else re.escape(sign) if sign else f"{low}-{high}" if high else low)
        at = member.end()
    if not members:
        raise _NotPlainError
    return f"[^{''.join(members)}\\n]" if negated else f"[{''.join(members)}]"
