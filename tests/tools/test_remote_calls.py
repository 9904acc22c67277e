"""Calls of a remote service over real HTTP: what goes out, what comes back, what is refused."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.models import Effect
from sk_agents.exceptions import ToolError
from sk_agents.tools.openapi.clients import RemoteClients
from sk_agents.tools.toolbox import AgentToolbox
from tests.patience import seconds
from tests.tools.calls import CONTEXT, call, result
from tests.tools.remote_service import Service, catalog, load


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with asyncio.timeout(seconds(30)), Service() as running:
        yield running


@pytest.fixture
async def clients() -> AsyncIterator[RemoteClients]:
    async with RemoteClients() as opened:
        yield opened


def tools(folder: Path, service: Service, clients: RemoteClients, **entry: Any) -> AgentToolbox:
    return load(folder, catalog(folder, server_url=service.url, **entry), clients)


async def test_query_and_header_arguments_go_where_the_document_says(
    tmp_path: Path, service: Service, clients: RemoteClients
) -> None:
    box = tools(tmp_path, service, clients, forward_authorization=True)
    found = await result(box, "Pets-list_pets", {"tag": ["a", "b"], "X_Trace": "t 1"})
    assert found.content == '{"ok":true}'
    method, path, headers, body = service.requests[0]
    assert (method, path, body) == ("GET", "/pets?limit=10&tag=a&tag=b", "")
    assert headers["X-Trace"] == "t 1"
    assert headers["Authorization"] == CONTEXT.authorization


async def test_fields_of_the_body_are_arguments_of_their_own(
    tmp_path: Path, service: Service, clients: RemoteClients
) -> None:
    box = tools(tmp_path, service, clients)
    await result(box, "Pets-addPet", {"name": "Rex", "owner": {"name": "Ann", "pets": []}})
    method, path, headers, body = service.requests[0]
    assert (method, path) == ("POST", "/pets")
    assert body == '{"name":"Rex","owner":{"name":"Ann","pets":[]}}'
    assert headers["Content-Type"] == "application/json"


async def test_body_is_sent_without_defaults_that_nobody_asked_for(
    tmp_path: Path, service: Service, clients: RemoteClients
) -> None:
    box = tools(tmp_path, service, clients)
    assert box.check(call("Pets-addPet", {"name": "Rex"})) == {"name": "Rex"}
    assert box.check(call("Pets-list_pets")) == {"limit": 10}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("a b", "/pets/a%20b"),
        ("a/b", "/pets/a%2Fb"),
        ("a?b#c", "/pets/a%3Fb%23c"),
        ("//evil.example", "/pets/%2F%2Fevil.example"),
        ("@evil.example:80", "/pets/%40evil.example%3A80"),
        ("http://evil.example/", "/pets/http%3A%2F%2Fevil.example%2F"),
        ("ä{petId}", "/pets/%C3%A4%7BpetId%7D"),
    ],
)
async def test_path_argument_is_one_segment_and_never_changes_the_host(
    tmp_path: Path, service: Service, clients: RemoteClients, value: str, path: str
) -> None:
    box = tools(tmp_path, service, clients)
    await result(box, "Pets-get_pets_petId", {"petId": value})
    assert service.requests[0][:2] == ("GET", path)


@pytest.mark.parametrize(
    "value", ["", ".", "..", "../x", "%2e%2e", "..%2fadmin", "a/%252e%252e", "..\\x"]
)
async def test_path_argument_that_leads_out_of_its_path_is_refused(
    tmp_path: Path, service: Service, clients: RemoteClients, value: str
) -> None:
    box = tools(tmp_path, service, clients)
    with pytest.raises(ToolError, match="petId: cannot be part of a path"):
        await result(box, "Pets-get_pets_petId", {"petId": value})
    assert service.requests == []


@pytest.mark.parametrize("value", ["a\r\nX-Admin: 1", "a\nb", "\x00", "ä", "", " a"])
async def test_header_argument_that_is_no_header_text_is_refused(
    tmp_path: Path, service: Service, clients: RemoteClients, value: str
) -> None:
    box = tools(tmp_path, service, clients)
    with pytest.raises(ToolError, match="X_Trace"):
        await result(box, "Pets-list_pets", {"X_Trace": value})
    assert service.requests == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"limit": "three"}, "limit: 'three' is not of type 'integer'"),
        ({"limit": 0}, "limit: 0 is less than the minimum of 1"),
        ({"limit": True}, "limit: True is not of type 'integer'"),
        ({"tag": ["c"]}, "tag.0: 'c' is not one of"),
        ({"limt": 3}, "'limt': is unknown; did you mean limit?"),
        ({"host": "evil.example"}, "'host': is unknown"),
    ],
)
async def test_wrong_arguments_run_nothing_and_tell_what_to_fix(
    tmp_path: Path,
    service: Service,
    clients: RemoteClients,
    arguments: dict[str, Any],
    problem: str,
) -> None:
    box = tools(tmp_path, service, clients)
    with pytest.raises(ToolError) as caught:
        box.check(call("Pets-list_pets", arguments))
    assert problem in str(caught.value)
    assert "Arguments: limit, tag, X_Trace." in str(caught.value)


async def test_only_get_and_head_are_taken_for_read_only(
    tmp_path: Path, service: Service, clients: RemoteClients
) -> None:
    box = tools(tmp_path, service, clients)
    effects = {spec.name: spec.effect for spec in box.specs()}
    assert effects == {
        "Pets-list_pets": Effect.READ_ONLY,
        "Pets-addPet": Effect.AT_MOST_ONCE,
        "Pets-get_pets_petId": Effect.READ_ONLY,
        "Pets-removePet": Effect.AT_MOST_ONCE,
    }
    assert {box.requires_approval(name) for name in effects} == {None}
    free = tools(tmp_path, service, RemoteClients(), requires_approval=False)
    assert free.requires_approval("Pets-removePet") is False


async def test_definition_changes_with_the_service_it_calls(tmp_path: Path) -> None:
    def digest(server: str) -> str:
        box = load(tmp_path, catalog(tmp_path, server_url=server), RemoteClients())
        return box.specs()[0].definition_digest

    assert digest("http://one.example") == digest("http://one.example")
    assert digest("http://one.example") != digest("http://two.example")


async def test_fixed_headers_are_filled_from_the_environment_and_win(
    tmp_path: Path, service: Service, clients: RemoteClients
) -> None:
    (tmp_path / ".env").write_text("PETS_KEY=k3y\n")
    headers = {"X-Api-Key": "${PETS_KEY}", "authorization": "Basic ${PETS_KEY}", "X-Trace": "us"}
    box = tools(tmp_path, service, clients, headers=headers)
    with pytest.raises(ToolError, match="'X_Trace': is unknown"):
        box.check(call("Pets-list_pets", {"X_Trace": "mine"}))
    await result(box, "Pets-list_pets")
    sent = {name.lower(): value for name, value in service.requests[0][2].items()}
    assert (sent["x-api-key"], sent["x-trace"]) == ("k3y", "us")
    assert sent["authorization"] == "Basic k3y"
    assert "k3y" not in repr(vars(box))


@pytest.mark.parametrize(
    ("fields", "is_passed"),
    [
        ({}, False),
        ({"forward_authorization": False, "requires_authorization": True}, False),
        ({"forward_authorization": True}, True),
        ({"requires_authorization": True}, True),
    ],
)
async def test_callers_header_is_passed_on_only_where_the_operator_says_so(
    tmp_path: Path,
    service: Service,
    clients: RemoteClients,
    fields: dict[str, bool],
    is_passed: bool,
) -> None:
    box = tools(tmp_path, service, clients, **fields)
    await result(box, "Pets-list_pets")
    assert ("Authorization" in service.requests[0][2]) is is_passed


async def test_plugin_that_needs_the_caller_is_not_called_without(
    tmp_path: Path, service: Service, clients: RemoteClients
) -> None:
    box = tools(tmp_path, service, clients, requires_authorization=True)
    spec = box.spec("Pets-list_pets")
    assert spec is not None and spec.requires_authorization
    with pytest.raises(ToolError, match="signed in"):
        await result(box, "Pets-list_pets", context=replace(CONTEXT, authorization=None))
    assert service.requests == []


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (404, '{"error":"no pet"}', "application/json", '404 Not Found: {"error":"no pet"}'),
        (500, "x" * 5000, "text/plain", f"500 Internal Server Error: {'x' * 500}"),
        (502, "<html>proxy</html>", "text/html", "502 Bad Gateway."),
        (418, b"\x00\x01", "image/png", "418 I'm a Teapot."),
    ],
)
async def test_refusal_is_an_error_with_its_status_and_a_short_text(
    tmp_path: Path,
    service: Service,
    clients: RemoteClients,
    status: int,
    body: str | bytes,
    kind: str,
    text: str,
) -> None:
    service.status, service.body, service.headers = status, body, {"Content-Type": kind}
    box = tools(tmp_path, service, clients)
    with pytest.raises(ToolError) as caught:
        await result(box, "Pets-list_pets")
    assert str(caught.value) == f"The service answered {text}"


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (200, "hello", "text/plain", "hello"),
        (200, "<p>page</p>", "text/html", "<p>page</p>"),
        (201, '{"id":1}', "application/problem+json", '{"id":1}'),
        (204, "", "text/plain", "The service answered 204 No Content."),
        (
            200,
            b"\x89PNG\x00",
            "image/png",
            "[file: application/octet-stream, 5 bytes]",
        ),
        (200, "gr\xfc\xdf".encode("latin-1"), "text/plain; charset=latin-1", "grüß"),
        (200, b"\xff", "text/plain; charset=x-unknown", "\ufffd"),
    ],
)
async def test_result_is_the_text_of_the_answer(
    tmp_path: Path,
    service: Service,
    clients: RemoteClients,
    status: int,
    body: str | bytes,
    kind: str,
    text: str,
) -> None:
    service.status, service.body, service.headers = status, body, {"Content-Type": kind}
    box = tools(tmp_path, service, clients)
    assert (await result(box, "Pets-list_pets")).content == text


async def test_huge_answer_is_cut(tmp_path: Path, service: Service, clients: RemoteClients) -> None:
    service.body = b"x" * 20_000_000
    box = tools(tmp_path, service, clients, max_bytes=1000)
    found = await result(box, "Pets-list_pets")
    assert found.content == "x" * 1000 + "\n[cut: the first 1000 bytes]"


async def test_compressed_answer_is_refused(
    tmp_path: Path, service: Service, clients: RemoteClients
) -> None:
    service.body = gzip.compress(b"x" * 10_000_000)
    service.headers = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}
    box = tools(tmp_path, service, clients)
    with pytest.raises(ToolError, match="compressed"):
        await result(box, "Pets-list_pets")


async def test_service_that_does_not_answer_is_given_up(
    tmp_path: Path, service: Service, clients: RemoteClients
) -> None:
    service.is_stuck = True
    box = tools(tmp_path, service, clients, timeout=0.2)
    with pytest.raises(ToolError, match=r"did not answer within 0\.2 seconds\.$"):
        await result(box, "Pets-list_pets")
    # Of what may have been done, the engine asks a human: it must be the one that stops waiting.
    spec = box.spec("Pets-addPet")
    assert spec is not None
    assert spec.timeout == 0.2
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(spec.timeout):
            await result(box, "Pets-addPet", {"name": "Rex"})


async def test_unreachable_service_is_an_error_that_says_nothing_was_sent(
    tmp_path: Path, clients: RemoteClients
) -> None:
    async with Service() as gone:
        pass
    box = tools(tmp_path, gone, clients)
    with pytest.raises(ToolError, match="cannot be reached; nothing was sent"):
        await result(box, "Pets-addPet", {"name": "Rex"})


async def test_connection_cut_after_a_change_was_sent_says_that_nobody_knows(
    tmp_path: Path, clients: RemoteClients
) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.transport.abort()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        box = load(tmp_path, catalog(tmp_path, server_url=url), clients)
        with pytest.raises(ToolError, match="may or may not have been carried out"):
            await result(box, "Pets-addPet", {"name": "Rex"})


async def test_redirect_within_the_service_is_followed(
    tmp_path: Path, service: Service, clients: RemoteClients
) -> None:
    async with Service() as other:
        box = tools(tmp_path, service, clients)
        service.status = 302
        service.headers = {"Location": f"{service.url}/openapi?moved"}
        with pytest.raises(ToolError, match="redirect"):
            # The document's own route answers with the same redirect: a circle.
            await result(box, "Pets-list_pets")
        assert len(service.requests) == 6
        assert other.requests == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_to_another_host_is_refused(
    tmp_path: Path, service: Service, clients: RemoteClients, status: int
) -> None:
    async with Service() as other:
        service.status, service.headers = status, {"Location": f"{other.url}/pets"}
        box = tools(tmp_path, service, clients)
        with pytest.raises(ToolError, match="another host"):
            await result(box, "Pets-list_pets")
        assert other.requests == []


async def test_redirect_to_an_allowed_host_takes_no_secret_along(
    tmp_path: Path, service: Service, clients: RemoteClients
) -> None:
    async with Service() as other:
        host = other.url.removeprefix("http://")
        service.status, service.headers = 307, {"Location": f"{other.url}/pets"}
        headers = {"X-Api-Key": "secret"}
        box = tools(tmp_path, service, clients, headers=headers, redirect_hosts=[host])
        assert (await result(box, "Pets-list_pets", {"X_Trace": "t"})).content == '{"ok":true}'
        sent = other.requests[0][2]
        assert not {"X-Api-Key", "Authorization", "X-Trace"} & sent.keys()


async def test_redirect_of_a_change_is_not_followed(
    tmp_path: Path, service: Service, clients: RemoteClients
) -> None:
    service.status, service.headers = 307, {"Location": f"{service.url}/other"}
    box = tools(tmp_path, service, clients)
    with pytest.raises(ToolError, match="307, a redirect"):
        await result(box, "Pets-addPet", {"name": "Rex"})
    assert len(service.requests) == 1


async def test_cookies_of_one_call_are_not_seen_by_the_next(
    tmp_path: Path, service: Service, clients: RemoteClients
) -> None:
    service.headers = {"Content-Type": "text/plain", "Set-Cookie": "user=ann; Path=/"}
    box = tools(tmp_path, service, clients)
    await result(box, "Pets-list_pets")
    await result(box, "Pets-list_pets")
    assert "Cookie" not in service.requests[1][2]


async def test_closed_clients_refuse_calls_and_end_connections(
    tmp_path: Path, service: Service
) -> None:
    clients = RemoteClients()
    box = tools(tmp_path, service, clients)
    with pytest.raises(ToolError, match="shutting down"):
        await result(box, "Pets-list_pets")
    async with clients:
        await result(box, "Pets-list_pets")
    with pytest.raises(ToolError, match="shutting down"):
        await result(box, "Pets-list_pets")


async def test_stopped_call_ends_its_request(
    tmp_path: Path, service: Service, clients: RemoteClients
) -> None:
    service.is_stuck = True
    box = tools(tmp_path, service, clients)
    task = asyncio.create_task(result(box, "Pets-list_pets"))
    await service.arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
