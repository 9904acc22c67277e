"""A chat taken elsewhere and brought back."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from sk_agents.persistence.encryption import new_key
from sk_agents.testing import HeaderAuthorizer
from sk_agents.testing.scripted_model import calls, says
from tests.chats.serving import Served, durable, id_of, names, serving

SEND = calls(("Mail-send", {"to": "ada"}))
LOOK = calls(("Mail-look", {"what": "Oslo"}))


async def talked(served: Served) -> dict[str, Any]:
    """A chat with a tool, an approval, a remembered tool, an edit and a title; its export."""
    await served.say("look")
    asked = (await served.say_until("approval_required", "send"))[-1].data
    await served.decide(asked, remember="thread", message="go")
    await served.follow(asked["interaction_id"])
    path = f"/chats/c/interactions/{asked['interaction_id']}/edit"
    await served.read("POST", path, json={"new_user_message": "something else"})
    await served.client.patch("/chats/c", json={"title": "Taken along"})
    exported = await served.client.get("/chats/c/export")
    assert exported.headers["content-disposition"] == "attachment; filename=c.json"
    document: dict[str, Any] = exported.json()
    return document


SCRIPT = [LOOK, says("Cold."), SEND, says("Sent."), says("Else.")]
CHANGED = ("id", "interaction_id", "parent_id", "edits")


def without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_ids(item) for key, item in value.items() if key not in CHANGED}
    return [without_ids(item) for item in value] if isinstance(value, list) else value


def undated(chat: Any) -> Any:
    """The chat itself is new where it is brought to."""
    return {
        key: value
        for key, value in chat.items()
        if key not in ("created_at", "updated_at", "last_seq", "last_event_id")
    }


async def test_a_chat_brought_back_is_the_same_under_new_ids(tmp_path: Path) -> None:
    async with serving(tmp_path, [*SCRIPT, SEND]) as served:
        document = await talked(served)
        brought = await served.client.post("/chats/import?chat_id=copy", json=document)
        old, new = [await served.get(f"/chats/{chat}?include=superseded") for chat in ("c", "copy")]
        frames = [
            durable(await served.follow(entry["id"], chat=chat))
            for chat, whole in (("c", old), ("copy", new))
            for entry in whole["interactions"]
        ]
        shown = (await served.get("/chats/copy"))["interactions"]
        again = (await served.client.get("/chats/copy/export")).json()
        grants = (await served.get("/grants"))["grants"]
        # No standing approval came along.
        await served.say_until("approval_required", "send again", chat="copy")
    assert (brought.status_code, brought.json()["title"]) == (201, "Taken along")
    assert undated(without_ids(new)) == undated(without_ids(old))
    assert [entry["user_message"] for entry in shown] == ["look", "something else"]
    assert not {entry["id"] for entry in old["interactions"]} & {
        entry["id"] for entry in new["interactions"]
    }
    half = len(frames) // 2
    assert [names(one) for one in frames[:half]] == [names(one) for one in frames[half:]]
    assert [grant["chat_id"] for grant in grants] == ["c"]
    assert len(again["events"]) == len(document["events"])


async def test_dates_are_kept(tmp_path: Path) -> None:
    async with serving(tmp_path, SCRIPT) as served:
        document = await talked(served)
        for number, event in enumerate(document["events"]):
            event["at"] = f"2020-01-01T00:{number:02}:00Z"
        await served.client.post("/chats/import?chat_id=copy", json=document)
        chat = await served.get("/chats/copy")
    # From the store alone, too.
    async with serving(tmp_path) as served:
        assert await served.get("/chats/copy") == chat
    assert chat["interactions"][0]["created_at"].startswith("2020-01-01T00:00:00")


async def test_what_still_runs_is_left_out_of_an_export(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("done"), SEND]) as served:
        await served.say("first")
        waiting = id_of(await served.say_until("approval_required", "second"))
        queued = await served.say_until(
            "interaction_queued", "third", body={"on_busy": "enqueue", "on_disconnect": "continue"}
        )
        document = (await served.client.get("/chats/c/export")).json()
        brought = await served.client.post("/chats/import", json=document)
        copy = await served.get(f"/chats/{brought.json()['id']}")
    assert brought.status_code == 201
    assert [entry["user_message"] for entry in copy["interactions"]] == ["first"]
    assert waiting not in str(document) and id_of(queued) not in str(document)


async def test_an_import_takes_no_id_that_is_taken_and_repeats_by_its_key(tmp_path: Path) -> None:
    key = {"Idempotency-Key": "bring"}
    async with serving(tmp_path, SCRIPT, authorizer=HeaderAuthorizer()) as served:
        served.client.headers["Authorization"] = "ada"
        document = await talked(served)
        taken = await served.client.post("/chats/import?chat_id=c", json=document)
        odd = await served.client.post("/chats/import?chat_id=..%2Fx", json=document)
        one, two = [
            await served.client.post("/chats/import", json=document, headers=key) for _ in range(2)
        ]
        other = await served.client.post(
            "/chats/import", json={**document, "title": "Other"}, headers=key
        )
        bob = {"Authorization": "bob"}
        theirs = await served.client.post("/chats/import?chat_id=c", json=document, headers=bob)
    assert (taken.status_code, taken.json()["code"]) == (409, "thread_exists")
    assert odd.status_code == 422
    assert one.json() == two.json() and one.status_code == two.status_code == 201
    assert other.status_code == 422
    assert theirs.status_code == 201


def breakages(document: dict[str, Any]) -> list[Any]:
    """Documents that are no chat of ours."""

    def changed(number: int, **fields: Any) -> dict[str, Any]:
        copy = deepcopy(document)
        copy["events"][number].update(fields)
        return copy

    def of(*events: Any) -> dict[str, Any]:
        return {**document, "events": list(events)}

    start = document["events"][0]
    return [
        {},
        [],
        {**document, "format": "other"},
        {**document, "version": 2},
        {**document, "agent": "nobody"},
        {**document, "title": ""},
        {**document, "user_id": "eve"},
        {**document, "events": "many"},
        {**document, "events": [1]},
        {key: value for key, value in document.items() if key != "events"},
        of(*document["events"][1:]),
        of(*document["events"][:-1][:1]),
        of(start, start),
        of(*reversed(document["events"])),
        changed(0, run_id=""),
        changed(0, run_id=7),
        changed(0, parent_run="int_other"),
        changed(0, message=None),
        changed(0, at="9999-12-31T23:59:59-12:00"),
        changed(0, at="yesterday"),
        changed(1, type="run_ended", status="running"),
        changed(1, type=[]),
        changed(1, type={}),
        changed(1, type=None),
        of(*document["events"], {"type": "branch_changed", "head_run": "int_other"}),
        of(*document["events"], {"type": "compacted", "through_run": "int_9", "summary": "x"}),
    ]


async def test_what_is_no_chat_is_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    async with serving(tmp_path, SCRIPT) as served:
        document = await talked(served)
        for number, broken in enumerate(breakages(document)):
            answer = await served.client.post("/chats/import?chat_id=copy", json=broken)
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), number
        assert (await served.client.get("/chats/copy")).status_code == 404


@pytest.mark.parametrize("store", ["file", "memory"])
async def test_other_stores_keep_a_brought_chat_too(tmp_path: Path, store: str) -> None:
    url = f"file://{tmp_path}/chats" if store == "file" else "memory:"
    async with serving(tmp_path, SCRIPT, store=url) as served:
        document = await talked(served)
        brought = await served.client.post("/chats/import?chat_id=copy", json=document)
        chat = await served.get("/chats/copy")
    assert brought.status_code == 201
    assert [entry["user_message"] for entry in chat["interactions"]] == ["look", "something else"]


async def test_what_a_document_says_about_its_place_is_not_believed(tmp_path: Path) -> None:
    async with serving(tmp_path, [*SCRIPT, says("later")]) as served:
        document = await talked(served)
        for event in document["events"]:
            if event["type"] == "run_started":
                event |= {"agent": "nobody", "idempotency_key": "stolen"}
            if event["type"] == "thread_changed":
                event["metadata"] |= {"request": {"key": "k"}, "task": {}, "title": "x" * 999}
            if event["type"] == "approval_requested":
                event["shown"] = {"tool_name": 7, "arguments": []}
        document["events"].append({"type": "of_the_future", "run_id": "x"})
        brought = await served.client.post("/chats/import?chat_id=copy", json=document)
        frames = await served.say("go on", chat="copy", headers={"Idempotency-Key": "stolen"})
        chat = await served.get("/chats/copy?include=superseded")
        asked = [
            frame.data["approval_id"]
            for entry in chat["interactions"]
            for frame in await served.follow(entry["id"], chat="copy")
            if frame.name == "approval_required"
        ]
        shown = await served.client.get(f"/approvals/{asked[0]}")
    assert brought.status_code == 201
    assert names(frames)[-1] == "interaction_complete"
    assert {entry["agent"] for entry in chat["interactions"]} == {"helper"}
    assert (shown.status_code, shown.json()["tool_name"]) == (200, "7")


async def test_what_placeholders_stand_for_leaves_with_no_export(tmp_path: Path) -> None:
    card = "4111 1111 1111 1111"
    agent = {"redact": {"mode": "vault"}}
    async with serving(tmp_path, [says("ok")], agent=agent, encryption_keys=new_key()) as served:
        await served.say(f"my card is {card}")
        shown = (await served.get("/chats/c"))["interactions"][0]["user_message"]
        exported = (await served.client.get("/chats/c/export")).text
    assert shown.startswith("my card is [secret-")
    assert card not in exported
    assert not any(event.get("secrets") for event in json.loads(exported)["events"])
