"""A tool's own word on a call (`check_permission`): it narrows what the policy decides, and never widens it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

from surehand.core.context import ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.frozen import changed
from surehand.core.tool import Permission, Preview, Tool
from surehand.engine.workers import Workers
from surehand.policy.policy import Decision

_STRICTNESS: Final = {"allow": 0, "ask": 1, "deny": 2}
_KEPT: Final = "own word"


async def narrow(
    tool: Tool, args: Any, ctx: ToolContext, decision: Decision, workers: Workers
) -> tuple[Decision, Mapping[str, Any] | None]:
    """Return the decision as the tool narrows it, and the arguments it wants instead, if any."""
    check = tool.check_permission
    if check is None:
        return decision, None
    if inspect.iscoroutinefunction(check):
        said = await check(args, ctx)
    else:
        said = await workers.submit(lambda: check(args, ctx))
    return narrowed(tool, ctx, decision, said)


def narrowed(tool: Tool, ctx: ToolContext, decision: Decision, said: Any) -> tuple[Decision, Mapping[str, Any] | None]:
    """Apply a tool's word to a decision; raise ToolFailure for a word that is none."""
    if said is None:
        return decision, None
    if not isinstance(said, Permission) or said.verdict not in _STRICTNESS:
        raise ToolFailure(
            f"check_permission of {tool.name} returned {said!r}, which is no Permission",
            hint="This is a fault in the tool; the call was not made.",
        )
    ctx.once(_KEPT, lambda: said)
    wanted = said.args if said.args is not None and dict(said.args) != dict(ctx.call.args) else None
    if _STRICTNESS[said.verdict] <= _STRICTNESS[decision.verdict]:
        return decision, wanted
    reason = said.reason or f"{tool.name} itself says so"
    # No rule answers this for good: the tool would say it again.
    return changed(decision, verdict=said.verdict, reason=reason, suggestion=None), wanted


def with_own_word(ctx: ToolContext, shown: Preview | None) -> Preview | None:
    """Return what a question shows, with what the tool wants to be seen before everything else."""
    said: Permission | None = ctx.once(_KEPT, lambda: None)
    if said is None or not said.show:
        return shown
    if shown is None:
        return Preview(said.show)
    return changed(shown, text=f"{said.show}\n{shown.text}".rstrip())
