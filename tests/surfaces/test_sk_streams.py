"""The stateless API over a real connection: server-sent events and the deprecated websocket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import ServerSentEvent, aconnect_sse
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.engine.models import Usage
from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.exceptions import (
    AuthorizerUnavailable,
    BudgetExceeded,
    InsufficientScope,
    MissingRole,
    ModelInterrupted,
    ModelRefused,
    TealError,
    TokenExpired,
)
from sk_agents.testing import HeaderAuthorizer
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.patience import seconds
from tests.surfaces.sk_server import CHAT, HELLO, SEQUENTIAL, P, listening, serving, until

OSLO = {"place": {"name": "Oslo"}}


async def streamed(address: str, body: dict[str, Any]) -> list[ServerSentEvent]:
    async with (
        asyncio.timeout(seconds(10)),
        httpx.AsyncClient(base_url=f"http://{address}") as client,
        aconnect_sse(client, "POST", f"{P}/sse", json=body) as source,
    ):
        return [event async for event in source.aiter_sse()]


async def spoken(address: str, *messages: str, **options: Any) -> tuple[list[str], int, str]:
    """What a websocket says to these messages, and how it ends."""
    said: list[str] = []
    async with (
        asyncio.timeout(seconds(10)),
        connect(f"ws://{address}{P}/stream", **options) as socket,
    ):
        try:
            for message in messages:
                await socket.send(message)
            while True:
                said.append(str(await socket.recv()))
        except ConnectionClosed:
            pass
        return said, socket.close_code or 0, socket.close_reason or ""


async def test_stream_ends_with_the_whole_answer(tmp_path: Path) -> None:
    said = says("Hello there!", pieces=4, usage=Usage(prompt_tokens=7, completion_tokens=3))
    async with serving(tmp_path, CHAT, [said]) as server, listening(server) as address:
        *partials, final = await streamed(address, HELLO)
        assert {event.event for event in partials} == {"partial-response"}
        pieces = [event.json() for event in partials]
        assert "".join(piece["output_partial"] for piece in pieces) == "Hello there!"
        assert set(pieces[0]) == {"session_id", "source", "request_id", "output_partial"}
        body = final.json()
        assert (final.event, body["output_raw"]) == ("final-response", "Hello there!")
        assert body["token_usage"]["total_tokens"] == 10
        for piece in pieces:
            assert piece["source"] == "Helper:0.1"
            assert (piece["session_id"], piece["request_id"]) == (
                body["session_id"],
                body["request_id"],
            )
        assert await server.threads() == 0


async def test_piece_is_sent_before_the_next_one_is_there(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script: list[Turn] = [[TextDelta("One"), gate, TextDelta("Two"), TurnFinished()]]
    async with serving(tmp_path, CHAT, script) as server, listening(server) as address:
        async with (
            asyncio.timeout(seconds(10)),
            httpx.AsyncClient(base_url=f"http://{address}") as client,
            aconnect_sse(client, "POST", f"{P}/sse", json=HELLO) as source,
        ):
            events = source.aiter_sse()
            first = await anext(events)
            assert first.json()["output_partial"] == "One"
            gate.set()
            rest = [event async for event in events]
        assert rest[-1].json()["output_raw"] == "OneTwo"


async def test_tasks_before_the_last_are_told_whole(tmp_path: Path) -> None:
    script = [
        says("Oslo is long.", pieces=3, usage=Usage(prompt_tokens=5, completion_tokens=2)),
        says("Oslo!", usage=Usage(prompt_tokens=9, completion_tokens=1)),
    ]
    async with serving(tmp_path, SEQUENTIAL, script) as server, listening(server) as address:
        first, *partials, final = await streamed(address, OSLO)
        assert first.event == "intermediate-task-response"
        told = first.json()
        assert (told["task_no"], told["task_name"]) == (1, "draft")
        assert told["response"]["output_raw"] == "Oslo is long."
        assert told["response"]["token_usage"]["total_tokens"] == 7
        assert told["response"]["request_id"] == final.json()["request_id"]
        assert "".join(event.json()["output_partial"] for event in partials) == "Oslo!"
        assert final.json()["token_usage"]["total_tokens"] == 17
        assert await server.threads() == 0


@pytest.mark.parametrize("script", [[ModelRefused(status=400)], []])
async def test_failure_is_said_and_the_stream_ends_in_good_order(
    tmp_path: Path, script: list[Any]
) -> None:
    async with serving(tmp_path, CHAT, script) as server, listening(server) as address:
        (error,) = await streamed(address, HELLO)
        assert error.event == "error"
        assert error.json()["error"]
        assert error.json()["code"].startswith("llm_")
        assert error.json()["correlation_id"]
        assert await server.threads() == 0


async def test_input_that_does_not_fit_the_instructions_is_said_in_the_stream(
    tmp_path: Path,
) -> None:
    config = SEQUENTIAL.replace("{{ place.name }}", "{{ place.name.x.y }}")
    async with serving(tmp_path, config, []) as server, listening(server) as address:
        (error,) = await streamed(address, OSLO)
        assert (error.event, error.json()["code"]) == ("error", "invalid_input")


async def test_broken_type_of_the_operator_ends_the_stream_with_an_error(tmp_path: Path) -> None:
    config = SEQUENTIAL.replace("{{ place.name }}", "{{ place.model_post_fail() }}")
    types = """
