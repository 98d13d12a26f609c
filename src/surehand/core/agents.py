"""What starting a sub-agent means, in words that tools and the agent floor share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from surehand.core.call import ToolResult
from surehand.core.frozen import frozen

if TYPE_CHECKING:
    from surehand.core.context import ToolContext

AgentMode = Literal["sync", "background", "worktree"]


@frozen
class Profile:
    """A kind of sub-agent: who it is, which tools it may use, which model it speaks with."""

    name: str
    description: str
    prompt: str = ""
    tools: tuple[str, ...] = ()
    """Names, aliases or globs; empty means all its parent has."""
    model: str | None = None
    source: str = "built-in"


@frozen
class AgentOrder:
    """One wish for a sub-agent."""

    prompt: str
    description: str = ""
    mode: AgentMode = "sync"
    model: str = ""
    branch_name: str = ""
    profile: str = ""


class AgentRunner(Protocol):
    """Who runs sub-agents for a session."""

    spent: Any
    """What the question that is being answered has cost, sub-agents included."""

    def profiles(self) -> Sequence[Profile]:
        """Return the kinds of sub-agents there are."""
        ...

    async def run(self, order: AgentOrder, ctx: ToolContext) -> ToolResult:
        """Run a sub-agent and return what it answered."""
        ...
