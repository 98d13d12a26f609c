"""ToolSearch: find tools that the model is not shown yet, and activate them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from surehand.core.call import ToolResult
from surehand.core.errors import ToolFailure
from surehand.core.record import Args, Field
from surehand.core.tool import Tool, ToolInfo
from surehand.tools import list_schema, object_schema

if TYPE_CHECKING:
    from surehand.core.context import ToolContext
    from surehand.core.effects import Effect
    from surehand.core.view import Selection

LIMIT: Final = 10
SELECT: Final = "select:"
_TEXT_LIMIT: Final = 200
_NAMES_SHOWN: Final = 60
_ACTIVATED: Final = "These tools have been activated and are now available for use."
_ALL_ACTIVE: Final = "All tools are already active; nothing needs to be activated."


class ToolSearchArgs(Args):
    """The query."""

    query: str = Field(min_length=1, description="Search query to find tools (e.g., 'fetch web page', 'search files')")


def _run(args: ToolSearchArgs, ctx: ToolContext) -> ToolResult:
    """Search in a thread: building the index of ten thousand tools takes 0.1 s."""
    selection = ctx.session.selection
    if selection is None:
        raise ToolFailure("this session has no tools to search", code="tool_unavailable")
    query = args.query.strip()
    if query.lower().startswith(SELECT):
        return _select_tools(query[len(SELECT) :], selection)
    return _show_found(query, selection.search_tools(query, LIMIT), selection)


def _select_tools(wanted: str, selection: Selection) -> ToolResult:
    names = list(dict.fromkeys(name for each in wanted.split(",") if (name := each.strip())))
    if not names:
        raise ToolFailure("select: names no tool", code="invalid_args", hint="Write 'select:Name1,Name2'.")
    found: list[ToolInfo] = []
    missing: list[str] = []
    for name in names:
        real = selection.source.resolve(name)
        info = selection.source.info(real, selection.session) if real is not None and real in selection else None
        if info is None:
            missing.append(name)
        elif info not in found:
            found.append(info)
    if not found:
        raise ToolFailure(
            f"no tool is named {', '.join(missing)}",
            code="tool_not_found",
            hint="Search by what it should do, for example with the query 'fetch web page'.",
        )
    result = _show_found(f"{SELECT}{','.join(names)}", found, selection)
    note = f"\nNot found: {', '.join(missing)}" if missing else ""
    return ToolResult(data={**result.data, "missing": missing}, output=result.output + note)


def _show_found(query: str, found: list[ToolInfo], selection: Selection) -> ToolResult:
    """Return the tools found, and activate those that were deferred."""
    deferring = selection.deferring
    matches: list[dict[str, Any]] = []
    for info in found:
        activated = selection.is_deferred(info.name) and selection.activate_tool(info.name)
        matches.append({"name": info.name, "description": info.description, "activated": activated})
    data = {"query": query, "matches": matches, "deferring": deferring}
    if not found:
        return ToolResult(data=data, output=_nothing_found(query, selection))
    lines = [f"Found {len(found)} tool(s) matching '{query}':"]
    lines += [f"- {each['name']}: {_short(each['description'])}" for each in matches]
    return ToolResult(data=data, output="\n".join([*lines, "", _ACTIVATED if deferring else _ALL_ACTIVE]))


def _nothing_found(query: str, selection: Selection) -> str:
    if not selection.deferring:
        return f"No tools found matching '{query}'. {_ALL_ACTIVE}"
    hidden = selection.deferred_tools()
    names = ", ".join(hidden[:_NAMES_SHOWN]) + (
        f" and {len(hidden) - _NAMES_SHOWN} more" * (len(hidden) > _NAMES_SHOWN)
    )
    return f"No tools found matching '{query}'. Not active yet: {names or 'none'}."


def _short(text: str) -> str:
    first = text.strip().partition("\n")[0]
    return first if len(first) <= _TEXT_LIMIT else first[: _TEXT_LIMIT - 3].rstrip() + "..."


def _effects(args: ToolSearchArgs, ctx: ToolContext) -> list[Effect]:
    del args, ctx
    return []


TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        name="ToolSearch",
        kind="search",
        output_schema=object_schema(
            {
                "query": "string",
                "matches": list_schema(object_schema({"name": "string", "description": "string"})),
                "deferring": "boolean",
            }
        ),
        description="Search for tools that are not shown yet and activate those that match: by what they do, or by "
        "name with 'select:Name1,Name2'. Activated tools can be called from then on.",
        args=ToolSearchArgs,
        run=_run,
        read_only=True,
        concurrency_safe=True,
        search_hint="tool search find discover deferred",
        examples=({"query": "fetch web page"}, {"query": "select:WebFetch,WebSearch"}),
        effects=_effects,
    ),
)
