"""What every answer says, whichever way it takes: its headers, and which methods a path has."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from sk_agents.testing.scripted_model import says
from tests.chats.serving import Served, serving

METHODS = {"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}
HELLO = {"items": [{"content_type": "text", "content": "Hello?"}]}
ANSWERS: list[tuple[str, str, Any]] = [
    ("POST", "/chats", {}),
    ("POST", "/chats", {"chat_id": 1}),
    ("GET", "/chats", None),
    ("GET", "/chats/none", None),
    ("GET", "/nowhere", None),
    ("PUT", "/chats", None),
    ("POST", "/chat", {"user_message": "x"}),
    ("POST", "/chat", {}),
    ("POST", "/chats/c/interactions", {}),
    ("POST", "/helper/0.1", HELLO),
    ("POST", "/helper/0.1", {}),
    ("GET", f"/helper/0.1/tasks/{uuid4()}", None),
    ("GET", "/health/live", None),
    ("GET", "/health/ready", None),
    ("GET", "/openapi.json", None),
    ("GET", "/helper/0.1/openapi.json", None),
]


async def test_answers_are_not_to_be_kept_nor_guessed_at(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x")] * 9) as served:
        for method, path, body in ANSWERS:
            answer = await served.client.request(method, path, json=body)
            assert _common(answer) == ("nosniff", "no-store"), (method, path)
        streams = {
            "/chats/c/interactions": {"user_message": "x"},
            "/helper/0.1/sse": HELLO,
        }
        for path, body in streams.items():
            async with served.client.stream("POST", path, json=body) as answer:
                assert _common(answer) == ("nosniff", "no-cache"), path
        page = await served.client.get("/")
        assert page.headers["X-Content-Type-Options"] == "nosniff"


def _common(answer: httpx.Response) -> tuple[str, str]:
    headers = answer.headers
    found = [headers.get_list(name) for name in ("X-Content-Type-Options", "Cache-Control")]
    assert [len(values) for values in found] == [1, 1], headers
    return found[0][0], found[1][0]


async def test_a_method_that_a_path_does_not_have_is_answered_with_those_it_has(
    tmp_path: Path,
) -> None:
    """Every path of the server, by every method: `Allow` names exactly those that are not 405."""
    async with serving(tmp_path) as served:
        paths = sorted(_paths(await served.get("/openapi.json"), served))
        for path in paths:
            answers = {
                method: await served.client.request(method, path) for method in sorted(METHODS)
            }
            refused = {name: one for name, one in answers.items() if one.status_code == 405}
            has = METHODS - refused.keys()
            assert has, path
            for answer in refused.values():
                assert set(answer.headers["Allow"].split(", ")) == has, (path, answer.headers)
    assert len(paths) > 20


def _paths(document: dict[str, Any], served: Served) -> set[str]:
    """Those of the description, and of the pages and documents that are in none."""
    described = {path for path in document["paths"] if not path.endswith(("/events", "/stream"))}
    others = {"/", "/docs", "/openapi.json", "/helper/0.1/openapi.json", "/helper/0.1/docs"}
    known = {path.replace("{", "x").replace("}", "x") for path in described}
    return known | others
