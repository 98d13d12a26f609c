"""What calls cost: four groups of figures per tool, counted in memory, at about a microsecond a call.

Execution, resources, concurrency and errors, as the overview of the system asks for them. Times are kept in seconds
and shown in milliseconds. A bottleneck is a call that had to wait for a slot; rates are taken over a window of 60 s.
Resources are known only of calls that ran in a process of their own: what tools do inside this process cannot be
told apart, and no figure is better than a made-up one (`measured_calls` says how many were measured).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Final

from holdfast.engine.sketch import Sketch

WINDOW_S: Final = 60.0
UNKNOWN: Final = "(unknown)"
"""Calls of tools that do not exist count here: their names come from outside and are without end."""


@dataclass(frozen=True, slots=True)
class Execution:
    """How many calls, how they ended, how long they took."""

    total_calls: int
    successful_calls: int
    failed_calls: int
    avg_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Resources:
    """What calls in processes of their own used; CPU as a share of one core while they ran."""

    avg_memory_bytes: float
    peak_memory_bytes: int
    avg_cpu: float
    io_operations: int
    bytes_out: int
    measured_calls: int


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How many calls ran at once, and how often one had to wait."""

    max_calls: int
    avg_level: float
    bottlenecks: int
    avg_queue_ms: float
    max_queue_ms: float
    running: int


@dataclass(frozen=True, slots=True)
class Errors:
    """Failures by kind; `by_code` has every code."""

    validation: int
    execution: int
    timeout: int
    permission: int
    by_code: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Window:
    """The last 60 seconds: calls, calls that waited, and the average time."""

    calls: float
    bottlenecks: float
    avg_ms: float


@dataclass(frozen=True, slots=True)
class ToolMetrics:
    """All figures of one tool at one moment."""

    tool: str
    execution: Execution
    resources: Resources
    concurrency: Concurrency
    errors: Errors
    window: Window
    cache_hits: int = 0
    cache_misses: int = 0


