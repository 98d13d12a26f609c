"""OpenTelemetry: one span a call, named and described by the GenAI conventions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import metrics, trace

from surehand.core.errors import ToolFailure
from surehand.core.settings import MonitoringSettings, Settings, ToolSettings
from surehand.core.tool import tool
from surehand.engine.otel import DURATION
from surehand.testing import scratch_app


class Span(trace.NonRecordingSpan):
    """A span that remembers what it is told."""

    def __init__(self, name: str, attributes: dict[str, Any]) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self.name, self.attributes, self.status = name, dict(attributes), None

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.status = status


class Collector(trace.NoOpTracer):
    """A tracer that keeps its spans, in place of an SDK."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    @contextmanager
    def start_as_current_span(self, name: str, *args: Any, **options: Any) -> Iterator[Span]:  # type: ignore[override]
        self.spans.append(Span(name, options["attributes"]))
        yield self.spans[-1]


class Histogram:
    """A histogram that keeps what it is given."""

    def __init__(self) -> None:
        self.values: list[tuple[float, dict[str, str]]] = []

    def record(self, value: float, attributes: dict[str, str]) -> None:
        self.values.append((value, attributes))


@tool(read_only=True)
async def works(text: str = "") -> str:
    "Works."
    return text


@tool(read_only=True)
async def fails() -> str:
    "Fails."
    raise ToolFailure("no", code="timeout")


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> tuple[Collector, Histogram, list[Any]]:
    collector, histogram, made = Collector(), Histogram(), list[Any]()

    class Meter:
        def create_histogram(self, name: str, *args: Any, **options: Any) -> Histogram:
            made.append((name, *args))
            return histogram

    monkeypatch.setenv("OTEL_SERVICE_NAME", "test")
    monkeypatch.setattr(trace, "get_tracer", lambda *args, **options: collector)
    monkeypatch.setattr(metrics, "get_meter", lambda *args, **options: Meter())
    return collector, histogram, made


@pytest.mark.spec("ENG-4")
async def test_each_call_is_a_span_and_a_duration(collected: tuple[Collector, Histogram, Sequence[Any]]) -> None:
    collector, histogram, made = collected
    async with scratch_app(tools=[works, fails], builtin=False) as app:
        await app.call("works", {"text": "secret"}, id="call_1")
        await app.call("fails")
    first, second = collector.spans
    assert first.name == "execute_tool works"
    assert first.attributes["gen_ai.operation.name"] == "execute_tool"
    assert first.attributes["gen_ai.tool.name"] == "works"
    assert first.attributes["gen_ai.tool.call.id"] == "call_1"
    assert "secret" not in str(first.attributes)
    assert second.attributes["error.type"] == "timeout"
    assert second.status == trace.StatusCode.ERROR
    assert made[0][:2] == (DURATION, "s")
    assert [told.get("error.type") for _, told in histogram.values] == [None, "timeout"]
    assert all(value >= 0 for value, _ in histogram.values)


@pytest.mark.spec("ENG-4")
async def test_a_refused_call_has_a_span_too(collected: tuple[Collector, Histogram, Sequence[Any]]) -> None:
    @tool()
    async def change() -> None:
        "Changes something."

    async with scratch_app(tools=[works, change], builtin=False, approve=False) as app:
        await app.call("change")
        await app.call("works", {"wrong": 1})
    assert [span.name for span in collected[0].spans] == ["execute_tool change", "execute_tool works"]
    assert [span.attributes["error.type"] for span in collected[0].spans] == ["permission_denied", "invalid_args"]


async def test_a_tool_may_be_left_out(collected: tuple[Collector, Histogram, Sequence[Any]]) -> None:
    off = ToolSettings(monitoring=MonitoringSettings(enable_tracing=False))
    async with scratch_app(tools=[works], builtin=False, settings=Settings(tools={"works": off})) as app:
        assert (await app.call("works")).ok
    assert collected[0].spans == []


async def test_without_anyone_listening_nothing_is_set_up() -> None:
    async with scratch_app(tools=[works], builtin=False) as app:
        assert app.executor.tracing is None
