"""Read a Jupyter notebook as its cells with their outputs, text and images; edit one cell.

Formats 3 and 4 are read. The file is untrusted: values that are missing or of the wrong type are skipped, long outputs
are truncated with a note, and a file that would take too much memory is refused before it is parsed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, cast

from surehand.core.errors import ToolFailure
from surehand.core.frozen import field, frozen
from surehand.core.text import NOTEBOOK_OUTPUT_CHARACTERS
from surehand.files.text import Splice

FILE_BYTES: Final = 32 * 1024 * 1024
PARSED_BYTES: Final = 24 * 1024 * 1024
PICTURE_LIMIT: Final = 20
PICTURE_BYTES: Final = 8 * 1024 * 1024

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# Preferred order of the textual forms of an output.
_TEXTS: Final = ("text/markdown", "text/plain", "text/latex", "application/json", "text/html", "image/svg+xml")
_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_OLD_NAMES: Final = {"text": "text/plain", "png": "image/png", "jpeg": "image/jpeg", "html": "text/html"}


@frozen
class Output:
    """One output of a cell: text, or the bytes of an image."""

    kind: str
    text: str = ""
    picture: bytes = b""


@frozen
class Cell:
    """One cell: its number from 1, its kind, its source and its outputs."""

    number: int
    kind: str
    source: str
    outputs: tuple[Output, ...] = ()
    execution_count: int | None = None
    id: str = ""


@frozen
class Notebook:
    """The cells of a notebook and their language."""

    language: str
    cells: tuple[Cell, ...] = field(default_factory=tuple[Cell, ...])


def parse_notebook(content: bytes, path: str) -> Notebook:
    """Parse a notebook; raise ToolFailure if it is damaged or too large."""
    refuse_oversized(content, path)
    try:
        raw = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        raise ToolFailure(
            f"{path} is not a valid notebook: {problem}",
            hint="It is not JSON as Jupyter writes it. Bash `cat` shows it as text.",
            details={"path": path, "reason": "broken_notebook"},
        ) from None
    cells = _raw_cells(raw)
    if cells is None:
        raise ToolFailure(
            f"{path} is not a notebook: it has no list of cells",
            hint="Bash `cat` shows it as text.",
            details={"path": path, "reason": "broken_notebook"},
        )
    return Notebook(_language(raw), tuple(_cell(number, each) for number, each in enumerate(cells, 1)))


def refuse_oversized(content: bytes, path: str) -> None:
    """Raise ToolFailure for a notebook that would take too much memory when parsed."""
    # Estimated from brackets and commas: a parsed value takes far more memory than its bytes in the file.
    brackets = content.count(b"[") + content.count(b"{")
    needed = brackets * 72 + content.count(b",") * 40
    if len(content) > FILE_BYTES or needed > PARSED_BYTES + len(content) // 2:
        raise ToolFailure(
            f"{path} is too large or too deeply nested to be read as a notebook ({len(content):,} bytes)",
            hint="Look at parts of it with Grep, or clear its outputs first.",
            details={"path": path, "reason": "notebook_too_large"},
        )


def _raw_cells(raw: object) -> list[dict[str, Any]] | None:
    """Return the cells of format 4 (`cells`) or 3 (`worksheets[].cells`)."""
    if not isinstance(raw, dict):
        return None
    book = cast("dict[str, Any]", raw)
    if isinstance(book.get("cells"), list):
        return _objects(book["cells"])
    if isinstance(book.get("worksheets"), list):
        return [cell for sheet in _objects(book["worksheets"]) for cell in _objects(sheet.get("cells"))]
    return None


def _objects(values: object) -> list[dict[str, Any]]:
    items = cast("list[Any]", values) if isinstance(values, list) else []
    return [cast("dict[str, Any]", each) for each in items if isinstance(each, dict)]


def _language(raw: dict[str, Any]) -> str:
    meta = _object(raw.get("metadata"))
    for group, key in (("language_info", "name"), ("kernelspec", "language")):
        if isinstance(name := _object(meta.get(group)).get(key), str):
            return name
    return "python"


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _cell(number: int, raw: dict[str, Any]) -> Cell:
    kind = raw.get("cell_type")
    count = raw.get("execution_count", raw.get("prompt_number"))
    name = raw.get("id")
    return Cell(
        number,
        kind if isinstance(kind, str) else "raw",
        _text(raw.get("source", raw.get("input", ""))),
        tuple(output for each in _objects(raw.get("outputs")) for output in _outputs(each)),
        count if isinstance(count, int) else None,
        name if isinstance(name, str) else "",
    )


def _outputs(raw: dict[str, Any]) -> Iterator[Output]:
    kind = raw.get("output_type")
    if kind == "stream":
        yield Output(str(raw.get("name", raw.get("stream", "stdout"))), _plain(_text(raw.get("text"))))
    elif kind in ("error", "pyerr"):
        trace = _text(raw.get("traceback"), joined_by="\n")
        summary = f"{raw.get('ename', 'Error')}: {raw.get('evalue', '')}"
        yield Output("error", _plain(trace) if trace.strip() else summary)
    else:
        yield from _data(raw)


def _data(raw: dict[str, Any]) -> Iterator[Output]:
    """Yield the image of a result or display, or else its preferred text (`_TEXTS`)."""
    source: Any = raw.get("data", raw)
    if not isinstance(source, dict):
        return
    data = {_OLD_NAMES.get(name, name): value for name, value in cast("dict[str, Any]", source).items()}
    for name in _PICTURES:
        if isinstance(data.get(name), str | list) and (picture := _picture(_text(data[name]))):
            yield Output(name, picture=picture)
            return
    for name in _TEXTS:
        if name in data:
            value = data[name]
            text = json.dumps(value, ensure_ascii=False) if name.endswith("json") else _text(value)
            yield Output(name, _plain(text))
            return


def _picture(text: str) -> bytes:
    if len(text) > PICTURE_BYTES * 4 // 3:
        return b""
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return b""


def _text(value: object, joined_by: str = "") -> str:
    """Return a text that may be stored as a list of lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return joined_by.join(each for each in cast("list[Any]", value) if isinstance(each, str))
    return ""


