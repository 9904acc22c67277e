"""A repeated request is one request: same key, same body, same user."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.testing import HeaderAuthorizer
from sk_agents.testing.scripted_model import says
from tests.chats.serving import durable, id_of, serving

KEY = {"Idempotency-Key": "once"}


async def test_a_repeated_start_replays_the_same_interaction(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("one"), says("two")]) as served:
        frames = durable(await served.say("hello", headers=KEY))
        again = durable(await served.say("hello", headers=KEY))
        other = await served.client.post(
            "/chats/c/interactions", json={"user_message": "else"}, headers=KEY
        )
        await served.say("next")
        after = durable(await served.say("hello", headers=KEY))
        chat = await served.get("/chats/c")
    assert again == after == frames
    assert (other.status_code, other.json()["code"]) == (422, "invalid_input")
    assert [entry["user_message"] for entry in chat["interactions"]] == ["hello", "next"]


async def test_of_eight_repeated_starts_at_once_one_runs_and_all_see_it(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with serving(tmp_path, [[TextDelta("x"), gate, TurnFinished()]]) as served:
        saying = [asyncio.create_task(served.say("hi", headers=KEY)) for _ in range(8)]
        await served.say_until("answer_delta", "hi", headers=KEY)
        gate.set()
        streams = [durable(frames) for frames in await asyncio.gather(*saying)]
        chat = await served.get("/chats/c")
    assert all(frames == streams[0] for frames in streams)
    assert len(chat["interactions"]) == 1 == len(served.model.requests)


async def test_a_repeated_start_attaches_while_the_chat_is_busy_with_it(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with serving(tmp_path, [[TextDelta("x"), gate, TurnFinished()]]) as served:
        first = await served.say_until("answer_delta", "hi", headers=KEY)
        path, body = "/chats/c/interactions", {"user_message": "hi"}
        async with served.stream("POST", path, json=body, headers=KEY) as frames:
            again = [await anext(frames)]
            gate.set()
            again += [frame async for frame in frames]
    assert id_of(again) == id_of(first)
    assert again[-1].data["status"] == "COMPLETED"


async def test_a_repeated_edit_replays_the_same_interaction(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("one"), says("two"), says("three")]) as served:
        one = id_of(await served.say("hello"))
        path = f"/chats/c/interactions/{one}"

        async def edit(text: str) -> httpx.Response:
            body = {"new_user_message": text}
            return await served.client.post(f"{path}/edit", json=body, headers=KEY)

        first, again, other = await edit("a"), await edit("a"), await edit("b")
        regenerated = await served.client.post(f"{path}/regenerate", headers=KEY)
        branches = (await served.get("/chats/c/branches"))["branches"]
    assert _durable_bytes(first) == _durable_bytes(again)
    assert (other.status_code, regenerated.status_code) == (422, 422)
    assert len(branches) == 2


def _durable_bytes(answer: httpx.Response) -> list[bytes]:
    assert answer.status_code == 200
    return [frame for frame in answer.content.split(b"\n\n") if frame.startswith(b"id: ")]


async def test_a_repeated_creation_answers_with_the_same_chat(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:

        async def make(**body: Any) -> httpx.Response:
            return await served.client.post("/chats", json=body, headers=KEY)

        first, again, other = await make(title="a"), await make(title="a"), await make(title="b")
        await served.client.patch(f"/chats/{first.json()['id']}", json={"title": "renamed"})
        later = await make(title="a")
        named = [await make(chat_id="mine") for _ in range(2)]
        unkeyed = await served.client.post("/chats", json={"chat_id": "mine"})
        listed = await served.get("/chats")
    assert first.status_code == again.status_code == later.status_code == 201
    assert first.json()["id"] == again.json()["id"] == later.json()["id"]
    assert (other.status_code, other.json()["code"]) == (422, "invalid_input")
    assert [answer.status_code for answer in named] == [201, 201]
    assert unkeyed.status_code == 409
    assert len(listed["chats"]) == 2


async def test_anothers_key_means_nothing(tmp_path: Path) -> None:
    script = [says("for ada"), says("for bob")]
    async with serving(tmp_path, script, authorizer=HeaderAuthorizer()) as served:
        ada, bob = ({**KEY, "Authorization": user} for user in ("ada", "bob"))
        hers = await served.say("hello", headers=ada)
        his = await served.say("hello", headers=bob)
        made = [await served.client.post("/chats", headers=user) for user in (ada, bob)]
    assert id_of(hers) != id_of(his)
    assert "for ada" not in str(his)
    assert made[0].json()["id"] != made[1].json()["id"]
