"""Traces, metrics and logs sent to a collector that speaks gRPC."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc  # type: ignore[import-untyped]  # it has no types of its own
import pytest
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs_service
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_service

from tests.telemetry.stories import Story, telemetry_for

METHODS: dict[str, Any] = {
    "TraceService": trace_service.ExportTraceServiceRequest,
    "MetricsService": metrics_service.ExportMetricsServiceRequest,
    "LogsService": logs_service.ExportLogsServiceRequest,
}


class GrpcCollector(grpc.GenericRpcHandler):  # type: ignore[misc]  # see the import
    """Keeps what it is sent, by the service that it was sent to."""

    def __init__(self) -> None:
        self.received: dict[str, list[Any]] = {}

    def service(self, details: Any) -> Any:
        name = details.method.split("/")[1].rpartition(".")[2]

        def take(request: Any, context: Any) -> bytes:
            self.received.setdefault(name, []).append(request)
            return b""

        return grpc.unary_unary_rpc_method_handler(
            take, request_deserializer=METHODS[name].FromString
        )


async def test_everything_is_sent_over_grpc(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    collector = GrpcCollector()
    server = grpc.server(ThreadPoolExecutor(2), handlers=[collector])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        endpoint = f"http://127.0.0.1:{port}"
        async with telemetry_for(
            telemetry_enabled=True, otel_protocol="grpc", otel_endpoint=endpoint
        ) as telemetry:
            Story(telemetry).tell_whole()
            logging.getLogger("test").warning("something was said")
    finally:
        server.stop(None)
    assert collector.received.keys() == METHODS.keys()
    spans = [
        (scope.schema_url, span.name)
        for request in collector.received["TraceService"]
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
    assert ("https://opentelemetry.io/schemas/1.44.0", "chat llama") in spans
