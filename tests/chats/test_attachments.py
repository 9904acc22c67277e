"""What a tool returned beside its text: named in the stream, read by itself, kept in exports."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sk_agents.client import TealClient
from sk_agents.testing import HeaderAuthorizer
from sk_agents.testing.scripted_model import calls, says
from tests.chats.serving import Served, first, id_of, serving

DRAW = [calls(("Mail-draw", {"name": "plot ä.png"})), says("There.")]
PICTURE = {"media_type": "image/png", "size": 28, "name": "plot ä.png"}
TABLE = {"media_type": "text/csv", "size": 3, "name": "t.csv"}


def place(served: Served, interaction: str, call: str, number: int, chat: str = "c") -> str:
    return f"/chats/{chat}/interactions/{interaction}/attachments/{call}/{number}"


async def test_picture_of_a_tool_is_shown_read_and_seen_by_the_model(tmp_path: Path) -> None:
    async with serving(tmp_path, DRAW, agent={"sees_images": True}) as served:
        frames = await served.say("draw")
        result, run = first(frames, "tool_result"), id_of(frames)
        (event,) = [
            event
            for event in (await served.get("/chats/c"))["interactions"][0]["agent_events"]
            if event["type"] == "TOOL_RESULT"
        ]
        picture = await served.client.get(place(served, run, result["id"], 0))
        table = await served.client.get(place(served, run, result["id"], 1))
        async with TealClient(served.url) as client:
            fetched = await client.chat("c").attachment(run, result["id"], 1)
        prompt = served.model.requests[1]["messages"]
    assert result["attachments"] == event["attachments"] == [PICTURE, TABLE]
    assert "[picture plot ä.png: image/png, 28 bytes]" in result["tool_output"]
    assert picture.content.startswith(b"\x89PNG")
    assert picture.headers["content-type"] == "image/png"
    assert picture.headers["content-disposition"].endswith("UTF-8''plot%20%C3%A4.png")
    assert picture.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in picture.headers["content-security-policy"]
    assert (table.content, fetched) == (b"a,b", b"a,b")
    assert [part["type"] for part in prompt[-1]["content"]] == ["text", "image_url"]
    assert "base64" not in prompt[-2]["content"]


async def test_name_of_a_download_is_what_it_looks_like(tmp_path: Path) -> None:
    script = [calls(("Mail-draw", {"name": "invoice\u202etxt.\x1bexe\u2066"})), says("There.")]
    async with serving(tmp_path, script) as served:
        frames = await served.say("draw")
        result, run = first(frames, "tool_result"), id_of(frames)
        file = await served.client.get(place(served, run, result["id"], 0))
    assert file.headers["content-disposition"] == "attachment; filename*=UTF-8''invoicetxt.exe"


async def test_nothing_of_it_is_sent_to_a_model_that_cannot_see(tmp_path: Path) -> None:
    async with serving(tmp_path, DRAW) as served:
        await served.say("draw")
        prompt = served.model.requests[1]["messages"]
    assert prompt[-1]["role"] == "tool"
    assert "base64" not in str(prompt)


async def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    authorizer = HeaderAuthorizer()
    ann, bob = {"Authorization": "ann"}, {"Authorization": "bob"}
    async with serving(tmp_path, DRAW, authorizer=authorizer) as served:
        frames = await served.say("draw", headers=ann)
        run, call = id_of(frames), first(frames, "tool_result")["id"]
        wrong = [
            (place(served, run, call, 2), ann, 404),
            (place(served, run, call, -1), ann, 404),
            (place(served, run, "nothing", 0), ann, 404),
            (place(served, "int_nothing", call, 0), ann, 404),
            (place(served, run, call, 0), bob, 404),
            (place(served, run, call, 0), ann, 200),
        ]
        answers = await asyncio.gather(
            *(served.client.get(path, headers=headers) for path, headers, _ in wrong)
        )
    assert [answer.status_code for answer in answers] == [status for *_, status in wrong]
    assert answers[0].json()["code"] == "attachment_not_found"


async def test_exported_chat_takes_its_pictures_along(tmp_path: Path) -> None:
    async with serving(tmp_path, DRAW) as served:
        await served.say("draw")
        document = (await served.client.get("/chats/c/export")).json()
        await served.client.post("/chats/import?chat_id=copy", json=document)
        (copied,) = (await served.get("/chats/copy"))["interactions"]
        (result,) = [e for e in copied["agent_events"] if e["type"] == "TOOL_RESULT"]
        path = place(served, copied["id"], result["id"], 0, "copy")
        picture = await served.client.get(path)
        for event in document["events"]:
            for attachment in event.get("attachments") or ():
                attachment["media_type"] = "text/html\r\nX-Evil: 1"
        refused = await served.client.post("/chats/import?chat_id=evil", json=document)
    assert picture.content.startswith(b"\x89PNG")
    assert refused.status_code == 422


async def test_more_than_a_result_may_hold_is_left_out_and_said(tmp_path: Path) -> None:
    agent = {"limits": {"tool_attachment_bytes": 30}}
    async with serving(tmp_path, DRAW, agent=agent) as served:
        result = first(await served.say("draw"), "tool_result")
    assert result["attachments"] == [TABLE]
    assert "1 of its attachments were too large" in result["tool_output"]
