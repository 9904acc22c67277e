"""The short way: for programs, to the routes that ask for it, with the same answers."""

from collections.abc import Iterator
from contextlib import contextmanager

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
from sk_agents.http.express import ExpressApp, ExpressRoute
from sk_agents.http.hosts import HostGuard
from tests.http.toy import inside, serving

RAISED = {
    "limit": LimitExceeded("Enough.", retry_after=7),
    "corrupt": StateCorrupt("secret details"),
    "input": InvalidInput("Not this."),
    "http": HTTPException(418, "A teapot."),
    "unknown": ZeroDivisionError("secret"),
}
BROWSER = {"Origin": "http://localhost", "Host": "localhost"}


class Counted:
    """A layer that notes what passes it."""

    def __init__(self, app: ASGIApp, passed: list[str]) -> None:
        self.app = app
        self._passed = passed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._passed.append(scope["path"])
        await self.app(scope, receive, send)


class Layered:
    """`passed` went the ordinary way, `short` the short one."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.short: list[str] = []
        self.app = ExpressApp()
        self.app.router.routes += [
            ExpressRoute("/hello/{name}", hello, methods=["POST"]),
            ExpressRoute("/fail/{error}", fail, methods=["POST"]),
            ExpressRoute("/break", breaks, methods=["POST"]),
        ]
        guard = HostGuard(self.app)
        self.app.add_middleware(Counted, passed=self.passed)
        self.app.add_middleware(CorrelationMiddleware)
        install_error_handlers(self.app)
        self.app.open_short_way(guard, lambda way: Counted(way, self.short))

    @contextmanager
    def served(self) -> Iterator[httpx.Client]:
        with serving(self.app) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            client.headers["X-Correlation-Id"] = "known"
            yield client


async def hello(request: Request) -> PlainTextResponse:
    # Whoever answers may set the header, too.
    return PlainTextResponse(request.path_params["name"], headers={"X-Correlation-Id": "other"})


async def fail(request: Request) -> PlainTextResponse:
    raise RAISED[request.path_params["error"]]


class Breaks:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ZeroDivisionError


breaks = Breaks()


def test_a_program_goes_past_the_layers_and_a_browser_through_them() -> None:
    layered = Layered()
    with layered.served() as client:
        program = client.post("/hello/ada")
        assert (program.status_code, program.text) == (200, "ada")
        assert (layered.short, layered.passed) == (["/hello/ada"], [])
        browser = client.post("/hello/eve", headers=BROWSER)
        assert (browser.status_code, browser.text) == (200, "eve")
        assert (layered.short, layered.passed) == (["/hello/ada"], ["/hello/eve"])
        assert program.headers.get_list("X-Correlation-Id") == ["known"]
        assert browser.headers.get_list("X-Correlation-Id") == ["known"]


def test_another_name_method_or_path_goes_the_ordinary_way() -> None:
    layered = Layered()
    with layered.served() as client:
        assert client.get("/hello/ada").status_code == 405
        assert client.post("/hello/ada", headers={"Host": "evil.example"}).is_success
        assert client.post("/hello").status_code == 404
    assert layered.short == []
    assert layered.passed == ["/hello/ada", "/hello/ada", "/hello"]


async def test_another_server_than_ours_has_no_short_way() -> None:
    layered = Layered()
    async with inside(layered.app, "http://127.0.0.1") as client:
        assert (await client.post("/hello/ada")).text == "ada"
    assert (layered.short, layered.passed) == ([], ["/hello/ada"])


def test_an_application_that_opens_none_has_no_short_way() -> None:
    app = ExpressApp()
    app.router.routes.append(ExpressRoute("/hello/{name}", hello, methods=["POST"]))
    assert answer(app, "/hello/ada").text == "ada"


@pytest.mark.parametrize("error", RAISED)
def test_errors_are_answered_alike_on_both_ways(
    error: str, caplog: pytest.LogCaptureFixture
) -> None:
    layered = Layered()
    with layered.served() as client:
        short, long = client.post(f"/fail/{error}"), client.post(f"/fail/{error}", headers=BROWSER)
    assert ("Traceback" in caplog.text) is (error == "unknown")
    assert (len(layered.short), len(layered.passed)) == (1, 1)
    assert (short.status_code, short.json()) == (long.status_code, long.json())
    assert without_date(short) == without_date(long)
    assert short.headers["X-Correlation-Id"] == "known"
    assert "secret" not in short.text


def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one() -> None:
    layered = Layered()
    with layered.served() as client, pytest.raises(httpx.RemoteProtocolError):
        client.post("/break")
    assert layered.short == ["/break"]


def answer(app: FastAPI, path: str) -> httpx.Response:
    with serving(app) as port:
        return httpx.post(f"http://127.0.0.1:{port}{path}")


def without_date(response: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name != "date"}
