"""On which line of a TOML file a key stands: enough of TOML to point at a place, never to read a value."""

from __future__ import annotations

import re
from typing import Final

Path = tuple[str, ...]

# Read as patterns only where there is a file: making them takes a millisecond of every start.
_PART: Final = r"""(?:"[^"]*"|'[^']*'|[\w-]+)"""
_DOTTED: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER: Final = rf"\s*\[(\[?)\s*({_DOTTED})\s*\]\]?\s*(?:#.*)?"
_KEY: Final = rf"\s*({_DOTTED})\s*="


class KeyLines:
    """The lines of the keys and tables of one file. Tables of a list are numbered: `hooks`, `0`, `command`."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        table: Path = ()
        for number, line in enumerate(text.splitlines(), 1):
            if header := re.fullmatch(_HEADER, line):
                table = self._table(_path(header[2]), listed=bool(header[1]), line=number)
            elif key := re.match(_KEY, line):
                self._lines.setdefault((*table, *_path(key[1])), number)

    def _table(self, name: Path, *, listed: bool, line: int) -> Path:
        """Note where a table begins, and return its path."""
        if listed:
            self._counts[name] = self._counts.get(name, -1) + 1
        table: Path = ()
        for end, part in enumerate(name, 1):
            table = (*table, part)
            if name[:end] in self._counts:
                self._lines.setdefault(table, line)
                table = (*table, str(self._counts[name[:end]]))
        self._lines.setdefault(table, line)
        return table

    def exact(self, path: Path) -> int | None:
        """Return the line of exactly this key or table."""
        return self._lines.get(path)

    def line(self, path: Path) -> int | None:
        """Return the line of a key, or else of the first thing below it, or of the table around it."""
        below = (line for known, line in self._lines.items() if known[: len(path)] == path)
        found = self._lines.get(path) or min(below, default=None)
        return found or (self.line(path[:-1]) if len(path) > 1 else None)


def _path(dotted: str) -> Path:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))
