"""Calls that a tool makes of other tools (`ctx.call`): through the one door, as children of the call it serves.

A child may do nothing that the call above may not: it is judged by itself in the same session, mode and selection, and
under a call that changes nothing it changes nothing. Chains are bounded, and no tool calls itself again, by any detour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from surehand.core.call import Parent, ToolCall, ToolResult
from surehand.core.context import ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.tool import Tool
from surehand.registry.resolve import requirement_name, unmet_requirement

if TYPE_CHECKING:
    from surehand.core.view import Selection
    from surehand.engine.executor import Executor

DEPTH_LIMIT: Final = 8
"""Calls inside calls."""


async def make_child_call(
    executor: Executor, tool: Tool, own_args: Any, ctx: ToolContext, name: str, args: Mapping[str, Any], listed: bool
) -> ToolResult:
    """Make a call for a running tool and return its result; raise ToolFailure where it may make none.

    `listed` holds it to what it `requires`, in a version that fits.
    """
    own, view = ctx.call, ctx.session.selection
    if view is None:
        raise ToolFailure("this session has no tools to call", code="tool_unavailable")
    if listed:
        _check_required(tool, name, view)
    above = (*(own.parent.tools if own.parent is not None else ()), tool.name)
    real = view.source.resolve(name) or name
    if real in above:
        path = " -> ".join((*above, real))
        raise ToolFailure(f"{real} would be called again by the tools it calls: {path}", code="precondition_failed")
    if len(above) >= DEPTH_LIMIT:
        path = " -> ".join((*above, real))
        raise ToolFailure(f"calls are nested more than {DEPTH_LIMIT} deep: {path}", code="precondition_failed")
    read_only = tool.read_only if isinstance(tool.read_only, bool) else tool.read_only(own_args, ctx)
    bound = read_only or (own.parent is not None and own.parent.read_only)
    parent = Parent(own.id, above, ctx.turn, bound, ctx.holds)
    return await executor.run(ToolCall(name, args, source=own.source, parent=parent), ctx.session, view)


def _check_required(tool: Tool, name: str, view: Selection) -> None:
    source = view.source
    wanted = [each for each in tool.requires if _same(requirement_name(each), name, view)]
    if not wanted:
        raise ToolFailure(
            f"{tool.name} may not call {name}, which it does not require",
            code="tool_unavailable",
            hint=f"Declare it: requires=({name!r},), with a version range if that matters.",
        )
    for requirement in wanted:
        if (fault := unmet_requirement(requirement, source.card)) is not None:
            raise ToolFailure(f"{tool.name} {fault}", code="tool_unavailable")


def _same(one: str, other: str, view: Selection) -> bool:
    return one == other or (view.source.resolve(one) or one) == (view.source.resolve(other) or other)


def refuse_wider(parent: Parent, tool: Tool, args: Any, ctx: ToolContext) -> None:
    """Raise ToolFailure for a call that may change something, made by one that may not."""
    if not parent.read_only:
        return
    if not (tool.read_only if isinstance(tool.read_only, bool) else tool.read_only(args, ctx)):
        raise ToolFailure(
            f"{parent.tools[-1]} is read-only and may not call {tool.name}, which is not",
            code="permission_denied",
            hint=f"Let {parent.tools[-1]} say that it is not read-only; then it is asked about.",
        )
