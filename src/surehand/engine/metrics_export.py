"""Metrics for others to read: JSON with stable camelCase keys, and Prometheus text.

A new format is a function beside `to_prometheus` and an option of `cli/stats.py`. An exporter that pushes
reads `app.metrics.all()`, is made in `wiring.py` and added in `app.py` like `add_tuner`, obeys
`[tools.NAME.monitoring]`, and is an extra if it needs a package. (`otel.py` pushes durations as well as spans.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from surehand.core.frozen import frozen

if TYPE_CHECKING:
    from surehand.engine.metrics import Record

# Metrics of a tool, as figures for people: four groups per tool.
#
# Execution, resources, concurrency and errors; times in milliseconds.


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


Sample = tuple[str, dict[str, str], float]


def to_json(metrics: ToolMetrics) -> dict[str, Any]:
    """Return one tool's figures as plain data; times in milliseconds."""
    execution, resources = metrics.execution, metrics.resources
    concurrency, errors, window = metrics.concurrency, metrics.errors, metrics.window
    return {
        "tool": metrics.tool,
        "execution": {
            "totalCalls": execution.total_calls,
            "successfulCalls": execution.successful_calls,
            "failedCalls": execution.failed_calls,
            "avgExecutionTime": _ms(execution.avg_ms),
            "p50ExecutionTime": _ms(execution.p50_ms),
            "p95ExecutionTime": _ms(execution.p95_ms),
            "p99ExecutionTime": _ms(execution.p99_ms),
            "maxExecutionTime": _ms(execution.max_ms),
        },
        "resources": {
            "avgMemoryUsage": round(resources.avg_memory_bytes),
            "peakMemoryUsage": resources.peak_memory_bytes,
            "avgCpuUsage": round(resources.avg_cpu, 4),
            "totalIOOperations": resources.io_operations,
            "bytesOut": resources.bytes_out,
            "measuredCalls": resources.measured_calls,
        },
        "concurrency": {
            "maxConcurrentCalls": concurrency.max_calls,
            "avgConcurrencyLevel": round(concurrency.avg_level, 3),
            "concurrencyBottlenecks": concurrency.bottlenecks,
            "avgQueueTime": _ms(concurrency.avg_queue_ms),
            "maxQueueTime": _ms(concurrency.max_queue_ms),
            "running": concurrency.running,
        },
        "errors": {
            "validationErrors": errors.validation,
            "executionErrors": errors.execution,
            "timeoutErrors": errors.timeout,
            "permissionErrors": errors.permission,
            "byCode": dict(errors.by_code),
        },
        "window": {
            "calls": round(window.calls, 2),
            "bottlenecks": round(window.bottlenecks, 2),
            "avgExecutionTime": _ms(window.avg_ms),
        },
        "cache": {"hits": metrics.cache_hits, "misses": metrics.cache_misses},
    }


def _ms(value: float) -> float:
    return round(value, 4)


# name, kind, help; the samples of each are made below, in the same order
_FAMILIES: Final = (
    ("surehand_tool_calls_total", "counter", "Calls by tool and outcome."),
    ("surehand_tool_errors_total", "counter", "Failed calls by tool and error code."),
    ("surehand_tool_duration_seconds", "summary", "Time of a call, from the moment it was made to its result."),
    ("surehand_tool_duration_max_seconds", "gauge", "The longest call."),
    ("surehand_tool_running", "gauge", "Calls that run now."),
    ("surehand_tool_concurrency_max", "gauge", "The most calls that ran at once."),
    ("surehand_tool_bottlenecks_total", "counter", "Calls that had to wait for a slot."),
    ("surehand_tool_queue_seconds_total", "counter", "Time calls waited for a slot."),
    ("surehand_tool_output_bytes_total", "counter", "Output given back."),
    ("surehand_tool_memory_bytes", "gauge", "Average memory of a call in a separate process."),
    ("surehand_tool_memory_peak_bytes", "gauge", "Peak memory of a call in a separate process."),
    ("surehand_tool_cpu_ratio", "gauge", "Share of one core used while a call ran, on average."),
    ("surehand_tool_io_operations_total", "counter", "Input and output operations of calls, where they are counted."),
    ("surehand_tool_cache_total", "counter", "Looks into the result cache by tool and outcome."),
)


def to_prometheus(all_metrics: Iterable[ToolMetrics]) -> str:
    """Return all figures in Prometheus' text format."""
    samples: dict[str, list[Sample]] = {name: [] for name, _, _ in _FAMILIES}
    for metrics in all_metrics:
        for family, sample in _samples(metrics):
            samples[family].append(sample)
    lines: list[str] = []
    for name, kind, text in _FAMILIES:
        if samples[name]:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines += [f"{sample}{{{_labels(labels)}}} {value:.10g}" for sample, labels, value in samples[name]]
    return "\n".join(lines) + "\n" if lines else ""


def _samples(metrics: ToolMetrics) -> Iterator[tuple[str, Sample]]:
    execution, concurrency, tool = metrics.execution, metrics.concurrency, {"tool": metrics.tool}

    def of(family: str, value: float, suffix: str = "", **labels: str) -> tuple[str, Sample]:
        return family, (family + suffix, tool | labels, value)

    yield of("surehand_tool_calls_total", execution.successful_calls, outcome="success")
    yield of("surehand_tool_calls_total", execution.failed_calls, outcome="failure")
    for code, count in metrics.errors.by_code.items():
        yield of("surehand_tool_errors_total", count, code=code)
    for share, value in (("0.5", execution.p50_ms), ("0.95", execution.p95_ms), ("0.99", execution.p99_ms)):
        yield of("surehand_tool_duration_seconds", value / 1000, quantile=share)
    yield of("surehand_tool_duration_seconds", execution.avg_ms * execution.total_calls / 1000, "_sum")
    yield of("surehand_tool_duration_seconds", execution.total_calls, "_count")
    yield of("surehand_tool_duration_max_seconds", execution.max_ms / 1000)
    yield of("surehand_tool_running", concurrency.running)
    yield of("surehand_tool_concurrency_max", concurrency.max_calls)
    yield of("surehand_tool_bottlenecks_total", concurrency.bottlenecks)
    yield of("surehand_tool_queue_seconds_total", concurrency.avg_queue_ms * concurrency.bottlenecks / 1000)
    yield of("surehand_tool_output_bytes_total", metrics.resources.bytes_out)
    if (resources := metrics.resources).measured_calls:
        yield of("surehand_tool_memory_bytes", resources.avg_memory_bytes)
        yield of("surehand_tool_memory_peak_bytes", resources.peak_memory_bytes)
        yield of("surehand_tool_cpu_ratio", resources.avg_cpu)
        if resources.io_operations is not None:
            yield of("surehand_tool_io_operations_total", resources.io_operations)
    if metrics.cache_hits or metrics.cache_misses:
        yield of("surehand_tool_cache_total", metrics.cache_hits, outcome="hit")
        yield of("surehand_tool_cache_total", metrics.cache_misses, outcome="miss")


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escape_label(value)}"' for name, value in labels.items())


def _escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
