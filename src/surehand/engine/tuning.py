"""Tuning from metrics: three pure functions give advice, and a tuner applies it if enabled.

- timeout: max(1.5 x p95, 3 x average, 5 s)
- concurrency: one less if over 10% of calls waited, one more if under 1%
- caching: on if over 10 calls in a window took over 100 ms on average

Advice includes its reason; each applied change is reported as an event.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from surehand.core.events import Event, Listener
from surehand.core.frozen import frozen
from surehand.engine.metrics_export import ToolMetrics

if TYPE_CHECKING:
    from surehand.core.settings import Settings
    from surehand.engine.executor import Executor

Kind = Literal["timeout", "concurrency", "caching"]
LEAST_CALLS: Final = 20
"""Minimum number of calls before anything is advised."""
LEAST_TIMEOUT_S: Final = 5.0
MOST_TIMEOUT_S: Final = 600.0
MOST_AT_ONCE: Final = 64
STEP_EVERY_S: Final = 10.0


@frozen
class Advice:
    """One advised change for one tool, and its reason."""

    tool: str
    kind: Kind
    before: float
    after: float
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "tool": self.tool,
            "kind": self.kind,
            "before": self.before,
            "after": self.after,
            "reason": self.reason,
        }


def advise_timeout(metrics: ToolMetrics, current_s: float) -> Advice | None:
    """Advise a timeout for the measured durations, if it differs enough from the current one."""
    execution = metrics.execution
    if execution.total_calls < LEAST_CALLS:
        return None
    p95_s, average_s = execution.p95_ms / 1000, execution.avg_ms / 1000
    wanted = min(MOST_TIMEOUT_S, max(1.5 * p95_s, 3 * average_s, LEAST_TIMEOUT_S))
    if abs(wanted - current_s) < 0.1 * current_s:
        return None
    reason = f"max(1.5 x p95 {p95_s:.3f} s, 3 x average {average_s:.3f} s, 5 s) = {wanted:.3f} s"
    return Advice(metrics.tool, "timeout", current_s, round(wanted, 3), reason)


def advise_concurrency(metrics: ToolMetrics, current: int) -> Advice | None:
    """Advise a limit lower by one if many calls wait, higher by one if hardly any do."""
    window = metrics.window
    if window.calls < LEAST_CALLS:
        return None
    rate = window.bottlenecks / window.calls
    if rate > 0.1 and current > 1:
        return Advice(metrics.tool, "concurrency", current, current - 1, f"{rate:.1%} of calls waited, over 10%")
    if rate < 0.01 and current < MOST_AT_ONCE:
        return Advice(metrics.tool, "concurrency", current, current + 1, f"{rate:.1%} of calls waited, under 1%")
    return None


def advise_caching(metrics: ToolMetrics, enabled: bool) -> Advice | None:
    """Advise caching for a tool that is slow and often called."""
    window = metrics.window
    if enabled or window.calls <= 10 or window.avg_ms <= 100:
        return None
    reason = f"{window.calls:.0f} calls in 60 s, over 10, of {window.avg_ms:.0f} ms on average, over 100"
    return Advice(metrics.tool, "caching", 0, 1, reason)


class Tunable(Protocol):
    """The timeouts and concurrency limits of tools, as the tuner reads and sets them (`EngineLimits`)."""

    def timeout_of(self, tool: str) -> float | None:
        """Return the timeout (s) of a tool; None if the tool or the settings fix it."""
        ...

    def set_timeout(self, tool: str, seconds: float) -> None:
        """Set the timeout of a tool, in seconds."""
        ...

    def limit_of(self, tool: str) -> int | None:
        """Return the concurrency limit of a tool; None if it has not run, or the settings fix it."""
        ...

    def set_limit(self, tool: str, limit: int) -> None:
        """Set the concurrency limit of a tool."""
        ...


class EngineLimits:
    """The limits of an executor that may be tuned: those that neither tool nor settings fix."""

    def __init__(self, executor: Executor, settings: Settings) -> None:
        self._executor = executor
        self._settings = settings

    def timeout_of(self, tool: str) -> float | None:
        """Return the timeout of a tool, in seconds."""
        found, chosen = self._executor.slot(tool), self._settings.tools.get(tool)
        if found is None or found[0].timeout_s is not None or self._settings.engine.timeout is not None:
            return None
        if chosen is not None and chosen.timeout is not None:
            return None
        return self._executor.tuned_timeouts.get(tool, self._settings.engine.timeout_s)

    def set_timeout(self, tool: str, seconds: float) -> None:
        """Set the timeout of a tool, in seconds."""
        self._executor.tuned_timeouts[tool] = seconds

    def limit_of(self, tool: str) -> int | None:
        """Return the concurrency limit of a tool."""
        found, chosen = self._executor.slot(tool), self._settings.tools.get(tool)
        if found is None or (chosen is not None and chosen.concurrency.max_concurrent_calls is not None):
            return None
        return found[1].limit

    def set_limit(self, tool: str, limit: int) -> None:
        """Set the concurrency limit of a tool."""
        if (found := self._executor.slot(tool)) is not None:
            found[1].limit = limit
            found[1].admit()


class Tuner:
    """Applies advice every few seconds while calls are made; a listener of the bus."""

    def __init__(
        self,
        figures: Callable[[], list[ToolMetrics]],
        target: Tunable,
        emit: Listener,
        *,
        session_id: str = "",
        cached: set[str] | None = None,
        can_cache: Callable[[str], bool] = lambda tool: False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.cached: set[str] = set() if cached is None else cached
        """Tools whose results are cached by advice; read by the cache."""
        self.log: list[Advice] = []
        self._figures = figures
        self._target = target
        self._emit = emit
        self._session_id = session_id
        self._can_cache = can_cache
        self._clock = clock
        self._due = clock() + STEP_EVERY_S

    def __call__(self, event: Event) -> None:
        if event.kind == "call_finished" and self._clock() >= self._due:
            self._due = self._clock() + STEP_EVERY_S
            self.step()

    def step(self) -> list[Advice]:
        """Apply the current advice and return it."""
        taken = [advice for metrics in self._figures() for advice in self.advice(metrics)]
        for advice in taken:
            self._apply(advice)
            self._emit(Event("tuning_changed", self._session_id, tool=advice.tool, data=advice.to_dict()))
        self.log = [*self.log, *taken][-1000:]
        return taken

    def advice(self, metrics: ToolMetrics) -> list[Advice]:
        """Return the advice for one tool."""
        timeout, limit = self._target.timeout_of(metrics.tool), self._target.limit_of(metrics.tool)
        found = (
            advise_timeout(metrics, timeout) if timeout is not None else None,
            advise_concurrency(metrics, limit) if limit is not None else None,
            advise_caching(metrics, metrics.tool in self.cached) if self._can_cache(metrics.tool) else None,
        )
        return [advice for advice in found if advice is not None]

    def _apply(self, advice: Advice) -> None:
        match advice.kind:
            case "timeout":
                self._target.set_timeout(advice.tool, advice.after)
            case "concurrency":
                self._target.set_limit(advice.tool, int(advice.after))
            case "caching":
                self.cached.add(advice.tool)
