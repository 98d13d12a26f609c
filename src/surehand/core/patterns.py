"""Patterns (regular expressions) compiled on first use: a short command uses a tenth of those its modules name."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


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
