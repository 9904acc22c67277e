"""Whose name a request may carry, and for which web page."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.websockets import WebSocket

from sk_agents.http.front import TealApp
from sk_agents.http.hosts import ANY, METHODS, accepted_hosts
from tests.http.toy import Wire, inside, request, serving, status, toy_app
from tests.security import ownership

FRIEND = "https://friend.example"
OURS = "http://localhost:8000"


async def get(
    app: FastAPI, host: str = "localhost:8000", method: str = "GET", **headers: str
) -> httpx.Response:
    """By its Host; the connection comes in at a loopback address."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with inside(app, "http://127.0.0.1:8000") as client:
        return await client.request(method, "/chats/c", headers={"Host": host, **sent})


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:80", "[::1]:9"]
)
async def test_loopback_names_are_ours(host: str) -> None:
    assert (await get(toy_app(), host)).status_code == 200


@pytest.mark.parametrize(
    ("row", "host"),
    [
        ("H13 rebound", "evil.example"),
        ("H13 rebound", "evil.example:8000"),
        ("H13 looks like it", "localhost.evil.example"),
        ("H13 looks like it", "127.0.0.1.evil.example"),
        ("H13 other address", "192.0.2.1"),
        ("H13 user", "localhost@evil.example"),
        ("H13 no port", "localhost:x"),
        ("H13 path", "localhost/x"),
        ("H13 blank", "localhost evil"),
        ("H13 empty", ""),
        ("H13 dot", "localhost."),
        ("H13 long", "a" * 300),
    ],
)
async def test_other_names_are_400_at_a_loopback_address(row: str, host: str) -> None:
    response = await get(toy_app(), host)
    assert (response.status_code, response.json()["code"]) == (400, "bad_host")
    assert response.headers["X-Correlation-Id"] == response.json()["correlation_id"]


async def test_names_in_the_list_are_ours_and_loopback_stays_so() -> None:
    app = toy_app(hosts=["agents.example"])
    assert (await get(app, "Agents.Example:443")).status_code == 200
    assert (await get(app, "localhost")).status_code == 200
    assert (await get(app, "other.example")).status_code == 400
    async with inside(app, "http://192.0.2.7:8000") as client:
        assert (await client.get("/chats/c")).status_code == 200, "our own address"
        evil = {"Host": "192.0.2.8"}
        assert (await client.get("/chats/c", headers=evil)).status_code == 400


