"""`skagents/v2alpha1`: one agent, a conversation of texts and images, a session of the client's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sk_agents.testing.scripted_model import says
from tests.surfaces.sk_pictures import BASE64_PNG, PNG
from tests.surfaces.sk_server import AGENT, CHAT, HELLO, P, serving

IMAGE = {"content_type": "image", "content": PNG}
TEXT = {"content_type": "text", "content": "What is this?"}


def message(role: str, *items: dict[str, str]) -> dict[str, Any]:
    return {"role": role, "items": list(items)}


async def test_session_of_the_client_comes_back_and_the_request_is_new(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT, [says("A dot."), says("A dot.")]) as server:
        body = {"session_id": "mine", "chat_history": [message("user", TEXT)]}
        one = (await server.client.post(P, json=body)).json()
        two = (await server.client.post(P, json=body)).json()
        assert one["session_id"] == two["session_id"] == "mine"
        assert one["request_id"] != two["request_id"]
        assert (one["source"], one["output_raw"]) == ("Helper:0.1", "A dot.")
        assert one["output_pydantic"] is None


async def test_items_of_a_message_reach_the_model_together(tmp_path: Path) -> None:
    history = [
        message("user", TEXT, IMAGE),
        message("assistant", {"content_type": "text", "content": "A dot."}),
        message("user", {"content": "Sure?"}, IMAGE),
    ]
    async with serving(tmp_path, AGENT, [says("Yes.")]) as server:
        await server.client.post(P, json={"chat_history": history})
        picture = {"type": "image_url", "image_url": {"url": PNG}}
        assert server.prompt() == [
            ("system", "You look."),
            ("user", [{"type": "text", "text": "What is this?"}, picture]),
            ("assistant", "A dot."),
            ("user", [{"type": "text", "text": "Sure?"}, picture]),
        ]


async def test_image_of_the_assistant_keeps_its_place(tmp_path: Path) -> None:
    history = [message("user", TEXT), message("assistant", IMAGE), message("user", TEXT)]
    async with serving(tmp_path, AGENT, [says("Yes.")]) as server:
        await server.client.post(P, json={"chat_history": history})
        assert [role for role, _ in server.prompt()] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize("config", [AGENT, CHAT.replace("BaseInput", "BaseMultiModalInput")])
async def test_plain_content_is_one_text_item(tmp_path: Path, config: str) -> None:
    async with serving(tmp_path, config, [says("Hi.")]) as server:
        assert (await server.client.post(P, json=HELLO)).status_code == 200
        assert server.prompt()[-1] == ("user", "Hello?")


async def test_texts_of_one_message_are_one_text(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT, [says("Hi.")]) as server:
        body = {"chat_history": [message("user", {"content": "One"}, {"content": "Two"})]}
        await server.client.post(P, json=body)
        assert server.prompt()[-1] == ("user", "One\nTwo")


async def test_misnamed_jpeg_is_looked_at_as_one(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT, []) as server:
        item = {"content_type": "image", "content": f"data:image/jpg;base64,{BASE64_PNG}"}
        reply = await server.client.post(P, json={"chat_history": [message("user", item)]})
        assert "image/jpeg" in reply.json()["detail"]


@pytest.mark.parametrize(
    "content",
    [
        "https://example.com/cat.png",
        "http://127.0.0.1/secret",
        "file:///etc/passwd",
        "data:text/html;base64,PGI+",
        "data:image/png;base64,AAAA",
    ],
)
async def test_image_that_is_no_picture_in_a_data_uri_is_refused(
    tmp_path: Path, content: str
) -> None:
    async with serving(tmp_path, AGENT, []) as server:
        item = {"content_type": "image", "content": content}
        reply = await server.client.post(P, json={"chat_history": [message("user", TEXT, item)]})
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid_input")
        assert "chat_history[0]" in reply.json()["detail"]


async def test_message_without_items_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT, []) as server:
        reply = await server.client.post(P, json={"chat_history": [message("user")]})
        assert (reply.status_code, reply.json()["detail"]) == (422, "chat_history[0] has no items.")
