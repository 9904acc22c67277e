"""The one way in: every request passes it once, on our server and on any other."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, WebSocket
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sk_agents.exceptions import InvalidInput, LimitExceeded, StateCorrupt
from sk_agents.http.errors import PROBLEM_JSON, ErrorStyle, Problem
from sk_agents.http.front import TealApp
from sk_agents.http.operations import Operation
from sk_agents.http.sse import EventStream, Frames, LastFrames, LiveWriter
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
    """An operator's own layer: notes what passes it, and how often a response began."""

    def __init__(self, app: ASGIApp, passed: list[str]) -> None:
        self.app = app
        self._passed = passed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._passed.append(scope["path"])

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = [name for name, _ in message["headers"]]
                assert names.count(b"x-correlation-id") == 1
            await send(message)

        await self.app(scope, receive, counted)


class Hello:
    """A plain endpoint."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # An endpoint may set the header, too.
        answer = PlainTextResponse(
            scope["path_params"]["name"], headers={"X-Correlation-Id": "other"}
        )
        await answer(scope, receive, send)


async def fail(error: str) -> None:
    raise RAISED[error]


class Breaks:
    """Breaks off in the middle."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ZeroDivisionError


def application(passed: list[str] | None = None) -> TealApp:
    app = TealApp()
    app.add_operations(
        [
            Operation(method="POST", path="/hello/{name}", endpoint=Hello(), who=None),
            Operation(method="POST", path="/fail/{error}", endpoint=fail, who=None),
            Operation(method="POST", path="/break", endpoint=Breaks(), who=None),
        ]
    )
    if passed is not None:
        app.add_middleware(Counted, passed=passed)
    return app


@contextmanager
def served(app: FastAPI) -> Iterator[httpx.Client]:
    with serving(app) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        client.headers["X-Correlation-Id"] = "known"
        yield client


def test_programs_and_browsers_pass_the_same_layers_once() -> None:
    passed: list[str] = []
    with served(application(passed)) as client:
        program = client.post("/hello/ada")
        browser = client.post("/hello/eve", headers=BROWSER)
    assert (program.status_code, program.text) == (200, "ada")
    assert (browser.status_code, browser.text) == (200, "eve")
    assert passed == ["/hello/ada", "/hello/eve"]
    for answer in (program, browser):
        assert answer.headers.get_list("X-Correlation-Id") == ["known"]


def test_another_name_method_or_path_is_answered_by_the_front() -> None:
    with served(application()) as client:
        method, path = client.get("/hello/ada"), client.post("/hello")
        name = client.post("/hello/ada", headers={"Host": "evil.example"})
    assert (method.status_code, method.headers["Allow"]) == (405, "POST")
    assert path.status_code == 404
    assert (name.status_code, name.json()["code"]) == (400, "bad_host")


@pytest.mark.parametrize("error", RAISED)
async def test_errors_are_answered_alike_on_every_server(
    error: str, caplog: pytest.LogCaptureFixture
) -> None:
    known = {"X-Correlation-Id": "known"}
    with served(application()) as client:
        ours = client.post(f"/fail/{error}")
    assert caplog.text.count("Traceback") == (error == "unknown")
    async with inside(application(), "http://127.0.0.1") as other:
        elsewhere = await other.post(f"/fail/{error}", headers=known)
    assert (ours.status_code, ours.json()) == (elsewhere.status_code, elsewhere.json())
    assert own_headers(ours) == own_headers(elsewhere)
    assert ours.headers["X-Correlation-Id"] == "known"
    assert "secret" not in ours.text


def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one() -> None:
    with served(application()) as client, pytest.raises(httpx.RemoteProtocolError):
        client.post("/break")


def own_headers(response: httpx.Response) -> dict[str, str]:
    others = ("date", "server")
    return {name: value for name, value in response.headers.items() if name not in others}


