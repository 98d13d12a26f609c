"""`Write` (`FileWrite`): create a file, or replace its whole content in one step."""

from __future__ import annotations

from surehand.core.call import ToolResult
from surehand.core.context import ToolContext
from surehand.core.record import Args, Field
from surehand.core.tool import Preview, Tool
from surehand.tools.edit import effects, resources
from surehand.tools.edit_checks import WRITE_CHECKS
from surehand.tools.file_write import FileWrite
from surehand.tools.output_schemas import output_schema
from surehand.tools.prompts import prompt


class WriteArgs(Args):
    """Which file, and its new content."""

    file_path: str = Field(description="The absolute path to the file to write")
    content: str = Field(description="The content to write to the file")


def _open(args: WriteArgs, ctx: ToolContext) -> FileWrite:
    return FileWrite(ctx, args.file_path, content=args.content)


def check(args: WriteArgs, ctx: ToolContext) -> None:
    """Raise the first precondition that does not hold."""
    _open(args, ctx).check_before_question(WRITE_CHECKS)


def preview(args: WriteArgs, ctx: ToolContext) -> Preview:
    """Return what the call would change, as a diff."""
    return _open(args, ctx).preview(WRITE_CHECKS)


def run(args: WriteArgs, ctx: ToolContext) -> ToolResult:
    """Do what the call asks for, and return its result."""
    with _open(args, ctx) as write:
        write.check(WRITE_CHECKS)
        return write.commit("Write")


TOOLS: tuple[Tool, ...] = (
    Tool(
        name="Write",
        output_schema=output_schema("Write"),
        description=prompt("write"),
        args=WriteArgs,
        run=run,
        check=check,
        preview=preview,
        effects=effects,
        resources=resources,
        aliases=("FileWrite",),
        requires_permission=True,
        reversible=True,
        cancel_safe=True,
        origin="workspace",
        examples=({"file_path": "notes.md", "content": "# Notes\n"},),
    ),
)
