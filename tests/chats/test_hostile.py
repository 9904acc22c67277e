"""Hostile requests: each is refused with its own status, nothing runs, and nobody else notices.

The letters before the rows are those of the catalogue of bad input. Whatever a table does not
expect, no row may be answered with 500.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sk_agents.testing.scripted_model import calls, says
from tests.chats.serving import Served, names, serving
from tests.patience import seconds

JSON = {"Content-Type": "application/json"}
MAX_TEXT = 256 * 1024
MIB = 1024 * 1024

START = ("POST", "/chats/c/interactions", {"user_message": "hi"})
BODIES: list[tuple[str, str, dict[str, Any]]] = [
    START,
    ("POST", "/chats", {"title": "t"}),
    ("POST", "/chats/import", {"format": "teal-chat", "version": 1, "agent": "h", "events": []}),
    ("PATCH", "/chats/c", {"title": "t"}),
    ("POST", "/chats/c/branch", {"interaction_id": "int_1"}),
    ("POST", "/chats/c/interactions/int_1/approve", {"approval_id": "a", "approved": True}),
    ("POST", "/chats/c/interactions/int_1/edit", {"new_user_message": "hi"}),
    ("POST", "/chats/c/interactions/int_1/regenerate", {"on_busy": "reject"}),
    ("POST", "/approvals/a", {"approved": True}),
]
OPTIONAL = {"/chats", "/chats/c/interactions/int_1/regenerate"}


async def send(
    served: Served, method: str, url: str, content: Any, headers: dict[str, str] | None = None
) -> httpx.Response:
    answer = await served.client.request(
        method, url, content=content, headers=JSON if headers is None else headers
    )
    assert answer.status_code < 500, (method, url, answer.text)
    if answer.status_code >= 400:
        body = answer.json()
        assert answer.headers["content-type"] == "application/problem+json"
        assert body["status"] == answer.status_code and body["correlation_id"]
        assert "Traceback" not in answer.text and "pydantic" not in answer.text
    return answer


@pytest.fixture
async def served(tmp_path: Path) -> Any:
    async with serving(tmp_path, [says("ok")] * 50) as opened:
        yield opened
        # However hostile they were, nothing was begun and the next one is served.
        before = len(opened.model.requests)
        assert names(await opened.say(chat="after"))[-1] == "interaction_complete"
        assert before == 0


def encoded_badly(body: dict[str, Any]) -> Iterator[tuple[int, dict[str, str], bytes]]:
    """H: how a body travels."""
    content = json.dumps(body).encode()
    yield 415, {}, content
    yield 415, {"Content-Type": "text/plain"}, content
    yield 415, {"Content-Type": "application/x-www-form-urlencoded"}, b"user_message=hi"
    yield 415, {"Content-Type": "multipart/form-data; boundary=x"}, b"--x--"
    yield (
        415,
        {"Content-Type": "application/json; charset=utf-16"},
        content.decode().encode("utf-16"),
    )
    yield 415, {**JSON, "Content-Encoding": "gzip"}, gzip.compress(content)
    yield 415, {**JSON, "Content-Encoding": "br"}, content
    yield 400, JSON, content.replace(b"hi", b"\xff\xfe") + b"\xff"


def no_objects(optional: bool) -> Iterator[bytes]:
    """J, U: bodies that are not what any route takes."""
    if not optional:
        yield b""
    yield from (b"null", b"[]", b'"x"', b"1", b"true", b"{", b"{}}", b"{'a': 1}", b"NaN", b" ")
    yield b'{"approved":false,"approved":true}'
    yield b'{"user_message":"a","user_message":"b"}'
    yield b"[" * 100_000 + b"]" * 100_000
    yield b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    yield b'{"on_busy":' + b"9" * 5_000 + b"}"
    yield b'{"title":1e999}'
    yield b'{"user_message":"\\ud800","title":"\\ud800","new_user_message":"\\ud800"}'
    yield b'{"user_message":"\\u0000","title":"\\u0000","new_user_message":"\\u0000"}'
    yield b'{"__proto__":{"approved":true}}'
    yield b'{"$ref":"#","lc":1,"type":"constructor"}'


@pytest.mark.parametrize(("method", "url", "body"), BODIES, ids=[url for _, url, _ in BODIES])
async def test_a_body_that_is_not_understood_is_refused(
    served: Served, method: str, url: str, body: dict[str, Any]
) -> None:
    for status, headers, content in encoded_badly(body):
        answer = await send(served, method, url, content, headers)
        assert answer.status_code == status, (headers, content[:60])
    for content in no_objects(url in OPTIONAL):
        answer = await send(served, method, url, content)
        assert answer.status_code == 422, (content[:60], answer.text)
    for extra in ("status", "user_id", "role", "final_agent_state", "__class__"):
        answer = await send(served, method, url, json.dumps({**body, extra: "system"}))
        assert answer.status_code == 422, extra
    assert (await served.get("/chats"))["chats"] == []


async def test_fields_of_wrong_kinds_are_refused(served: Served) -> None:
    wrong: list[tuple[str, list[dict[str, Any]]]] = [
        ("/chats/c/interactions", [
            {"user_message": ""}, {"user_message": " \n\t "}, {"user_message": None},
            {"user_message": ["x"]}, {"user_message": 1}, {}, {"user_message": "\u3000"},
            {"user_message": "hi", "on_busy": "maybe"}, {"user_message": "hi", "agent": 1},
            {"user_message": "hi", "on_disconnect": "stay"},
            {"user_message": "hi", "agent": "x" * 256},
        ]),
        ("/approvals/a", [
            {"approved": "true"}, {"approved": 1}, {"approved": None}, {},
            {"approved": True, "remember": "forever"}, {"approved": True, "choice": "maybe"},
            {"approved": True, "edited_arguments": []}, {"approved": True, "digest": 1},
            {"approved": True, "message": "x" * 4001}, {"approved": True, "digest": "x" * 129},
            {"approved": False, "edited_arguments": {}}, {"approved": False, "remember": "run"},
        ]),
        ("/chats/c/interactions/i/approve", [
            {"approved": True}, {"approved": True, "approval_id": ""},
            {"approved": True, "approval_id": 1}, {"approved": True, "approval_id": "x" * 129},
        ]),
        ("/chats/c/branch", [{}, {"interaction_id": ""}, {"interaction_id": "x" * 129}]),
        ("/chats/c/interactions/i/steer", [
            {}, {"user_message": " "}, {"user_message": 1}, {"user_message": "x" * 262_145},
            {"user_message": "x", "items": []},
        ]),
        ("/chats/c/interactions/i/cancel", [{"after": "now"}, {"before": "step"}]),
        ("/chats/c/interactions/i/edit", [{}, {"new_user_message": " "}, {"user_message": "x"}]),
    ]  # fmt: skip
    for url, bodies in wrong:
        for body in bodies:
            answer = await send(served, "POST", url, json.dumps(body))
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), body


IDS = [
    "%2e%2e", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "%252e%252e", "a.b", "a%20b", "x%0A", "x%00",
    "%EF%BC%8E%EF%BC%8E%EF%BC%8F", "a" * 65, "a" * 300, "*", "x%0D%0AFLUSHALL", "caf%C3%A9",
    "%D8%B5", "%FF%FE", "{x}", "$(x)", "a%2Fb",
]  # fmt: skip


async def test_ids_that_cannot_be_are_refused_by_every_route(served: Served) -> None:
    routes: list[tuple[str, str, Any]] = [
        ("GET", "/chats/{}", None),
        ("DELETE", "/chats/{}", None),
        ("PATCH", "/chats/{}", {"title": "x"}),
        ("GET", "/chats/{}/events", None),
        ("GET", "/chats/{}/branches", None),
        ("GET", "/chats/{}/export", None),
        ("POST", "/chats/{}/branch", {"interaction_id": "x"}),
        ("POST", "/chats/{}/interactions", {"user_message": "hi"}),
        ("POST", "/chats/{}/interactions/int_1/edit", {"new_user_message": "hi"}),
        ("POST", "/chats/{}/interactions/int_1/cancel", None),
        ("GET", "/chats/{}/interactions/int_1", None),
        ("GET", "/chats/{}/interactions/int_1/events", None),
        ("GET", "/chats/c/interactions/{}", None),
        ("GET", "/chats/c/interactions/{}/events", None),
        ("POST", "/chats/c/interactions/{}/cancel", None),
        ("POST", "/chats/{}/interactions/int_1/steer", {"user_message": "hi"}),
        ("POST", "/chats/c/interactions/{}/steer", {"user_message": "hi"}),
        ("POST", "/chats/c/interactions/{}/edit", {"new_user_message": "hi"}),
        ("GET", "/approvals/{}", None),
        ("POST", "/approvals/{}", {"approved": True}),
        ("DELETE", "/grants/{}", None),
    ]
    for method, form, body in routes:
        for id in IDS:
            content = None if body is None else json.dumps(body)
            headers: dict[str, str] | None = {} if body is None else None
            answer = await send(served, method, form.format(id), content, headers)
            assert answer.status_code in (404, 405, 422), (method, form, id)
    assert (await served.get("/chats"))["chats"] == []


async def test_ids_at_their_length_are_taken(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("ok")] * 3) as served:
        for id in ("a", "A-_9", "a" * 63, "a" * 64):
            made = await served.client.post("/chats", json={"chat_id": id})
            assert (made.status_code, made.json()["id"]) == (201, id)
        assert (await served.client.post("/chats", json={"chat_id": "a" * 65})).status_code == 422
        for name in ("CON", "nul", "NUL"):
            await served.say(f"in {name}", chat=name)
        listed = {chat["id"] for chat in (await served.get("/chats"))["chats"]}
    assert {"CON", "nul", "NUL"} <= listed


async def test_ids_that_a_disk_might_confuse_stay_apart_in_files(tmp_path: Path) -> None:
    store = f"file://{tmp_path}/kept"
    async with serving(tmp_path, [says("ok")] * 4, store=store) as served:
        for name in ("Case", "case", "CON", "nul"):
            await served.say(f"in {name}", chat=name)
        for name in ("Case", "case", "CON", "nul"):
            [entry] = (await served.get(f"/chats/{name}"))["interactions"]
            assert entry["user_message"] == f"in {name}"
    assert set(os.listdir(tmp_path)) <= {"kept", "helper"}


async def test_paths_beside_the_routes_are_not_there(served: Served) -> None:
    for method, url in (
        ("POST", "/chats/c/interactions/"),
        ("POST", "//chats"),
        ("GET", "/chats/"),
        ("GET", "//chats"),
        ("GET", "/chats/./c"),
        ("GET", "/CHATS"),
        ("POST", "/chats/c/interactions/int_1/approve/"),
    ):
        answer = await served.client.request(
            method, f"{served.url}{url}", json={"user_message": "hi"}, follow_redirects=False
        )
        assert answer.status_code in (404, 405), url
        assert "location" not in answer.headers
    for method in ("PUT", "PATCH", "TRACE", "OPTIONS", "HEAD", "GET", "DELETE"):
        answer = await served.client.request(method, "/chats/c/interactions")
        assert answer.status_code == 405, method
    override = {"X-HTTP-Method-Override": "DELETE"}
    made = await served.client.post("/chats", json={"chat_id": "kept"}, headers=override)
    assert made.status_code == 201
    read = await served.client.get("/chats/kept", headers=override)
    assert read.status_code == 200
    await served.client.delete("/chats/kept")


async def test_keys_that_cannot_be_are_refused(served: Served) -> None:
    keys = ["", "x" * 256, "x" * 300, "a b", "clé"]
    routes = [route for route in BODIES if not route[1].endswith(("/branch", "/c"))]
    for method, url, body in routes:
        for key in keys:
            headers = [(b"Idempotency-Key", key.encode("latin-1")), (b"Content-Type", JSON_TYPE)]
            answer = await served.client.request(
                method, url, content=json.dumps(body), headers=headers
            )
            assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request"), key
        twice = [
            (b"Idempotency-Key", b"a"),
            (b"Idempotency-Key", b"b"),
            (b"Content-Type", JSON_TYPE),
        ]
        answer = await served.client.request(method, url, content=json.dumps(body), headers=twice)
        assert answer.status_code == 400


JSON_TYPE = b"application/json"


async def test_texts_are_taken_up_to_their_limit_in_bytes(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("ok")] * 20) as served:
        for text in (
            "x" * (MAX_TEXT - 1),
            "x" * MAX_TEXT,
            "é" * (MAX_TEXT // 2),
            "e" + "\u0301" * 99,
        ):
            assert names(await served.say(text))[-1] == "interaction_complete"
        stored = (await served.get("/chats/c?state=false"))["interactions"]
        assert stored[1]["user_message"] == "x" * MAX_TEXT
        before = len(served.model.requests)
        for text in ("x" * (MAX_TEXT + 1), "é" * (MAX_TEXT // 2) + "x", "e" + "\u0301" * MAX_TEXT):
            answer = await send(served, *START[:2], json.dumps({"user_message": text}))
            assert (answer.status_code, len(answer.content) < 2000) == (422, True)
        assert len(served.model.requests) == before
        odd = "\u200b\U000e0041 \x1b[31m \x7f \u202e <|im_start|> data: x\n\nevent: y\r\n"
        await served.say(odd, chat="d")
        [entry] = (await served.get("/chats/d"))["interactions"]
    assert entry["user_message"] == odd


@pytest.mark.parametrize(
    ("limit", "images"), [("max_body_bytes", False), ("max_image_body_bytes", True)]
)
async def test_bodies_are_taken_up_to_their_limit(tmp_path: Path, limit: str, images: bool) -> None:
    most = 50_000
    limits: dict[str, Any] = {limit: most}
    async with serving(tmp_path, [says("ok")] * 5, **limits) as served:

        async def sized(size: int, *, chunked: bool = False) -> int:
            empty = '{"user_message":""}' if images else '{"title":"x"}'
            text = empty.replace('""', f'"{"x" * (size - len(empty))}"')
            body = (text if images else text + " " * (size - len(text))).encode()
            assert len(body) == size

            async def parts() -> Any:
                for start in range(0, size, 7_000):
                    yield body[start : start + 7_000]

            url = START[1] if images else "/chats"
            answer = await send(served, "POST", url, parts() if chunked else body)
            return answer.status_code

        fine = 200 if images else 201
        for chunked in (False, True):
            assert await sized(most - 1, chunked=chunked) == fine
            assert await sized(most, chunked=chunked) == fine
            assert await sized(most + 1, chunked=chunked) == 413
        assert await sized(100 * most) == 413


async def test_an_announced_size_is_refused_before_anything_is_sent(served: Served) -> None:
    address = httpx.URL(served.url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(
        f"POST {START[1]} HTTP/1.1\r\nHost: {address.netloc.decode()}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {10 * 1024 * MIB}\r\n\r\n".encode()
    )
    async with asyncio.timeout(seconds(5)):
        assert b" 413 " in await reader.readline()
    writer.close()


async def test_depth_and_numbers_are_taken_up_to_their_limits(tmp_path: Path) -> None:
    send_mail = calls(("Mail-send", {"to": "ada"}))
    async with serving(tmp_path, [send_mail, says("ok")]) as served:
        asked = (await served.say_until("approval_required"))[-1].data
        url = f"/approvals/{asked['approval_id']}"

        def nested(depth: int) -> str:
            inner = depth - 1
            return '{"approved":true,"answer":' + "[" * inner + "]" * inner + "}"

        too_deep = await send(served, "POST", url, nested(65))
        assert too_deep.status_code == 422
        huge = await send(served, "POST", url, '{"approved":true,"answer":18446744073709551616}')
        assert huge.status_code == 422
        most = await send(served, "POST", url, nested(64).replace("true", "false"))
        assert most.status_code == 200
        frames = await served.follow(asked["interaction_id"])
    assert "rejected" in names(frames)


async def test_queries_that_cannot_be_are_refused(served: Served) -> None:
    await served.client.post("/chats", json={"chat_id": "c"})
    for url in (
        "/chats?limit=-1", "/chats?limit=1e3", "/chats?limit=%00", "/approvals?limit=0",
        "/approvals?limit=101", "/grants?limit=0", "/grants?limit=101", "/chats/c?include=all",
        "/chats/c?state=perhaps", "/chats?cursor=" + "x" * 129, "/chats?q=" + "x" * 201,
        "/approvals?cursor=" + "x" * 129, "/chats/c?before=" + "1" * 161,
    ):  # fmt: skip
        assert (await send(served, "GET", url, None, {})).status_code == 422, url
    for url in (
        "/chats/c?before=-1", "/chats/c?before=", "/chats/c?before=1.a.b",
        "/chats?cursor=%F0%9F%A7%AD", "/chats?cursor=AAAA", "/approvals?cursor=%00",
        "/grants?cursor='--",
    ):  # fmt: skip
        assert (await send(served, "GET", url, None, {})).status_code == 400, url
    for url in (
        "/chats?q=%00", "/chats?q=%25", "/chats?unknown=1",
        "/chats?cursor=OTk5OS0xMi0zMVQyMzo1OTo1OS0xMjowMCB4",
    ):  # fmt: skip
        assert (await send(served, "GET", url, None, {})).status_code == 200, url
    await served.client.delete("/chats/c")
