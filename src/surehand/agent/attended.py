"""One sub-agent as a monitor sees it: where it stands, what it has done, what it said; and stopping it."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from time import time
from typing import Any, Final

from surehand.core.call import ToolResult
from surehand.core.errors import ToolFailure
from surehand.core.events import Event
from surehand.core.tasks import Status

HEARD_LIMIT: Final = 500
"""Lines that are held of what an agent does and says; older ones are dropped."""
_LINE: Final = 2000


@dataclass(slots=True)
class Agent:
    """One running (or ended) sub-agent."""

    id: str
    profile: str
    description: str
    depth: int
    state: Status = "in_progress"
    tool_calls: int = 0
    tokens: int = 0
    last_activity: float = field(default_factory=time)
    task: asyncio.Task[ToolResult] | None = None
    _heard: deque[str] = field(default_factory=lambda: deque[str](maxlen=HEARD_LIMIT))
    _untold: int = 0

    def take(self, event: Event) -> None:
        """Count an event of its session, and hear what it does and says."""
        self.last_activity = event.at
        if event.kind == "call_started":
            self.tool_calls += 1
            self.hear(f"[{event.tool}] {_subject(event.data['call'].args)}".rstrip())
        elif event.kind == "message" and event.data.get("usage") is not None:
            self.tokens += event.data["usage"].total
            self.hear(event.data["message"].text)

    def hear(self, text: str) -> None:
        """Hold a piece of what it does and says."""
        if text.strip():
            self._heard.append(text.strip()[:_LINE])
            self._untold = min(self._untold + 1, HEARD_LIMIT)

    def output(self) -> str:
        """Return what the agent has said since the last look."""
        told = list(self._heard)[len(self._heard) - self._untold :]
        self._untold = 0
        return "\n".join(told)

    def shown(self) -> str:
        """Return all that is kept of what the agent said."""
        return "\n".join(self._heard)

    async def stop(self) -> None:
        """End the agent and wait until it has stopped."""
        if self.task is not None and not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task})

    def facts(self) -> dict[str, Any]:
        """Return its figures as plain data."""
        names = ("id", "profile", "description", "depth", "state", "tool_calls", "tokens", "last_activity")
        return {name: getattr(self, name) for name in names}


async def attended(agent: Agent) -> ToolResult:
    """Wait for an agent's answer; whoever waits and is stopped stops it too."""
    assert agent.task is not None
    try:
        return await agent.task
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if waiting is None or waiting.cancelling():
            raise
        raise ToolFailure(f"{agent.id} was stopped", code="cancelled", hint="What it did so far stays.") from None


def _subject(args: Any) -> str:
    return next((str(value).split("\n", 1)[0][:200] for value in args.values() if isinstance(value, str)), "")
