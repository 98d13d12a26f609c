"""`MultiEdit`: several replacements in one file, all or none."""

from __future__ import annotations

from surehand.core.call import ToolResult
from surehand.core.context import ToolContext
from surehand.core.record import Args, Field
from surehand.core.tool import Preview, Tool
from surehand.tools.edit import effects, resources
from surehand.tools.edit_checks import EDIT_CHECKS
from surehand.tools.file_write import FileWrite, Replace
from surehand.tools.output_schemas import output_schema
from surehand.tools.prompts import prompt


class OneEdit(Args):
    """One replacement of several."""

    old_string: str = Field(description="The text to replace")
    new_string: str = Field(description="The text to replace it with (must be different from old_string)")
    replace_all: bool = Field(default=False, description="Replace all occurrences of old_string (default false)")


class MultiEditArgs(Args):
    """Which file, and the replacements in their order."""

    file_path: str = Field(description="The absolute path to the file to modify")
    edits: list[OneEdit] = Field(
        min_length=1, description="The edits to make in order, each on the result of the one before"
    )


def _open(args: MultiEditArgs, ctx: ToolContext) -> FileWrite:
    edits = tuple(Replace(each.old_string, each.new_string, each.replace_all) for each in args.edits)
    return FileWrite(ctx, args.file_path, edits=edits)


def check(args: MultiEditArgs, ctx: ToolContext) -> None:
    """Raise the first precondition that does not hold."""
    _open(args, ctx).check_before_question(EDIT_CHECKS)


def preview(args: MultiEditArgs, ctx: ToolContext) -> Preview:
    """Return what the call would change, as a diff."""
    return _open(args, ctx).preview(EDIT_CHECKS)


def run(args: MultiEditArgs, ctx: ToolContext) -> ToolResult:
    """Do what the call asks for, and return its result."""
    with _open(args, ctx) as write:
        write.check(EDIT_CHECKS)
        return write.commit("MultiEdit")


TOOLS: tuple[Tool, ...] = (
    Tool(
        name="MultiEdit",
        output_schema=output_schema("MultiEdit"),
        description=prompt("multi_edit"),
        args=MultiEditArgs,
        run=run,
        check=check,
        preview=preview,
        effects=effects,
        resources=resources,
        search_hint="several edits of one file at once",
        requires_permission=True,
        reversible=True,
        cancel_safe=True,
        origin="workspace",
        examples=(
            {"file_path": "src/app.py", "edits": [{"old_string": "DEBUG = True", "new_string": "DEBUG = False"}]},
        ),
    ),
)