@dataclass(slots=True)
class Record:
    """The running counts of one tool; `merge` adds those of another process."""

    calls: int = 0
    failed: int = 0
    total_s: float = 0.0
    max_s: float = 0.0
    started: int = 0
    running: int = 0
    max_running: int = 0
    level_sum: int = 0
    bottlenecks: int = 0
    queue_s: float = 0.0
    max_queue_s: float = 0.0
    bytes_out: int = 0
    measured: int = 0
    memory_sum: float = 0.0
    memory_peak: int = 0
    cpu_share_sum: float = 0.0
    io_operations: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    errors: dict[str, int] = field(default_factory=dict[str, int])
    sketch: Sketch = field(default_factory=Sketch)
    pane_began: float = 0.0
    pane: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Calls, bottlenecks and seconds of the current 60 s; `pane_before` of the 60 s before it."""
    pane_before: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    busiest: float = 0.0
    """The most calls that ended within one pane."""

    def merge(self, other: Record) -> None:
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _PEAKS:
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        for code, count in other.errors.items():
            self.errors[code] = self.errors.get(code, 0) + count
        self.sketch.merge(other.sketch)

    def to_dict(self) -> dict[str, Any]:
        """Return what is worth keeping: no running calls, and of the window only how busy it was at most."""
        self.busiest = max(self.busiest, self.pane[0])
        kept: dict[str, Any] = {name: getattr(self, name) for name in (*_SUMS, *_PEAKS)}
        return kept | {"errors": self.errors, "sketch": {str(place): n for place, n in self.sketch.counts.items()}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        values = {name: data[name] for name in (*_SUMS, *_PEAKS) if name in data}
        sketch = Sketch({int(place): int(count) for place, count in data.get("sketch", {}).items()})
        return cls(**values, errors=dict(data.get("errors", {})), sketch=sketch)

    def turn(self, now: float) -> None:
        """Begin a new pane of the window."""
        late = now - self.pane_began >= 2 * WINDOW_S
        self.busiest = max(self.busiest, self.pane[0])
        self.pane_before = [0.0, 0.0, 0.0] if late else self.pane
        self.pane = [0.0, 0.0, 0.0]
        self.pane_began = now if late else self.pane_began + WINDOW_S

    def window(self, now: float) -> Window:
        if now - self.pane_began >= WINDOW_S:
            self.turn(now)
        left = max(0.0, 1.0 - (now - self.pane_began) / WINDOW_S)
        calls, waited, seconds = (new + old * left for new, old in zip(self.pane, self.pane_before, strict=True))
        return Window(calls, waited, seconds / calls * 1000 if calls else 0.0)


_SUMS: Final = (
    "calls",
    "failed",
    "total_s",
    "started",
    "level_sum",
    "bottlenecks",
    "queue_s",
    "bytes_out",
    "measured",
    "memory_sum",
    "cpu_share_sum",
    "io_operations",
    "cache_hits",
    "cache_misses",
)
_PEAKS: Final = ("max_s", "max_running", "max_queue_s", "memory_peak", "busiest")


class Metrics:
    """Counts calls. The executor tells it of each one that starts and ends; everyone else only reads."""

    def __init__(self, clock: Callable[[], float] = monotonic, *, without: Iterable[str] = ()) -> None:
        self.records: dict[str, Record] = {}
        self._clock = clock
        self._without = frozenset(without)
        """Tools that are not to be measured."""

    # Counting: on the path of every call -----------------------------------------------------------------------------

    def started(self, tool: str) -> None:
        """A call passed its checks and begins to run (or to wait for its turn)."""
        record = self.records.get(tool) or self._new(tool)
        record.started += 1
        running = record.running = record.running + 1
        record.level_sum += running
        if running > record.max_running:
            record.max_running = running

    def finished(
        self,
        tool: str,
        duration_s: float,
        error: str | None,
        *,
        queue_s: float = 0.0,
        bytes_out: int = 0,
        ran: bool = True,
    ) -> None:
        """A call ended; `ran` is false for one that was refused before it started."""
        record = self.records.get(tool) or self._new(tool if error != "tool_not_found" else UNKNOWN)
        now = self._clock()
        if now - record.pane_began >= WINDOW_S:
            record.turn(now)
        record.calls += 1
        record.total_s += duration_s
        record.bytes_out += bytes_out
        if duration_s > record.max_s:
            record.max_s = duration_s
        pane = record.pane
        pane[0] += 1
        pane[2] += duration_s
        record.sketch.add(duration_s)
        if ran:
            record.running -= 1
        if error is not None:
            record.failed += 1
            record.errors[error] = record.errors.get(error, 0) + 1
        if queue_s > 0.0:
            pane[1] += 1
            record.bottlenecks += 1
            record.queue_s += queue_s
            record.max_queue_s = max(record.max_queue_s, queue_s)

    def used(self, tool: str, use: Mapping[str, Any], duration_s: float) -> None:
        """Add what a call in a process of its own used: `cpu_s`, `max_rss_bytes`, `io_operations`."""
        record = self.records.get(tool) or self._new(tool)
        memory = int(use.get("max_rss_bytes", 0))
        record.measured += 1
        record.memory_sum += memory
        record.memory_peak = max(record.memory_peak, memory)
        record.cpu_share_sum += float(use.get("cpu_s", 0.0)) / duration_s if duration_s > 0 else 0.0
        record.io_operations += int(use.get("io_operations", 0))

    def cached(self, tool: str, hit: bool) -> None:
        """Count a look into the result cache."""
        record = self.records.get(tool) or self._new(tool)
        if hit:
            record.cache_hits += 1
        else:
            record.cache_misses += 1

    def _new(self, tool: str) -> Record:
        record = self.records.get(tool)
        if record is None:
            record = Record(pane_began=self._clock())
            if tool not in self._without:
                self.records[tool] = record
        return record

    # Reading ---------------------------------------------------------------------------------------------------------

    def of(self, tool: str) -> ToolMetrics | None:
        """Return the figures of one tool, or None when it was never called."""
        record = self.records.get(tool)
        return None if record is None else figures(tool, record, self._clock())

    def all(self) -> list[ToolMetrics]:
        """Return the figures of every tool that was called, in order of first call."""
        now = self._clock()
        return [figures(tool, record, now) for tool, record in list(self.records.items())]

    def estimate_s(self, tool: str) -> float:
        """Return how long a call of this tool may take, by its average so far; 0 when nothing is known."""
        record = self.records.get(tool)
        return record.total_s / record.calls if record is not None and record.calls else 0.0


def kept_figures(tool: str, record: Record) -> ToolMetrics:
    """Return the figures of a record that was kept; the busiest 60 s stand for the window."""
    found = figures(tool, record, record.pane_began)
    share = record.bottlenecks / record.calls if record.calls else 0.0
    return replace(found, window=Window(record.busiest, record.busiest * share, found.execution.avg_ms))


def figures(tool: str, record: Record, now: float) -> ToolMetrics:
    """Return the figures that running counts stand for."""
    calls, sketch, errors = record.calls, record.sketch, record.errors
    p50, p95, p99 = (min(sketch.quantile(share), record.max_s) * 1000 for share in (0.5, 0.95, 0.99))
    average = record.total_s / calls * 1000 if calls else 0.0
    measured, waited = record.measured or 1, record.bottlenecks or 1
    return ToolMetrics(
        tool=tool,
        execution=Execution(calls, calls - record.failed, record.failed, average, p50, p95, p99, record.max_s * 1000),
        resources=Resources(
            record.memory_sum / measured,
            record.memory_peak,
            record.cpu_share_sum / measured,
            record.io_operations,
            record.bytes_out,
            record.measured,
        ),
        concurrency=Concurrency(
            record.max_running,
            record.level_sum / record.started if record.started else 0.0,
            record.bottlenecks,
            record.queue_s / waited * 1000,
            record.max_queue_s * 1000,
            record.running,
        ),
        errors=Errors(
            errors.get("invalid_args", 0) + errors.get("precondition_failed", 0),
            errors.get("execution_error", 0),
            errors.get("timeout", 0),
            errors.get("permission_denied", 0),
            dict(errors),
        ),
        window=record.window(now),
        cache_hits=record.cache_hits,
        cache_misses=record.cache_misses,
    )