async def test_any_name_will_do_where_callers_prove_themselves() -> None:
    assert (await get(toy_app(hosts=[ANY]), "whatever.example")).status_code == 200
    assert (await get(toy_app(hosts=[ANY]), "what ever")).status_code == 400
    async with inside(toy_app(), "http://192.0.2.7") as client:
        headers = {"Host": "whatever.example"}
        assert (await client.get("/chats/c", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("allowed", "bind", "accepted"),
    [
        (None, "127.0.0.1", None),
        (None, "localhost", None),
        (None, "::1", None),
        (None, "0.0.0.0", (ANY,)),
        (("a.example",), "127.0.0.1", ("a.example",)),
        (("a.example",), "0.0.0.0", ("a.example",)),
    ],
)
def test_place_of_listening_decides_if_nothing_is_configured(
    allowed: Any, bind: str, accepted: Any
) -> None:
    assert accepted_hosts(allowed, bind) == accepted


@pytest.mark.parametrize(
    ("row", "head"),
    [
        ("H13 two", b"GET /chats/c HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"),
        ("H13 none", b"GET /chats/c HTTP/1.1\r\n\r\n"),
        ("H13 none, old", b"GET /chats/c HTTP/1.0\r\n\r\n"),
        ("H13 in another", b"GET /chats/c HTTP/1.0\r\nSec-Fetch-Site: localhost\r\n\r\n"),
        ("H13 other", request("GET", "/chats/c", host="evil.example")),
    ],
)
def test_request_has_one_host_that_is_ours(row: str, head: bytes) -> None:
    with serving(toy_app()) as port, Wire(port) as wire:
        assert status(wire.send(head).until(b"}")) == 400


@pytest.mark.parametrize(
    ("row", "origin"),
    [
        ("H14 other site", "https://evil.example"),
        ("H14 other port", "http://localhost:3000"),
        ("H14 no site", "null"),
        ("H14 looks like it", "http://localhost:8000.evil.example"),
        ("H14 other scheme", "file://localhost:8000"),
        ("H14 empty", ""),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS", "DELETE"])
async def test_pages_of_other_sites_get_403_for_everything(
    row: str, origin: str, method: str
) -> None:
    app = toy_app(origins=[FRIEND])
    response = await get(app, method=method, Origin=origin, Access_Control_Request_Method="GET")
    assert response.status_code == 403
    assert "Access-Control-Allow-Origin" not in response.headers
    assert app.state.ran == []


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("localhost:8000", "https://LOCALHOST:8000"),
        ("localhost", "http://localhost"),
        ("localhost:80", "http://localhost"),
        ("localhost:443", "https://localhost"),
    ],
)
async def test_our_own_page_is_served(host: str, origin: str) -> None:
    response = await get(toy_app(), host, Origin=origin, Sec_Fetch_Site="same-origin")
    assert response.status_code == 200
    assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.parametrize(
    ("site", "mode", "dest", "expected"),
    [
        ("same-origin", "cors", "empty", 200),
        ("none", "navigate", "document", 200),
        ("cross-site", "navigate", "document", 200),
        ("cross-site", "navigate", "iframe", 403),
        ("cross-site", "no-cors", "image", 403),
        ("same-site", "no-cors", "script", 403),
        ("cross-site", "", "", 403),
    ],
)
async def test_other_sites_may_link_to_us_and_no_more(
    site: str, mode: str, dest: str, expected: int
) -> None:
    headers = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": mode, "Sec_Fetch_Dest": dest}
    assert (await get(toy_app(), **headers)).status_code == expected


async def test_form_of_another_site_is_refused_though_it_navigates() -> None:
    headers = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    response = await get(toy_app(), method="POST", Sec_Fetch_Dest="document", **headers)
    assert response.status_code == 403


async def test_allowed_site_may_read() -> None:
    app = toy_app(origins=[FRIEND])
    response = await get(app, Origin=FRIEND, Sec_Fetch_Site="cross-site")
    assert response.status_code == 200
    assert response.headers["Access-Control-Allow-Origin"] == FRIEND
    assert "Origin" in response.headers["Vary"]
    assert "X-Correlation-Id" in response.headers["Access-Control-Expose-Headers"]
    assert "Access-Control-Allow-Credentials" not in response.headers


async def test_allowed_site_may_read_errors_too() -> None:
    async with inside(toy_app(origins=[FRIEND])) as client:
        response = await client.get("/nowhere", headers={"Origin": FRIEND})
    assert (response.status_code, response.headers["Access-Control-Allow-Origin"]) == (404, FRIEND)


async def test_allowed_site_may_ask_before_it_sends() -> None:
    app = toy_app(origins=[FRIEND])
    response = await get(
        app,
        method="OPTIONS",
        Origin=FRIEND,
        Access_Control_Request_Method="POST",
        Access_Control_Request_Headers="authorization",
    )
    assert response.status_code == 204
    assert response.headers["Access-Control-Allow-Origin"] == FRIEND
    assert "Authorization" in response.headers["Access-Control-Allow-Headers"]
    assert "POST" in response.headers["Access-Control-Allow-Methods"]
    assert app.state.ran == []


async def test_allowed_sites_options_request_that_asks_for_no_method_is_answered_by_the_route() -> (
    None
):
    response = await get(toy_app(origins=[FRIEND]), method="OPTIONS", Origin=FRIEND)
    assert response.status_code == 405
    assert response.headers["Access-Control-Allow-Origin"] == FRIEND
    assert "Access-Control-Allow-Methods" not in response.headers


async def test_other_request_that_names_a_method_is_no_preflight() -> None:
    headers = {"Origin": FRIEND, "Access_Control_Request_Method": "POST"}
    response = await get(toy_app(origins=[FRIEND]), **headers)
    assert response.status_code == 200
    assert "Access-Control-Allow-Methods" not in response.headers


def test_every_method_of_a_route_may_be_sent_by_an_allowed_page() -> None:
    used = {route.partition(" ")[0] for route in ownership.KINDS}
    assert used - set(METHODS.split(", ")) == {"WEBSOCKET"}


async def test_two_origins_are_refused() -> None:
    async with inside(toy_app(origins=[FRIEND]), OURS) as client:
        response = await client.get("/chats/c", headers=[("Origin", OURS), ("Origin", FRIEND)])
    assert response.status_code == 403


async def websocket(origin: str | None, **options: Any) -> list[str]:
    """The kinds of messages of a handshake of this page: what is read, and what is sent."""
    sent: list[str] = []
    app = TealApp(**options)

    @app.websocket("/")
    async def accept(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    async def receive() -> dict[str, Any]:
        sent.append("websocket.connect")
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    headers = [(b"host", b"localhost:8000")]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    scope = {
        "type": "websocket",
        "headers": headers,
        "server": ("127.0.0.1", 8000),
        "path": "/",
        "query_string": b"",
    }
    await app(scope, receive, send)
    return sent


@pytest.mark.parametrize(
    ("origin", "is_served"),
    [(None, True), (OURS, True), (FRIEND, True), ("https://evil.example", False), ("null", False)],
)
async def test_websockets_are_guarded_as_well(origin: str | None, is_served: bool) -> None:
    kinds = await websocket(origin, origins=[FRIEND])
    accepted = ["websocket.accept"] if is_served else []
    assert kinds == ["websocket.connect", *accepted, "websocket.close"]


async def test_lifespan_is_let_through() -> None:
    opened: list[str] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        opened.append("opened")
        yield

    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[str] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await TealApp(lifespan=lifespan)({"type": "lifespan"}, receive, send)
    assert opened == ["opened"]
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