def _plain(text: str) -> str:
    """Return what a terminal would show at the end: no colours, only a progress bar's last state; truncated."""
    text = _ESCAPES.sub("", text[: NOTEBOOK_OUTPUT_CHARACTERS * 10])
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    shown = "\n".join(lines).rstrip("\n")
    if len(shown) <= NOTEBOOK_OUTPUT_CHARACTERS:
        return shown
    left_out = len(shown) - NOTEBOOK_OUTPUT_CHARACTERS
    return f"{shown[:NOTEBOOK_OUTPUT_CHARACTERS]}\n... [output cut: {left_out:,} more characters]"


def render_cells(book: Notebook, first: int, limit: int, budget: int) -> tuple[str, list[bytes], int]:
    """Render cells from `first` (0-based); return the text, its images in order, and the number of cells shown."""
    parts: list[str] = []
    pictures: list[bytes] = []
    used = 0
    for cell in book.cells[first : first + limit]:
        text = _rendered_cell(cell, book.language, pictures)
        if parts and used + len(text) > budget:
            break
        parts.append(text if len(text) <= budget else f"{text[:budget]}\n... [cell cut]")
        used += len(text)
    return "\n\n".join(parts), pictures, len(parts)


def _rendered_cell(cell: Cell, language: str, pictures: list[bytes]) -> str:
    kind = f"code, {language}" if cell.kind == "code" else cell.kind
    count = f", run [{cell.execution_count}]" if cell.execution_count is not None else ""
    lines = [f"--- cell {cell.number} ({kind}{count}{f', id {cell.id}' if cell.id else ''})", cell.source]
    for output in cell.outputs:
        lines += [f"--- output of cell {cell.number} ({output.kind})", _rendered_output(output, pictures)]
    return "\n".join(lines)


def _rendered_output(output: Output, pictures: list[bytes]) -> str:
    if not output.picture:
        return output.text
    if len(pictures) >= PICTURE_LIMIT:
        return f"[picture left out: more than {PICTURE_LIMIT} in one reading]"
    pictures.append(output.picture)
    return f"[picture {len(pictures)}, shown below]"


