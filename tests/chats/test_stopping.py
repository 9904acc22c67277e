"""Cancelling, and readers who leave."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.chats.serving import Served, first, id_of, names, serving
from tests.patience import seconds
from tests.requirements import requirement


@requirement(
    "S004-3.3-cancel", "S004-2.2-cancelled", "S004-5.3-cancel-flow", "S004-3.3-stream-closes",
    "S004-8.1-cancel",
)  # fmt: skip
async def test_the_seeds_cancel_stops_the_stream_and_keeps_what_was_said(tmp_path: Path) -> None:
    script: list[Turn] = [[TextDelta("so far"), asyncio.Event(), TurnFinished()], says("ok")]
    async with serving(tmp_path, script) as served:
        body = {"user_message": "talk"}
        async with served.stream("POST", "/chats/c/interactions", json=body) as frames:
            seen = [await anext(frames), await anext(frames)]
            url = f"/chats/c/interactions/{id_of(seen)}"
            # curl sends neither a body nor a type.
            answer = await served.client.post(f"{url}/cancel")
            seen += [frame async for frame in frames]
        again = await served.client.post(f"{url}/cancel")
        stored = await served.get(url)
        await served.say("next")
        prompt = served.model.requests[-1]["messages"]
    assert answer.status_code == again.status_code == 200
    assert answer.json() == {
        "status": "cancelling",
        "interaction_id": id_of(seen),
        "message": "Interaction will stop at next checkpoint",
    }
    assert names(seen) == ["interaction_started", "cancelled", "interaction_complete"]
    assert first(seen, "cancelled") == {"interaction_id": id_of(seen)}
    assert first(seen, "interaction_complete")["status"] == stored["status"] == "CANCELLED"
    assert stored["partial"] == "so far"
    assert prompt[2]["content"].startswith("so far")


async def test_what_has_ended_cannot_be_cancelled(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x")]) as served:
        frames = await served.say()
        answer = await served.client.post(f"/chats/c/interactions/{id_of(frames)}/cancel")
        unknown = await served.client.post("/chats/c/interactions/int_1/cancel")
        nowhere = await served.client.post("/chats/d/interactions/int_1/cancel")
    assert (answer.status_code, answer.json()["code"]) == (409, "already_terminal")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "run_not_found")
    assert (nowhere.status_code, nowhere.json()["code"]) == (404, "thread_not_found")


async def status(served: Served, interaction: str, wanted: str) -> str:
    """Its status, once it is `wanted` or time is up."""
    async with asyncio.timeout(seconds(5)):
        while True:
            stored = await served.get(f"/chats/c/interactions/{interaction}?state=false")
            if stored["status"] == wanted:
                return wanted
            await asyncio.sleep(0.02)


@requirement("S004-4.3-disconnect")
async def test_a_run_whose_last_reader_has_been_gone_for_the_grace_is_cancelled(
    tmp_path: Path,
) -> None:
    script: list[Turn] = [[TextDelta("so"), asyncio.Event(), TurnFinished()]]
    async with serving(tmp_path, script, grace=0.05) as served:
        frames = await served.say_until("answer_delta")
        await status(served, id_of(frames), "CANCELLED")
        whole = await served.follow(id_of(frames))
    assert names(whole)[-2:] == ["cancelled", "interaction_complete"]


async def test_a_run_that_shall_go_on_does_so_without_readers(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script: list[Turn] = [[TextDelta("so"), gate, TextDelta(" on"), TurnFinished()]]
    async with serving(tmp_path, script, grace=0.0) as served:
        frames = await served.say_until("answer_delta", body={"on_disconnect": "continue"})
        # With no grace at all a run to be cancelled would be so before these are answered.
        for _ in range(3):
            await served.get("/chats/c")
        gate.set()
        await status(served, id_of(frames), "COMPLETED")


async def test_a_reader_who_comes_back_in_time_keeps_the_run(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script: list[Turn] = [[TextDelta("so"), gate, TextDelta(" on"), TurnFinished()]]
    async with serving(tmp_path, script, grace=5.0) as served:
        frames = await served.say_until("answer_delta")
        url = f"/chats/c/interactions/{id_of(frames)}/events"
        async with served.stream("GET", url) as again:
            await anext(again)
            gate.set()
            rest = [frame async for frame in again]
    assert first(rest, "answer")["content"] == "so on"


async def test_a_waiting_run_is_not_cancelled_by_a_disconnect(tmp_path: Path) -> None:
    script = [calls(("Mail-send", {"to": "ada"})), says("Sent.")]
    async with serving(tmp_path, script, grace=0.0) as served:
        asked = (await served.say_until("approval_required"))[-1].data
        for _ in range(3):
            await served.get("/chats/c")
        url = f"/chats/c/interactions/{asked['interaction_id']}/events"
        async with served.stream("GET", url) as again:
            # Once it goes on, it needs a reader again.
            await anext(again)
            assert (await served.decide(asked)).status_code == 200
            frames = [frame async for frame in again]
    assert first(frames, "interaction_complete")["status"] == "COMPLETED"
