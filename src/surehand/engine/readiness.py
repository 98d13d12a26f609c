"""Readiness of a tool: initialised on its first use, brought back when the circuit breaker took it out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

from surehand.core.errors import ToolFailure
from surehand.core.tool import Tool
from surehand.registry.lifecycle import Lifecycle

if TYPE_CHECKING:
    from surehand.core.session import Session

_DISABLED: Final = "`surehand health` says why; `enable` or a passing health check brings it back."
_FAILED: Final = "It stays out until it is registered again: mend the cause of its failed start, then reopen."


CLOSE_TIMEOUT_S: Final = 5.0


class Readiness:
    """Leads tools to the state in which they can be called."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.revive: Callable[[Tool], Awaitable[bool]] | None = None
        """How a tool that was taken out may come back; the health monitor knows."""
        self._lifecycle = lifecycle
        self._starting: dict[str, asyncio.Task[None]] = {}

    async def make_ready(self, tool: Tool, session: Session) -> None:
        """Return when the tool can be called; raise `tool_unavailable` when it cannot."""
        state = self._lifecycle.state(tool.name)
        if state in ("registered", "initializing"):
            await self._initialize_once(tool, session)
        elif state == "unregistered":
            return  # taken away while the call was on its way here: it still runs to its end
        elif state != "disabled" or self.revive is None or not await self.revive(tool):
            hint = _FAILED if state == "failed" else _DISABLED
            raise ToolFailure(self._describe_state(tool, state), code="tool_unavailable", hint=hint)

    async def _initialize_once(self, tool: Tool, session: Session) -> None:
        """Initialise a tool; calls that come meanwhile wait for the same attempt."""
        if tool.initialize is None:
            self._lifecycle.move(tool.name, "initializing", "first use")
            self._lifecycle.move(tool.name, "ready")
            return
        starting = self._starting.get(tool.name)
        if starting is None:
            # A task of its own: the first caller may be cancelled, the others still wait for the outcome.
            starting = self._starting[tool.name] = asyncio.create_task(self._initialize(tool, session))
            starting.add_done_callback(lambda task: self._forget_start(tool.name, task))
        await asyncio.shield(starting)

    async def _initialize(self, tool: Tool, session: Session) -> None:
        assert tool.initialize is not None
        self._lifecycle.move(tool.name, "initializing", "first use")
        life, limit_s = self._lifecycle.life(tool.name), session.settings.engine.timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await tool.initialize(session)
        except BaseException as problem:
            why = f"no end within {limit_s:g} s" if isinstance(problem, TimeoutError) else str(problem) or repr(problem)
            if self._lifecycle.life(tool.name) is life:
                self._lifecycle.move(tool.name, "failed", why)
            message = f"{tool.name} could not be initialised: {why}"
            raise ToolFailure(message, code="tool_unavailable", hint=_FAILED) from problem
        if self._lifecycle.life(tool.name) is life:
            self._lifecycle.move(tool.name, "ready")

    async def close_all(self, tools: Iterable[Tool]) -> None:
        """Close the tools that were used; one that fails or hangs is reported and keeps no other open."""
        for tool in tools:
            life = self._lifecycle.life(tool.name)
            if tool.close is None or life is None or not life.initialized:
                continue
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await tool.close()
            except Exception:
                logging.getLogger("surehand").exception("%s did not close", tool.name)

    def _forget_start(self, name: str, task: asyncio.Task[None]) -> None:
        self._starting.pop(name, None)
        if not task.cancelled():
            task.exception()  # whoever still waits is told; nobody else needs to be

    def _describe_state(self, tool: Tool, state: str) -> str:
        life = self._lifecycle.life(tool.name)
        why = life.past[-1][3] if life is not None and life.past else ""
        return f"{tool.name} is {state}" + (f" ({why})" if why else "")
