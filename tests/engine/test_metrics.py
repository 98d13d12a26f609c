"""What calls cost: the four groups, quantiles from a bounded sketch, and the forms others read."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surehand.core.call import ToolError, ToolResult
from surehand.core.errors import ToolFailure
from surehand.core.events import Event
from surehand.core.settings import MonitoringSettings, Settings, ToolSettings
from surehand.core.tool import tool
from surehand.engine.metrics import RUNS_LIMIT, UNKNOWN, HeardCalls, Metrics, MetricsStore, Record, Sketch
from surehand.engine.metrics_export import to_json, to_prometheus
from surehand.testing import scratch_app


def counted(*durations: float, error: str | None = None) -> Metrics:
    metrics = Metrics()
    for duration in durations:
        metrics.count_start("t")
        metrics.count_end("t", duration, error, bytes_out=10)
    return metrics


def test_the_json_has_exactly_the_names_of_the_overview() -> None:
    metrics = counted(0.1, 0.3).of("t")
    assert metrics is not None
    shown = to_json(metrics)
    assert {
        "totalCalls",
        "successfulCalls",
        "failedCalls",
        "avgExecutionTime",
        "p95ExecutionTime",
        "maxExecutionTime",
    } <= shown["execution"].keys()
    assert {"avgMemoryUsage", "peakMemoryUsage", "avgCpuUsage", "totalIOOperations"} <= shown["resources"].keys()
    assert {"maxConcurrentCalls", "avgConcurrencyLevel", "concurrencyBottlenecks"} <= shown["concurrency"].keys()
    assert {"validationErrors", "executionErrors", "timeoutErrors", "permissionErrors"} <= shown["errors"].keys()
    assert shown["execution"]["avgExecutionTime"] == pytest.approx(200)
    assert shown["execution"]["maxExecutionTime"] == pytest.approx(300)


@given(st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=300), st.sampled_from([0.5, 0.95, 0.99]))
def test_quantiles_are_within_a_few_percent_of_the_exact_ones(values: list[float], share: float) -> None:
    sketch = Sketch()
    for value in values:
        sketch.add(value)
    exact = sorted(values)[max(0, -(-int(share * 1000) * len(values) // 1000) - 1)]
    assert sketch.quantile(share) == pytest.approx(exact, rel=0.025)


def test_the_sketch_stays_bounded_whatever_is_put_in() -> None:
    sketch = Sketch()
    chance = random.Random(3)
    for _ in range(20_000):
        sketch.add(10 ** chance.uniform(-12, 12))
    sketch.add(0.0)
    assert len(sketch.counts) < 900


def test_quantiles_never_exceed_the_longest_call() -> None:
    metrics = counted(*[0.123] * 50).of("t")
    assert metrics is not None
    assert metrics.execution.p99_ms <= metrics.execution.max_ms == pytest.approx(123)
    assert metrics.execution.p50_ms == pytest.approx(123, rel=0.025)


def test_errors_count_by_kind() -> None:
    metrics = Metrics()
    codes = ["invalid_args", "precondition_failed", "execution_error", "timeout", "permission_denied", "queue_full"]
    for code in codes:
        metrics.count_end("t", 0.01, code, ran=False)
    figures = metrics.of("t")
    assert figures is not None
    errors = figures.errors
    assert (errors.validation, errors.execution, errors.timeout, errors.permission) == (2, 1, 1, 1)
    assert errors.by_code["queue_full"] == 1
    assert figures.concurrency.running == 0


def test_names_from_outside_do_not_grow_the_table() -> None:
    metrics = Metrics()
    for number in range(1000):
        metrics.count_end(f"made_up_{number}", 0.0, "tool_not_found", ran=False)
    assert list(metrics.records) == [UNKNOWN]
    assert metrics.records[UNKNOWN].calls == 1000


def test_the_window_forgets_what_is_older_than_a_minute() -> None:
    now = 1000.0
    metrics = Metrics(lambda: now)
    for _ in range(30):
        metrics.count_end("t", 0.2, None, queue_s=0.1, ran=False)
    figures = metrics.of("t")
    assert figures is not None
    assert (figures.window.calls, figures.window.bottlenecks) == (30, 30)
    now += 90
    figures = metrics.of("t")
    assert figures is not None
    assert figures.window.calls == pytest.approx(15), "half of the pane before is still within a minute"
    now += 200
    figures = metrics.of("t")
    assert figures is not None
    assert figures.window.calls == 0
    assert figures.execution.total_calls == 30


async def test_calls_through_the_door_are_counted_with_their_outcome_and_overlap() -> None:
    both = asyncio.Event()
    inside = 0

    @tool(read_only=True)
    async def meet() -> str:
        "Waits until two are here."
        nonlocal inside
        inside += 1
        if inside == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 60)
        return "x" * 100

    @tool(read_only=True)
    async def fail(kind: str) -> str:
        "Fails."
        raise ToolFailure("no") if kind == "failure" else RuntimeError("bug")

    async with scratch_app(tools=[meet, fail], builtin=False) as app:
        await asyncio.gather(app.call("meet"), app.call("meet"))
        await app.call("fail", {"kind": "failure"})
        await app.call("fail", {"kind": "bug"})
        await app.call("fail", {"wrong": 1})
        met, failed = app.metrics.of("meet"), app.metrics.of("fail")
        assert met is not None
        assert failed is not None
        assert met.concurrency.max_calls == 2
        assert met.concurrency.avg_level == pytest.approx(1.5)
        assert met.resources.bytes_out == 200
        assert (failed.execution.total_calls, failed.execution.failed_calls) == (3, 3)
        assert (failed.errors.execution, failed.errors.validation) == (2, 1)


async def test_what_a_call_in_a_process_used_is_added() -> None:
    from surehand.core.call import ToolResult

    @tool(read_only=True)
    async def measured() -> Any:
        "Says what it used."
        return ToolResult(output="", meta={"resources": {"cpu_s": 0.5, "max_rss_bytes": 4096, "io_operations": 7}})

    async with scratch_app(tools=[measured], builtin=False) as app:
        await app.call("measured")
        figures = app.metrics.of("measured")
        assert figures is not None
        assert figures.resources.peak_memory_bytes == 4096
        assert figures.resources.io_operations == 7
        assert figures.resources.measured_calls == 1


async def test_a_tool_whose_metrics_are_switched_off_is_not_measured() -> None:
    @tool(read_only=True)
    async def quiet() -> str:
        "Quiet."
        return ""

    off = ToolSettings(monitoring=MonitoringSettings(enable_metrics=False))
    async with scratch_app(tools=[quiet], builtin=False, settings=Settings(tools={"quiet": off})) as app:
        assert (await app.call("quiet")).ok
        assert app.metrics.of("quiet") is None


@pytest.mark.spec("ENG-4")
def test_prometheus_text_is_well_formed_and_escapes_names() -> None:
    metrics = counted(0.1)
    metrics.count_end('odd"name\\\n', 0.1, "timeout", ran=False)
    text = to_prometheus(metrics.all())
    line = re.compile(r'^[a-z_]+\{[a-z_]+="(?:[^"\\\n]|\\.)*"(?:,[a-z_]+="(?:[^"\\\n]|\\.)*")*\} [0-9.e+-]+$')
    for each in text.splitlines():
        assert each.startswith("# ") or line.match(each), each
    assert 'surehand_tool_calls_total{tool="t",outcome="success"} 1' in text
    assert 'surehand_tool_duration_seconds_count{tool="t"} 1' in text
    assert to_prometheus([]) == ""


def test_kept_metrics_add_up_over_processes_and_writing_twice_counts_once(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "metrics.db")
    first, second = MetricsStore(path), MetricsStore(path)
    first.save(counted(0.1, 0.2).records)
    first.save(counted(0.1, 0.2, 0.3).records)
    second.save(counted(1.0, error="timeout").records)
    record = MetricsStore(path).load()["t"]
    assert (record.calls, record.failed, record.errors) == (4, 1, {"timeout": 1})
    assert record.max_s == 1.0
    assert sum(record.sketch.counts.values()) == 4


def test_many_runs_are_folded_without_losing_a_call(tmp_path: Path) -> None:
    path = str(tmp_path / "metrics.db")
    for _ in range(RUNS_LIMIT + 20):
        MetricsStore(path).save(counted(0.01).records)
    assert MetricsStore(path).load()["t"].calls == RUNS_LIMIT + 20


def test_a_record_survives_its_way_through_json() -> None:
    record = counted(0.1, 0.2, error="timeout").records["t"]
    assert Record.from_dict(record.to_dict()).to_dict() == record.to_dict()


async def test_a_named_session_keeps_its_metrics_for_later_processes(tmp_path: Path) -> None:
    @tool(read_only=True)
    async def hello() -> str:
        "Says hello."
        return "hello"

    for _ in range(2):
        async with scratch_app(tmp_path, tools=[hello], builtin=False, session="work", keep_state=True) as app:
            await app.call("hello")
            path = f"{app.session.state_dir}/metrics.sqlite"
    assert MetricsStore(path).load()["hello"].calls == 2


async def test_figures_that_cannot_be_kept_fail_no_call(tmp_path: Path) -> None:
    notes: list[Event] = []
    async with scratch_app(tmp_path, session="work", keep_state=True) as app:
        app.bus.subscribe(notes.append)
        Path(f"{app.session.state_dir}/metrics.sqlite").write_bytes(b"no database at all, and longer than a header" * 9)
        assert (await app.call("time.now")).ok
    told = [event.data["message"] for event in notes if event.kind == "note"]
    assert "what was measured is not kept" in told[0]
    assert "delete the file" in told[0]


@pytest.mark.spec("ENG-4")
async def test_prometheus_has_memory_cpu_and_io_and_what_nobody_counts_is_absent() -> None:
    metrics = Metrics()
    for name, use in (
        ("apart", {"cpu_s": 0.5, "max_rss_bytes": 1000, "io_operations": 7}),
        ("Bash", {"cpu_s": 0.5, "max_rss_bytes": 2000}),
    ):
        metrics.count_start(name)
        metrics.count_end(name, 1.0, None)
        metrics.count_use(name, use, 1.0)
    text = to_prometheus(metrics.all())
    assert 'surehand_tool_memory_peak_bytes{tool="Bash"} 2000' in text
    assert 'surehand_tool_cpu_ratio{tool="apart"} 0.5' in text
    assert 'surehand_tool_io_operations_total{tool="apart"} 7' in text
    assert 'surehand_tool_io_operations_total{tool="Bash"}' not in text
    command = metrics.of("Bash")
    assert command is not None
    assert to_json(command)["resources"]["totalIOOperations"] is None


FAILED = ToolResult.failed(ToolError("timeout", "too long")).with_meta(duration_ms=250.0, queued_ms=50.0)


def begin(call: str, session: str = "s") -> Event:
    return Event("call_started", session, call, "Bash")


def end(call: str, result: Any, session: str = "s") -> Event:
    return Event("call_finished", session, call, "Bash", {} if result is None else {"result": result})


@pytest.mark.parametrize("result", [FAILED, FAILED.to_dict()], ids=["object", "plain"])
def test_the_end_of_a_call_says_what_it_cost(result: Any) -> None:
    heard = HeardCalls(Metrics())
    heard(begin("a"))
    heard(begin("a"))  # made again elsewhere
    heard(end("a", result))
    figures = heard.metrics.of("Bash")
    assert figures is not None
    assert figures.execution.total_calls == 1
    assert figures.execution.max_ms == pytest.approx(250)
    assert figures.errors.by_code == {"timeout": 1}
    assert figures.concurrency.max_queue_ms == pytest.approx(50)
    assert (figures.concurrency.max_calls, figures.concurrency.running) == (1, 0)


def test_nothing_runs_on_that_will_not_be_heard_of_again() -> None:
    heard = HeardCalls(Metrics())
    for session in ("one", "two", "three"):
        heard(begin("a", session))
    assert heard.metrics.records["Bash"].running == 3
    heard(end("a", None, "one"))
    heard(Event("session_closed", "two"))
    heard(Event("subagent_event", "three", data={"event": begin("b", "below")}))
    assert heard.metrics.records["Bash"].running == 2
    heard.forget_running()
    assert heard.metrics.records["Bash"].running == 0
