"""A prepared call, as the executor and its middleware hand it on: checked, permitted, and who looks on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from surehand.core.call import ToolCall, ToolResult
from surehand.core.context import ToolContext
from surehand.core.tool import DryRun, Tool
from surehand.policy.policy import Decision

if TYPE_CHECKING:
    from surehand.core.settings import ToolSettings


class View(Protocol):
    """What a session sees of the tools (`core.view.Selection`)."""

    def get(self, name: str) -> Tool | None:
        """Return a tool that the session may call."""
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

    def intend(self, call: ToolCall, tool: str, session_id: str, decision: Decision) -> None:
        """Record that a call is about to run."""
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
