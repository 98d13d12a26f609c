"""`Prepared`, a validated and permitted call, as the executor hands it to middleware and handler; results of failures;
and child calls.

A child call (`ctx.call`) goes through the executor like any other, in the session, mode and selection of its parent. It
may do nothing that its parent may not: under a read-only call it must be read-only. Chains are limited in depth, and no
tool may occur twice in one.
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
    """The tools a session may call (`core.view.Selection`)."""

    def get(self, name: str) -> Tool | None:
        """Return a tool by name, importing its module; None if the session may not call it."""
        ...

    def at_hand(self, name: str) -> Tool | None:
        """Return a tool by name if its module is imported already."""
        ...

    def names(self) -> list[str]:
        """Return the names of all tools that the session may call."""
        ...

    def hides(self, name: str) -> bool:
        """Whether the tool exists but not for this session."""
        ...


class Meter(Protocol):
    """Counts calls (`engine.metrics.Metrics`)."""

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
        """Estimate the duration (s) of a call of the tool."""
        ...


class Ledger(Protocol):
    """The audit log (`engine.audit.Audit`)."""

    @property
    def problem(self) -> str:
        """Why calls cannot be recorded; empty if they can."""
        ...

    def intend(self, call: ToolCall, tool: str, session_id: str, decision: Decision, args: Any = None) -> None:
        """Record that a call is about to run; `args` are its arguments if they have been masked already."""
        ...


class Prepared:
    """A call that passed all checks and may run."""

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
        """The id of the change recorded in the history for this call."""
        self.abandoned = False
        """Whether the handler did not stop when it was cancelled."""
        self.outcome: ToolResult | None = None
        """The result of a change that had begun when the caller was cancelled."""

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
    """Return the failure of a call to a tool that is hidden from the session or does not exist."""
    if view.hides(name):
        message = f"{name} is not among the tools of this session"
        return ToolFailure(message, code="tool_unavailable", hint="Use one of the tools you were given.")
    return unknown_tool(name, view.names(), by_model=by_model)


def unknown_tool(name: str, names: Iterable[str], *, by_model: bool = False) -> ToolFailure:
    """Return the failure for an unknown name, with similar ones; for a model, spelled as it has to write them."""
    near = find_near(name, names)
    near = [provider_safe(each) for each in near] if by_model else near
    hint = (
        f"Did you mean {', '.join(near)}?" if near else "`surehand tools list` lists all; a model can use ToolSearch."
    )
    message = f"there is no tool named {name!r}"
    return ToolFailure(message, code="tool_not_found", hint=hint, details={"name": name, "nearest": near})


def failed_result(failure: ToolFailure) -> ToolResult:
    """Convert an expected failure to a result."""
    return ToolResult.failed(ToolError.of(failure), data=failure.data, output=failure.output)


def closed_result(call: ToolCall) -> ToolResult:
    """Return the result of a call made after its session was closed; it is not recorded."""
    message = f"{call.name} was not run: the session is closed"
    error = ToolError("tool_unavailable", message, "Open a new one; a named session continues where this one ended.")
    return ToolResult.failed(error).with_meta(tool=call.name, call_id=call.id)


def given_up(prepared: Prepared | None, why: str) -> ToolResult:
    """Return the result of a call whose caller was cancelled: the outcome of a change that had begun, if any."""
    if prepared is not None and prepared.outcome is not None:
        return prepared.outcome
    hint = NOTHING_CHANGED if prepared is None else aftermath(prepared)
    return ToolResult.failed(ToolError("cancelled", why, hint))


def timed_out(prepared: Prepared | None) -> ToolResult:
    """Return the result of a call that exceeded its deadline; it says what became of its handler."""
    assert prepared is not None
    tool, seconds = prepared.tool, prepared.timeout_s
    left = f" {aftermath(prepared)}"
    if "Its thread" in left:
        left += ' Mark the tool `where="process"` to have it killed.'
    message = f"{tool.name} did not finish within {seconds:g} s and was stopped."
    hint = "Ask for less at once, or raise `timeout` for it in the settings." + left
    return ToolResult.failed(ToolError("timeout", message, hint, {"timeout_s": seconds}))


def crash_failure(name: str, problem: Exception) -> ToolFailure:
    """Return the failure for an exception in a tool; a missing extra is reported as such."""
    if isinstance(problem, ModuleNotFoundError) and (missing_part := explain_missing_module(problem)):
        what, hint = missing_part
        return ToolFailure(f"{name} cannot run: {what}", code="tool_unavailable", hint=hint)
    return ToolFailure(
        f"{name} raised {type(problem).__name__}: {problem}",
        hint="This is a fault in the tool, not in the arguments; the log has its traceback.",
        details={"exception": type(problem).__name__},
    )


DEPTH_LIMIT: Final = 8
"""Maximum depth of child calls."""


async def make_child_call(
    executor: Executor, tool: Tool, own_args: Any, ctx: ToolContext, name: str, args: Mapping[str, Any], listed: bool
) -> ToolResult:
    """Make a child call for a running tool and return its result; raise ToolFailure if it may not.

    With `listed` the tool may call only what it `requires`, in a version that fits.
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
    """Raise ToolFailure if a child call may change something and its parent may not."""
    if not parent.read_only:
        return
    if not (tool.read_only if isinstance(tool.read_only, bool) else tool.read_only(args, ctx)):
        raise ToolFailure(
            f"{parent.tools[-1]} is read-only and may not call {tool.name}, which is not",
            code="permission_denied",
            hint=f"Let {parent.tools[-1]} say that it is not read-only; then it is asked about.",
        )
