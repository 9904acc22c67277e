"""What calls others passes its place in the trace on to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from sk_agents.llm.http_client import Timeouts, request_target
from sk_agents.llm.model_clients import ModelClients
from sk_agents.tools.openapi.clients import RemoteClients
from sk_agents.tools.openapi.http import RequestBounds
from sk_agents.tools.openapi.operations import ServiceRequest

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
BOUNDS = RequestBounds(seconds=5.0, max_bytes=1000)


class Service:
    """Remembers the headers it was sent."""

    def __init__(self) -> None:
        self.headers: list[Mapping[str, str]] = []
        self.url = ""

    async def __aenter__(self) -> Service:
        app = web.Application()
        app.router.add_route("*", "/", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        return web.Response(text="ok")


def told(trace: str | None) -> dict[str, Any]:
    return {"trace": lambda: trace}


async def ask_remotely(service: Service, **options: Any) -> None:
    async with RemoteClients(**options) as clients:
        await clients.send(ServiceRequest("GET", service.url, {}, None), {"X-Own": "1"}, BOUNDS)


async def ask_model(service: Service, **options: Any) -> None:
    async with ModelClients(**options) as clients:
        response = await clients.http.send(
            request_target("POST", service.url, {}), b"{}", Timeouts()
        )
        response.release(is_done=False)


async def test_remote_tool_is_told_the_trace() -> None:
    async with Service() as service:
        await ask_remotely(service, **told(TRACEPARENT))
    [headers] = service.headers
    assert (headers["traceparent"], headers["X-Own"]) == (TRACEPARENT, "1")


async def test_model_is_told_the_trace() -> None:
    async with Service() as service:
        await ask_model(service, **told(TRACEPARENT))
    [headers] = service.headers
    assert headers["traceparent"] == TRACEPARENT
    assert headers["Content-Length"] == "2"


async def test_nobody_is_told_of_a_trace_that_is_not_there() -> None:
    async with Service() as service:
        for options in (told(None), {}):
            await ask_remotely(service, **options)
            await ask_model(service, **options)
    assert len(service.headers) == 4
    assert not any("traceparent" in headers for headers in service.headers)
