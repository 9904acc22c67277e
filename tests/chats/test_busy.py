"""A message while the chat is busy: refused, queued, or first."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.chats.serving import first, id_of, names, serving

SEND = calls(("Mail-send", {"to": "ada"}))


async def test_the_second_message_is_refused_and_told_what_is_in_the_way(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND]) as served:
        waiting = id_of(await served.say_until("approval_required"))
        answer = await served.client.post("/chats/c/interactions", json={"user_message": "more"})
        stored = await served.get("/chats/c")
    assert (answer.status_code, answer.json()["code"]) == (409, "thread_busy")
    assert answer.json()["interaction_id"] == waiting
    assert int(answer.headers["Retry-After"]) > 0
    assert len(stored["interactions"]) == 1


async def test_of_twenty_messages_at_once_one_is_taken(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with serving(tmp_path, [[TextDelta("x"), gate, TurnFinished()]]) as served:

        async def say(number: int) -> int:
            body = {"user_message": f"{number}"}
            url = "/chats/c/interactions"
            async with served.client.stream("POST", url, json=body) as answer:
                refused.append(answer.status_code == 409)
                if sum(refused) == 19:
                    gate.set()
                await answer.aread()
                return answer.status_code

        refused: list[bool] = []
        answers = await asyncio.gather(*(say(number) for number in range(20)))
    assert sorted(answers) == [200] + [409] * 19


async def test_queued_messages_run_in_their_order_each_after_the_one_before(
    tmp_path: Path,
) -> None:
    script = [SEND, says("one"), says("two"), says("three")]
    async with serving(tmp_path, script) as served:
        asked = (await served.say_until("approval_required", "first"))[-1].data
        body = {"on_busy": "enqueue", "on_disconnect": "continue"}
        queued = [
            await served.say_until("interaction_queued", text, body=body)
            for text in ("second", "third")
        ]
        listed = await served.get("/chats/c")
        edit = await served.client.post(
            f"/chats/c/interactions/{asked['interaction_id']}/edit",
            json={"new_user_message": "no"},
        )
        await served.decide(asked)
        streams = [await served.follow(id_of(frames)) for frames in queued]
        prompts = [
            [message["content"] for message in request["messages"] if message["role"] == "user"]
            for request in served.model.requests
        ]
    assert [first(frames, "interaction_queued")["position"] for frames in queued] == [1, 2]
    assert [entry["user_message"] for entry in listed["interactions"]] == [
        "first", "second", "third",
    ]  # fmt: skip
    assert [entry["superseded"] for entry in listed["interactions"]] == [False] * 3
    assert edit.status_code == 409
    assert [names(frames) for frames in streams] == [
        ["interaction_queued", "interaction_started", "answer", "interaction_complete"]
    ] * 2
    assert [first(frames, "answer")["content"] for frames in streams] == ["two", "three"]
    assert prompts[-2:] == [["first", "second"], ["first", "second", "third"]]


async def test_a_queued_message_can_be_cancelled(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND, says("one")]) as served:
        asked = (await served.say_until("approval_required"))[-1].data
        queued = id_of(await served.say_until("interaction_queued", body={"on_busy": "enqueue"}))
        answer = await served.client.post(f"/chats/c/interactions/{queued}/cancel")
        frames = await served.follow(queued)
        await served.decide(asked)
        await served.follow(asked["interaction_id"])
        shown = (await served.get("/chats/c"))["interactions"]
    assert answer.status_code == 200
    assert names(frames) == ["interaction_queued", "cancelled", "interaction_complete"]
    assert first(frames, "interaction_complete")["status"] == "CANCELLED"
    assert len(shown) == 1


async def test_the_queue_has_an_end(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND]) as served:
        await served.say_until("approval_required")
        body = {"user_message": "more", "on_busy": "enqueue", "on_disconnect": "continue"}

        async def enqueue() -> int:
            url = "/chats/c/interactions"
            async with served.client.stream("POST", url, json=body) as answer:
                return answer.status_code

        answers = [await enqueue() for _ in range(101)]
        refused = await served.client.post("/chats/c/interactions", json=body)
    assert answers == [200] * 100 + [429]
    assert refused.json()["code"] == "limit_exceeded"
    assert int(refused.headers["Retry-After"]) > 0


async def test_an_interrupt_cancels_what_runs_and_starts(tmp_path: Path) -> None:
    held: Turn = [TextDelta("so"), asyncio.Event(), TurnFinished()]
    async with serving(tmp_path, [held, says("new")]) as served:
        body = {"user_message": "talk"}
        async with served.stream("POST", "/chats/c/interactions", json=body) as frames:
            seen = [await anext(frames), await anext(frames)]
            answered = await served.say("stop, rather this", body={"on_busy": "interrupt"})
            seen += [frame async for frame in frames]
    assert first(seen, "interaction_complete")["status"] == "CANCELLED"
    assert first(answered, "answer")["content"] == "new"
