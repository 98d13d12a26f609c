"""Text helpers: a count with its noun, and patterns (regular expressions) compiled on first use."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def format_count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 file`, `1,200 files`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what `re.compile` returns, compiled when its first attribute is asked for."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


class _LazyPattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:  # only for what is not there yet, so once for each name
        value = getattr(re.compile(*self._given), name)
        setattr(self, name, value)
        return value
