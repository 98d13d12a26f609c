"""Searching a few small files in this process, where starting a program would cost more than the search.

Only patterns whose cost is known beforehand are taken: words, classes, groups and alternatives, at most two open-ended
repeats, nothing that can match nothing. On ASCII text such a pattern means the same to Python's engine and to `rg`'s.
Whatever does not fit (another pattern, other text, a long line, a carriage return) is left to `rg`.
"""

from __future__ import annotations

import re
from typing import Final

from surehand.core.frozen import frozen

SIZE_LIMIT: Final = 256 << 10
WORD_SIZE_LIMIT: Final = 2 << 20
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


@frozen
class Plain:
    """A pattern that can be searched for here."""

    expression: re.Pattern[bytes]
    literal: bytes | None
    """The pattern itself when it is a plain word; the same to everybody in any text."""
    repeats: int
    needles: tuple[bytes, ...] = ()
    """Words of which every line with a match has one; empty when none is known."""

    @property
    def size_limit(self) -> int:
        """How large a file may be: looking for a plain word costs next to nothing."""
        return SIZE_LIMIT if self.literal is None else WORD_SIZE_LIMIT

    def search(self, data: bytes) -> list[tuple[int, bytes, list[tuple[int, int]]]] | None:
        """Return number, text and matched places of each line with a match; None when `rg` has to do it."""
        if data.startswith(MARKS):
            return None
        if self.literal is not None:
            if self.literal not in data:
                return []
        elif self.needles and not any(needle in data for needle in self.needles):
            return []
        elif b"\r" in data or not (data.isascii() or self._plain_where_it_matters(data)):
            return None
        if self.repeats and max(map(len, data.split(b"\n"))) > LINE_LIMITS[self.repeats]:
            return None
        return _lines(self.expression, data)

    def _plain_where_it_matters(self, data: bytes) -> bool:
        """Return whether every line that can match is ASCII, though the text as a whole is not."""
        if not self.needles:
            return False
        for needle in self.needles:
            at = data.find(needle)
            while at >= 0:
                end = data.find(b"\n", at)
                end = len(data) if end < 0 else end
                if not data[data.rfind(b"\n", 0, at) + 1 : end].isascii():
                    return False
                at = data.find(needle, end)
        return True


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
        whole, at = _alternatives(pattern, 0, 0)
        if at != len(pattern) or whole.repeats >= len(LINE_LIMITS) or whole.least == 0:
            return None
        expression = re.compile(whole.text.encode(), re.MULTILINE | (re.IGNORECASE if ignore_case else 0))
    except (_NotPlainError, re.error):  # what both engines refuse is for `rg` to explain
        return None
    needles = () if ignore_case or not all(whole.words) else tuple(word.encode() for word in whole.words)
    return Plain(expression, None, whole.repeats, needles)


@frozen
class _Part:
    """A part of a pattern: its expression, open-ended repeats, least length, and a word each alternative must have."""

    text: str
    repeats: int = 0
    least: int = 1
    words: tuple[str, ...] = ("",)


def _alternatives(text: str, at: int, depth: int) -> tuple[_Part, int]:
    """Read alternatives up to a closing bracket; return them and the place after them."""
    branches: list[_Part] = []
    while True:
        branch, at = _sequence(text, at, depth)
        branches.append(branch)
        if text[at : at + 1] != "|":
            break
        at += 1
    joined = "|".join(each.text for each in branches)
    words = tuple(word for each in branches for word in each.words)
    return _Part(joined, max(each.repeats for each in branches), min(each.least for each in branches), words), at


def _sequence(text: str, at: int, depth: int) -> tuple[_Part, int]:
    parts: list[_Part] = []
    words = [""]
    while at < len(text) and text[at] not in "|)":
        part, at = _atom(text, at, depth)
        quantifier = _QUANTIFIER.match(text, at)
        if quantifier:
            if part.repeats or part.least != 1 or part.text.startswith("("):
                raise _NotPlainError
            at = quantifier.end()
            repeats, least = _repeated(quantifier)
            part = _Part(part.text + quantifier[0], repeats, least)
        parts.append(part)
        if part.text == re.escape(part.text[-1:]):
            words[-1] += part.text[-1]
        else:
            words.append("")
    expression = "".join(part.text for part in parts)
    longest = max(words, key=len)
    return _Part(expression, sum(part.repeats for part in parts), sum(part.least for part in parts), (longest,)), at


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


def _atom(text: str, at: int, depth: int) -> tuple[_Part, int]:
    """Read one unit and return it with the place after it."""
    letter, following = text[at], text[at + 1 : at + 2]
    if letter == "(":
        return _group(text, at + 1, depth)
    if letter == "[":
        end = text.find("]", at + 2)
        if end < 0:
            raise _NotPlainError
        return _Part(_class(text[at + 1 : end])), end + 1
    if letter == "\\" and following in ("b", "B"):
        return _Part("\\" + following, least=0), at + 2
    if letter == "\\":
        return _Part(_escape(following)), at + 2
    if letter in "*+?{}]":
        raise _NotPlainError
    if letter in "^$":
        return _Part(letter, least=0), at + 1
    return _Part("[^\\n]" if letter == "." else re.escape(letter)), at + 1


def _group(text: str, at: int, depth: int) -> tuple[_Part, int]:
    at += 2 if text.startswith("?:", at) else 0
    if depth > 3 or text[at : at + 1] == "?":
        raise _NotPlainError
    inside, at = _alternatives(text, at, depth + 1)
    if text[at : at + 1] != ")":
        raise _NotPlainError
    return _Part(f"(?:{inside.text})", inside.repeats, inside.least), at + 1


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
