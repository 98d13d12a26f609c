"""Three-way merge of lines, with the result of `git merge-file`, refused where that reports a conflict.

Two changes of one base conflict where their lines overlap or touch, unless both are the same. Which lines a change is
said to touch depends on how texts with repeated lines are compared, so the comparison is git's own (xdiff: Myers'
algorithm from both ends, lines that stand everywhere set aside, groups of changed lines moved down or beside those of
the other side), without its shortcuts for very different files: those are given up instead.

Rounds of edits, each on the result of the one before, are folded into one list of splices on the original bytes: two
in one pass over both, many in pairs, then pairs of pairs, so that the work grows with their number, not its square.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from surehand.core.frozen import frozen
from surehand.files.text import Splice

COST_LIMIT: Final = 256
"""Edits between two parts beyond which git uses heuristics, and this gives up."""
_LAST: Final = 1 << 60
_WINDOW: Final = 100
_MOST_EQUAL: Final = 1024


class TooDifferentError(Exception):
    """The texts differ too much to be compared exactly."""


@frozen
class Change:
    """Lines `start` to `end` of the base become lines `new_start` to `new_end` of the other text."""

    start: int
    end: int
    new_start: int
    new_end: int


def merge_lines(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Return `base` with both changes; None if they conflict or differ too much."""
    old, one, two = (_split(text) for text in (base, ours, theirs))
    try:
        first, second = compare(old, one), compare(old, two)
    except TooDifferentError:
        return None
    if not first or not second:
        return theirs if not first else ours
    taken = _theirs_to_take(one, two, first, second)
    if taken is None:
        return None
    merged: list[bytes] = []
    position = 0
    for each in taken:
        merged += [*one[position : each.start], *two[each.new_start : each.new_end]]
        position = each.end
    return b"".join([*merged, *one[position:]])


def compare_bytes(before: bytes, after: bytes) -> list[Splice]:
    """Return the splices, by whole lines, that turn one content into another."""
    old, new = _split(before), _split(after)
    try:
        changes = compare(old, new)
    except TooDifferentError:
        return [Splice(0, len(before), after)]
    offsets = list(accumulate(map(len, old), initial=0))
    return [
        Splice(offsets[each.start], offsets[each.end], b"".join(new[each.new_start : each.new_end])) for each in changes
    ]


def _split(text: bytes) -> list[bytes]:
    return text.splitlines(keepends=True) if b"\r" not in text else _split_at_feeds(text)


def _split_at_feeds(text: bytes) -> list[bytes]:
    parts = text.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _theirs_to_take(
    one: Sequence[bytes], two: Sequence[bytes], ours: Sequence[Change], theirs: Sequence[Change]
) -> list[Change] | None:
    """Return which lines of `one` become lines of `two`; None for a conflict."""
    hunks: list[_Hunk] = []
    i = j = 0
    while i < len(ours) or j < len(theirs):
        a, b = ours[i] if i < len(ours) else None, theirs[j] if j < len(theirs) else None
        if b is None or (a is not None and a.end < b.start):
            assert a is not None
            shift = b.new_start - b.start if b is not None else len(two) - _base_length(theirs, two)
            _append(hunks, _Hunk(1, a.new_start, a.new_end, a.start + shift, a.end + shift))
            i += 1
            continue
        if a is None or b.end < a.start:
            shift = a.new_start - a.start if a is not None else len(one) - _base_length(ours, one)
            _append(hunks, _Hunk(2, b.start + shift, b.end + shift, b.new_start, b.new_end))
            j += 1
            continue
        same_place = (a.start, a.end) == (b.start, b.end)
        if not same_place or one[a.new_start : a.new_end] != two[b.new_start : b.new_end]:
            _append(hunks, _overlap(a, b))
        i, j = i + (b.end >= a.end), j + (a.end >= b.end)
    for hunk in hunks:
        if hunk.side == 0 and one[hunk.start : hunk.end] != two[hunk.new_start : hunk.new_end]:
            return None
    return [Change(each.start, each.end, each.new_start, each.new_end) for each in hunks if each.side == 2]


class _Hunk:
    """A part of `one` and the part of `two` beside it: changed by the first (1), the second (2) or both (0)."""

    __slots__ = ("end", "new_end", "new_start", "side", "start")

    def __init__(self, side: int, start: int, end: int, new_start: int, new_end: int) -> None:
        self.side = side
        self.start, self.end = start, end
        self.new_start, self.new_end = new_start, new_end


def _overlap(a: Change, b: Change) -> _Hunk:
    """Return the parts of both texts that correspond to lines of the base that either change touches."""
    before, after = a.start - b.start, a.end - b.end
    return _Hunk(
        0,
        a.new_start - max(before, 0),
        a.new_end + max(-after, 0),
        b.new_start - max(-before, 0),
        b.new_end + max(after, 0),
    )


