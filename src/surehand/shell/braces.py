"""Brace expansion over words whose pieces may be quoted.

A word is a list of atoms: a one-character string is unquoted, anything else is a piece that braces leave alone.
`None` means that the word is odd enough (unbalanced, too many results) that nobody should rely on a reading of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

MAX_WORDS = 256
MAX_PAIRS = 64

Atom = TypeVar("Atom")
_RANGE = re.compile(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?")


def expand(atoms: Sequence[Atom | str]) -> list[list[Atom | str]] | None:
    """Return the words that one word becomes, in order."""
    opened = _next(atoms, "{", 0)
    if opened is None:
        return [list(atoms)]
    if sum(1 for atom in atoms if atom == "{") > MAX_PAIRS:
        return None  # nesting is followed by recursion, each step of which looks at all the rest
    closed = _closing(atoms, opened)
    if closed is None:
        # Without its closing brace bash leaves the text alone, unless a later pair expands: too subtle to promise.
        return None if _next(atoms, ",", opened) is not None or ".." in _text(atoms) else [list(atoms)]
    middles = _middles(atoms[opened + 1 : closed])
    rests = expand(atoms[closed + 1 :])
    if middles is None or rests is None or len(middles) * len(rests) > MAX_WORDS:
        return None
    head = list(atoms[:opened])
    return [head + middle + rest for middle in middles for rest in rests]


def _middles(inner: Sequence[Atom | str]) -> list[list[Atom | str]] | None:
    """Return the alternatives between one pair of braces; a pair without any stays as it is written."""
    parts = _split(inner)
    if len(parts) > 1:
        found: list[list[Atom | str]] = []
        for part in parts:
            words = expand(part)
            if words is None or len(found) + len(words) > MAX_WORDS:
                return None
            found += words
        return found
    if all(isinstance(atom, str) for atom in inner) and (numbers := _range(_text(inner))) is not None:
        return [list(number) for number in numbers] if numbers else None
    inside = expand(inner)
    return None if inside is None else [["{", *words, "}"] for words in inside]


def _range(text: str) -> list[str] | None:
    """Return what `1..5` or `a..e..2` stands for; `[]` when it is a range that is too long or odd."""
    hit = _RANGE.fullmatch(text)
    if hit is None:
        return [] if ".." in text else None
    first, last, by = hit.groups()
    if first.isalpha() != last.isalpha() or len(first) > 9 or len(last) > 9:
        return []
    letters = first.isalpha()
    if letters and first.isupper() != last.isupper():
        return []  # the range would run through brackets, a backslash and a backquote
    low, high = (ord(first), ord(last)) if letters else (int(first), int(last))
    step = max(abs(int(by or 1)), 1)
    if abs(high - low) // step >= MAX_WORDS:
        return []
    numbers = range(low, high + 1, step) if low <= high else range(low, high - 1, -step)
    if letters:
        return [chr(number) for number in numbers]
    padded = any(re.fullmatch(r"-?0\d+", end) for end in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return [f"{number:0{width}d}" if width else str(number) for number in numbers]


def _split(inner: Sequence[Atom | str]) -> list[Sequence[Atom | str]]:
    parts: list[Sequence[Atom | str]] = []
    depth = start = 0
    for index, atom in enumerate(inner):
        if atom == "{":
            depth += 1
        elif atom == "}":
            depth -= 1
        elif atom == "," and depth == 0:
            parts.append(inner[start:index])
            start = index + 1
    parts.append(inner[start:])
    return parts


def _closing(atoms: Sequence[Atom | str], opened: int) -> int | None:
    depth = 0
    for index in range(opened, len(atoms)):
        if atoms[index] == "{":
            depth += 1
        elif atoms[index] == "}":
            depth -= 1
            if depth == 0:
                return index
    return None


def _next(atoms: Sequence[Atom | str], wanted: str, start: int) -> int | None:
    return next((index for index in range(start, len(atoms)) if atoms[index] == wanted), None)


def _text(atoms: Sequence[Atom | str]) -> str:
    return "".join(atom if isinstance(atom, str) else "\0" for atom in atoms)