class Shouting:
    """An operator's own layer that changes what is sent."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def shout(message: Message) -> None:
            if message["type"] == "http.response.body":
                message["body"] = message["body"].upper()
            await send(message)

        await self.app(scope, receive, shout)


@pytest.mark.parametrize("is_layered", [False, True])
def test_nothing_is_written_past_an_operators_own_layer(is_layered: bool) -> None:
    class Live:
        """Writes past the application wherever it may."""

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            writer = LiveWriter()

            async def frames() -> Frames:
                yield [b"data: framed\n\n"]
                if writer.is_open:
                    writer.write(b"data: live\n\n")
                yield LastFrames([b"data: last\n\n"])

            await EventStream(frames(), live=writer)(scope, receive, send)

    app = TealApp()
    app.add_operations([Operation(method="GET", path="/live", endpoint=Live(), who=None)])
    if is_layered:
        app.add_middleware(Shouting)
    with served(app) as client:
        text = client.get("/live").text
    plain, loud = ["data: framed", "data: live", "data: last"], ["DATA: FRAMED", "DATA: LAST"]
    assert text.split() == " ".join(loud if is_layered else plain).split()


class Thing(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1)]


class Limits:
    body_bytes = 1000
    body_seconds = 5.0


def with_own_router() -> TealApp:
    app = application()
    router = APIRouter()

    @router.post("/{shop}/things")
    async def make(shop: str, thing: Thing) -> Thing:
        if thing.name == "none":
            raise InvalidInput("Not this.")
        return thing

    @router.websocket("/{shop}/live")
    async def live(websocket: WebSocket, shop: str) -> None:
        await websocket.accept()
        await websocket.send_text(shop)
        await websocket.close()

    app.include_router(router, prefix="/own")
    return app


async def test_an_operators_own_router_is_reached_through_the_front() -> None:
    async with inside(with_own_router(), "http://127.0.0.1") as client:
        good = await client.post("/own/a/things", json={"name": "x"})
        wrong = await client.post("/own/a/things", json={"name": ""})
        refused = await client.post("/own/a/things", json={"name": "none"})
        host = await client.post("/own/a/things", headers={"Host": "evil.example"})
        document = (await client.get("/openapi.json")).json()
    assert (good.status_code, good.json()) == (200, {"name": "x"})
    assert [answer.status_code for answer in (wrong, refused, host)] == [422, 422, 400]
    for answer in (wrong, refused, host):
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json()["correlation_id"] == answer.headers["X-Correlation-Id"]
    assert wrong.json()["errors"][0]["loc"] == ["body", "name"]
    described = document["paths"]["/own/{shop}/things"]["post"]["responses"]
    assert described["422"]["content"].keys() == {"application/problem+json"}


def test_an_operators_own_websocket_is_reached_through_the_front() -> None:
    client = TestClient(with_own_router(), base_url="http://127.0.0.1")
    with client.websocket_connect("/own/a/live") as socket:
        assert socket.receive_text() == "a"


async def test_an_operators_own_error_handler_is_asked_first() -> None:
    app = application()

    @app.exception_handler(LimitExceeded)
    async def mine(request: Request, error: Exception) -> Response:
        return PlainTextResponse("mine", 429)

    async with inside(app, "http://127.0.0.1") as client:
        assert (await client.post("/fail/limit")).text == "mine"
        assert (await client.post("/fail/input")).json()["code"] == "invalid_input"


async def test_a_surface_may_spell_errors_in_its_own_way() -> None:
    def render(scope: Scope, problem: Problem) -> Response:
        return PlainTextResponse(f"{problem.code}: {problem.detail}", problem.status)

    style = ErrorStyle(render, "text/plain", "Plain", {"type": "string"})
    app = TealApp()
    app.add_operations(
        [
            Operation(
                method="POST",
                path="/fail/{error}",
                endpoint=fail,
                who=None,
                errors=(422,),
                errors_as=style,
            )
        ]
    )
    async with inside(app, "http://127.0.0.1") as client:
        answer = await client.post("/fail/input")
        missing = await client.post("/nowhere")
    assert (answer.status_code, answer.text) == (422, "invalid_input: Not this.")
    assert missing.json()["code"] == "not_found"
    document = app.openapi()
    described = document["paths"]["/fail/{error}"]["post"]["responses"]["422"]["content"]
    assert described == {"text/plain": {"schema": {"$ref": "#/components/schemas/Plain"}}}
    assert document["components"]["schemas"]["Plain"] == {"type": "string"}
    assert document["components"]["schemas"][PROBLEM_JSON.name]


async def test_typed_bodies_are_read_strictly(caplog: pytest.LogCaptureFixture) -> None:
    made: list[str] = []

    class Deferred(Thing):
        model_config = ConfigDict(defer_build=True)

    async def make(thing: Deferred) -> Thing:
        made.append(thing.name)
        return thing

    app = TealApp()
    app.state.limits = Limits()
    app.add_operations([Operation(method="POST", path="/things", endpoint=make, who=None)])
    kind = {"Content-Type": "application/json"}
    bodies: dict[bytes, Any] = {
        b'{"name": "x"}': 200,
        b'{"name": "x", "name": "y"}': 422,
        b'{"name": "\\ud800"}': 422,
        b'{"name": "\\u0000"}': 422,
        b'{"name": "x"} y': 422,
        b'{"name": ' + b"[" * 70 + b"]" * 70 + b"}": 422,
        b'{"name": "' + b"x" * 1000 + b'"}': 413,
        b'{"name": "\xff"}': 400,
        b'{"other": 1}': 422,
        b"null": 422,
        b"": 422,
    }
    with caplog.at_level(logging.ERROR):
        async with inside(app, "http://127.0.0.1") as client:
            answers = {
                body: (await client.post("/things", content=body, headers=kind)).status_code
                for body in bodies
            }
            media = await client.post("/things", content=b"{}", headers={"Content-Type": "a/b"})
    assert answers == bodies
    assert media.status_code == 415
    assert made == ["x"]
    assert caplog.text == ""
