"""Changing one cell of a notebook as text: only the bytes of that cell (and a comma beside it) become others.

The JSON is never written anew. The cells are found with their positions, and new parts are spelled as the file spells
its own: indentation, line ends, separators, sources as a list of lines or as one string, characters beyond ASCII as
they are or escaped. Formats 4.0 to 4.5 are edited; cells have ids from 4.5 on.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, Final, Literal, cast

from surehand.core.frozen import frozen
from surehand.files.text import Splice

Mode = Literal["replace", "insert", "delete"]
CellType = Literal["code", "markdown", "raw"]

_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


class BrokenNotebookError(ValueError):
    """The file is no notebook that can be edited; the text says why."""


@frozen
class CellEdit:
    """One edit: which cell (by id, or by number from 1), and what to do with it."""

    mode: Mode
    cell_id: str | None = None
    cell_number: int | None = None
    source: str = ""
    cell_type: CellType | None = None
    keep_outputs: bool = False


@frozen
class RawCell:
    """One cell: where it stands in the text, and its value."""

    start: int
    end: int
    value: dict[str, Any]


@frozen
class _Member:
    """A name of an object, and where its value stands."""

    name: str
    start: int
    end: int


@frozen
class _Style:
    """How a file spells JSON: line ends ("" for all in one line), one step of indentation, separators."""

    newline: str
    step: str
    colon: str
    comma: str
    ascii: bool

    def dump(self, value: object, prefix: str) -> str:
        """Return a value as text; `prefix` is the indentation of the line it begins in."""
        if isinstance(value, dict) and value:
            members = cast("dict[str, Any]", value).items()
            parts = [f"{self.plain(name)}{self.colon}{self.dump(each, prefix + self.step)}" for name, each in members]
            return self.wrap("{", parts, "}", prefix)
        if isinstance(value, list) and value:
            parts = [self.dump(each, prefix + self.step) for each in cast("list[Any]", value)]
            return self.wrap("[", parts, "]", prefix)
        return self.plain(cast("object", value))

    def wrap(self, opening: str, parts: list[str], closing: str, prefix: str) -> str:
        """Return the parts of a list or an object, each in a line of its own where the file does so."""
        if not self.newline:
            return opening + self.comma.join(parts) + closing
        between = f",{self.newline}{prefix}{self.step}"
        return f"{opening}{between[1:]}{between.join(parts)}{self.newline}{prefix}{closing}"

    def plain(self, value: object) -> str:
        return json.dumps(value, ensure_ascii=self.ascii)


class NotebookText:
    """The text of a notebook with the places of its cells; raises BrokenNotebookError for what is none."""

    def __init__(self, text: str) -> None:
        self.text = text
        top = _blanks(text, 0)
        members = {member.name: member for member in _members(text, top)}
        self.version = tuple(self._number(members, name) for name in ("nbformat", "nbformat_minor"))
        if self.version[0] != 4:
            raise BrokenNotebookError(f"its format is {self.version[0]}; cells of format 4 can be edited")
        if "cells" not in members or text[members["cells"].start] != "[":
            raise BrokenNotebookError("it has no list of cells")
        self.array = members["cells"]
        self.cells = [RawCell(*each) for each in _items(text, self.array.start)]
        self.style = self._style(top)

    def _number(self, members: dict[str, _Member], name: str) -> int:
        value: Any = _DECODER.raw_decode(self.text, members[name].start)[0] if name in members else 0
        return value if isinstance(value, int) else 0

    @property
    def has_ids(self) -> bool:
        """Whether cells of this format have ids."""
        return self.version >= (4, 5)

    def find(self, edit: CellEdit) -> list[int]:
        """Return which cells (from 0) an edit names: by id those that have it, by number that one if it is there."""
        if edit.cell_id is not None:
            return [at for at, cell in enumerate(self.cells) if cell.value.get("id") == edit.cell_id]
        number = edit.cell_number or 0
        return [number - 1] if 0 < number <= len(self.cells) else []

    def splices(self, edit: CellEdit, at: int) -> list[tuple[int, int, str]]:
        """Return the changes (from, to, new text) that make an edit; `at` is its cell, -1 to insert before all."""
        if edit.mode == "insert":
            return [self._insert(edit, at)]
        return [self._delete(at)] if edit.mode == "delete" else list(self._replace(edit, self.cells[at]))

    # -- the three ways ------------------------------------------------------------------------------------------

    def _insert(self, edit: CellEdit, after: int) -> tuple[int, int, str]:
        style, prefix = self.style, self._cell_prefix()
        cell = self._new_cell(edit, after)
        between = f",{style.newline}{prefix}" if style.newline else style.comma
        if not self.cells:
            closing = f"{style.newline}{prefix.removesuffix(style.step)}"
            return self.array.start + 1, self.array.end - 1, f"{between.lstrip(', ')}{cell}{closing}"
        if after < 0:
            start = self.cells[0].start
            return start, start, cell + between
        end = self.cells[after].end
        return end, end, between + cell

    def _new_cell(self, edit: CellEdit, after: int) -> str:
        kind = edit.cell_type or "code"
        value: dict[str, Any] = {"cell_type": kind}
        if kind == "code":
            value["execution_count"] = None
        if self.has_ids:
            value["id"] = self._new_id(edit, after)
        value["metadata"] = {}
        if kind == "code":
            value["outputs"] = []
        value["source"] = _source(edit.source, as_list=self._lists_sources())
        return self.style.dump(value, self._cell_prefix())

    def _new_id(self, edit: CellEdit, after: int) -> str:
        """Return an id nobody has; the same for the same insertion, so that a dry run shows what a run would do."""
        taken = {cell.value.get("id") for cell in self.cells}
        seed = f"{after}\0{edit.source}\0{len(self.text)}\0{sorted(map(str, taken))}"
        tries = (hashlib.sha256(f"{seed}\0{count}".encode(errors="replace")).hexdigest()[:8] for count in range(1000))
        return next(each for each in tries if each not in taken)

    def _lists_sources(self) -> bool:
        return not self.cells or not isinstance(self.cells[0].value.get("source"), str)

    def _delete(self, at: int) -> tuple[int, int, str]:
        if len(self.cells) == 1:
            return self.array.start + 1, self.array.end - 1, ""
        if at == 0:
            return self.cells[0].start, self.cells[1].start, ""
        return self.cells[at - 1].end, self.cells[at].end, ""

    def _replace(self, edit: CellEdit, cell: RawCell) -> Iterator[tuple[int, int, str]]:
        if edit.cell_type is not None and edit.cell_type != cell.value.get("cell_type"):
            prefix = self._cell_prefix() if self.style.newline else ""
            yield cell.start, cell.end, self.style.dump(self._change_type(edit, cell.value), prefix)
            return
        members = {member.name: member for member in _members(self.text, cell.start)}
        if "source" not in members:
            raise BrokenNotebookError("the cell has no source")
        changes = {"source": self._spelled_source(edit.source, members["source"])}
        if not edit.keep_outputs and cell.value.get("cell_type") == "code":
            changes |= {"outputs": "[]", "execution_count": "null"}
        for name in sorted(changes.keys() & members.keys(), key=lambda name: members[name].start):
            place = members[name]
            if json.loads(self.text[place.start : place.end]) != json.loads(changes[name]):
                yield place.start, place.end, changes[name]

    def _change_type(self, edit: CellEdit, value: dict[str, Any]) -> dict[str, Any]:
        """Return a cell as one of another type, its members in their order."""
        turned = {name: each for name, each in value.items() if name not in ("outputs", "execution_count")}
        turned["cell_type"] = edit.cell_type
        if edit.cell_type != "markdown" and edit.cell_type != "raw":
            turned.pop("attachments", None)
            turned |= {"execution_count": None, "outputs": []}
        turned["source"] = _source(edit.source, as_list=not isinstance(value.get("source"), str))
        return turned

    def _spelled_source(self, source: str, place: _Member) -> str:
        """Return a source spelled as the one it replaces."""
        before = self.text[place.start : place.end]
        if before.startswith('"'):
            return self.style.plain(source)
        inside = _blanks(self.text, place.start + 1)
        prefix = self.text[self.text.rfind("\n", 0, place.start) + 1 : place.start]
        prefix = prefix[: len(prefix) - len(prefix.lstrip(" \t"))]
        style = self.style
        if "\n" in self.text[place.start : inside]:  # its own indentation, which may be an odd one
            own = self.text[self.text.rfind("\n", 0, inside) + 1 : inside]
            step = own.removeprefix(prefix) if own.startswith(prefix) else style.step
            style = _Style(style.newline or "\n", step, style.colon, style.comma, style.ascii)
        elif before != "[]":
            style = _Style("", "", style.colon, style.comma if not style.newline else ", ", style.ascii)
        return style.dump(_source(source, as_list=True), prefix)

    # -- how the file is spelled ---------------------------------------------------------------------------------

    def _style(self, top: int) -> _Style:
        text = self.text
        first = next(_members(text, top))
        blanks = text[top + 1 : text.index('"', top)]
        outer = _indentation(blanks)
        inner = self._inner_step()
        newline = "\r\n" if "\r\n" in blanks else "\n" if "\n" in blanks else ""
        colon = text[text.index(":", top + 1) : first.start]
        comma = re.search(r'[\]}"\d],( ?)["{\[]', text[self.array.start : self.array.start + 4000])
        literal = text.isascii() and re.search(r"\\u[0-9a-fA-F]{4}", text) is not None
        return _Style(newline, inner or outer, f":{colon[1:]}", f",{comma[1] if comma else ' '}", literal)

    def _inner_step(self) -> str:
        """Return by how much the members of a cell stand further right than the cell."""
        if not self.cells:
            return ""
        cell, member = self.cells[0].start, self.text.find('"', self.cells[0].start)
        outer, inner = (self.text[self.text.rfind("\n", 0, at) + 1 : at] for at in (cell, member))
        return inner.removeprefix(outer) if inner.strip(" \t") == "" and inner.startswith(outer) else ""

    def _cell_prefix(self) -> str:
        """Return the indentation of the line a cell begins in."""
        if not self.style.newline:
            return ""
        if not self.cells:
            return self.style.step * 2
        at = self.cells[0].start
        prefix = self.text[self.text.rfind("\n", 0, at) + 1 : at]
        return prefix if not prefix.strip(" \t") else prefix[: len(prefix) - len(prefix.lstrip(" \t"))]


def edit_cell(book: NotebookText, bom: bytes, edit: CellEdit, at: int) -> list[Splice]:
    """Return an edit as splices on the file's bytes; raises BrokenNotebookError where the result would not be right."""
    changes = book.splices(edit, at)
    splices, offset, position = list[Splice](), len(bom), 0
    for start, end, new in changes:
        offset += len(book.text[position:start].encode())
        size = len(book.text[start:end].encode())
        splices.append(Splice(offset, offset + size, new.encode()))
        offset, position = offset + size, end
    _verify(book, edit, at, changes)
    return splices


