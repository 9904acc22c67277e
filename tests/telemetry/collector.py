"""A collector of the test's own: OTLP over HTTP on the loopback address, everything kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

SERVER, CLIENT, INTERNAL = 2, 3, 1


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    attributes: dict[str, Any]
    is_error: bool
    links: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReceivedLog:
    body: str
    attributes: dict[str, Any]
    trace_id: str


@dataclass(slots=True)
class Collector:
    """Serves while it is entered. `raw` are the bytes of every request, in all of them."""

    spans: list[ReceivedSpan] = field(default_factory=list)
    logs: list[ReceivedLog] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    resources: list[dict[str, Any]] = field(default_factory=list)
    raw: bytes = b""
    url: str = ""
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/traces", self._take_traces)
        app.router.add_post("/v1/metrics", self._take_metrics)
        app.router.add_post("/v1/logs", self._take_logs)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def servers(self) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.kind == SERVER]

    def named(self, beginning: str) -> list[ReceivedSpan]:
        """In the order in which they began."""
        found = [span for span in self.spans if span.name.startswith(beginning)]
        return sorted(found, key=lambda span: span.start)

    async def _take_traces(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await self._body(request))
        for group in sent.resource_spans:
            self.resources.append(_plain(group.resource.attributes))
            for scope in group.scope_spans:
                self.spans.extend(_received(span) for span in scope.spans)
        return web.Response()

    async def _take_metrics(self, request: web.Request) -> web.Response:
        sent = ExportMetricsServiceRequest.FromString(await self._body(request))
        for group in sent.resource_metrics:
            for scope in group.scope_metrics:
                self.metrics.update({metric.name: metric for metric in scope.metrics})
        return web.Response()

    async def _take_logs(self, request: web.Request) -> web.Response:
        sent = ExportLogsServiceRequest.FromString(await self._body(request))
        for group in sent.resource_logs:
            for scope in group.scope_logs:
                self.logs.extend(
                    ReceivedLog(
                        record.body.string_value, _plain(record.attributes), record.trace_id.hex()
                    )
                    for record in scope.log_records
                )
        return web.Response()

    async def _body(self, request: web.Request) -> bytes:
        body = await request.read()
        self.raw += body
        return body


def _received(span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=span.kind,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        attributes=_plain(span.attributes),
        is_error=span.status.code == 2,
        links=tuple(link.span_id.hex() for link in span.links),
    )


def _plain(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in _typed(pairs)}


def _typed(pairs: Any) -> list[KeyValue]:
    return list(pairs)


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_value(one) for one in value.array_value.values)
    return getattr(value, kind) if kind is not None else None
