"""Several rounds of edits folded into one list of splices on the original bytes."""

from __future__ import annotations

from collections.abc import Sequence

from surehand.core.frozen import frozen
from surehand.host.text import Splice


@frozen
class _Piece:
    """Bytes of the original from `start` to `end`, or new bytes that stand at `start`."""

    start: int
    end: int
    new: bytes | None = None

    def __len__(self) -> int:
        return self.end - self.start if self.new is None else len(self.new)

    def cut(self, first: int, last: int) -> _Piece:
        if self.new is None:
            return _Piece(self.start + first, self.start + last)
        return _Piece(self.start, self.end, self.new[first:last])


class Pieces:
    """A content under edit, as pieces of the original and new bytes between them."""

    def __init__(self, size: int) -> None:
        self._pieces: list[_Piece] = [_Piece(0, size)]

    def apply(self, splices: Sequence[Splice]) -> None:
        """Apply splices whose positions are those of the content as it stands now."""
        for splice in reversed(splices):
            before, after = self._taken(0, splice.start), self._taken(splice.end, None)
            at = after[0].start if after else before[-1].end if before else 0
            self._pieces = [*before, _Piece(at, at, splice.new), *after]

    def splices(self, size: int) -> list[Splice]:
        """Return what was done as splices on the original of `size` bytes, in order."""
        found: list[Splice] = []
        position, new = 0, b""
        for piece in (*self._pieces, _Piece(size, size)):
            if piece.new is not None:
                new += piece.new
                continue
            if new or piece.start > position:
                found.append(Splice(position, piece.start, new))
            position, new = piece.end, b""
        return found

    def _taken(self, first: int, last: int | None) -> list[_Piece]:
        taken: list[_Piece] = []
        position = 0
        for piece in self._pieces:
            start, stop = max(first - position, 0), len(piece) if last is None else min(last - position, len(piece))
            position += len(piece)
            if start < stop:
                taken.append(piece.cut(start, stop))
        return taken
