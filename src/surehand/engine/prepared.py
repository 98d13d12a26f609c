"""A prepared call, as the executor and its middleware hand it on: checked, permitted, and who looks on.

Beside it: the errors of a call in words, and the calls that its tool makes of others (`ctx.call`). Those go through the
one door as children of the call they serve, and may do nothing that it may not: each is judged by itself in the same
session, mode and selection, and under a call that changes nothing it changes nothing. Chains are bounded, and no tool
calls itself again, by any detour.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from surehand.core.call import Parent, ToolCall, ToolError, ToolResult
from surehand.core.context import NOTHING_CHANGED, ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.installation import explain_missing_module
from surehand.core.names import find_near, provider_safe
from surehand.core.tool import DryRun, Tool
from surehand.engine.running import aftermath
from surehand.policy.policy import Decision
from surehand.registry.registry import requirement_name, unmet_requirement

if TYPE_CHECKING:
    from surehand.core.settings import ToolSettings
    from surehand.core.view import Selection
    from surehand.engine.executor import Executor


class View(Protocol):
    """What a session sees of the tools (`core.view.Selection`)."""

    def get(self, name: str) -> Tool | None:
        """Return a tool that the session may call."""
        ...

    def at_hand(self, name: str) -> Tool | None:
        """Return the same without importing its module."""
        ...

    def names(self) -> list[str]:
        """Return the names of the tools that the session sees."""
        ...

    def hides(self, name: str) -> bool:
        """Whether a name is kept from the session."""
        ...


class Meter(Protocol):
    """Who counts calls (`engine.metrics.Metrics`)."""

    def count_start(self, tool: str) -> None:
        """Count a call that begins."""
        ...

    def count_end(
        self,
        tool: str,
        duration_s: float,
        error: str | None,
        *,
        queue_s: float = 0.0,
        bytes_out: int = 0,
        ran: bool = True,
    ) -> None:
        """Count a call that ended."""
        ...

    def count_use(self, tool: str, use: Mapping[str, Any], duration_s: float) -> None:
        """Add the resources a call used."""
        ...

    def estimate_s(self, tool: str) -> float:
        """Return about how many seconds a call of the tool takes."""
        ...


class Ledger(Protocol):
    """The audit log, which records calls where they can be verified later (`engine.audit.Audit`)."""

    @property
    def problem(self) -> str:
        """Why calls cannot be recorded; empty where they can."""
        ...

    def intend(self, call: ToolCall, tool: str, session_id: str, decision: Decision, args: Any = None) -> None:
        """Record that a call is about to run; `args` are its arguments if they have been masked already."""
        ...


class Prepared:
    """A call that passed every check and may run."""

    __slots__ = (
        "abandoned",
        "args",
        "call",
        "change_id",
        "ctx",
        "decision",
        "dry_run",
        "outcome",
        "queue_s",
        "repairs",
        "settings",
        "timeout_s",
        "tool",
    )

    def __init__(
        self,
        call: ToolCall,
        tool: Tool,
        args: Any,
        ctx: ToolContext,
        decision: Decision,
        settings: ToolSettings | None,
        timeout_s: float,
        repairs: tuple[str, ...] = (),
        dry_run: DryRun | None = None,
    ) -> None:
        self.call = call
        self.tool = tool
        self.args = args
        self.ctx = ctx
        self.decision = decision
        self.settings = settings
        self.timeout_s = timeout_s
        self.repairs = repairs
        self.dry_run = dry_run
        """The dry run that is applied instead of running: its diff is what was approved."""
        self.queue_s = 0.0
        self.change_id = ""
        """The change of files that was recorded for the call."""
        self.abandoned = False
        """Whether its handler did not stop when it was cancelled."""
        self.outcome: ToolResult | None = None
        """What a change came to that had begun when the call's caller was cancelled."""

    @property
    def read_only(self) -> bool:
        """Whether this call changes nothing."""
        flag = self.tool.read_only
        return flag if isinstance(flag, bool) else flag(self.args, self.ctx)

    @property
    def concurrency_safe(self) -> bool:
        """Whether this call may run beside others."""
        chosen = self.settings.concurrency.is_concurrency_safe if self.settings else None
        if chosen is not None:
            return chosen
        flag = self.tool.concurrency_safe
        return flag if isinstance(flag, bool) else flag(self.args, self.ctx)


