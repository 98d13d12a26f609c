"""Is one word a slip of another? Only where no other meaning is near: a repaired word is acted upon unasked.

A letter too many, one missing, two swapped, one wrong inside a long word: that is a slip. A prefix or an ending more or
less is another word (`uninstall`, `undone`, `disabled`), and so is another beginning (`increase` and `decrease`).
"""

from __future__ import annotations

import re
from typing import Final

_SHORT: Final = 4
"""Words shorter than this have too many neighbours."""
_LONG: Final = 8
"""From this length on, two slips still leave no doubt."""
_SUBSTITUTION_FROM: Final = 6
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN: Final = re.compile(r"(?<=[^\W_])[\s_-]+(?=[^\W_])|\s+")
"""Signs between words; one before or after them means something (`-name`, `c++`)."""
_ENDINGS: Final = frozenset("dnry")
"""Single letters that make another word of one when they are added: `closed`, `shown`, `reader`, `quickly`."""


def words_of(text: str) -> list[str]:
    """Return the words of a name in lower case: `maxTokens`, `max-tokens` and `MAX_TOKENS` are the same two."""
    return [word for word in _BETWEEN.split(_HUMP.sub(" ", text).casefold()) if word]


def is_typo(given: str, meant: str) -> bool:
    """Say whether `given` can only be a slip of `meant`: word by word, and as many words."""
    pairs = (words_of(given), words_of(meant))
    if len(pairs[0]) != len(pairs[1]) or not pairs[0]:
        return False
    return all(left == right or _is_slip(left, right) for left, right in zip(*pairs, strict=True))


def _is_slip(given: str, meant: str) -> bool:
    length = min(len(given), len(meant))
    if length < _SHORT or given.endswith(meant) or meant.endswith(given):
        return False
    shorter, longer = sorted((given, meant), key=len)
    if longer.startswith(shorter):
        return _is_slip_at_the_end(shorter, longer, cut_short=len(given) < len(meant))
    inserted, substituted, swapped = _edits(given, meant)
    if inserted + substituted + swapped > (2 if length >= _LONG else 1) or substituted > 1:
        return False
    if substituted and (length < _SUBSTITUTION_FROM or given[-1] != meant[-1]):
        return False
    if swapped and length <= _SHORT:
        return False
    return given[0] == meant[0] or (swapped == 1 and not inserted and not substituted)


def _is_slip_at_the_end(shorter: str, longer: str, *, cut_short: bool) -> bool:
    """Say whether the last letter is a plural, a key struck twice, or one that was forgotten."""
    rest = longer[len(shorter) :]
    if len(rest) != 1:
        return False
    return rest == "s" or rest == shorter[-1] or (cut_short and rest not in _ENDINGS)


def _edits(given: str, meant: str) -> tuple[int, int, int]:
    """Return the fewest letters inserted or missing, wrong, and swapped with their neighbours, that tell two apart."""
    rows: list[list[tuple[int, int, int]]] = [[(column, 0, 0) for column in range(len(meant) + 1)]]
    for row in range(1, len(given) + 1):
        rows.append([(row, 0, 0)])
        for column in range(1, len(meant) + 1):
            rows[row].append(_cheapest(rows, row, column, given, meant))
    return rows[-1][-1]


def _cheapest(
    rows: list[list[tuple[int, int, int]]], row: int, column: int, given: str, meant: str
) -> tuple[int, int, int]:
    inserted, substituted, swapped = rows[row - 1][column - 1]
    same = given[row - 1] == meant[column - 1]
    found = [(inserted, substituted + (not same), swapped)]
    for before in (rows[row - 1][column], rows[row][column - 1]):
        found.append((before[0] + 1, before[1], before[2]))
    if row > 1 and column > 1 and given[row - 2 : row] == meant[column - 2 : column][::-1]:
        before = rows[row - 2][column - 2]
        found.append((before[0], before[1], before[2] + 1))
    return min(found, key=sum)
