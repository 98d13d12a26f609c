"""Jupyter notebooks as a reader sees them: cells in order, with their outputs; pictures as pictures.

Formats 3 and 4 are read. Everything in the file is untrusted: what is missing or of another type is passed over,
what is long is cut with a word about it, and a file that would fill the memory is refused before it is parsed.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from surehand.core.errors import ToolFailure
from surehand.core.frozen import field, frozen

FILE_BYTES: Final = 32 * 1024 * 1024
PARSED_BYTES: Final = 24 * 1024 * 1024
OUTPUT_CHARACTERS: Final = 10_000
PICTURE_LIMIT: Final = 20
PICTURE_BYTES: Final = 8 * 1024 * 1024

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# The richest form that reads as text, best first.
_TEXTS: Final = ("text/markdown", "text/plain", "text/latex", "application/json", "text/html", "image/svg+xml")
_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_OLD_NAMES: Final = {"text": "text/plain", "png": "image/png", "jpeg": "image/jpeg", "html": "text/html"}


@frozen
class Output:
    """One output of a cell: text, or the bytes of a picture."""

    kind: str
    text: str = ""
    picture: bytes = b""


@frozen
class Cell:
    """One cell: its number from 1, its kind, its source and what it printed."""

    number: int
    kind: str
    source: str
    outputs: tuple[Output, ...] = ()
    execution_count: int | None = None
    id: str = ""


@frozen
class Notebook:
    """All cells of a notebook and the language they are written in."""

    language: str
    cells: tuple[Cell, ...] = field(default_factory=tuple[Cell, ...])


def parse_notebook(content: bytes, path: str) -> Notebook:
    """Return the notebook in `content`; raise ToolFailure for one that is broken or too large to parse."""
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
    """Raise ToolFailure for a notebook that would fill the memory when it is parsed."""
    # Every value of a list or an object costs memory, however few bytes it takes in the file.
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
    """Yield what a result or a display shows: its picture when it has one, otherwise its best text."""
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
    """Return a text that may be written as a list of lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return joined_by.join(each for each in cast("list[Any]", value) if isinstance(each, str))
    return ""


def _plain(text: str) -> str:
    """Return what a terminal would show in the end: no colours, only the last state of a progress bar, not too long."""
    text = _ESCAPES.sub("", text[: OUTPUT_CHARACTERS * 10])
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    shown = "\n".join(lines).rstrip("\n")
    if len(shown) <= OUTPUT_CHARACTERS:
        return shown
    return f"{shown[:OUTPUT_CHARACTERS]}\n... [output cut: {len(shown) - OUTPUT_CHARACTERS:,} more characters]"


def render_cells(book: Notebook, first: int, limit: int, budget: int) -> tuple[str, list[bytes], int]:
    """Return cells from `first` (0-based) as text, the pictures in it in order, and how many cells are shown."""
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
    """Return cells as plain data, pictures by their kind only."""
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