def _verify(book: NotebookText, edit: CellEdit, at: int, changes: list[tuple[int, int, str]]) -> None:
    """Read the result as JSON: every other cell and all the rest must be what it was."""
    text = book.text
    for start, end, new in reversed(changes):
        text = text[:start] + new + text[end:]
    before, after = json.loads(book.text), json.loads(text)
    old, new_cells = before.pop("cells"), after.pop("cells")
    if edit.mode == "insert":
        new_cells.pop(at + 1)
    else:
        old.pop(at)
        if edit.mode == "replace":
            new_cells.pop(at)
    if before != after or old != new_cells:
        raise BrokenNotebookError("its JSON is written in a way that cannot be edited exactly")


def _source(text: str, *, as_list: bool) -> str | list[str]:
    if not as_list:
        return text
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _indentation(blanks: str) -> str:
    return blanks.rpartition("\n")[2] if "\n" in blanks else ""


def _blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _members(text: str, at: int) -> Iterator[_Member]:
    """Yield the members of the object at a place; a name that comes twice is refused: readers take either."""
    if text[at : at + 1] != "{":
        raise BrokenNotebookError("it is not a JSON object")
    seen: set[str] = set()
    try:
        at = _blanks(text, at + 1)
        while text[at] != "}":
            name, at = cast("tuple[object, int]", _DECODER.raw_decode(text, at))
            at = _blanks(text, text.index(":", at) + 1)
            end = _DECODER.raw_decode(text, at)[1]
            if not isinstance(name, str) or name in seen:
                raise BrokenNotebookError(f"it has {name!r} twice")
            seen.add(name)
            yield _Member(name, at, end)
            at = _blanks(text, end)
            at = _blanks(text, at + 1) if text[at] == "," else at
    except (IndexError, RecursionError, json.JSONDecodeError) as problem:
        raise BrokenNotebookError(f"it is not valid JSON: {problem}") from None


def _items(text: str, at: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield the cells of the array at a place: from where to where, and the value."""
    at = _blanks(text, at + 1)
    while text[at] != "]":
        value, end = _DECODER.raw_decode(text, at)
        if not isinstance(value, dict):
            raise BrokenNotebookError("one of its cells is not an object")
        yield at, end, cast("dict[str, Any]", value)
        at = _blanks(text, end)
        at = _blanks(text, at + 1) if text[at] == "," else at
