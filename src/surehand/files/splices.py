"""Rounds of edits, each on the result of the one before, folded into one list of splices on the original bytes.

Two rounds are combined in one pass over both; many are combined in pairs, then pairs of pairs, so that the work grows
with the number of splices, not with its square.
"""

from __future__ import annotations

from collections.abc import Sequence

from surehand.core.frozen import frozen
from surehand.files.text import Splice


def fold_rounds(rounds: Sequence[Sequence[Splice]]) -> list[Splice]:
    """Return the splices (in order, apart) that do to the original what all rounds do one after the other."""
    if len(rounds) <= 1:
        return list(rounds[0]) if rounds else []
    middle = len(rounds) // 2
    return combine(fold_rounds(rounds[:middle]), fold_rounds(rounds[middle:]))


@frozen
class _Kept:
    """Bytes of the original from `start` to `end`; None means: to its end."""

    start: int
    end: int | None


def combine(first: Sequence[Splice], second: Sequence[Splice]) -> list[Splice]:
    """Return the splices of `first`, then of `second` (whose positions are those of the result of `first`)."""
    source = _Pieces(first)
    output: list[_Kept | bytes] = []
    for splice in second:
        source.move_to(splice.start, output)
        source.move_to(splice.end, None)
        output.append(splice.new)
    source.move_to(None, output)
    return _as_splices(output)


class _Pieces:
    """The result of some splices as pieces, taken from the front."""

    def __init__(self, splices: Sequence[Splice]) -> None:
        self._pieces: list[_Kept | bytes] = []
        position = 0
        for splice in splices:
            self._pieces += [_Kept(position, splice.start), splice.new]
            position = splice.end
        self._pieces += [_Kept(position, None)]
        self._index = 0
        self._used = 0
        """How much of the piece at hand has been taken."""
        self._position = 0

    def move_to(self, position: int | None, taken: list[_Kept | bytes] | None) -> None:
        """Go on to `position` of the result (None: to its end); what lies on the way is added to `taken`."""
        while self._index < len(self._pieces) and (position is None or self._position < position):
            piece = self._pieces[self._index]
            left = _length(piece) - self._used if _length(piece) >= 0 else None
            wanted = None if position is None else position - self._position
            size = left if wanted is None or (left is not None and left <= wanted) else wanted
            if taken is not None:
                taken.append(_part(piece, self._used, size))
            if size == left:
                self._index, self._used = self._index + 1, 0
            else:
                self._used += size or 0
            self._position += size or 0


def _length(piece: _Kept | bytes) -> int:
    """Return the length of a piece, -1 for the end of the original, whose length does not matter."""
    if isinstance(piece, bytes):
        return len(piece)
    return -1 if piece.end is None else piece.end - piece.start


def _part(piece: _Kept | bytes, start: int, size: int | None) -> _Kept | bytes:
    if isinstance(piece, bytes):
        return piece[start : start + (size or 0)]
    return _Kept(piece.start + start, None if size is None else piece.start + start + size)


def _as_splices(pieces: Sequence[_Kept | bytes]) -> list[Splice]:
    """Return what stands between the kept parts as splices."""
    found: list[Splice] = []
    position, new = 0, list[bytes]()
    for piece in pieces:
        if isinstance(piece, bytes):
            new.append(piece)
            continue
        if piece.end is not None and piece.start == piece.end:
            continue
        if piece.start > position or any(new):
            found.append(Splice(position, piece.start, b"".join(new)))
        position, new = piece.end if piece.end is not None else piece.start, []
    return found
