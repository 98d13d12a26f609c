"""`Edit` (`FileEdit`): replace exact text in a file; nothing else in it changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from surehand.core.call import ToolResult
from surehand.core.context import ToolContext
from surehand.core.effects import Effect, WritePath
from surehand.core.record import Args, Field
from surehand.core.tool import Preview, Tool
from surehand.tools.edit_checks import EDIT_CHECKS, look_at_once
from surehand.tools.file_write import FileWrite, Replace, locate
from surehand.tools.output_schemas import output_schema
from surehand.tools.prompts import prompt


class EditArgs(Args):
    """What to replace, and by what."""

    file_path: str = Field(description="The absolute path to the file to modify")
    old_string: str = Field(description="The text to replace")
    new_string: str = Field(description="The text to replace it with (must be different from old_string)")
    replace_all: bool = Field(default=False, description="Replace all occurrences of old_string (default false)")


def _open(args: EditArgs, ctx: ToolContext) -> FileWrite:
    edits = (Replace(args.old_string, args.new_string, args.replace_all),)
    return FileWrite(ctx, args.file_path, edits=edits)


def effects(args: Any, ctx: ToolContext) -> Sequence[Effect]:
    """State what an edit of `file_path` touches."""
    return [WritePath(ctx.resolve(args.file_path))]


def resources(args: Any, ctx: ToolContext) -> list[str]:
    """Name the file that no two calls may write at once."""
    return [f"file:{locate(ctx, ctx.resolve(args.file_path))[1]}"]


def check_at_once(args: EditArgs, ctx: ToolContext) -> bool:
    """Check the edit of a small file that lies in memory; False where there is anything to wait for, or to explain."""
    return not args.replace_all and look_at_once(_open(args, ctx))


def check(args: EditArgs, ctx: ToolContext) -> None:
    """Raise the first precondition that does not hold."""
    _open(args, ctx).check_before_question(EDIT_CHECKS)


def preview(args: EditArgs, ctx: ToolContext) -> Preview:
    """Return what the call would change, as a diff."""
    return _open(args, ctx).preview(EDIT_CHECKS)


def run(args: EditArgs, ctx: ToolContext) -> ToolResult:
    """Do what the call asks for, and return its result."""
    with _open(args, ctx) as write:
        write.check(EDIT_CHECKS)
        return write.commit("Edit")


TOOLS: tuple[Tool, ...] = (
    Tool(
        name="Edit",
        output_schema=output_schema("Edit"),
        description=prompt("edit"),
        args=EditArgs,
        run=run,
        check=check,
        check_at_once=check_at_once,
        preview=preview,
        effects=effects,
        resources=resources,
        aliases=("FileEdit",),
        requires_permission=True,
        reversible=True,
        cancel_safe=True,
        origin="workspace",
        examples=({"file_path": "src/app.py", "old_string": "DEBUG = True", "new_string": "DEBUG = False"},),
    ),
)