Proceed = Callable[[Prepared], Awaitable[ToolResult]]
Middleware = Callable[[Prepared, Proceed], Awaitable[ToolResult]]


SWITCHED_OFF: Final = "Set `enabled = true` for it in the settings, or use another tool."
CLOSED: Final = "the session was closed while the call was under way"


def missing(name: str, view: View, *, by_model: bool = False) -> ToolFailure:
    """Say that there is no such tool in this session: hidden from it, or not there at all."""
    if view.hides(name):
        message = f"{name} is not among the tools of this session"
        return ToolFailure(message, code="tool_unavailable", hint="Use one of the tools you were given.")
    return unknown_tool(name, view.names(), by_model=by_model)


def unknown_tool(name: str, names: Iterable[str], *, by_model: bool = False) -> ToolFailure:
    """Say that there is no tool of this name, and which names are near; to a model, as it has to write them."""
    near = find_near(name, names)
    near = [provider_safe(each) for each in near] if by_model else near
    hint = (
        f"Did you mean {', '.join(near)}?" if near else "`surehand tools list` lists all; a model can use ToolSearch."
    )
    message = f"there is no tool named {name!r}"
    return ToolFailure(message, code="tool_not_found", hint=hint, details={"name": name, "nearest": near})


def failed_result(failure: ToolFailure) -> ToolResult:
    """Return the result an expected failure becomes."""
    return ToolResult.failed(ToolError.of(failure), data=failure.data, output=failure.output)


def closed_result(call: ToolCall) -> ToolResult:
    """Return the result of a call that comes after the end of its session; it is recorded nowhere."""
    message = f"{call.name} was not run: the session is closed"
    error = ToolError("tool_unavailable", message, "Open a new one; a named session continues where this one ended.")
    return ToolResult.failed(error).with_meta(tool=call.name, call_id=call.id)


def given_up(prepared: Prepared | None, why: str) -> ToolResult:
    """Return the result of a call whose caller was cancelled, with the outcome of a change that had begun."""
    if prepared is not None and prepared.outcome is not None:
        return prepared.outcome
    hint = NOTHING_CHANGED if prepared is None else aftermath(prepared)
    return ToolResult.failed(ToolError("cancelled", why, hint))


def timed_out(prepared: Prepared | None) -> ToolResult:
    """Return the result of a call that ran into its deadline, and what became of its handler."""
    assert prepared is not None
    tool, seconds = prepared.tool, prepared.timeout_s
    left = f" {aftermath(prepared)}"
    if "Its thread" in left:
        left += ' Mark the tool `where="process"` to have it killed.'
    message = f"{tool.name} did not finish within {seconds:g} s and was stopped."
    hint = "Ask for less at once, or raise `timeout` for it in the settings." + left
    return ToolResult.failed(ToolError("timeout", message, hint, {"timeout_s": seconds}))


def crash_failure(name: str, problem: Exception) -> ToolFailure:
    """Return the failure a bug in a tool becomes; an extra that is not installed is no bug."""
    if isinstance(problem, ModuleNotFoundError) and (missing_part := explain_missing_module(problem)):
        what, hint = missing_part
        return ToolFailure(f"{name} cannot run: {what}", code="tool_unavailable", hint=hint)
    return ToolFailure(
        f"{name} raised {type(problem).__name__}: {problem}",
        hint="This is a fault in the tool, not in the arguments; the log has its traceback.",
        details={"exception": type(problem).__name__},
    )


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
