"""`NotebookEdit`: replace, insert or delete one cell of a notebook; every other byte of the file stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from surehand.core.call import ToolResult
from surehand.core.context import ToolContext
from surehand.core.effects import Effect, WritePath
from surehand.core.errors import ToolFailure
from surehand.core.record import Args, Field
from surehand.core.text import format_count
from surehand.core.tool import Preview, Tool
from surehand.files.notebook import BrokenNotebookError, CellEdit, NotebookText, edit_cell, refuse_oversized
from surehand.files.paths import real_path
from surehand.files.text import apply_splices
from surehand.tools import prompt
from surehand.tools.edit_checks import (
    Check,
    Problem,
    file_exists,
    half_character,
    is_plain_file,
    path_permitted,
    unchanged_since_read,
    was_read,
)
from surehand.tools.file_write import FileWrite, looked_at
from surehand.tools.write_result import CHANGE_SCHEMA


class NotebookEditArgs(Args):
    """Which cell of which notebook, and what to do with it."""

    notebook_path: str = Field(description="The absolute path to the notebook (.ipynb) to edit")
    edit_mode: Literal["replace", "insert", "delete"] = Field(
        default="replace", description="replace (default), insert or delete"
    )
    cell_id: str | None = Field(default=None, description="The id of the cell; insert puts the new cell after it")
    cell_number: int | None = Field(
        default=None, ge=0, description="The number of the cell, from 1, instead of its id; 0 inserts before all cells"
    )
    new_source: str | None = Field(default=None, description="The new source of the cell (replace, insert)")
    cell_type: Literal["code", "markdown", "raw"] | None = Field(
        default=None, description="The type of the cell (default: as it is; code for a new one)"
    )
    outputs: Literal["clear", "keep"] = Field(
        default="clear", description="What becomes of a replaced cell's outputs: clear (default) or keep"
    )


class CellWrite(FileWrite):
    """A write that changes one cell."""

    def __init__(self, ctx: ToolContext, args: NotebookEditArgs) -> None:
        super().__init__(ctx, args.notebook_path)
        self.args = args
        self.cell = CellEdit(
            args.edit_mode,
            args.cell_id,
            args.cell_number,
            args.new_source or "",
            args.cell_type,
            args.outputs == "keep",
        )
        self.book: NotebookText | None = None


def arguments_fit(write: FileWrite) -> Problem | None:
    """Layer 1: the arguments fit the operation."""
    assert isinstance(write, CellWrite)
    args = write.args
    if args.edit_mode != "delete" and args.new_source is None:
        return Problem(1, f"{args.edit_mode} needs new_source.", "Send the new source of the cell.")
    if args.edit_mode == "delete" and args.new_source:
        return Problem(1, "delete takes no new_source.", "Leave new_source out, or use edit_mode replace.")
    if args.cell_id is not None and args.cell_number is not None:
        return Problem(1, "cell_id and cell_number are both given.", "Name the cell by one of them.")
    if args.edit_mode != "insert" and args.cell_id is None and not args.cell_number:
        return Problem(1, f"{args.edit_mode} needs a cell.", "Name it by cell_id, or by cell_number from 1.")
    return half_character("new_source", args.new_source or "", 0, errors="strict")  # JSON has no stray bytes


def is_notebook(write: FileWrite) -> Problem | None:
    """Layer 6: refuse what is not a notebook that can be edited by cells; read what is."""
    assert isinstance(write, CellWrite)
    problem = is_plain_file(write)
    if problem is not None:
        return problem
    if not write.path.lower().endswith(".ipynb"):
        message = f"{write.path} is not a notebook (.ipynb)."
        return Problem(5, message, "Use Edit for other files.", {"reason": "no_notebook"})
    try:
        refuse_oversized(bytes(write.data), write.path)
        if write.encoding.codec != "utf-8" or write.encoding.errors != "strict":
            raise BrokenNotebookError("it is not UTF-8")
        write.book = NotebookText(write.encoding.decode(bytes(write.data)))
    except (BrokenNotebookError, ToolFailure) as problem:
        message = f"{write.path} cannot be edited by cells: {problem}."
        hint = "Read shows it as text; fix it with Bash, or replace the whole file with Write."
        return Problem(5, message, hint, {"reason": "broken_notebook"})
    return None


def cell_found(write: FileWrite) -> Problem | None:
    """Layer 9: find the cell, and make the new bytes."""
    assert isinstance(write, CellWrite)
    book, cell = write.book, write.cell
    assert book is not None
    found = book.find(cell)
    named = f"id {cell.cell_id!r}" if cell.cell_id is not None else f"number {cell.cell_number}"
    if len(found) > 1:
        numbers = [at + 1 for at in found]
        message = f"the cells {', '.join(map(str, numbers))} all have the {named}."
        return Problem(9, message, "Name the cell by its cell_number.", {"cells": numbers})
    if not found and (cell.cell_id is not None or cell.cell_number):
        return _no_such_cell(book, named)
    at = found[0] if found else -1
    try:
        write.splices = edit_cell(book, write.encoding.bom, cell, at)
    except BrokenNotebookError as problem:
        message = f"{write.path} cannot be edited by cells: {problem}."
        return Problem(5, message, "Replace the notebook whole with Write.", {"reason": "broken_notebook"}, layer=6)
    if not write.splices:
        message = "the cell has exactly this source already; there is nothing to change."
        return Problem(1, message, "Send the source you want.", layer=1)
    write.parts = apply_splices(write.data, write.splices)
    write.summary = _describe(book, cell, at)
    return None


def _no_such_cell(book: NotebookText, named: str) -> Problem:
    ids = [str(cell.value["id"]) for cell in book.cells if "id" in cell.value]
    hint = "Its cells have no ids; name one by cell_number."
    if ids:
        hint = f"Its ids are {', '.join(ids[:50])}."
    elif not book.cells:
        hint = "Insert one with edit_mode insert and no cell named."
    message = f"the notebook has no cell with the {named}; it has {format_count(len(book.cells), 'cell')}."
    return Problem(8, message, hint, {"cells": len(book.cells), "ids": ids[:50]})


def _describe(book: NotebookText, cell: CellEdit, at: int) -> str:
    count = len(book.cells) + {"insert": 1, "delete": -1, "replace": 0}[cell.mode]
    number = at + 2 if cell.mode == "insert" else at + 1
    done = {"insert": "Inserted", "delete": "Deleted", "replace": "Replaced the source of"}[cell.mode]
    cleared = ""
    if cell.mode == "replace" and book.cells[at].value.get("outputs"):
        cleared = " Its outputs were kept." if cell.keep_outputs else " Its outputs were cleared."
    return f"{done} cell {number}.{cleared} The notebook has {format_count(count, 'cell')}."


NOTEBOOK_CHECKS: Final[tuple[Check, ...]] = (
    Check(1, arguments_fit),
    Check(2, path_permitted),
    Check(5, file_exists),
    Check(6, is_notebook),
    Check(7, was_read),
    Check(8, unchanged_since_read),
    Check(9, cell_found),
)


def effects(args: Any, ctx: ToolContext) -> Sequence[Effect]:
    """State the notebook that the call writes."""
    return [WritePath(ctx.resolve(args.notebook_path))]


def resources(args: Any, ctx: ToolContext) -> list[str]:
    """Return the notebook as a resource that only one call at a time may have."""
    return [f"file:{real_path(ctx.resolve(args.notebook_path))}"]


def check(args: NotebookEditArgs, ctx: ToolContext) -> None:
    """Raise the first precondition that does not hold."""
    CellWrite(ctx, args).check_before_question(NOTEBOOK_CHECKS)


def preview(args: NotebookEditArgs, ctx: ToolContext) -> Preview:
    """Return what the call would change, as a diff."""
    return CellWrite(ctx, args).preview(NOTEBOOK_CHECKS)


def run(args: NotebookEditArgs, ctx: ToolContext) -> ToolResult:
    """Change the cell."""
    looked = looked_at(ctx)
    with looked.pop() if looked else CellWrite(ctx, args) as write:
        write.check(NOTEBOOK_CHECKS)
        return write.commit("NotebookEdit")


TOOLS: tuple[Tool, ...] = (
    Tool(
        name="NotebookEdit",
        kind="edit",
        output_schema=CHANGE_SCHEMA,
        description=prompt("notebook_edit"),
        args=NotebookEditArgs,
        run=run,
        check=check,
        preview=preview,
        effects=effects,
        resources=resources,
        search_hint="jupyter notebook ipynb cell replace insert delete",
        requires_permission=True,
        reversible=True,
        origin="workspace",
        examples=({"notebook_path": "analysis.ipynb", "cell_number": 2, "new_source": "print(1)"},),
    ),
)
