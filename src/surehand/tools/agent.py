"""`Agent`: delegate work to a sub-agent, which has a session of its own and at most the rights of its parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from surehand.core.call import ToolResult
from surehand.core.effects import StartAgent, Unreadable
from surehand.core.errors import ToolFailure
from surehand.core.record import Args, Field, hide_default
from surehand.core.session import AgentMode, AgentOrder
from surehand.core.tool import Tool
from surehand.git.model import find_risks
from surehand.tools import object_schema, prompt

if TYPE_CHECKING:
    from surehand.core.context import ToolContext
    from surehand.core.effects import Effect

TIMEOUT_S: Final = 3600.0


class AgentArgs(Args):
    """The work for a sub-agent."""

    prompt: str = Field(min_length=1, description="The task prompt for the sub-agent")
    description: str = Field(default="", description="Task description for tracking", json_schema_extra=hide_default)
    model: str = Field(
        default="", description="Model to use (inherits parent if empty)", json_schema_extra=hide_default
    )
    mode: AgentMode = Field(
        default="sync", description="Run mode: sync (default) / background / worktree", json_schema_extra=hide_default
    )
    branch_name: str = Field(
        default="",
        description="Branch name for worktree mode (auto-generated if empty)",
        json_schema_extra=hide_default,
    )
    subagent_type: str = Field(default="", description="Which kind of sub-agent, by its profile's name")


def _effects(args: AgentArgs, ctx: ToolContext) -> list[Effect]:
    effects: list[Effect] = [StartAgent(args.subagent_type)]
    if args.mode == "worktree" and (found := find_risks(ctx.session.workspace, ctx.session.roots)):
        why = f"a worktree makes git run or read what this repository's own files name ({', '.join(found)})"
        effects.append(Unreadable(why))
    return effects


def _check(args: AgentArgs, ctx: ToolContext) -> None:
    runner = ctx.session.agents
    if runner is None:
        raise ToolFailure(
            "there is no model to run a sub-agent with",
            code="precondition_failed",
            hint="Sub-agents run inside `surehand ask`, `surehand chat` or a conversation of the library.",
        )
    names = [profile.name for profile in runner.profiles()]
    if args.subagent_type and args.subagent_type not in names:
        listed = "; ".join(f"{profile.name}: {profile.description}" for profile in runner.profiles())
        raise ToolFailure(
            f"there is no sub-agent {args.subagent_type!r}", code="precondition_failed", hint=f"There are: {listed}"
        )
    if args.mode == "background" and not ctx.session.interactive:
        raise ToolFailure(
            "a background agent would end with this one-shot call",
            code="precondition_failed",
            hint="Use mode sync, or a lasting session: `surehand chat`, `surehand serve`, the library.",
        )


async def _run(args: AgentArgs, ctx: ToolContext) -> ToolResult:
    runner = ctx.session.agents
    assert runner is not None, "checked before"
    order = AgentOrder(args.prompt, args.description, args.mode, args.model, args.branch_name, args.subagent_type)
    return await runner.run(order, ctx)


TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        name="Agent",
        kind="think",
        output_schema=object_schema(
            {"agent_id": "string"},
            text="string",
            state="string",
            status="string",
            turns="integer",
            tool_calls="integer",
        ),
        aliases=("Task",),
        description=prompt("agent"),
        args=AgentArgs,
        run=_run,
        effects=_effects,
        check=_check,
        requires_permission=False,
        concurrency_safe=lambda args, ctx: True,  # each call has a session of its own
        search_hint="sub-agent delegate task worktree background parallel",
        timeout_s=TIMEOUT_S,
        examples=({"prompt": "Find every place that parses dates and list them with file and line."},),
    ),
)
