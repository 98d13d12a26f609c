"""Where spans and durations go when the program around us takes none: to the collector the usual variables name.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 surehand ask ...      # with the extra `otel`

A program that sets OpenTelemetry up itself keeps what it has set up.
"""

from __future__ import annotations

import os
from typing import Any, Final, cast

_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"


def export_as_told() -> None:
    """Send spans and durations where the variables say, where they say so and the extra `otel` is installed."""
    if _is_wanted("TRACES"):
        _spans()
    if _is_wanted("METRICS"):
        _durations()


def _is_wanted(what: str) -> bool:
    """Return whether a collector is named for traces or metrics; `none` as exporter switches one of them off."""
    if os.environ.get(f"OTEL_{what}_EXPORTER", "otlp") != "otlp":
        return False
    return any(os.environ.get(name) for name in (_ENDPOINT, f"OTEL_EXPORTER_OTLP_{what}_ENDPOINT"))


def _spans() -> None:
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


def _durations() -> None:
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