def _append(hunks: list[_Hunk], hunk: _Hunk) -> None:
    """Add a hunk. One that touches the last is joined with it, and is of both sides if they came from both."""
    last = hunks[-1] if hunks else None
    if last is None or (hunk.start > last.end and hunk.new_start > last.new_end):
        hunks.append(hunk)
        return
    last.side = last.side if last.side == hunk.side else 0
    last.end, last.new_end = hunk.end, hunk.new_end


def _base_length(changes: Sequence[Change], lines: Sequence[bytes]) -> int:
    return len(lines) - sum((each.new_end - each.new_start) - (each.end - each.start) for each in changes)


# -- comparing two texts as git does -----------------------------------------------------------------------------


class _Side:
    """One of two texts: its lines as numbers, and which are changed; with an unchanged line added at each end."""

    def __init__(self, lines: list[int]) -> None:
        self.lines = lines
        self.changed = [False] * (len(lines) + 2)

    def is_changed(self, line: int) -> bool:
        return self.changed[line + 1]

    def mark(self, line: int, changed: bool) -> None:
        self.changed[line + 1] = changed


def compare(old: Sequence[bytes], new: Sequence[bytes]) -> list[Change]:
    """Return the changes that turn one text into another; raise TooDifferentError for too many."""
    numbers: dict[bytes, int] = {}
    one, two = (_Side([numbers.setdefault(line, len(numbers)) for line in lines]) for lines in (old, new))
    least = min(len(old), len(new))
    head = next((at for at in range(least) if one.lines[at] != two.lines[at]), least)
    tail = next((at for at in range(least - head) if one.lines[-1 - at] != two.lines[-1 - at]), least - head)
    kept = [_set_aside(side, other, head, len(side.lines) - tail) for side, other in ((one, two), (two, one))]
    _Comparison(one, two, kept[0], kept[1]).run()
    _compact(one, two)
    _compact(two, one)
    return _script(one, two)


def _set_aside(side: _Side, other: _Side, start: int, end: int) -> list[int]:
    """Mark lines as changed that the other text lacks, or has too often to be matched; return the others."""
    most = min(_rough_root(len(side.lines)), _MOST_EQUAL)
    counts = Counter(other.lines)
    kinds = [0 if not (count := counts[line]) else 2 if count >= most else 1 for line in side.lines[start:end]]
    kept: list[int] = []
    for at, kind in enumerate(kinds):
        if kind == 1 or (kind == 2 and not _is_lost_among_changed(kinds, at)):
            kept.append(start + at)
        else:
            side.mark(start + at, True)
    return kept


def _rough_root(number: int) -> int:
    root = 1
    while number > 0:
        root, number = root << 1, number >> 2
    return root


def _is_lost_among_changed(kinds: Sequence[int], at: int) -> bool:
    """Return whether a frequent line is among so many changed ones that it counts as changed itself."""
    before = _run(kinds, range(at - 1, max(0, at - _WINDOW) - 1, -1))
    after = _run(kinds, range(at + 1, min(len(kinds) - 1, at + _WINDOW) + 1))
    if not before[0] or not after[0]:
        return False
    absent, frequent = before[0] + after[0], before[1] + after[1]
    return frequent * 4 < frequent + absent


def _run(kinds: Sequence[int], places: range) -> tuple[int, int]:
    absent, frequent = 0, 1
    for place in places:
        if kinds[place] == 1:
            break
        absent, frequent = absent + (kinds[place] == 0), frequent + (kinds[place] == 2)
    return absent, frequent


