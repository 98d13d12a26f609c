"""Metrics of a tool, as figures for people: four groups per tool, as the overview of the system asks for them.

Execution, resources, concurrency and errors; times in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from surehand.core.frozen import frozen

if TYPE_CHECKING:
    from surehand.engine.metrics import Record


@frozen
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


@frozen
class Resources:
    """What calls in processes of their own used; CPU as a share of one core while they ran."""

    avg_memory_bytes: float
    peak_memory_bytes: int
    avg_cpu: float
    io_operations: int | None
    """None where nobody counts them (a command under the launcher)."""
    bytes_out: int
    measured_calls: int


@frozen
class Concurrency:
    """How many calls ran at once, and how often one had to wait."""

    max_calls: int
    avg_level: float
    bottlenecks: int
    avg_queue_ms: float
    max_queue_ms: float
    running: int


@frozen
class Errors:
    """Failures by kind; `by_code` has every code."""

    validation: int
    execution: int
    timeout: int
    permission: int
    by_code: Mapping[str, int]


@frozen
class Window:
    """The last 60 seconds: calls, calls that waited, and the average time."""

    calls: float
    bottlenecks: float
    avg_ms: float


@frozen
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


def kept_figures(tool: str, record: Record) -> ToolMetrics:
    """Return the figures of a saved record; the busiest 60 s are its window."""
    found = figures(tool, record, record.pane_began)
    share = record.bottlenecks / record.calls if record.calls else 0.0
    return replace(found, window=Window(record.busiest, record.busiest * share, found.execution.avg_ms))


def figures(tool: str, record: Record, now: float) -> ToolMetrics:
    """Return figures computed from running counts."""
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
            record.io_operations if record.io_measured else None,
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
        window=_window(record, now),
        cache_hits=record.cache_hits,
        cache_misses=record.cache_misses,
    )


def _window(record: Record, now: float) -> Window:
    calls, waited, seconds = record.window(now)
    return Window(calls, waited, seconds / calls * 1000 if calls else 0.0)
