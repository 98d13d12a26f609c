"""Sendable data, as a provider's client takes it: a byte that is no text has no place in UTF-8."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

_HALVES: Final = re.compile("[\ud800-\udfff]")


def sendable(value: Any) -> Any:
    """Return data in which every half of a surrogate pair (a file name of odd bytes, say) is the replacement mark."""
    if isinstance(value, str):
        return value if value.isascii() else _HALVES.sub("\ufffd", value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        return {sendable(key): sendable(each) for key, each in entries.items()}
    if isinstance(value, list | tuple):
        return [sendable(each) for each in cast("list[Any]", value)]
    return value
