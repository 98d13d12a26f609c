"""`surehand stats` and `surehand health`: the metrics of calls in this workspace, and health checks of the tools."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from surehand import config
from surehand.cli import render, session
from surehand.engine.journal import list_turns
from surehand.engine.metrics import MetricsStore
from surehand.engine.metrics_export import kept_figures, to_json, to_prometheus
from surehand.engine.slots import DEFAULT_LIMIT
from surehand.engine.tuning import advise_caching, advise_concurrency, advise_timeout
from surehand.models import sum_by_model
from surehand.policy.trust import is_trusted
from surehand.state import locations

if TYPE_CHECKING:
    from surehand.engine.health import HealthReport
    from surehand.engine.metrics import Record, Sketch
    from surehand.engine.metrics_export import ToolMetrics
    from surehand.engine.tuning import Advice

_BARS = "▁▂▃▄▅▆▇█"
_BINS = 16
_ALL_COLUMNS = 110
_SPARED = ("P50", "WAITED", "OUTPUT")
"""Columns that a narrow table omits; `surehand stats TOOL` has them all."""
_MEASURED = "Calls made with `--session NAME` are measured."


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("tool", nargs="?", metavar="TOOL", help="only this tool, with all its metrics")
    parser.add_argument("--prometheus", action="store_true", help="in Prometheus' text format")
    parser.add_argument(
        "--models", action="store_true", help="tokens and cost by model, over all sessions of this folder"
    )
    parser.add_argument("--advice", action="store_true", help="what tuning would change, and why")
    parser.add_argument("--clear", action="store_true", help="delete all measurements")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    store = MetricsStore(os.path.join(locations.workspace_state(options.cwd), "metrics.sqlite"))
    if options.clear:
        store.clear()
        render.facts(options, {"cleared": True}, "Forgotten.")
        return 0
    if options.models:
        _models(options)
        return 0
    records = store.load()
    if options.tool and options.tool not in records:
        known = f"Measured are: {', '.join(records)}." if records else _MEASURED
        render.error(f"nothing was measured of {options.tool!r}", known)
        return 1
    names = [options.tool] if options.tool else sorted(records)
    found = [kept_figures(name, records[name]) for name in names]
    if options.prometheus:
        if not found:  # an empty page would read as "all is well"
            render.error("nothing was measured in this workspace", _MEASURED)
            return 1
        render.put(to_prometheus(found))
    elif options.advice:
        _advice(options, found)
    else:
        _figures(options, found, records)
    return 0


def _figures(options: Namespace, found: list[ToolMetrics], records: dict[str, Record]) -> None:
    def text() -> str:
        if not found:
            return f"Nothing has been measured here yet. {_MEASURED}"
        return _page(found[0], records[found[0].tool]) if options.tool else _table(found, records)

    render.facts(options, [to_json(each) for each in found], text)
    if not options.tool and not render.as_json(options) and (spent := _spent_by_model(options)):
        render.line(f"\n{_models_table(spent)}")


def _models(options: Namespace) -> None:
    spent = _spent_by_model(options)
    render.facts(
        options, spent, lambda: _models_table(spent) if spent else "No model has spoken in a session kept here."
    )


def _spent_by_model(options: Namespace) -> list[dict[str, Any]]:
    """Return tokens and cost by model, summed over the saved sessions of the workspace."""
    settings = config.load(options.cwd, trusted=is_trusted(options.cwd)).settings
    return sum_by_model(list_turns(os.path.join(locations.workspace_state(options.cwd), "sessions")), settings)


def _models_table(spent: list[dict[str, Any]]) -> str:
    rows: list[tuple[str, ...]] = []
    for row in spent:
        used = row["usage"]
        taken = used["input_tokens"] + used["cache_read_tokens"] + used["cache_write_tokens"]
        cost = "unknown" if row["cost"] is None else f"{row['cost']:.4f}"
        if row["cost_estimated"]:  # otherwise from the user's own prices, in an unknown currency
            cost = f"about ${cost}"
        rows.append((row["model"], str(row["turns"]), f"{taken:,}", f"{used['output_tokens']:,}", cost))
    return render.table(rows, ("MODEL", "TURNS", "TOKENS IN", "OUT", "COST"))


def _table(found: list[ToolMetrics], records: dict[str, Record]) -> str:
    rows = [
        (
            each.tool,
            str(each.execution.total_calls),
            str(each.execution.failed_calls),
            _time(each.execution.avg_ms),
            _time(each.execution.p50_ms),
            _time(each.execution.p95_ms),
            _time(each.execution.max_ms),
            str(each.concurrency.bottlenecks),
            _size(each.resources.bytes_out),
            format_histogram(records[each.tool].sketch),
        )
        for each in found
    ]
    heads = ("TOOL", "CALLS", "FAILED", "AVERAGE", "P50", "P95", "MAX", "WAITED", "OUTPUT", "FAST TO SLOW")
    shown = [place for place, head in enumerate(heads) if head not in _SPARED or render.columns() >= _ALL_COLUMNS]
    return render.table([[row[place] for place in shown] for row in rows], [heads[place] for place in shown])


def _page(each: ToolMetrics, record: Record) -> str:
    execution, resources, concurrency, errors = each.execution, each.resources, each.concurrency, each.errors
    measured = f"{resources.measured_calls} calls measured" if resources.measured_calls else "none measured"
    rows = [
        ("calls", f"{execution.total_calls} ({execution.successful_calls} ok, {execution.failed_calls} failed)"),
        ("time", f"average {_time(execution.avg_ms)}, longest {_time(execution.max_ms)}"),
        ("", f"p50 {_time(execution.p50_ms)}, p95 {_time(execution.p95_ms)}, p99 {_time(execution.p99_ms)}"),
        ("", format_histogram(record.sketch)),
        ("at once", f"{concurrency.max_calls} at most, {concurrency.avg_level:.2f} on average"),
        ("waited", f"{concurrency.bottlenecks} calls, {_time(concurrency.avg_queue_ms)} on average"),
        (
            "memory",
            f"{_size(resources.avg_memory_bytes)} average, {_size(resources.peak_memory_bytes)} peak ({measured})",
        ),
        ("CPU", f"{resources.avg_cpu:.0%} of a core"),
        ("output", _size(resources.bytes_out)),
        ("errors", ", ".join(f"{code} {count}" for code, count in errors.by_code.items()) or "none"),
        ("cache", f"{each.cache_hits} hits, {each.cache_misses} misses"),
    ]
    return render.paint(each.tool, "bold") + "\n" + render.table(rows)


def _advice(options: Namespace, found: list[ToolMetrics]) -> None:
    settings = config.load(options.cwd, trusted=is_trusted(options.cwd)).settings
    advice = [each for metrics in found for each in _list_advice(metrics, settings)]
    state = "on" if settings.engine.tuning else "off; `[engine] tuning = true` lets the limits adapt by themselves"

    def text() -> str:
        rows = [(each.tool, each.kind, f"{each.before:g}", f"{each.after:g}", each.reason) for each in advice]
        table = render.table(rows, ("TOOL", "WHAT", "NOW", "BETTER", "WHY")) if rows else "Nothing to change."
        return f"{table}\nTuning is {state}."

    render.facts(options, {"tuning": settings.engine.tuning, "advice": [each.to_dict() for each in advice]}, text)


def _list_advice(metrics: ToolMetrics, settings: Any) -> list[Advice]:
    own = settings.tools.get(metrics.tool)
    is_set = settings.engine.timeout is not None or (own is not None and own.timeout is not None)
    fixed = own.concurrency.max_concurrent_calls if own else None
    found = (
        advise_timeout(metrics, settings.engine.timeout_s) if not is_set else None,
        advise_concurrency(metrics, DEFAULT_LIMIT) if fixed is None else None,
        advise_caching(metrics, False) if settings.engine.cache is None else None,
    )
    return [each for each in found if each is not None]


def format_histogram(sketch: Sketch) -> str:
    """Draw a small histogram of durations, from the fastest call to the slowest."""
    if not sketch.counts:
        return ""
    low, high = min(sketch.counts), max(sketch.counts)
    bins = [0] * min(_BINS, high - low + 1)
    for place, count in sketch.counts.items():
        bins[(place - low) * len(bins) // (high - low + 1)] += count
    most = max(bins)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] if count else " " for count in bins)


def _time(milliseconds: float) -> str:
    if milliseconds < 1:
        return f"{milliseconds * 1000:.0f} us"
    return f"{milliseconds:.1f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.2f} s"


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


_COLOURS = {"healthy": "green", "unhealthy": "yellow", "error": "red", "not_found": "red"}


def configure_health(parser: ArgumentParser) -> None:
    """Add the options of `health`."""
    parser.add_argument("tools", nargs="*", metavar="TOOL", help="which tools (default: all)")


def run_health(options: Namespace) -> int:
    """Run `health` and return its exit code."""
    reports = session.run(_check_tools(options))
    render.facts(options, [report.to_dict() for report in reports], lambda: _health_table(reports))
    return 0 if all(report.status == "healthy" for report in reports) else 1


async def _check_tools(options: Namespace) -> list[HealthReport]:
    async with session.open_app(options) as app:
        return await app.health.check_all(options.tools or None)


def _health_table(reports: list[HealthReport]) -> str:
    rows = [(report.tool, report.status, report.state, render.shorten_line(report.message, 200)) for report in reports]
    head, *lines = render.table(rows, ("TOOL", "HEALTH", "STATE", "MESSAGE")).split("\n")
    # Whole lines are painted, after the layout: colour codes in a cell would count towards its width.
    painted = [render.paint(line, _COLOURS[each.status]) for line, each in zip(lines, reports, strict=True)]
    return "\n".join([head, *painted])
