"""Exactly one server span for each request, streams included, over a real application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message

from sk_agents.exceptions import ThreadNotFound
from sk_agents.http.front import TealApp
from sk_agents.http.health import metrics_operation
from sk_agents.http.sse import EventStream, frame
from sk_agents.telemetry.telemetry import Telemetry
from tests.patience import seconds
from tests.telemetry.collector import Collector
from tests.telemetry.stories import sending, telemetry_for

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
FRAMES = 50


async def _frames() -> AsyncGenerator[Sequence[bytes]]:
    for number in range(FRAMES):
        await asyncio.sleep(0)
        yield [frame("tick", json.dumps({"n": number}).encode())]


async def _stream(request: Request) -> Response:
    return EventStream(_frames())  # type: ignore[return-value]  # an ASGI response of our own


async def _plain(request: Request) -> Response:
    return PlainTextResponse("hello")


def application(telemetry: Telemetry) -> FastAPI:
    app = TealApp(requests=telemetry.requests)
    app.router.routes.append(Route("/plain/{name}", _plain))
    app.router.routes.append(Route("/streams/{name}", _stream, methods=["POST"]))
    router = APIRouter()

    @router.get("/things/{thing_id}")
    async def thing(thing_id: str) -> str:
        if thing_id == "none":
            raise ThreadNotFound
        if thing_id == "broken":
            raise RuntimeError("canary")
        return thing_id

    app.include_router(router, prefix="/included")
    if telemetry.page is not None:
        app.add_operations([metrics_operation(telemetry.page, is_open=True)])
    return app


@asynccontextmanager
async def client(telemetry: Telemetry) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(application(telemetry), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        yield http


async def test_request_in_a_trace_becomes_its_child() -> None:
    async with Collector() as collector:
        async with sending(collector) as telemetry, client(telemetry) as http:
            header = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
            await http.get("/plain/bob", headers=header)
    [span] = collector.spans
    assert (span.trace_id, span.parent_id) == (TRACE, CALLER)
    assert span.name == "GET /plain/{name}"
    assert span.attributes["http.response.status_code"] == 200


async def test_stream_is_one_span_until_its_last_frame() -> None:
    async with Collector() as collector:
        async with sending(collector) as telemetry, client(telemetry) as http:
            response = await http.post("/streams/one")
            assert response.text.count("event: tick") == FRAMES
    [span] = collector.spans
    assert span.name == "POST /streams/{name}"


@pytest.mark.parametrize("header", ["nonsense", "00-0-0-00", f"ff-{TRACE}-{CALLER}-01"])
async def test_unreadable_traceparent_starts_a_new_trace(header: str) -> None:
    async with Collector() as collector:
        async with sending(collector) as telemetry, client(telemetry) as http:
            await http.get("/plain/bob", headers={"traceparent": header})
    [span] = collector.spans
    assert span.parent_id == ""


async def test_caller_that_is_not_traced_is_not_traced_here() -> None:
    async with Collector() as collector:
        async with sending(collector) as telemetry, client(telemetry) as http:
            await http.get("/plain/bob", headers={"traceparent": f"00-{TRACE}-{CALLER}-00"})
    assert collector.spans == []


async def test_span_carries_the_correlation_id_of_the_answer() -> None:
    async with Collector() as collector:
        async with sending(collector) as telemetry, client(telemetry) as http:
            response = await http.get("/included/things/none")
    [span] = collector.spans
    assert span.attributes["teal.correlation_id"] == response.json()["correlation_id"]
    assert (span.name, span.is_error) == ("GET /included/things/{thing_id}", False)
    assert span.attributes["http.response.status_code"] == 404


async def test_unexpected_error_is_told_by_its_status_alone() -> None:
    async with Collector() as collector:
        async with sending(collector) as telemetry, client(telemetry) as http:
            assert (await http.get("/included/things/broken")).status_code == 500
    [span] = collector.spans
    assert span.is_error
    assert span.attributes["http.response.status_code"] == 500
    assert b"canary" not in collector.raw


async def test_path_query_and_headers_are_not_in_the_span() -> None:
    async with Collector() as collector:
        async with sending(collector) as telemetry, client(telemetry) as http:
            headers = {"Authorization": "Bearer canary-token", "Cookie": "a=canary-cookie"}
            await http.get("/plain/canary-path?q=canary-query", headers=headers)
            await http.get("/canary-nowhere")
    assert [span.name for span in collector.named("GET")] == ["GET /plain/{name}", "GET"]
    assert b"canary" not in collector.raw


async def test_reader_that_leaves_ends_the_span_of_its_stream() -> None:
    async with Collector() as collector:
        async with sending(collector, metrics_enabled=True) as telemetry:
            app = application(telemetry)
            begun = asyncio.Event()

            async def send(message: Message) -> None:
                begun.set()
                await asyncio.Event().wait()

            async def receive() -> Message:
                await asyncio.Event().wait()
                raise AssertionError("never")

            scope = {
                "type": "http",
                "http_version": "1.1",
                "method": "POST",
                "scheme": "http",
                "path": "/streams/one",
                "raw_path": b"/streams/one",
                "query_string": b"",
                "root_path": "",
                "headers": [(b"host", b"test")],
                "server": ("test", 80),
            }
            task = asyncio.ensure_future(app(scope, receive, send))
            async with asyncio.timeout(seconds(5)):
                await begun.wait()
            assert telemetry.page is not None
            assert b"teal_http_streams 1.0" in telemetry.page()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert b"teal_http_streams 0.0" in telemetry.page()
    [span] = collector.spans
    assert span.attributes["error.type"] == "cancelled"


async def test_metrics_alone_leave_the_callers_trace_as_it_is() -> None:
    async with telemetry_for(metrics_enabled=True) as telemetry, client(telemetry) as http:
        response = await http.get("/metrics", headers={"traceparent": f"00-{TRACE}-{CALLER}-01"})
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
