"""Spans and durations as the real OpenTelemetry SDK takes them, in processes of their own: it is set up once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

COLLECT = """
import asyncio, json
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from surehand import Surehand, Settings, ToolFailure, tool
from surehand.core.call import ToolCall

spans, reader, provider = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([reader]))


@tool(read_only=True)
async def works(text: str) -> str:
    "Works, and has a span of its own inside."
    with trace.get_tracer("mine").start_as_current_span("inner"):
        return text


@tool(read_only=True)
def threaded() -> str:
    "Works in a thread."
    with trace.get_tracer("mine").start_as_current_span("in a thread"):
        return "x"


@tool(read_only=True)
async def fails() -> str:
    "Fails."
    raise ToolFailure("no such thing", code="timeout")


async def main():
    async with Surehand(".", settings=Settings(), tools=[works, threaded, fails], builtin=False) as app:
        with trace.get_tracer("mine").start_as_current_span("outer"):
            await app.call("works", {"text": "secret words"}, id="call_1")
            await app.call("threaded")
            await app.call("fails")
            await app.call("works", {"text": 7})
        await app.run_calls([ToolCall("works", {"text": "a"}), ToolCall("works", {"text": "b"})])


asyncio.run(main())
durations = [
    {"name": metric.name, "unit": metric.unit, "count": point.count, "bounds": list(point.explicit_bounds),
     "attributes": dict(point.attributes)}
    for resource in reader.get_metrics_data().resource_metrics
    for scope in resource.scope_metrics
    for metric in scope.metrics
    for point in metric.data.data_points
]
told = [json.loads(span.to_json()) for span in spans.get_finished_spans()]
print(json.dumps({"spans": told, "durations": durations}))
"""


def run(code: str, folder: Path, **variables: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.skipif(find_spec("opentelemetry.sdk") is None, reason="opentelemetry-sdk is not installed")
def test_the_sdk_gets_a_span_and_a_duration_of_every_call_within_the_callers_trace(tmp_path: Path) -> None:
    told = json.loads(run(COLLECT, tmp_path))
    spans: list[dict[str, Any]] = told["spans"]
    named = {span["name"]: span for span in spans}
    inner, first = spans[:2]
    assert (inner["name"], first["name"]) == ("inner", "execute_tool works")
    assert first["attributes"]["gen_ai.operation.name"] == "execute_tool"
    assert first["attributes"]["gen_ai.tool.name"] == "works"
    assert first["attributes"]["gen_ai.tool.call.id"] == "call_1"
    assert "secret" not in json.dumps(spans)
    assert first["parent_id"] == named["outer"]["context"]["span_id"]
    assert inner["parent_id"] == first["context"]["span_id"]
    thread = named["in a thread"]
    assert thread["parent_id"] == named["execute_tool threaded"]["context"]["span_id"]
    failed = named["execute_tool fails"]
    assert failed["status"]["status_code"] == "ERROR"
    assert failed["attributes"]["error.type"] == "timeout"
    assert failed["events"] == []
    counts = {
        (each["attributes"]["gen_ai.tool.name"], each["attributes"].get("error.type")): each
        for each in told["durations"]
    }
    assert {each["name"] for each in told["durations"]} == {"gen_ai.client.operation.duration"}
    assert {each["unit"] for each in told["durations"]} == {"s"}
    assert counts["fails", "timeout"]["count"] == 1
    assert counts["works", None]["count"] == 3
    assert counts["works", None]["bounds"][:3] == [0.01, 0.02, 0.04]


# -- from the variables alone -------------------------------------------------------------------------------------

CALL = """
import asyncio
from surehand import Surehand, Settings

async def main():
    async with Surehand(".", settings=Settings()) as app:
        await app.call("tools.echo", {"text": "hi"})

asyncio.run(main())
"""


@contextmanager
def collector() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Take what is sent to the paths of a collector."""
    taken: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", taken
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def has_exporter() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def test_variables_that_name_a_collector_hurt_nobody_who_has_no_exporter(tmp_path: Path) -> None:
    run(CALL, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_EXPORTER_OTLP_TIMEOUT="1")


@pytest.mark.skipif(
    not has_exporter(), reason="the extra `otel` (opentelemetry-exporter-otlp-proto-http) is not installed"
)
def test_the_variables_alone_send_spans_and_durations_to_a_collector(tmp_path: Path) -> None:
    with collector() as (url, taken):
        run(CALL, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_COMPRESSION="none")
        assert b"execute_tool tools.echo" in taken["/v1/traces"]
        assert b"surehand" in taken["/v1/traces"]
        assert b"gen_ai.client.operation.duration" in taken["/v1/metrics"]
    with collector() as (url, taken):
        run(CALL, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_TRACES_EXPORTER="none", OTEL_METRICS_EXPORTER="none")
        assert taken == {}
