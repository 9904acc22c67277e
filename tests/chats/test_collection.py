"""A user's chats: made, listed, searched, renamed, deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.chats.serving import id_of, names, serving

SUMMARY = {"id", "title", "agent", "status", "created_at", "updated_at", "pinned", "place", "tags"}


async def test_a_chat_is_made_empty_and_talked_in(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x"), says("y")]) as served:
        made = await served.client.post("/chats")
        named = await served.client.post(
            "/chats", json={"chat_id": "mine", "agent": "helper", "title": "My own"}
        )
        again = await served.client.post("/chats", json={"chat_id": "mine"})
        empty = await served.get("/chats/mine")
        await served.say("hello there", chat="mine")
        await served.say("a long question " * 20, chat=made.json()["id"])
        titles = {chat["id"]: chat["title"] for chat in (await served.get("/chats"))["chats"]}
    assert made.status_code == named.status_code == 201
    assert made.json().keys() == SUMMARY
    assert (named.json()["title"], named.json()["agent"]) == ("My own", "helper")
    assert named.json()["status"] == "IDLE"
    assert (again.status_code, again.json()["code"]) == (409, "thread_exists")
    assert (empty["interactions"], empty["status"]) == ([], "IDLE")
    assert titles["mine"] == "My own"
    first = titles[made.json()["id"]]
    assert first.startswith("a long question") and len(first) <= 80 and first.endswith("…")


IMPOSSIBLE: list[object] = [
    {"chat_id": "../x"}, {"chat_id": ""}, {"chat_id": "a" * 65}, {"chat_id": "x\n"},
    {"title": ""}, {"title": "  "}, {"title": "t" * 201}, {"agent": "nobody"}, {"agent": ""},
    {"status": "COMPLETED"}, {"user_id": "eve"}, [], "x",
]  # fmt: skip


async def test_a_chat_that_cannot_be_is_not_made(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for body in IMPOSSIBLE:
            answer = await served.client.post("/chats", json=body)
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), body
        listed = await served.get("/chats")
    assert listed["chats"] == []


async def test_chats_are_listed_a_page_at_a_time_the_latest_first(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x")]) as served:
        for number in range(5):
            await served.client.post("/chats", json={"chat_id": f"chat_{number}"})
        await served.say(chat="chat_1")
        pages: list[list[str]] = []
        cursor = ""
        while not pages or cursor:
            page = await served.get(f"/chats?limit=2{cursor}")
            pages.append([chat["id"] for chat in page["chats"]])
            cursor = f"&cursor={page['next']}" if page["next"] else ""
        refused = [
            await served.client.get(path, params={"cursor": cursor})
            for path in ("/chats", "/approvals", "/grants")
            for cursor in ("", "garbage", "\0nonsense", "MjAzMC0wMS0wMQ==")
        ]
        for limit in ("0", "101", "x"):
            assert (await served.client.get(f"/chats?limit={limit}")).status_code == 422
        assert (await served.client.get("/chats?limit=1")).status_code == 200
        assert (await served.client.get("/chats?limit=100")).status_code == 200
        assert (await served.client.get("/chats", params={"q": "x" * 201})).status_code == 422
    assert pages == [["chat_1", "chat_4"], ["chat_3", "chat_2"], ["chat_0"]]
    assert {(answer.status_code, answer.json()["code"]) for answer in refused} == {
        (400, "invalid_cursor")
    }


async def test_chats_are_found_by_title_and_by_what_was_said(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("The fjord is deep."), says("no")]) as served:
        await served.say("Tell me about Oslo", chat="a")
        await served.say("something else", chat="b")
        await served.client.post("/chats", json={"chat_id": "c", "title": "Größe 100%_"})

        async def found(text: str) -> list[str]:
            page = await served.get("/chats", params={"q": text})
            return [chat["id"] for chat in page["chats"]]

        assert await found("oslo") == ["a"]
        assert await found("FJORD") == ["a"]
        assert await found("größe") == ["c"]
        assert await found("100%_") == ["c"]
        assert await found("%") == ["c"]
        assert await found("nothing like it") == []


async def test_a_text_is_found_where_it_was_said(tmp_path: Path) -> None:
    long = "word " * 40 + "The Fjord is deep." + " word" * 40
    async with serving(tmp_path, [says(long), says("no")]) as served:
        await served.say("Tell me about Oslo's fjord", chat="a")
        await served.say("something else", chat="a")

        async def found(text: str, limit: int = 10) -> list[tuple[str, ...]]:
            asked = {"q": text, "limit": limit}
            places = (await served.get("/chats/a/passages", params=asked))["passages"]
            assert all(place["visible"] for place in places)
            return [
                (place["speaker"], place["before"], place["match"], place["after"])
                for place in places
            ]

        said = ("user", "Tell me about Oslo's ", "fjord", "")
        [first, answered] = await found("FJORD")
        assert first == said
        assert answered[0::2] == ("agent", "Fjord")
        assert answered[1].startswith("…") and answered[1].endswith("word The ")
        assert await found("fjord", 1) == [said]
        assert await found("nothing like it") == []
        assert (await served.get("/chats/a/passages?q="))["passages"] == []
        assert (await served.client.get("/chats/b/passages?q=x")).status_code == 404


async def test_a_chat_is_renamed(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x"), says("y")]) as served:
        await served.say("first words")
        renamed = await served.client.patch("/chats/c", json={"title": "Ünïcode ✓"})
        await served.say("other words")
        chat = await served.get("/chats/c")
        for body in ({}, {"title": None}, {"title": ""}, {"title": "a", "status": "x"}):
            assert (await served.client.patch("/chats/c", json=body)).status_code == 422
        unknown = await served.client.patch("/chats/d", json={"title": "x"})
    assert (renamed.status_code, renamed.json()["title"]) == (200, "Ünïcode ✓")
    assert chat["title"] == "Ünïcode ✓"
    assert (unknown.status_code, unknown.json()["code"]) == (404, "thread_not_found")


async def test_a_chat_is_pinned_archived_and_listed_where_it_is(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for name in ("a", "b", "c"):
            await served.client.post("/chats", json={"chat_id": name})

        async def listed(**asked: str) -> list[str]:
            return sorted(
                chat["id"] for chat in (await served.get("/chats", params=asked))["chats"]
            )

        pinned = await served.client.patch("/chats/a", json={"pinned": True})
        archived = await served.client.patch("/chats/b", json={"place": "archive"})
        places = await listed(), await listed(place="archive"), await listed(place="bin")
        pins = await listed(pinned="true"), await listed(pinned="false")
        await served.client.patch("/chats/b", json={"place": "list", "pinned": False})
        back = await listed()
        refused = await served.client.patch("/chats/b", json={"place": "attic"})
        nowhere = await served.client.get("/chats", params={"place": "attic"})
    assert (pinned.json()["pinned"], archived.json()["place"]) == (True, "archive")
    assert places == (["a", "c"], ["b"], [])
    assert pins == (["a"], ["c"])
    assert back == ["a", "b", "c"]
    assert (refused.status_code, nowhere.status_code) == (422, 422)


async def test_chats_are_tagged_counted_and_found_by_their_tag(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for name in ("a", "b", "c"):
            await served.client.post("/chats", json={"chat_id": name})

        async def found(tag: str) -> list[str]:
            page = await served.get("/chats", params={"tag": tag})
            return sorted(chat["id"] for chat in page["chats"])

        tags = ["Travel ", "2026", "travel", "caf\u0065\u0301  bar"]
        tagged = await served.client.patch("/chats/a", json={"tags": tags})
        await served.client.patch("/chats/b", json={"tags": ["travel"], "title": "Madrid"})
        both, one = await found("TRAVEL"), await found("café bar")
        counted = (await served.get("/tags"))["tags"]
        changed = await served.client.patch("/chats/a", json={"tags": ["2026"]})
        renamed = await served.client.patch("/chats/a", json={"title": "Still tagged"})
        after = await found("travel")
        none = await served.client.patch("/chats/a", json={"tags": []})
    assert tagged.json()["tags"] == ["2026", "café bar", "travel"]
    assert (both, one) == (["a", "b"], ["a"])
    assert counted[0] == {"tag": "travel", "chats": 2}
    assert [entry["tag"] for entry in counted] == ["travel", "2026", "café bar"]
    assert changed.json()["tags"] == renamed.json()["tags"] == ["2026"]
    assert after == ["b"]
    assert none.json()["tags"] == []


@pytest.mark.parametrize(
    "tags", [["a,b"], [""], [" "], ["x" * 41], ["a\x07b"], [str(n) for n in range(21)], "travel"]
)
async def test_tags_that_cannot_be_kept_are_refused_by_their_field(
    tmp_path: Path, tags: object
) -> None:
    async with serving(tmp_path) as served:
        await served.client.post("/chats", json={"chat_id": "a"})
        refused = await served.client.patch("/chats/a", json={"tags": tags})
        chat = await served.get("/chats/a")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["loc"][:2] == ["body", "tags"]
    assert chat["tags"] == []


async def test_a_chat_in_the_bin_is_stopped_and_comes_back_whole(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x"), calls(("Mail-send", {"to": "ada"}))]) as served:
        await served.say()
        await served.say_until("approval_required")
        binned = await served.client.patch("/chats/c", json={"place": "bin"})
        inbox = await served.get("/approvals")
        away = await served.get("/chats"), await served.get("/chats?place=bin")
        await served.client.patch("/chats/c", json={"place": "list"})
        back = await served.get("/chats/c")
    assert (binned.status_code, binned.json()["status"]) == (200, "CANCELLED")
    assert inbox["approvals"] == []
    assert [[chat["id"] for chat in page["chats"]] for page in away] == [[], ["c"]]
    assert [entry["status"] for entry in back["interactions"]] == ["COMPLETED", "CANCELLED"]


async def test_nothing_begins_in_the_bin_until_the_chat_is_moved_back(tmp_path: Path) -> None:
    once = {"Idempotency-Key": "k"}
    async with serving(tmp_path, [says("x"), says("y")]) as served:
        first = id_of(await served.say())
        second = id_of(await served.say("once", headers=once))
        await served.client.patch("/chats/c", json={"place": "bin"})
        path = f"/chats/c/interactions/{first}"
        refused = [
            await served.client.post("/chats/c/interactions", json={"user_message": "more"}),
            await served.client.post(f"{path}/edit", json={"new_user_message": "other"}),
            await served.client.post(f"{path}/regenerate"),
        ]
        # What was taken before is attached to, as everywhere.
        repeated = id_of(await served.say("once", headers=once))
        chat = await served.get("/chats/c")
    assert [(no.status_code, no.json()["code"]) for no in refused] == [(409, "thread_in_bin")] * 3
    assert repeated == second
    assert [entry["id"] for entry in chat["interactions"]] == [first, second]


async def test_a_deleted_chat_is_gone_and_its_id_is_free_again(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x"), says("anew")]) as served:
        old = id_of(await served.say())
        deleted = await served.client.delete("/chats/c")
        again = await served.client.delete("/chats/c")
        gone = await served.client.get(f"/chats/c/interactions/{old}")
        await served.say("hello again")
        chat = await served.get("/chats/c")
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert (again.status_code, gone.status_code) == (404, 404)
    assert [entry["user_message"] for entry in chat["interactions"]] == ["hello again"]


async def test_deleting_stops_what_runs(tmp_path: Path) -> None:
    held: Turn = [TextDelta("so"), asyncio.Event(), TurnFinished()]
    async with serving(tmp_path, [held]) as served:
        body = {"user_message": "talk"}
        async with served.stream("POST", "/chats/c/interactions", json=body) as frames:
            seen = [await anext(frames), await anext(frames)]
            deleted = await served.client.delete("/chats/c")
            seen += [frame async for frame in frames]
        gone = await served.client.get("/chats/c")
    assert (deleted.status_code, gone.status_code) == (204, 404)
    # The reader sees the end, or is told that there is nothing left to read.
    assert seen[-1].name in ("interaction_complete", "stream_end")


async def test_deleting_withdraws_what_waits(tmp_path: Path) -> None:
    async with serving(tmp_path, [calls(("Mail-send", {"to": "ada"}))]) as served:
        asked = (await served.say_until("approval_required"))[-1].data
        queued = await served.say_until(
            "interaction_queued", body={"on_busy": "enqueue", "on_disconnect": "continue"}
        )
        deleted = await served.client.delete("/chats/c")
        inbox = await served.get("/approvals")
        answer = await served.decide(asked)
    assert names(queued) == ["interaction_queued"]
    assert deleted.status_code == 204
    assert inbox["approvals"] == []
    assert answer.status_code == 404
