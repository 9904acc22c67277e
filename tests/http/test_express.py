"""The short way: for programs, to the routes that ask for it, with the same answers."""

import httpx
import pytest
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sk_agents.exceptions import InvalidInput, LimitExceeded, StateCorrupt
from sk_agents.http.correlation import CorrelationMiddleware
from sk_agents.http.errors import install_error_handlers
from sk_agents.http.express import Express, ExpressRoute
from tests.http.toy import inside

RAISED = {
    "limit": LimitExceeded("Enough.", retry_after=7),
    "corrupt": StateCorrupt("secret details"),
    "input": InvalidInput("Not this."),
    "http": HTTPException(418, "A teapot."),
    "unknown": ZeroDivisionError("secret"),
}
BROWSER = {"Origin": "http://localhost", "Host": "localhost"}


class Counted:
    """A layer behind the short way."""

    def __init__(self, app: ASGIApp, passed: list[str]) -> None:
        self.app = app
        self._passed = passed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._passed.append(scope["path"])
        await self.app(scope, receive, send)


def layered() -> tuple[FastAPI, list[str]]:
    app, passed = FastAPI(), list[str]()

    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.path_params["name"])

    async def fail(request: Request) -> PlainTextResponse:
        raise RAISED[request.path_params["error"]]

    app.router.routes += [
        ExpressRoute("/hello/{name}", hello, methods=["POST"]),
        ExpressRoute("/fail/{error}", fail, methods=["POST"]),
    ]
    app.add_middleware(Counted, passed=passed)
    app.add_middleware(Express, routes=app.router.routes, hosts=None, origins=None)
    app.add_middleware(CorrelationMiddleware)
    install_error_handlers(app)
    return app, passed


async def post(app: FastAPI, path: str, **headers: str) -> httpx.Response:
    async with inside(app, "http://127.0.0.1") as client:
        return await client.post(path, headers={"X-Correlation-Id": "known", **headers})


async def test_a_program_goes_past_the_layers_and_a_browser_through_them() -> None:
    app, passed = layered()
    program = await post(app, "/hello/ada")
    assert (program.status_code, program.text, passed) == (200, "ada", [])
    browser = await post(app, "/hello/eve", **BROWSER)
    assert (browser.status_code, browser.text, passed) == (200, "eve", ["/hello/eve"])


async def test_another_name_or_method_goes_the_ordinary_way() -> None:
    app, passed = layered()
    async with inside(app, "http://127.0.0.1") as client:
        assert (await client.get("/hello/ada")).status_code == 405
        assert (await client.post("/hello/ada", headers={"Host": "evil.example"})).is_success
    assert passed == ["/hello/ada", "/hello/ada"]


@pytest.mark.parametrize("error", RAISED)
async def test_errors_are_answered_alike_on_both_ways(error: str) -> None:
    app, passed = layered()
    short, long = await post(app, f"/fail/{error}"), await post(app, f"/fail/{error}", **BROWSER)
    assert passed == [f"/fail/{error}"]
    assert (short.status_code, short.json()) == (long.status_code, long.json())
    assert short.headers == long.headers
    assert short.headers["X-Correlation-Id"] == "known"
    assert "secret" not in short.text
