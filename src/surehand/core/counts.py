"""Counts: a number with its noun."""

from __future__ import annotations


def format_count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 file`, `1,200 files`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
