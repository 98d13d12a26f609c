"""OpenTelemetry (`otel`): a span and a duration for every call, by the GenAI conventions (`execute_tool NAME`).

Only the API is a dependency. The collector is configured by the program, or by the `otel` extra and the usual `OTEL_*`
variables (`export_as_configured`). The application calls `tracing` only if one of them is present.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.core.call import ToolCall
from surehand.core.errors import ToolFailure
from surehand.core.tool import Tool

if TYPE_CHECKING:
    from surehand.core.settings import Settings

_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
SCOPE: Final = "surehand"
DURATION: Final = "gen_ai.client.operation.duration"
# The bounds the conventions advise for this histogram, in seconds.
BOUNDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)

Tracing = Callable[[ToolCall, Tool], AbstractContextManager[Any]]


def tracing(settings: Settings) -> Tracing | None:
    """Return the context manager that wraps each call in a span; None if OpenTelemetry is switched off."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    from opentelemetry import metrics, trace

    export_as_configured()
    tracer = trace.get_tracer(SCOPE)
    durations = metrics.get_meter(SCOPE).create_histogram(
        DURATION, "s", "Time of a tool call.", explicit_bucket_boundaries_advisory=BOUNDS
    )
    untraced = frozenset(name for name, own in settings.tools.items() if not own.monitoring.enable_tracing)

    @contextmanager
    def traced(call: ToolCall, tool: Tool) -> Generator[None]:
        if tool.name in untraced:
            yield
            return
        told = attributes(call, tool)
        began = perf_counter()
        with tracer.start_as_current_span(f"execute_tool {tool.name}", attributes=told, record_exception=False) as span:
            try:
                yield
            except BaseException as problem:
                told["error.type"] = _kind(problem)
                span.set_attribute("error.type", told["error.type"])
                span.set_status(trace.StatusCode.ERROR, str(problem)[:200])
                raise
            finally:
                measured = {
                    key: told[key] for key in ("gen_ai.operation.name", "gen_ai.tool.name", "error.type") if key in told
                }
                durations.record(perf_counter() - began, measured)

    return traced


def attributes(call: ToolCall, tool: Tool) -> dict[str, str]:
    """Return the span attributes of a call by the conventions, without arguments and results, which may be secret."""
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool.name,
        "gen_ai.tool.type": "extension" if tool.module else "function",
        "gen_ai.tool.call.id": call.id,
        "surehand.source": call.source,
    }


def _kind(problem: BaseException) -> str:
    return problem.code if isinstance(problem, ToolFailure) else type(problem).__name__


# -- export, if the program has not set OpenTelemetry up itself --------------------------------------------------------

# The collector is the one that the usual variables name, with the extra `otel`:
#
#     OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 surehand ask ...
#
# A program that sets OpenTelemetry up itself keeps what it has set up.


def export_as_configured() -> None:
    """Export spans and durations as the OTEL_* variables say, if they are set and the extra `otel` is installed."""
    if _is_wanted("TRACES"):
        _export_spans()
    if _is_wanted("METRICS"):
        _export_durations()


def _is_wanted(what: str) -> bool:
    """Whether a collector is configured for traces or metrics; the exporter `none` switches it off."""
    if os.environ.get(f"OTEL_{what}_EXPORTER", "otlp") != "otlp":
        return False
    return any(os.environ.get(name) for name in (_ENDPOINT, f"OTEL_EXPORTER_OTLP_{what}_ENDPOINT"))


def _export_spans() -> None:
    from opentelemetry import trace

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # pyright: ignore
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        return
    provider = TracerProvider(resource=_resource())
    provider.add_span_processor(BatchSpanProcessor(cast("Any", OTLPSpanExporter())))
    trace.set_tracer_provider(provider)


def _export_durations() -> None:
    from opentelemetry import metrics

    if type(metrics.get_meter_provider()).__name__ != "_ProxyMeterProvider":  # the API does not name it in public
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # pyright: ignore
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    except ImportError:
        return
    reader = PeriodicExportingMetricReader(cast("Any", OTLPMetricExporter()))
    metrics.set_meter_provider(MeterProvider([reader], resource=_resource()))


def _resource() -> Any:
    from opentelemetry.sdk.resources import Resource

    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if named else {"service.name": "surehand"})
