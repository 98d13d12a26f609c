"""A bounded sketch of durations: quantiles within 2%, in a few hundred counters at most, whatever is put in."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, floor, log
from typing import Final

_STEP: Final = log(1.04)
_SCALE: Final = 1.0 / _STEP
_LEAST: Final = 1e-7
_MOST: Final = 1e7


class Sketch:
    """Counts of values by the logarithm of their size. Sketches of several processes can be added."""

    __slots__ = ("counts",)

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: dict[int, int] = dict(counts or {})

    def add(self, seconds: float) -> None:
        """Count one value."""
        place = floor(log(seconds) * _SCALE) if _LEAST < seconds < _MOST else _edge(seconds)
        self.counts[place] = self.counts.get(place, 0) + 1

    def quantile(self, share: float) -> float:
        """Return the value below which `share` (0 to 1) of all values lie; 0 when there are none."""
        total = sum(self.counts.values())
        if not total:
            return 0.0
        wanted, seen = share * total, 0
        for place in sorted(self.counts):
            seen += self.counts[place]
            if seen >= wanted:
                return _value(place)
        return _value(max(self.counts))

    def merge(self, other: Sketch) -> None:
        """Add the values of another sketch."""
        for place, count in other.counts.items():
            self.counts[place] = self.counts.get(place, 0) + count


def _edge(seconds: float) -> int:
    return floor(log(_LEAST if seconds < 1 else _MOST) * _SCALE)


def _value(place: int) -> float:
    return exp((place + 0.5) * _STEP)