class _Comparison:
    """Marks the lines of two texts that are not in their common subsequence."""

    def __init__(self, one: _Side, two: _Side, kept_one: list[int], kept_two: list[int]) -> None:
        self._sides = (one, kept_one), (two, kept_two)
        self._a = [one.lines[at] for at in kept_one]
        self._b = [two.lines[at] for at in kept_two]

    def run(self) -> None:
        waiting = [(0, len(self._a), 0, len(self._b))]
        while waiting:
            first, end, first_b, end_b = waiting.pop()
            while first < end and first_b < end_b and self._a[first] == self._b[first_b]:
                first, first_b = first + 1, first_b + 1
            while first < end and first_b < end_b and self._a[end - 1] == self._b[end_b - 1]:
                end, end_b = end - 1, end_b - 1
            if first == end or first_b == end_b:
                self._mark(0, first, end)
                self._mark(1, first_b, end_b)
                continue
            at, at_b = self._middle(first, end, first_b, end_b)
            waiting += [(at, end, at_b, end_b), (first, at, first_b, at_b)]

    def _mark(self, which: int, first: int, end: int) -> None:
        side, kept = self._sides[which]
        for at in range(first, end):
            side.mark(kept[at], True)

    def _middle(self, first: int, end: int, first_b: int, end_b: int) -> tuple[int, int]:
        """Return a point on a shortest edit path, found by searching from both ends until they meet."""
        a, b = self._a, self._b
        lowest, highest = first - end_b, end - first_b
        forward_mid, backward_mid = first - first_b, end - end_b
        odd = (forward_mid - backward_mid) & 1
        forward, backward = {forward_mid: first}, {backward_mid: end}
        low = high = forward_mid
        low_back = high_back = backward_mid
        for _ in range(COST_LIMIT):
            low, high = _widen(forward, low, high, lowest, highest, -1)
            for d in range(high, low - 1, -2):
                x = max(forward[d - 1] + 1, forward[d + 1])
                while x < end and x - d < end_b and a[x] == b[x - d]:
                    x += 1
                forward[d] = x
                if odd and low_back <= d <= high_back and backward[d] <= x:
                    return x, x - d
            low_back, high_back = _widen(backward, low_back, high_back, lowest, highest, _LAST)
            for d in range(high_back, low_back - 1, -2):
                x = min(backward[d - 1], backward[d + 1] - 1)
                while x > first and x - d > first_b and a[x - 1] == b[x - d - 1]:
                    x -= 1
                backward[d] = x
                if not odd and low <= d <= high and x <= forward[d]:
                    return x, x - d
        raise TooDifferentError


def _widen(reached: dict[int, int], low: int, high: int, lowest: int, highest: int, edge: int) -> tuple[int, int]:
    """Extend the diagonals by one on each side, within bounds."""
    if low > lowest:
        low -= 1
        reached[low - 1] = edge
    else:
        low += 1
    if high < highest:
        high += 1
        reached[high + 1] = edge
    else:
        high -= 1
    return low, high


class _Group:
    """A run of changed lines of a side, possibly empty, between two unchanged lines."""

    def __init__(self, side: _Side) -> None:
        self._side = side
        self.start = self.end = 0
        self._reach_end()

    def _reach_end(self) -> None:
        while self._side.is_changed(self.end):
            self.end += 1

    def go_on(self) -> bool:
        if self.end == len(self._side.lines):
            return False
        self.start = self.end = self.end + 1
        self._reach_end()
        return True

    def go_back(self) -> None:
        self.end = self.start = self.start - 1
        while self._side.is_changed(self.start - 1):
            self.start -= 1

    def slide_up(self) -> bool:
        lines = self._side.lines
        if self.start == 0 or lines[self.start - 1] != lines[self.end - 1]:
            return False
        self.start, self.end = self.start - 1, self.end - 1
        self._side.mark(self.start, True)
        self._side.mark(self.end, False)
        while self._side.is_changed(self.start - 1):
            self.start -= 1
        return True

    def slide_down(self) -> bool:
        lines = self._side.lines
        if self.end >= len(lines) or lines[self.start] != lines[self.end]:
            return False
        self._side.mark(self.start, False)
        self._side.mark(self.end, True)
        self.start, self.end = self.start + 1, self.end + 1
        self._reach_end()
        return True


def _compact(side: _Side, other: _Side) -> None:
    """Move groups of changed lines as far down as equal lines let them, or to where the other side changed too."""
    group, beside = _Group(side), _Group(other)
    while True:
        if group.end > group.start:
            _slide_group(group, beside)
        if not group.go_on():
            return
        beside.go_on()


def _slide_group(group: _Group, beside: _Group) -> None:
    while True:
        size, matches = group.end - group.start, False
        while group.slide_up():
            beside.go_back()
        earliest = group.end
        matches = beside.end > beside.start
        while group.slide_down():
            beside.go_on()
            matches = matches or beside.end > beside.start
        if size == group.end - group.start:
            break
    if group.end != earliest and matches:
        while beside.end == beside.start:
            group.slide_up()
            beside.go_back()


def _script(one: _Side, two: _Side) -> list[Change]:
    """Return the marked lines as changes, in order."""
    found: list[Change] = []
    i = j = 0
    while i < len(one.lines) or j < len(two.lines):
        start, start_two = i, j
        while one.is_changed(i):
            i += 1
        while two.is_changed(j):
            j += 1
        if i > start or j > start_two:
            found.append(Change(start, i, start_two, j))
        else:
            i, j = i + 1, j + 1
    return found


def fold_rounds(rounds: Sequence[Sequence[Splice]]) -> list[Splice]:
    """Return the splices (in order, not overlapping) of the original that equal all rounds one after the other."""
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
        """How much of the current piece has been taken."""
        self._position = 0

    def move_to(self, position: int | None, taken: list[_Kept | bytes] | None) -> None:
        """Advance to `position` of the result (None: to its end), adding the pieces before it to `taken`."""
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
    """Return the splices for what is between the kept parts."""
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
