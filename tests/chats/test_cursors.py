"""Going on where a stream was left: cursors of an interaction and of a whole chat."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.chats.serving import Served, durable, id_of, names, serving

TURN = [calls(("Mail-look", {"what": "Oslo"})), says("Cold.")]


async def test_every_place_of_an_interaction_can_be_gone_on_from(tmp_path: Path) -> None:
    async with serving(tmp_path, [*TURN, says("more")]) as served:
        frames = durable(await served.say())
        await served.say("later")
        interaction = id_of(frames)
        url = f"/chats/c/interactions/{interaction}/events"
        for start in ("", "0"):
            assert await served.read("GET", url, headers={"Last-Event-ID": start}) == frames
            assert await served.read("GET", f"{url}?after={start}") == frames
        assert await served.follow(interaction) == frames
        for number, frame in enumerate(frames[:-1], 1):
            after = await served.read("GET", url, headers={"Last-Event-ID": frame.id})
            assert after == frames[number:]
            assert await served.read("GET", f"{url}?after={frame.id}") == after
            both = await served.read(
                "GET", f"{url}?after={frame.id}", headers={"Last-Event-ID": frame.id}
            )
            assert both == after
        last = frames[-1].seq
        for seen in (last, last + 1):
            answer = await served.client.get(url, headers={"Last-Event-ID": str(seen)})
            assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize(
    ("cursor", "code"),
    [
        ("x", "malformed_request"),
        ("-1", "malformed_request"),
        ("1.5", "malformed_request"),
        ("١", "malformed_request"),
        ("1 1", "malformed_request"),
        ("1-", "malformed_request"),
        ("1-1234567", "malformed_request"),
        ("1-123456789", "malformed_request"),
        ("1-ABCDEF01", "malformed_request"),
        ("-12345678", "malformed_request"),
        ("99", "cursor_ahead"),
        ("9" * 400, "cursor_ahead"),
        ("99-12345678", "cursor_ahead"),
    ],
)
async def test_a_cursor_that_cannot_be_is_refused(tmp_path: Path, cursor: str, code: str) -> None:
    async with serving(tmp_path, [says("x")]) as served:
        frames = await served.say()
        for url in ("/chats/c/events", f"/chats/c/interactions/{id_of(frames)}/events"):
            answer = await served.client.get(url, params={"after": cursor})
            assert (answer.status_code, answer.json()["code"]) == (400, code)
            if cursor.isascii():
                answer = await served.client.get(url, headers={"Last-Event-ID": cursor})
                assert (answer.status_code, answer.json()["code"]) == (400, code)


async def test_two_cursors_that_differ_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x")]) as served:
        frames = await served.say()
        for url in ("/chats/c/events", f"/chats/c/interactions/{id_of(frames)}/events"):
            both = await served.client.get(f"{url}?after=1", headers={"Last-Event-ID": "2"})
            twice = await served.client.get(f"{url}?after=1&after=2")
            assert (both.status_code, both.json()["code"]) == (400, "malformed_request")
            assert twice.status_code == 400


async def replay(served: Served, after: str = "0") -> list[tuple[str, str]]:
    """The chat's frames so far, as names with the interaction each belongs to."""
    last = (await served.get("/chats/c"))["last_seq"]
    found = []
    async with served.stream("GET", f"/chats/c/events?after={after}") as frames:
        async for frame in frames:
            found.append((frame.name, frame.data["interaction_id"]))
            if frame.seq >= last:
                return found
    raise AssertionError("a chat's stream has no end")


async def test_a_chats_stream_replays_all_branches_and_names_whose_each_frame_is(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, [*TURN, says("other")]) as served:
        one = id_of(await served.say())
        path = f"/chats/c/interactions/{one}/edit"
        two = id_of(await served.read("POST", path, json={"new_user_message": "hi"}))
        whole = await replay(served)
        part = await replay(served, "3")
    assert whole == [
        ("interaction_started", one), ("tool_call", one), ("tool_result", one), ("answer", one),
        ("interaction_complete", one), ("interaction_started", two), ("answer", two),
        ("interaction_complete", two),
    ]  # fmt: skip
    assert whole[-len(part) :] == part and len(part) < len(whole)


async def test_a_message_queued_while_a_tool_waited_can_be_gone_on_from_at_every_place(
    tmp_path: Path,
) -> None:
    script = [calls(("Mail-send", {"to": "bob"})), says("Sent."), *TURN]
    async with serving(tmp_path, script) as served:
        asked = (await served.say_until("approval_required", "first"))[-1].data
        body = {"on_busy": "enqueue", "on_disconnect": "continue"}
        queued = id_of(await served.say_until("interaction_queued", "second", body=body))
        await served.decide(asked)
        frames = durable(await served.follow(queued))
        url = f"/chats/c/interactions/{queued}/events"
        for number, frame in enumerate(frames[:-1], 1):
            assert await served.read("GET", f"{url}?after={frame.id}") == frames[number:]
        whole = await replay(served)
        for place in range(1, frames[-1].seq):
            part = await replay(served, str(place))
            assert whole[-len(part) :] == part
    assert ("tool_result", queued) in whole


async def test_a_chats_stream_without_a_cursor_begins_now_and_shows_everything_after(
    tmp_path: Path,
) -> None:
    gate = asyncio.Event()
    script: list[Turn] = [says("before"), [TextDelta("on"), gate, TextDelta("ly"), TurnFinished()]]
    async with serving(tmp_path, script) as served:
        old = id_of(await served.say("old"))
        async with served.stream("GET", "/chats/c/events") as frames:
            saying = asyncio.create_task(served.say("new"))
            seen = [await anext(frames), await anext(frames)]
            gate.set()
            while seen[-1].name != "interaction_complete":
                seen.append(await anext(frames))
            mine = await saying
            await served.client.patch("/chats/c", json={"title": "Renamed"})
            renamed = await anext(frames)
            await served.client.post("/chats/c/branch", json={"interaction_id": old})
            switched = await anext(frames)
            await served.client.delete("/chats/c")
            gone = await anext(frames)
            assert [frame async for frame in frames] == []
    assert seen[0].name == "interaction_started"
    assert [frame.name for frame in seen if frame.name == "answer_delta"]
    assert names(seen) == names(mine)
    assert {frame.data["interaction_id"] for frame in seen} == {id_of(mine)}
    assert (renamed.name, renamed.data["title"]) == ("chat_changed", "Renamed")
    assert {"at", "user_message", "agent", "parent_id", "edits"} <= seen[0].data.keys()
    assert (switched.name, switched.data["interaction_id"]) == ("branch_changed", id_of(mine))
    assert (gone.name, gone.id) == ("stream_end", "")
    assert gone.data == {"reason": "deleted", "resume_url": "/chats/c/events"}
