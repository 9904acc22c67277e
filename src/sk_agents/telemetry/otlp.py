"""Sending traces, metrics and logs to a collector: the one file that knows OpenTelemetry's SDK.

It comes with the extra `otel`. What is sent waits in bounded queues and is dropped when a collector
is away for long; no request and no run waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from time import monotonic
from typing import Any
from uuid import uuid4

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import SpanContext, Tracer

from sk_agents import __version__
from sk_agents.telemetry.exporters import Exporters
from sk_agents.telemetry.instruments import INSTRUMENTS, Instrument, Read

NAME = "sk_agents"
SERVICE = "teal-agents"
# The version of OpenTelemetry's conventions that our names are of.
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
# A collector that does not answer must not keep a server from stopping.
CLOSING_SECONDS = 8.0


class RunSpanIds(RandomIdGenerator):
    """Random ids, except for a span whose id other spans already refer to."""

    def __init__(self) -> None:
        self._next = threading.local()

    def set_next(self, context: SpanContext) -> None:
        """For the next span that this thread starts."""
        self._next.context = context

    def generate_trace_id(self) -> int:
        context: SpanContext | None = getattr(self._next, "context", None)
        return super().generate_trace_id() if context is None else context.trace_id

    def generate_span_id(self) -> int:
        context: SpanContext | None = getattr(self._next, "context", None)
        self._next.context = None
        return super().generate_span_id() if context is None else context.span_id


class SentMeters:
    """Measurements on their way to a collector."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._instruments: dict[str, Any] = {one.name: self._made(one) for one in INSTRUMENTS}

    def record(self, instrument: Instrument, value: float, *labels: str) -> None:
        given = dict(zip(instrument.labels, labels, strict=True))
        made = self._instruments[instrument.name]
        if instrument.kind == "histogram":
            made.record(value, given)
        else:
            made.add(value, given)

    def watch(self, read: Read) -> None:
        for instrument in {found.name: found for found, _, _ in read()}.values():
            self._observe(instrument, read)

    def _observe(self, instrument: Instrument, read: Read) -> None:
        def observed(options: CallbackOptions) -> Iterable[Observation]:
            return [
                Observation(value, dict(zip(found.labels, labels, strict=True)))
                for found, labels, value in read()
                if found.name == instrument.name
            ]

        create = (
            self._meter.create_observable_counter
            if instrument.kind == "counter"
            else self._meter.create_observable_gauge
        )
        create(instrument.name, [observed], instrument.unit, instrument.about)

    def _made(self, instrument: Instrument) -> Any:
        name, unit, about = instrument.name, instrument.unit, instrument.about
        match instrument.kind:
            case "counter":
                return self._meter.create_counter(name, unit, about)
            case "gauge":
                return self._meter.create_up_down_counter(name, unit, about)
            case "histogram":
                return self._meter.create_histogram(
                    name, unit, about, explicit_bucket_boundaries_advisory=instrument.buckets
                )


class Sending:
    """Everything that goes to one collector. Its threads start here; `close` ends them."""

    def __init__(self, exporters: Exporters) -> None:
        ids = RunSpanIds()
        self.set_ids = ids.set_next
        resource = Resource.create(
            {
                "service.name": SERVICE,
                "service.version": __version__,
                "service.instance.id": str(uuid4()),
            }
        )
        self._traces = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
        self._traces.add_span_processor(BatchSpanProcessor(exporters.traces))
        self.tracer: Tracer = self._traces.get_tracer(NAME, __version__, schema_url=SCHEMA_URL)
        self._metrics: MeterProvider | None = None
        self.meter: Meter | None = None
        if exporters.metrics is not None:
            readers = [PeriodicExportingMetricReader(exporters.metrics)]
            self._metrics = MeterProvider(readers, resource, shutdown_on_exit=False)
            self.meter = self._metrics.get_meter(NAME, __version__, SCHEMA_URL)
        self.logs: LoggerProvider | None = None
        if exporters.logs is not None:
            self.logs = LoggerProvider(resource, shutdown_on_exit=False)
            self.logs.add_log_record_processor(BatchLogRecordProcessor(exporters.logs))

    def flush(self) -> None:
        """Send what waits. Blocks until it is sent or given up."""
        self._all("force_flush", CLOSING_SECONDS)

    def close(self, seconds: float = CLOSING_SECONDS) -> None:
        """Send what waits and end. Blocks for so long at most; what is left then is lost."""
        self._all("shutdown", seconds)

    def _all(self, method: str, seconds: float) -> None:
        providers = [one for one in (self._traces, self._metrics, self.logs) if one is not None]
        # Not of a pool, whose threads would be waited for when the process ends.
        threads = [
            threading.Thread(target=getattr(provider, method), daemon=True)
            for provider in providers
        ]
        deadline = monotonic() + seconds
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - monotonic()))
