"""What one request and one user may take: the same on every API of a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from sk_agents.app import create_app
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.chats.proven import ADA, BOB, ProvenAuthorizer
from tests.chats.serving import listening, write_agent
from tests.patience import seconds
from tests.surfaces.sk_server import CHAT, HELLO, MODEL_URL

PATIENCE = seconds(20)
TEAL, SK = "/teal/0.1", "/Helper/0.1"
TEAL_HELLO = {"items": [{"content_type": "text", "content": "Hello?"}]}
CHATS_HELLO = {"user_message": "Hello?"}
REQUEST = f"{TEAL}/resume/{uuid4()}"
BODIES = [
    "/chats", "/chats/c/interactions", "/chats/import", "/approvals/a", "/chat",
    TEAL, f"{TEAL}/sse", REQUEST, f"{REQUEST}/sse", SK, f"{SK}/sse",
]  # fmt: skip
STREAMS = {"/chats/c/interactions": CHATS_HELLO, f"{TEAL}/sse": TEAL_HELLO, f"{SK}/sse": HELLO}


@asynccontextmanager
async def serving(
    folder: Path, script: Sequence[Turn | Exception] = (), **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """Every API on one server, for callers who prove who they are."""
    async with ScriptedModelServer(script) as model:
        teal = write_agent(folder / "teal", model.base_url, name="teal")
        stateless = folder / "sk.yaml"
        stateless.write_text(CHAT.replace(MODEL_URL, model.base_url))
        configured = Settings(store=f"sqlite:///{folder}/c.sqlite", **settings)
        files = load_agent_files([teal, stateless])
        app = create_app(configured, files, authorizer=ProvenAuthorizer())
        async with listening(app) as address:
            async with httpx.AsyncClient(base_url=address, timeout=PATIENCE, headers=ADA) as client:
                yield client


def websocket(client: httpx.AsyncClient) -> connect:
    address = str(client.base_url).replace("http", "ws").rstrip("/")
    return connect(f"{address}{SK}/stream", additional_headers=ADA)


async def end_of(connection: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        async with asyncio.timeout(PATIENCE):
            while True:
                await connection.recv()
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


async def test_a_body_that_is_too_large_is_refused_on_every_api(tmp_path: Path) -> None:
    body = b'{"x": "' + b"x" * 4_000 + b'"}'
    kind = {"Content-Type": "application/json"}
    async with serving(tmp_path, max_body_bytes=2_000, max_image_body_bytes=3_000) as client:
        answers = {
            path: (await client.post(path, content=body, headers=kind)).status_code
            for path in BODIES
        }
        async with websocket(client) as connection:
            await connection.send(body.decode())
            ended = await end_of(connection)
    assert answers == dict.fromkeys(BODIES, 413)
    assert ended == 1009


async def test_a_body_that_stops_coming_is_given_up_on_every_api(tmp_path: Path) -> None:
    async def status(client: httpx.AsyncClient, path: str) -> int:
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: ada_lovelace\r\n"
        writer.write(
            f"{head}Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{{".encode()
        )
        async with asyncio.timeout(PATIENCE):
            line = await reader.readline()
            # Closed: the rest must not be taken for another request.
            await reader.read()
        writer.close()
        return int(line.split()[1])

    async with serving(tmp_path, body_timeout=0.2) as client:
        answers = {path: await status(client, path) for path in BODIES}
        async with websocket(client) as connection:
            ended = await end_of(connection)
    assert answers == dict.fromkeys(BODIES, 408)
    assert ended == 1008


@pytest.mark.parametrize("held", STREAMS)
async def test_streams_of_a_user_are_counted_over_all_apis(tmp_path: Path, held: str) -> None:
    gate = asyncio.Event()
    waiting: Turn = [TextDelta("one "), gate, TextDelta("two"), TurnFinished()]
    async with serving(tmp_path, [waiting, says("bob")], streams_per_user=1) as client:
        async with client.stream("POST", held, json=STREAMS[held]) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            others = {
                path: await client.post(path, json=body)
                for path, body in STREAMS.items()
                if path != held
            }
            async with websocket(client) as connection:
                ended = await end_of(connection)
            gate.set()
            assert [line async for line in lines]
        # Another user was never concerned, and the slot is free again.
        answer = await client.post(held, json=STREAMS[held], headers=BOB)
        assert answer.status_code == 200
        async with client.stream("GET", "/chats/c/events") as again:
            assert again.status_code != 429
    assert {path: answer.status_code for path, answer in others.items()} == dict.fromkeys(
        others, 429
    )
    assert all("Retry-After" in answer.headers for answer in others.values())
    assert ended == 1013


async def test_what_a_refused_stream_asked_for_has_not_begun(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script: list[Turn] = [[TextDelta("one"), gate, TurnFinished()], says("two")]
    async with serving(tmp_path, script, streams_per_user=1) as client:
        async with client.stream("POST", f"{TEAL}/sse", json=TEAL_HELLO) as stream:
            await anext(stream.aiter_lines())
            session = {**TEAL_HELLO, "session_id": str(uuid4())}
            refused = await client.post(f"{TEAL}/sse", json=session)
            made = await client.get(f"{TEAL}/sessions/{session['session_id']}")
            gate.set()
    assert (refused.status_code, made.status_code) == (429, 404)


@pytest.mark.parametrize(
    ("path", "body"),
    [("/chat", CHATS_HELLO), (TEAL, TEAL_HELLO), (f"{TEAL}/sse", TEAL_HELLO)],
)
async def test_conversations_a_user_may_keep_are_counted_on_every_api_that_keeps_them(
    tmp_path: Path, path: str, body: dict[str, object]
) -> None:
    async with serving(tmp_path, [says("x")] * 5, max_chats_per_user=2) as client:
        answers = [(await client.post(path, json=body)).status_code for _ in range(3)]
        other = await client.post(path, json=body, headers=BOB)
    assert answers == [200, 200, 429]
    assert other.status_code == 200


async def test_a_deleted_task_makes_room_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x")] * 3, max_chats_per_user=1) as client:
        task = (await client.post(TEAL, json=TEAL_HELLO)).json()["task_id"]
        full = await client.post(TEAL, json=TEAL_HELLO)
        assert (await client.delete(f"{TEAL}/tasks/{task}")).status_code == 204
        assert (await client.post(TEAL, json=TEAL_HELLO)).status_code == 200
    assert full.status_code == 429


@pytest.mark.parametrize(
    ("path", "body"),
    [("/chat", CHATS_HELLO), (TEAL, TEAL_HELLO), (f"{TEAL}/sse", TEAL_HELLO)],
)
async def test_approvals_that_wait_are_counted_over_all_apis(
    tmp_path: Path, path: str, body: dict[str, object]
) -> None:
    script = [calls(("Mail-send", {"to": "bob"})), says("x")]
    async with serving(tmp_path, script, max_pending_approvals=1) as client:
        paused = await client.post(path, json=body)
        answers = {
            other: (await client.post(other, json=said)).status_code
            for other, said in {"/chat": CHATS_HELLO, TEAL: TEAL_HELLO}.items()
        }
    assert paused.status_code == 200
    assert answers == {"/chat": 429, TEAL: 429}