def as_data(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return cells as plain data; of images only the type."""
    return [
        {
            "number": cell.number,
            "id": cell.id,
            "type": cell.kind,
            "source": cell.source,
            "execution_count": cell.execution_count,
            "outputs": [{"type": each.kind, "text": each.text} for each in cell.outputs],
        }
        for cell in cells
    ]


# Editing one cell in the text of a notebook: only the bytes of that cell, and perhaps a comma beside it, change.
#
# The file is never serialized again. Cells are found with their positions, and new JSON is formatted like the file's:
# indentation, line ends, separators, sources as a list of lines or as one string, non-ASCII characters escaped or not.
# Formats 4.0 to 4.5 can be edited; cells have ids from 4.5 on.

Mode = Literal["replace", "insert", "delete"]
CellType = Literal["code", "markdown", "raw"]

_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


class BrokenNotebookError(ValueError):
    """The file is not a notebook that can be edited; the message says why."""


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
    """One cell: its position in the text, and its value."""

    start: int
    end: int
    value: dict[str, Any]


@frozen
class _Member:
    """A member of a JSON object: its name and the position of its value."""

    name: str
    start: int
    end: int


@frozen
class _Style:
    """How a file formats JSON: line end ("" if all is in one line), one step of indentation, separators, escaping."""

    newline: str
    step: str
    colon: str
    comma: str
    ascii: bool

    def dump(self, value: object, prefix: str) -> str:
        """Serialize a value; `prefix` is the indentation of the line it begins in."""
        if isinstance(value, dict) and value:
            members = cast("dict[str, Any]", value).items()
            parts = [f"{self.plain(name)}{self.colon}{self.dump(each, prefix + self.step)}" for name, each in members]
            return self.wrap("{", parts, "}", prefix)
        if isinstance(value, list) and value:
            parts = [self.dump(each, prefix + self.step) for each in cast("list[Any]", value)]
            return self.wrap("[", parts, "]", prefix)
        return self.plain(cast("object", value))

    def wrap(self, opening: str, parts: list[str], closing: str, prefix: str) -> str:
        """Join the parts of a list or object, one per line if the file has line ends."""
        if not self.newline:
            return opening + self.comma.join(parts) + closing
        between = f",{self.newline}{prefix}{self.step}"
        return f"{opening}{between[1:]}{between.join(parts)}{self.newline}{prefix}{closing}"

    def plain(self, value: object) -> str:
        return json.dumps(value, ensure_ascii=self.ascii)


class NotebookText:
    """The text of a notebook and the positions of its cells; raises BrokenNotebookError if it cannot be edited."""

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
        """Return the indexes of the cells that an edit names: all with its id, or the one with its number, if any."""
        if edit.cell_id is not None:
            return [at for at, cell in enumerate(self.cells) if cell.value.get("id") == edit.cell_id]
        number = edit.cell_number or 0
        return [number - 1] if 0 < number <= len(self.cells) else []

    def splices(self, edit: CellEdit, at: int) -> list[tuple[int, int, str]]:
        """Return an edit's changes as (start, end, new text); `at` is the index of its cell, -1 to insert first."""
        if edit.mode == "insert":
            return [self._insert(edit, at)]
        return [self._delete(at)] if edit.mode == "delete" else list(self._replace(edit, self.cells[at]))

    # -- the three modes -----------------------------------------------------------------------------------------------

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
        """Return an unused id. It is a hash, not random, so that a dry run shows the id that the real call gives."""
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
        """Return a cell converted to another type, with its members in the same order."""
        turned = {name: each for name, each in value.items() if name not in ("outputs", "execution_count")}
        turned["cell_type"] = edit.cell_type
        if edit.cell_type != "markdown" and edit.cell_type != "raw":
            turned.pop("attachments", None)
            turned |= {"execution_count": None, "outputs": []}
        turned["source"] = _source(edit.source, as_list=not isinstance(value.get("source"), str))
        return turned

    def _spelled_source(self, source: str, place: _Member) -> str:
        """Serialize a source in the format of the one it replaces."""
        before = self.text[place.start : place.end]
        if before.startswith('"'):
            return self.style.plain(source)
        inside = _blanks(self.text, place.start + 1)
        prefix = self.text[self.text.rfind("\n", 0, place.start) + 1 : place.start]
        prefix = prefix[: len(prefix) - len(prefix.lstrip(" \t"))]
        style = self.style
        if "\n" in self.text[place.start : inside]:  # the indentation of this list may differ from the rest of the file
            own = self.text[self.text.rfind("\n", 0, inside) + 1 : inside]
            step = own.removeprefix(prefix) if own.startswith(prefix) else style.step
            style = _Style(style.newline or "\n", step, style.colon, style.comma, style.ascii)
        elif before != "[]":
            style = _Style("", "", style.colon, style.comma if not style.newline else ", ", style.ascii)
        return style.dump(_source(source, as_list=True), prefix)

    # -- the format of the file ----------------------------------------------------------------------------------------

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
        """Return the indentation of a cell's members relative to the cell."""
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
    """Return an edit as splices of the file's bytes; raise BrokenNotebookError if the result would be wrong."""
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
    """Parse the result and check that all other cells and the rest of the notebook are unchanged."""
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
    """Yield the members of the object at a position. Refuse duplicate names: parsers disagree on which one counts."""
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
    """Yield the cells of the array at a position, as (start, end, value)."""
    at = _blanks(text, at + 1)
    while text[at] != "]":
        value, end = _DECODER.raw_decode(text, at)
        if not isinstance(value, dict):
            raise BrokenNotebookError("one of its cells is not an object")
        yield at, end, cast("dict[str, Any]", value)
        at = _blanks(text, end)
        at = _blanks(text, at + 1) if text[at] == "," else at
