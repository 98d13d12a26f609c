"""Health checks of tools, on demand and on an interval, and readiness of a tool before a call.

A passing check enables a tool again that the circuit breaker disabled. A tool without a check is healthy as long as it
is registered and not disabled by the user. A check that takes too long has failed, and does not delay others.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import time
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from surehand.core.errors import ToolFailure
from surehand.core.frozen import field, frozen
from surehand.core.tool import Health, Tool
from surehand.registry.lifecycle import Life, Lifecycle, State

if TYPE_CHECKING:
    from surehand.core.session import Session


Status = Literal["healthy", "unhealthy", "error", "not_found"]
CHECK_TIMEOUT_S: Final = 10.0
COOL_DOWN_S: Final = 30.0
"""How long (s) a tool stays disabled by the circuit breaker before a call may check it again."""
UNHEALTHY_LIMIT: Final = 3
"""Failed checks in a row that disable a tool."""
AT_ONCE: Final = 10


@frozen
class HealthReport:
    """The outcome of one check."""

    tool: str
    status: Status
    message: str
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    state: State = "unregistered"
    at: float = field(default_factory=time)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "tool": self.tool,
            "status": self.status,
            "message": self.message,
            "details": dict(self.details),
            "state": self.state,
            "at": self.at,
        }


class Tools(Protocol):
    """Finds tools (`registry.registry.Registry`)."""

    def __iter__(self) -> Any: ...
    def resolve(self, name: str) -> str | None:
        """Return the registered name for a name or alias."""
        ...

    def get(self, name: str) -> Tool | None:
        """Return a tool by its name."""
        ...


class HealthMonitor:
    """Checks tools; enables those that pass again, and disables those that keep failing."""

    def __init__(
        self,
        tools: Tools,
        lifecycle: Lifecycle,
        *,
        timeout_s: float = CHECK_TIMEOUT_S,
        cool_down_s: float = COOL_DOWN_S,
    ) -> None:
        self._tools = tools
        self._lifecycle = lifecycle
        self._timeout_s = timeout_s
        self._cool_down_s = cool_down_s
        self._unwell: dict[str, int] = {}
        self.latest: dict[str, HealthReport] = {}

    async def check(self, name: str) -> HealthReport:
        """Return how a tool is; never raises."""
        real = self._tools.resolve(name)
        if real is None:
            return HealthReport(name, "not_found", f"Tool {name} not found in registry")
        status, message, details = await self._ask(real)
        self._act(real, status, message)
        report = HealthReport(real, status, message, details, self._lifecycle.state(real))
        self.latest[real] = report
        return report

    async def check_all(self, names: Iterable[str] | None = None) -> list[HealthReport]:
        """Check many tools at once and return the reports in the order of the names."""
        places = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> HealthReport:
            async with places:
                return await self.check(name)

        return list(await asyncio.gather(*(one(name) for name in (self._tools if names is None else names))))

    async def watch(self, interval_s: float) -> None:
        """Check all tools again and again, until cancelled."""
        while True:
            await self.check_all()
            await asyncio.sleep(interval_s)

    async def revive(self, tool: Tool) -> bool:
        """Try to bring back a tool that was taken out; True when it may be called again."""
        life = self._lifecycle.life(tool.name)
        if life is None or not life.tripped or time() - _since(life) < self._cool_down_s:
            return False
        return (await self.check(tool.name)).status == "healthy"

    async def _ask(self, name: str) -> tuple[Status, str, Mapping[str, Any]]:
        life = self._lifecycle.life(name)
        if life is not None and life.state in ("failed", "disabled") and not life.tripped:
            why = life.past[-1][3] if life.past else ""
            return "unhealthy", f"Tool {name} is {life.state}" + (f": {why}" if why else ""), {}
        try:
            tool = self._tools.get(name)
            if tool is None or tool.health_check is None:
                return "healthy", "Health check passed", {}
            async with asyncio.timeout(self._timeout_s):
                found = await _call_health_check(tool.health_check)
        except TimeoutError:
            return "error", f"Health check failed: no answer within {self._timeout_s:g} s", {}
        except ToolFailure as failure:
            return "error", f"Health check failed: {failure.message}", {}
        except Exception as problem:  # whatever a tool's own check raises is what is reported
            return "error", f"Health check failed: {problem}", {"exception": type(problem).__name__}
        status: Status = "healthy" if found.healthy else "unhealthy"
        return (
            status,
            found.message or ("Health check passed" if found.healthy else "Health check failed"),
            found.details,
        )

    def _act(self, name: str, status: Status, message: str) -> None:
        life = self._lifecycle.life(name)
        if life is None:
            return
        if status == "healthy":
            self._unwell.pop(name, None)
            if life.tripped or life.state == "error":
                self._lifecycle.enable(name, "a health check passed")
            return
        count = self._unwell[name] = self._unwell.get(name, 0) + 1
        if count >= UNHEALTHY_LIMIT and life.state in ("ready", "error"):
            self._lifecycle.trip(life, f"{count} health checks failed in a row: {message}")


async def _call_health_check(check: Any) -> Health:
    """Ask a tool's own check; one that is not async runs in a thread, so that it cannot hold up the loop."""
    found = await check() if inspect.iscoroutinefunction(check) else await asyncio.to_thread(check)
    if inspect.isawaitable(found):
        found = await found
    if isinstance(found, Health):
        return found
    return Health(healthy=found is None or bool(found))


def _since(life: Life) -> float:
    return life.past[-1][2] if life.past else life.born


# -- readiness: initialize a tool on first use, check one that the circuit breaker disabled ----------------------------

_DISABLED: Final = "`surehand health` says why; `enable` or a passing health check brings it back."
_FAILED: Final = "It stays out until it is registered again: fix the cause of its failed start, then reopen."


CLOSE_TIMEOUT_S: Final = 5.0


class Readiness:
    """Makes tools ready to be called."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.revive: Callable[[Tool], Awaitable[bool]] | None = None
        """Checks a disabled tool and enables it if it passes; set to the health monitor's."""
        self._lifecycle = lifecycle
        self._starting: dict[str, asyncio.Task[None]] = {}

    async def make_ready(self, tool: Tool, session: Session) -> None:
        """Wait until the tool can be called; raise `tool_unavailable` if it cannot."""
        state = self._lifecycle.state(tool.name)
        if state in ("registered", "initializing"):
            await self._initialize_once(tool, session)
        elif state == "unregistered":
            return  # unregistered since the call began: it still runs
        elif state != "disabled" or self.revive is None or not await self.revive(tool):
            hint = _FAILED if state == "failed" else _DISABLED
            raise ToolFailure(self._describe_state(tool, state), code="tool_unavailable", hint=hint)

    async def _initialize_once(self, tool: Tool, session: Session) -> None:
        """Initialize a tool; concurrent calls wait for the same attempt."""
        if tool.initialize is None:
            self._lifecycle.move(tool.name, "initializing", "first use")
            self._lifecycle.move(tool.name, "ready")
            return
        starting = self._starting.get(tool.name)
        if starting is None:
            # In its own task: other callers still wait for it if the first one is cancelled.
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
        """Close the tools that were used; one that fails or hangs is logged and does not keep others open."""
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
            task.exception()  # or asyncio logs that it was never retrieved

    def _describe_state(self, tool: Tool, state: str) -> str:
        life = self._lifecycle.life(tool.name)
        why = life.past[-1][3] if life is not None and life.past else ""
        return f"{tool.name} is {state}" + (f" ({why})" if why else "")
