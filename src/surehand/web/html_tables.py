"""Tables that lay out a page instead of holding data, as many older pages have them.

Left as tables they would be one cell with the whole article on one line. Those that contain another table or a heading,
or have a single cell, and no header cells of their own, are taken apart: each cell becomes a paragraph.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MOST: Final = 300
"""With more tables a page is a collection of data; looking at each would cost more than converting it."""

_MARKS: Final = re.compile(r"<(/?)(table|th|h[1-6])\b[^<>]*>", re.I)
_CELLS: Final = re.compile(r"<(/?)(t[rdh]|tbody|thead|tfoot|col|colgroup|caption)\b[^<>]*>", re.I)


@dataclass(slots=True)
class _Table:
    start: int
    end: int = -1
    inner_start: int = -1
    inner_end: int = -1
    wraps: bool = False
    has_header: bool = False
    cells: int = 0

    @property
    def lays_out(self) -> bool:
        return (self.wraps or self.cells == 1) and not self.has_header and self.end >= 0


def without_layout_tables(html: str) -> str:
    """Return the page with its layout tables taken apart."""
    if not 0 < html.count("<table") + html.count("<TABLE") <= MOST:
        return html
    tables = [table for table in _tables(html) if table.lays_out]
    return _rebuilt(html, tables) if tables else html


def _tables(html: str) -> list[_Table]:
    """Return every table of the page in the order they begin."""
    found: list[_Table] = []
    open_ones: list[_Table] = []
    for mark in _MARKS.finditer(html):
        closes, name = bool(mark[1]), mark[2].lower()
        if name == "table" and not closes:
            for outer in open_ones:
                outer.wraps = True
            open_ones.append(_Table(mark.start(), inner_start=mark.end()))
            found.append(open_ones[-1])
        elif name == "table" and open_ones:
            table = open_ones.pop()
            table.inner_end, table.end = mark.start(), mark.end()
            table.cells = sum(html.count(tag, table.inner_start, table.inner_end) for tag in ("<td", "<TD"))
        elif name == "th" and open_ones and not closes:
            open_ones[-1].has_header = True
        elif name != "table" and name != "th" and open_ones and not closes:
            open_ones[-1].wraps = True
    return found


def _rebuilt(html: str, tables: list[_Table]) -> str:
    """Return the page with the tags of these tables, and of nothing inside their data tables, replaced."""
    data = [table for table in _tables(html) if not table.lays_out and table.end >= 0]
    edges = sorted([(table.start, table.inner_start) for table in tables] + [(t.inner_end, t.end) for t in tables])
    pieces: list[str] = []
    at = 0
    for start, end in edges:
        pieces += _taken_apart(html, at, start, data, inside=_depth(tables, at) > 0)
        pieces.append("<div>" if html[start + 1] != "/" else "</div>")
        at = end
    return "".join([*pieces, html[at:]])


def _depth(tables: list[_Table], at: int) -> int:
    return sum(table.inner_start <= at <= table.inner_end for table in tables)


def _taken_apart(html: str, start: int, end: int, data: list[_Table], *, inside: bool) -> Iterator[str]:
    """Yield a stretch of the page; where it lies in a layout table, cells outside data tables become paragraphs."""
    if not inside:
        yield html[start:end]
        return
    for table in data:
        if start <= table.start and table.end <= end:
            yield _CELLS.sub(_cell, html[start : table.start])
            yield html[table.start : table.end]
            start = table.end
    yield _CELLS.sub(_cell, html[start:end])


def _cell(tag: re.Match[str]) -> str:
    return f"<{tag[1]}p>" if tag[2].lower() in ("td", "th", "caption") else " "
