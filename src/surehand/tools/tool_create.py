"""ToolCreate, ToolUpdate, ToolRemove: tools that an agent defines at run time, with the user's approval and versions.

All faults of a definition are reported at once.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from surehand.core.call import ToolCall, ToolResult
from surehand.core.context import ToolContext
from surehand.core.errors import RegistrationError, ToolFailure
from surehand.core.names import name_problems
from surehand.core.record import Args, Field
from surehand.core.schema import ForeignArguments, InvalidArguments
from surehand.core.tool import Preview, Tool
from surehand.tools import list_schema, object_schema, prompt
from surehand.tools.made_tools import WORKSHOP, Made, Version, tool_of

if TYPE_CHECKING:
    from surehand.core.session import Session
    from surehand.core.view import Selection


class Registrar(Protocol):
    """The part of the registry that replaces tools."""

    def exchange(self, away: Iterable[str], tools: Iterable[Tool]) -> list[Tool]:
        """Replace tools by others atomically."""
        ...


class ToolCreateArgs(Args):
    """The definition of a new tool."""

    name: str = Field(min_length=1, description="The name of the new tool, for example 'count_words'")
    description: str = Field(min_length=1, description="What the tool is for, as a model should read it")
    input_schema: dict[str, Any] = Field(description="JSON Schema of the arguments, of type object")
    source: str = Field(min_length=1, description="Python source that defines `run`, called with the arguments by name")
    changes_files: bool = Field(default=False, description="Whether it may change files in the workspace")
    try_args: dict[str, Any] | None = Field(
        default=None, description="Arguments to try it with before it is registered"
    )


class ToolUpdateArgs(Args):
    """Changes to a made tool, or the version to return to."""

    name: str = Field(min_length=1, description="The tool to change; one that was made with ToolCreate")
    description: str | None = Field(default=None, description="The new description; the old one when left out")
    input_schema: dict[str, Any] | None = Field(default=None, description="The new schema; the old one when left out")
    source: str | None = Field(default=None, description="The new source; the old one when left out")
    changes_files: bool | None = Field(default=None, description="Whether it may change files from now on")
    to_version: int | None = Field(
        default=None, ge=1, description="Go back to this version instead of making a new one"
    )
    try_args: dict[str, Any] | None = Field(
        default=None, description="Arguments to try it with before it is registered"
    )


class ToolRemoveArgs(Args):
    """The made tool to remove."""

    name: str = Field(min_length=1, description="The tool to remove; its versions are kept for ToolUpdate")


# Create --------------------------------------------------------------------------------------------------------------


def _create_check(args: ToolCreateArgs, ctx: ToolContext) -> None:
    _refuse(args.name, faults(args.name, args.description, args.input_schema, args.source))
    holder = _selection(ctx).source.resolve(args.name)
    if holder is not None:
        hint = "Use ToolUpdate to change it." if _find_made(ctx, holder) else "Choose another name."
        raise ToolFailure(f"the name {args.name!r} is taken by {holder!r}", code="precondition_failed", hint=hint)


async def _create(args: ToolCreateArgs, ctx: ToolContext) -> ToolResult:
    before = ctx.session.keep(WORKSHOP).get(args.name)
    number = before.next_number if before else 1
    version = Version(
        number, args.description, args.input_schema, args.source, args.changes_files, session_id=ctx.session.id
    )
    made = before.grown(version) if before else Made(args.name, number, (version,))
    return await _put_to_use(made, args.try_args, ctx, f"Created {args.name} (version {number}).")


def _create_preview(args: ToolCreateArgs, ctx: ToolContext) -> Preview:
    del ctx
    power = "may change files in the workspace" if args.changes_files else "may only read the workspace"
    what = f"A new tool {args.name}: {args.description}\nIt runs in a sandbox without network and {power}."
    return Preview(f"{what} Its source:\n\n{args.source}")


# Update --------------------------------------------------------------------------------------------------------------


def _make_version(args: ToolUpdateArgs, made: Made, session: Session) -> Version:
    """Return the version that an update selects: an earlier one, or a new one."""
    if args.to_version is not None:
        if (found := made.version(args.to_version)) is None:
            there = ", ".join(str(each.number) for each in made.versions)
            raise ToolFailure(
                f"{made.name} has no version {args.to_version}", code="precondition_failed", hint=f"There are {there}."
            )
        return found
    old = made.version() or made.versions[-1]
    return Version(
        made.next_number,
        old.description if args.description is None else args.description,
        old.input_schema if args.input_schema is None else args.input_schema,
        old.source if args.source is None else args.source,
        old.changes_files if args.changes_files is None else args.changes_files,
        session_id=session.id,
    )


def _update_check(args: ToolUpdateArgs, ctx: ToolContext) -> None:
    made = _get_made(ctx, args.name)
    version = _make_version(args, made, ctx.session)
    _refuse(args.name, faults(args.name, version.description, version.input_schema, version.source))


async def _update(args: ToolUpdateArgs, ctx: ToolContext) -> ToolResult:
    made = _get_made(ctx, args.name)
    version = _make_version(args, made, ctx.session)
    if args.to_version is not None:
        after = Made(made.name, version.number, made.versions)
        return await _put_to_use(after, args.try_args, ctx, f"{made.name} is back at version {version.number}.")
    return await _put_to_use(
        made.grown(version), args.try_args, ctx, f"{made.name} is now at version {version.number}."
    )


def _update_preview(args: ToolUpdateArgs, ctx: ToolContext) -> Preview:
    made = _get_made(ctx, args.name)
    old, new = made.version() or made.versions[-1], _make_version(args, made, ctx.session)
    diff = "".join(
        difflib.unified_diff(
            old.source.splitlines(keepends=True),
            new.source.splitlines(keepends=True),
            f"{args.name} version {old.number}",
            f"{args.name} version {new.number}",
        )
    )
    power = "It may change files in the workspace." if new.changes_files else "It may only read the workspace."
    return Preview(f"{args.name} from version {old.number} to {new.number}: {new.description}\n{power}", diff)


# Remove --------------------------------------------------------------------------------------------------------------


def _remove_check(args: ToolRemoveArgs, ctx: ToolContext) -> None:
    if not _get_made(ctx, args.name).current:
        raise ToolFailure(f"{args.name} was removed before", code="precondition_failed")


async def _remove(args: ToolRemoveArgs, ctx: ToolContext) -> ToolResult:
    made = _get_made(ctx, args.name)
    _exchange(ctx, [made.name], [])
    ctx.session.keep(WORKSHOP).keep(Made(made.name, 0, made.versions))
    last = max(each.number for each in made.versions)
    text = f"Removed {made.name}; ToolUpdate with to_version {last} brings it back."
    return ToolResult(data={"name": made.name, "removed": True}, output=text)


def _remove_preview(args: ToolRemoveArgs, ctx: ToolContext) -> Preview:
    made = _get_made(ctx, args.name)
    return Preview(f"{made.name} (version {made.current}) is taken away; its versions are kept.")


# Shared --------------------------------------------------------------------------------------------------------------


async def _put_to_use(made: Made, try_args: dict[str, Any] | None, ctx: ToolContext, said: str) -> ToolResult:
    """Run a version with `try_args`, then register and save it; if the run fails, nothing changes."""
    tool, version = tool_of(made), made.version()
    assert version is not None
    tried = await _try_tool(tool, made, version, try_args, ctx) if try_args is not None else None
    source = _selection(ctx).source
    _exchange(ctx, [made.name] if source.resolve(made.name) else [], [tool])
    ctx.session.keep(WORKSHOP).keep(made)
    selection = _selection(ctx)
    callable_now = selection.activate_tool(made.name)
    lines = [said, "" if callable_now else "It is outside this session's allow-list and cannot be called here."]
    lines += [f"Tried with success: {tried.output[:500]}"] if tried else []
    data = {
        "name": made.name,
        "version": version.number,
        "versions": [each.number for each in made.versions],
        "digest": version.digest,
        "tried": tried.data if tried else None,
    }
    return ToolResult(data=data, output="\n".join(filter(None, lines)))


async def _try_tool(tool: Tool, made: Made, version: Version, try_args: dict[str, Any], ctx: ToolContext) -> ToolResult:
    try:
        tool.arguments.check(try_args)
    except InvalidArguments as problem:
        raise ToolFailure(f"try_args do not fit the schema: {problem}", code="invalid_args") from None
    own = ToolContext(ToolCall(made.name, try_args, id=ctx.call.id), ctx.session, lambda progress: None, {})
    try:
        return await ctx.session.keep(WORKSHOP).run(version, made.name, try_args, own)
    except ToolFailure as failure:
        raise ToolFailure(
            f"the try failed, so nothing was registered: {failure.message}",
            hint="Correct the source and call again.",
            details=failure.details,
        ) from failure


def _exchange(ctx: ToolContext, away: list[str], tools: list[Tool]) -> None:
    try:
        cast("Registrar", _selection(ctx).source).exchange(away, tools)
    except RegistrationError as problem:
        raise ToolFailure(
            str(problem), code="precondition_failed", details={"problems": list(problem.problems)}
        ) from None


def _selection(ctx: ToolContext) -> Selection:
    selection = ctx.session.selection
    if selection is None or not hasattr(selection.source, "exchange"):
        raise ToolFailure("this session has no registry to add tools to", code="tool_unavailable")
    return selection


def _find_made(ctx: ToolContext, name: str) -> Made | None:
    return ctx.session.keep(WORKSHOP).get(name)


def _get_made(ctx: ToolContext, name: str) -> Made:
    made = _find_made(ctx, name)
    if made is None:
        there = ", ".join(each.name for each in ctx.session.keep(WORKSHOP).all()) or "none"
        raise ToolFailure(
            f"{name} was not made with ToolCreate", code="precondition_failed", hint=f"Tools made so far: {there}."
        )
    return made


def _refuse(name: str, found: list[str]) -> None:
    if found:
        raise ToolFailure(
            f"{name} cannot be registered: {'; '.join(found)}",
            code="invalid_args",
            hint="Correct all of these and call again.",
            details={"faults": found},
        )


_MADE: Final = object_schema({"name": "string"}, version="integer", versions=list_schema("integer"), digest="string")
_EXAMPLE: Final[dict[str, Any]] = {
    "name": "count_words",
    "description": "Count the words of a text.",
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "source": "def run(text):\n    return {'words': len(text.split())}\n",
    "try_args": {"text": "a b c"},
}

TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        name="ToolCreate",
        output_schema=_MADE,
        description=prompt("tool_create"),
        args=ToolCreateArgs,
        run=_create,
        requires_permission=True,
        search_hint="make new tool create write own custom python",
        timeout_s=120.0,
        examples=(_EXAMPLE,),
        check=_create_check,
        preview=_create_preview,
    ),
    Tool(
        name="ToolUpdate",
        output_schema=_MADE,
        description="Change a tool made with ToolCreate (a new version of it), or go back to an earlier version.",
        args=ToolUpdateArgs,
        run=_update,
        requires_permission=True,
        search_hint="change update made tool version rollback roll back",
        timeout_s=120.0,
        examples=({"name": "count_words", "to_version": 1},),
        check=_update_check,
        preview=_update_preview,
    ),
    Tool(
        name="ToolRemove",
        output_schema=_MADE,
        description="Take away a tool made with ToolCreate; its versions are kept.",
        args=ToolRemoveArgs,
        run=_remove,
        requires_permission=True,
        search_hint="remove delete made tool",
        examples=({"name": "count_words"},),
        check=_remove_check,
        preview=_remove_preview,
    ),
)


# Checking a definition: all faults of its name, schema and source at once.

SOURCE_LIMIT: Final = 200_000


def faults(name: str, description: str, input_schema: Mapping[str, Any], source: str) -> list[str]:
    """Return all faults of a definition."""
    found = name_problems(name)
    if name.startswith("mcp__") or ":" in name:
        found.append(f"name {name!r} has the form of a tool of an MCP server; choose a plain one")
    if not description.strip():
        found.append("description is empty: say what the tool is for")
    schema_faults = ForeignArguments(dict(input_schema)).problems()
    if input_schema.get("type") != "object":
        schema_faults.append('input_schema must have "type": "object"')
    return found + schema_faults + _source_faults(source, {} if schema_faults else input_schema)


def _source_faults(source: str, input_schema: Mapping[str, Any]) -> list[str]:
    if len(source) > SOURCE_LIMIT:
        return [f"source has {len(source):,} characters; at most {SOURCE_LIMIT:,}"]
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        line = getattr(problem, "lineno", None)
        return [f"source, line {line or '?'}: {getattr(problem, 'msg', None) or problem}"]
    functions = [
        node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "run"
    ]
    if not functions:
        return ["source defines no function `run` at its top level"]
    return _parameter_faults(functions[-1].args, input_schema)


def _parameter_faults(wanted: ast.arguments, input_schema: Mapping[str, Any]) -> list[str]:
    """Compare the parameters of `run` with the schema."""
    if wanted.posonlyargs:
        return ["`run` is called by name; it cannot have positional-only parameters"]
    named = [each.arg for each in (*wanted.args, *wanted.kwonlyargs)]
    plain = [each.arg for each in wanted.args]
    optional = {*plain[len(plain) - len(wanted.defaults) :]} if wanted.defaults else set[str]()
    optional |= {
        each.arg for each, value in zip(wanted.kwonlyargs, wanted.kw_defaults, strict=True) if value is not None
    }
    properties = cast("Mapping[str, Any]", input_schema.get("properties") or {})
    required = cast("list[str]", input_schema.get("required") or [])
    found = [f"`run` takes no parameter {name!r}" for name in properties if name not in named and not wanted.kwarg]
    for name in named:
        if name not in optional and name not in required:
            found.append(f"`run` needs {name!r}, but the schema does not require it")
    return found
