"""Saying something while an interaction is at work, and stopping it after its step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sk_agents.engine.turns import TextDelta
from sk_agents.testing.scripted_model import Turn, calls, says
from sk_agents.wire.frames import CHAT_FRAMES, INTERACTION_FRAMES
from tests.chats.serving import Frame, Served, first, id_of, names, serving
from tests.chats.test_openapi import check

SPAIN = {"user_message": "only in Spain"}


def held(text: str, rest: Turn) -> tuple[Turn, asyncio.Event]:
    """A turn of the model that stops after `text` until the event is set."""
    gate = asyncio.Event()
    return [TextDelta(text), gate, *rest], gate


@asynccontextmanager
async def at_work(
    folder: Path, first_turn: Turn, *more: Turn, **settings: Any
) -> AsyncIterator[tuple[Served, AsyncIterator[Frame], list[Frame], str]]:
    """An interaction whose model is in the middle of its first reply."""
    async with serving(folder, [first_turn, *more], **settings) as served:
        body = {"user_message": "talk"}
        async with served.stream("POST", "/chats/c/interactions", json=body) as frames:
            seen = [await anext(frames), await anext(frames)]
            yield served, frames, seen, f"/chats/c/interactions/{id_of(seen)}"


async def test_all_that_was_said_is_found_by_search_and_as_a_passage(tmp_path: Path) -> None:
    told, gate = held("It is a fjord", says("."))
    cut, _ = held("Wide moors", says("."))
    async with at_work(tmp_path, told, says("In Spain too."), cut) as (served, frames, _, url):
        await served.client.post(f"{url}/steer", json=SPAIN)
        gate.set()
        assert [frame async for frame in frames]
        stopped = await served.say_until("answer_delta", "more")
        stop = f"/chats/c/interactions/{id_of(stopped)}/cancel"
        await served.client.post(stop)
        await served.read("GET", f"/chats/c/interactions/{id_of(stopped)}/events")
        found = {
            (place["speaker"], place["match"])
            for text in ("only in Spain", "fjord", "Spain too", "moors")
            for place in (await served.get(f"/chats/c/passages?q={text}"))["passages"]
            if (await served.get(f"/chats?q={text}"))["chats"]
        }
    assert found == {
        ("user", "only in Spain"),
        ("agent", "fjord"),
        ("agent", "Spain too"),
        ("agent", "moors"),
    }


async def test_message_is_shown_delivered_and_in_the_final_state(tmp_path: Path) -> None:
    turn, gate = held("It is sunny", says("."))
    async with at_work(tmp_path, turn, says("In Spain too.")) as (served, frames, seen, url):
        answer = await served.client.post(f"{url}/steer", json=SPAIN)
        waiting = (await served.get(url))["steering"]
        gate.set()
        seen += [frame async for frame in frames]
        stored = await served.get(url)
        chat = await served.read_until("interaction_complete", "GET", "/chats/c/events?after=0")
        found = (await served.get("/chats?q=only in spain"))["chats"]
    taken = answer.json()
    assert answer.status_code == 200
    assert taken == {
        "status": "accepted",
        "interaction_id": id_of(seen),
        "message_id": taken["message_id"],
    }
    assert [name for name in names(seen) if not name.endswith("_delta")] == [
        "interaction_started",
        "steered",
        "thinking",
        "steering_delivered",
        "answer",
        "interaction_complete",
    ]
    assert first(seen, "steered")["content"] == "only in Spain"
    assert first(seen, "steering_delivered")["message_ids"] == [taken["message_id"]]
    assert (waiting[0]["delivered"], waiting[0]["after_events"]) == (False, 0)
    (said,) = stored["steering"]
    assert (said["content"], said["delivered"]) == ("only in Spain", True)
    messages = stored["final_agent_state"]["messages"]
    assert [(one["role"], one["content"]) for one in messages] == [
        ("user", "talk"),
        ("assistant", "It is sunny."),
        ("user", "only in Spain"),
        ("assistant", "In Spain too."),
    ]
    for frame in seen:
        check(frame, INTERACTION_FRAMES)
    for frame in chat:
        check(frame, CHAT_FRAMES)
    assert [one["id"] for one in found] == ["c"]


async def test_too_late_message_is_refused_and_not_kept(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x")]) as served:
        url = f"/chats/c/interactions/{id_of(await served.say())}"
        late = await served.client.post(f"{url}/steer", json=SPAIN)
        unknown = await served.client.post("/chats/c/interactions/int_1/steer", json=SPAIN)
        stored = await served.get(url)
    assert (late.status_code, late.json()["code"]) == (409, "already_terminal")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "run_not_found")
    assert stored["steering"] == []


async def test_same_key_leaves_one_message(tmp_path: Path) -> None:
    turn, gate = held("It is sunny", says("."))
    key = {"Idempotency-Key": "k1"}
    async with at_work(tmp_path, turn, says("so")) as (served, frames, seen, url):
        post = served.client.post
        one = await post(f"{url}/steer", json=SPAIN, headers=key)
        two = await post(f"{url}/steer", json=SPAIN, headers=key)
        other = await post(f"{url}/steer", json={"user_message": "x"}, headers=key)
        gate.set()
        seen += [frame async for frame in frames]
        again = await post(f"{url}/steer", json=SPAIN, headers=key)
    assert one.json() == two.json() == again.json()
    assert other.status_code == 422
    assert names(seen).count("steered") == 1


async def test_stop_after_the_step_keeps_the_reply_and_starts_no_tool(tmp_path: Path) -> None:
    turn, gate = held("I look", calls(("Mail-count", {"to": 2})))
    async with at_work(tmp_path, turn) as (served, frames, seen, url):
        answer = await served.client.post(f"{url}/cancel", json={"after": "step"})
        stopping = (await served.get(url))["stopping"]
        late = await served.client.post(f"{url}/steer", json=SPAIN)
        gate.set()
        seen += [frame async for frame in frames]
        stored = await served.get(url)
    assert (answer.status_code, stopping, stored["stopping"]) == (200, True, False)
    assert (late.status_code, late.json()["code"]) == (409, "not_steerable")
    shown = [name for name in names(seen) if not name.endswith("_delta")]
    assert shown == [
        "interaction_started",
        "stopping",
        "thinking",
        "cancelled",
        "interaction_complete",
    ]
    assert stored["status"] == "CANCELLED"
    assert [event["content"] for event in stored["agent_events"]] == ["I look"]


async def test_export_and_import_keep_what_was_said_and_what_was_delivered(tmp_path: Path) -> None:
    turn, gate = held("It is sunny", says("."))
    async with at_work(tmp_path, turn, says("In Spain too."), says("next")) as (
        served,
        frames,
        seen,
        url,
    ):
        key = {"Idempotency-Key": "k1"}
        await served.client.post(f"{url}/steer", json=SPAIN, headers=key)
        gate.set()
        seen += [frame async for frame in frames]
        document = await served.get("/chats/c/export")
        made = await served.client.post("/chats/import?chat_id=d", json=document)
        (copied,) = (await served.get("/chats/d"))["interactions"]
        await served.say("and then?", chat="d")
        prompt = served.model.requests[-1]["messages"]
    assert made.status_code == 201
    assert [one["delivered"] for one in copied["steering"]] == [True]
    assert [one["content"] for one in prompt][-4:] == [
        "It is sunny.",
        "only in Spain",
        "In Spain too.",
        "and then?",
    ]


async def test_undelivered_message_is_told_as_such(tmp_path: Path) -> None:
    turn, _ = held("so far", says("."))
    async with at_work(tmp_path, turn, says("ok")) as (served, frames, seen, url):
        await served.client.post(f"{url}/steer", json=SPAIN)
        await served.client.post(f"{url}/cancel")
        seen += [frame async for frame in frames]
        stored = await served.get(url)
        await served.say("next")
        prompt = served.model.requests[-1]["messages"]
    assert "steering_delivered" not in names(seen)
    assert [one["delivered"] for one in stored["steering"]] == [False]
    assert "only in Spain" not in json.dumps(prompt)