from pydantic import BaseModel


class Name(BaseModel):
    name: str

    def model_post_fail(self):
        raise OSError("canary")


class Place(BaseModel):
    place: Name
"""
    async with (
        serving(tmp_path, config, [], files={"custom_types": types}) as server,
        listening(server) as address,
    ):
        (error,) = await streamed(address, OSLO)
        assert (error.event, error.json()["code"]) == ("error", "internal")
        assert "canary" not in error.data


@pytest.mark.parametrize("history", [1, []])
async def test_refused_stream_is_a_plain_answer(tmp_path: Path, history: Any) -> None:
    async with serving(tmp_path, CHAT, []) as server:
        reply = await server.client.post(f"{P}/sse", json={"chat_history": history})
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid_input")


async def test_retried_reply_is_whole_in_the_final_response(tmp_path: Path) -> None:
    script: list[Turn] = [[TextDelta("Hel"), ModelInterrupted()], says("Hello again.")]
    async with serving(tmp_path, CHAT, script) as server, listening(server) as address:
        *partials, final = await streamed(address, HELLO)
        assert final.json()["output_raw"] == "Hello again."
        assert "".join(e.json()["output_partial"] for e in partials).endswith("Hello again.")


async def test_websocket_says_the_answer_and_closes(tmp_path: Path) -> None:
    script = [says("Hello there!", pieces=3)]
    async with serving(tmp_path, CHAT, script) as server, listening(server) as address:
        said, code, _ = await spoken(address, json.dumps(HELLO))
        assert ("".join(said), code) == ("Hello there!", 1000)
        assert await server.threads() == 0


async def test_websocket_hands_the_header_to_tools(tmp_path: Path) -> None:
    config = CHAT + "    plugins: [Mail]\n"
    script = [calls(("Mail-send", {"to": "Bob"})), says("Sent.")]
    async with serving(tmp_path, config, script) as server, listening(server) as address:
        headers = {"Authorization": "Bearer canary"}
        said, code, _ = await spoken(address, json.dumps(HELLO), additional_headers=headers)
        last = {"extra_data": {"items": [{"key": "sent_to", "value": "Bob"}]}}
        assert (said[0], json.loads(said[1]), code) == ("Sent.", last, 1000)
    assert (tmp_path / "sent.txt").read_text() == "Bob Bearer canary\n"


@pytest.mark.parametrize(
    ("message", "code", "reason"),
    [
        ("{", 1007, ""),
        ('{"chat_history": 1}', 1007, "chat_history"),
        ('{"chat_history": [], "chat_history": []}', 1007, ""),
        ('{"chat_history": []}', 1007, "must end with a message of the user"),
        ('"' + "x" * (13 * 1024 * 1024) + '"', 1009, ""),
    ],
)
async def test_websocket_ends_for_a_bad_input_with_a_reason(
    tmp_path: Path, message: str, code: int, reason: str
) -> None:
    async with serving(tmp_path, CHAT, []) as server, listening(server) as address:
        said, ended, why = await spoken(address, message)
        assert (said, ended) == ([], code)
        assert why and reason in why


async def test_websocket_ends_with_1011_when_there_is_no_answer(tmp_path: Path) -> None:
    script = [ModelRefused(status=400)]
    async with serving(tmp_path, CHAT, script) as server, listening(server) as address:
        said, code, reason = await spoken(address, json.dumps(HELLO))
        assert (said, code) == ([], 1011)
        assert "400" in reason
        assert await server.threads() == 0


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:3000"])
async def test_websocket_serves_no_page_from_elsewhere(tmp_path: Path, origin: str) -> None:
    async with serving(tmp_path, CHAT, [says("Hi!")]) as server, listening(server) as address:
        with pytest.raises(InvalidStatus) as refused:
            await spoken(address, json.dumps(HELLO), origin=origin)
        assert refused.value.response.status_code == 403


async def test_websocket_ends_with_1008_for_a_caller_who_is_not_known(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, CHAT, [], authorizer=HeaderAuthorizer()) as server,
        listening(server) as address,
    ):
        _, code, _ = await spoken(address, json.dumps(HELLO))
        assert code == 1008


class RefusingAuthorizer(RequestAuthorizer):
    """Raises what it is given for every caller."""

    def __init__(self, refusal: TealError) -> None:
        self._refusal = refusal

    async def authorize_request(self, auth_header: str) -> str:
        raise self._refusal


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (TokenExpired(), 1008),
        (InsufficientScope("The token lacks the scope a.", scope="a"), 1008),
        (MissingRole("This needs the role user.", roles=["user"]), 1008),
        (BudgetExceeded(retry_after=60), 1013),
        (AuthorizerUnavailable(), 1011),
    ],
    ids=lambda case: case.code if isinstance(case, TealError) else None,
)
async def test_websocket_says_by_its_code_whether_to_sign_in_or_to_wait(
    tmp_path: Path, refusal: TealError, expected: int
) -> None:
    async with (
        serving(tmp_path, CHAT, [], authorizer=RefusingAuthorizer(refusal)) as server,
        listening(server) as address,
    ):
        _, code, _ = await spoken(address, json.dumps(HELLO))
        assert code == expected


async def test_reader_who_leaves_a_stream_leaves_nothing_behind(tmp_path: Path) -> None:
    script: list[Turn] = [[TextDelta("One"), asyncio.Event(), TurnFinished()]]
    async with serving(tmp_path, CHAT, script) as server, listening(server) as address:
        async with (
            httpx.AsyncClient(base_url=f"http://{address}") as client,
            aconnect_sse(client, "POST", f"{P}/sse", json=HELLO) as source,
        ):
            await anext(source.aiter_sse())
            assert await server.threads() == 1
        await until(server.is_empty)


async def test_client_who_leaves_before_the_answer_leaves_nothing_behind(tmp_path: Path) -> None:
    script: list[Turn] = [[TextDelta("One"), asyncio.Event(), TurnFinished()]]
    async with serving(tmp_path, CHAT, script) as server, listening(server) as address:
        async with httpx.AsyncClient(base_url=f"http://{address}") as client:
            asking = asyncio.create_task(client.post(P, json=HELLO))
            await until(server.is_asked)
            asking.cancel()
            await asyncio.wait({asking})
        await until(server.is_empty)


async def test_websocket_that_is_left_leaves_nothing_behind(tmp_path: Path) -> None:
    script: list[Turn] = [[TextDelta("One"), asyncio.Event(), TurnFinished()]]
    async with serving(tmp_path, CHAT, script) as server, listening(server) as address:
        async with asyncio.timeout(seconds(10)), connect(f"ws://{address}{P}/stream") as socket:
            await socket.send(json.dumps(HELLO))
            assert await socket.recv() == "One"
            assert await server.threads() == 1
        await until(server.is_empty)


async def test_200_invokes_leave_no_thread(tmp_path: Path) -> None:
    history = [
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "One."},
        *HELLO["chat_history"],
    ]
    script = [says("Hi!") if number % 4 else ModelRefused(status=400) for number in range(200)]
    async with serving(tmp_path, CHAT, script) as server:
        for _ in range(20):
            replies = await asyncio.gather(
                *(server.client.post(P, json={"chat_history": history}) for _ in range(10))
            )
            assert {reply.status_code for reply in replies} == {200, 502}
            assert await server.threads() == 0
        assert len(server.model.requests) == 200
