"""A message too long to be read: its beginning and its end, and whose message it was.

Only the ends are kept. The id and the method of a JSON-RPC message stand at its top level, so they are found before or
behind the one long value; inside of it they are never looked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

END_BYTES: Final = 1024
_VALUE: Final = rb'(?:"(?:[^"\\]|\\.){0,256}"|-?\d{1,20}|null)'
_MEMBER: Final = re.compile(rb'\s*"(jsonrpc|id|method)"\s*:\s*(' + _VALUE + rb")\s*,")
_FIRST: Final = re.compile(rb"\s*\{")
_LAST: Final = re.compile(rb'((?:,\s*"(?:jsonrpc|id|method)"\s*:\s*' + _VALUE + rb"\s*)+)\}\s*\Z")
_OF_LAST: Final = re.compile(rb',\s*"(jsonrpc|id|method)"\s*:\s*(' + _VALUE + rb")")


class Overlong:
    """What is kept of a line that is skipped while it comes in."""

    def __init__(self) -> None:
        self.size = 0
        self._head = b""
        self._tail = b""

    def add(self, piece: bytes) -> None:
        """Take the next piece of the line."""
        self.size += len(piece)
        if len(self._head) < END_BYTES:
            self._head += piece[: END_BYTES - len(self._head)]
        self._tail = (self._tail + piece[-END_BYTES:])[-END_BYTES:]

    def members(self) -> dict[str, Any]:
        """Return the id and the method of the message, as far as they stand before or behind what is long."""
        return {name.decode(): json.loads(value) for name, value in (*self._first(), *self._last())}

    def _first(self) -> Iterator[tuple[bytes, bytes]]:
        found = _FIRST.match(self._head)
        while found is not None and (found := _MEMBER.match(self._head, found.end())) is not None:
            yield found[1], found[2]

    def _last(self) -> list[tuple[bytes, bytes]]:
        found = _LAST.search(self._tail)
        return _OF_LAST.findall(found[1]) if found is not None else []
