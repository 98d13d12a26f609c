"""`Edit` (`FileEdit`), `MultiEdit` and `Write` (`FileWrite`): replace exact text in a file, or its whole content.

The three differ in their arguments alone; what they do, from the checks to the replace, is in `file_write.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from surehand.core.call import ToolResult
from surehand.core.context import ToolContext
from surehand.core.effects import Effect, WritePath
from surehand.core.record import Args, Field
from surehand.core.tool import Preview, Tool
from surehand.tools import prompt
from surehand.tools.edit_checks import EDIT_CHECKS, WRITE_CHECKS, Check, Replace, look_at_once
from surehand.tools.file_write import FileWrite, locate, looked_at
from surehand.tools.write_result import CHANGE_SCHEMA


class EditArgs(Args):
    """What to replace, and by what."""

    file_path: str = Field(description="The absolute path to the file to modify")
    old_string: str = Field(description="The text to replace")
    new_string: str = Field(description="The text to replace it with (must be different from old_string)")
    replace_all: bool = Field(default=False, description="Replace all occurrences of old_string (default false)")


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


class WriteArgs(Args):
    """Which file, and its new content."""

    file_path: str = Field(description="The absolute path to the file to write")
    content: str = Field(description="The content to write to the file")


def _open(args: EditArgs | MultiEditArgs | WriteArgs, ctx: ToolContext) -> FileWrite:
    if isinstance(args, WriteArgs):
        return FileWrite(ctx, args.file_path, content=args.content)
    each = args.edits if isinstance(args, MultiEditArgs) else (args,)
    edits = tuple(Replace(one.old_string, one.new_string, one.replace_all) for one in each)
    return FileWrite(ctx, args.file_path, edits=edits)


def _look(args: Any, ctx: ToolContext) -> FileWrite:
    """Return the write of this call that has passed the checks, or a new one."""
    looked = looked_at(ctx)
    return looked[-1] if looked else _open(args, ctx)


def effects(args: Any, ctx: ToolContext) -> Sequence[Effect]:
    """State what a write of `file_path` touches."""
    return [WritePath(ctx.resolve(args.file_path))]


def resources(args: Any, ctx: ToolContext) -> list[str]:
    """Return the file as a resource that only one call at a time may have."""
    return [f"file:{locate(ctx, ctx.resolve(args.file_path))[1]}"]


def check_at_once(args: EditArgs, ctx: ToolContext) -> bool:
    """Check an edit without a thread: of a small file in the page cache. False if it would wait, or fails."""
    return not args.replace_all and look_at_once(_open(args, ctx))


def _make_tool(checks: tuple[Check, ...], **facts: Any) -> Tool:
    """Make one of the three tools; each runs the checks before a question and again before the write."""

    def check(args: Any, ctx: ToolContext) -> None:
        _look(args, ctx).check_before_question(checks)

    def preview(args: Any, ctx: ToolContext) -> Preview:
        return _look(args, ctx).preview(checks)

    def run(args: Any, ctx: ToolContext) -> ToolResult:
        looked = looked_at(ctx)
        with looked.pop() if looked else _open(args, ctx) as write:
            write.check(checks)
            return write.commit(facts["name"])

    return Tool(
        **facts,
        kind="edit",
        output_schema=CHANGE_SCHEMA,
        run=run,
        check=check,
        preview=preview,
        effects=effects,
        resources=resources,
        requires_permission=True,
        reversible=True,
        cancel_safe=True,
        origin="workspace",
    )


TOOLS: tuple[Tool, ...] = (
    _make_tool(
        EDIT_CHECKS,
        name="Edit",
        aliases=("FileEdit",),
        description=prompt("edit"),
        args=EditArgs,
        check_at_once=check_at_once,
        examples=({"file_path": "src/app.py", "old_string": "DEBUG = True", "new_string": "DEBUG = False"},),
    ),
    _make_tool(
        WRITE_CHECKS,
        name="Write",
        aliases=("FileWrite",),
        description=prompt("write"),
        args=WriteArgs,
        examples=({"file_path": "notes.md", "content": "# Notes\n"},),
    ),
    _make_tool(
        EDIT_CHECKS,
        name="MultiEdit",
        description=prompt("multi_edit"),
        args=MultiEditArgs,
        search_hint="several edits of one file at once",
        examples=(
            {"file_path": "src/app.py", "edits": [{"old_string": "DEBUG = True", "new_string": "DEBUG = False"}]},
        ),
    ),
)
