"""How traces, metrics and logs get to a collector: OTLP over HTTP, or over gRPC.

Each comes with an extra of its own, and is imported when a setting asks for it.
"""

from __future__ import annotations

from typing import NamedTuple

from opentelemetry.sdk._logs.export import LogRecordExporter
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter

EXPORT_SECONDS = 5.0


class Exporters(NamedTuple):
    """One of each; what is not wanted is `None`. Without an endpoint OpenTelemetry's own variables
    say where the collector is."""

    traces: SpanExporter
    metrics: MetricExporter | None
    logs: LogRecordExporter | None


def http_exporters(endpoint: str | None, *, metrics: bool, logs: bool) -> Exporters:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import (  # noqa: PLC0415
        OTLPLogExporter,
    )
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415
        OTLPMetricExporter,
    )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )

    def signal(name: str) -> str | None:
        return f"{endpoint.rstrip('/')}/v1/{name}" if endpoint is not None else None

    return Exporters(
        OTLPSpanExporter(signal("traces"), timeout=EXPORT_SECONDS),
        OTLPMetricExporter(signal("metrics"), timeout=EXPORT_SECONDS) if metrics else None,
        OTLPLogExporter(signal("logs"), timeout=EXPORT_SECONDS) if logs else None,
    )


def grpc_exporters(endpoint: str | None, *, metrics: bool, logs: bool) -> Exporters:
    """With `http:` in plain text, with `https:` over TLS."""
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import (  # noqa: PLC0415
        OTLPLogExporter,
    )
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (  # noqa: PLC0415
        OTLPMetricExporter,
    )
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )

    return Exporters(
        OTLPSpanExporter(endpoint, timeout=EXPORT_SECONDS),
        OTLPMetricExporter(endpoint, timeout=EXPORT_SECONDS) if metrics else None,
        OTLPLogExporter(endpoint, timeout=EXPORT_SECONDS) if logs else None,
    )
