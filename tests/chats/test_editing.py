"""Edit, regenerate, branches: nothing is lost, one branch is seen."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.chats.serving import Served, id_of, names, serving
from tests.requirements import requirement


async def messages(served: Served, query: str = "") -> list[str]:
    chat = await served.get(f"/chats/c{query}")
    return [entry["user_message"] for entry in chat["interactions"]]


@requirement("S004-3.5-edit", "S004-5.4-edit-flow", "S004-3.5-history")
async def test_an_edit_streams_a_new_interaction_and_hides_what_it_replaces(
    tmp_path: Path,
) -> None:
    script = [says("1"), says("2"), says("3"), says("4")]
    async with serving(tmp_path, script) as served:
        first, second, third = [id_of(await served.say(text)) for text in ("a", "b", "c")]
        path = f"/chats/c/interactions/{second}/edit"
        edited = await served.read("POST", path, json={"new_user_message": "B"})
        whole = await served.get("/chats/c?include=superseded")
        shown = await messages(served)
        alone = await served.get(f"/chats/c/interactions/{second}")
    assert names(edited) == ["interaction_started", "answer", "interaction_complete"]
    assert edited[0].data["chat_id"] == "c"
    assert id_of(edited) not in (first, second, third)
    assert shown == ["a", "B"]
    entries = {entry["id"]: entry for entry in whole["interactions"]}
    assert list(entries) == [first, second, third, id_of(edited)]
    assert [entry["superseded"] for entry in entries.values()] == [False, True, True, False]
    assert [entry["status"] for entry in entries.values()] == ["COMPLETED"] * 4
    assert (entries[id_of(edited)]["edits"], entries[id_of(edited)]["parent_id"]) == (second, first)
    assert alone == entries[second]
    said = [message["content"] for message in served.model.requests[-1]["messages"]]
    assert said == ["You help.", "a", "1", "B"]


@requirement("S004-3.5-unknown")
async def test_only_what_is_there_can_be_edited(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("1")]) as served:
        await served.say()
        body = {"new_user_message": "x"}
        for chat, code in (("c", "run_not_found"), ("d", "thread_not_found")):
            for verb in ("edit", "regenerate"):
                answer = await served.client.post(
                    f"/chats/{chat}/interactions/int_1/{verb}",
                    json=body if verb == "edit" else {},
                )
                assert (answer.status_code, answer.json()["code"]) == (404, code)
        assert (await served.client.get("/chats/d")).status_code == 404


async def test_regenerate_asks_the_same_once_more(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("1"), says("2"), says("3")]) as served:
        one = id_of(await served.say("hello"))
        path = f"/chats/c/interactions/{one}/regenerate"
        bare = await served.read("POST", path)
        withbody = await served.read("POST", path, json={"on_disconnect": "continue"})
        chat = await served.get("/chats/c")
        extra = await served.client.post(path, json={"new_user_message": "no"})
    assert names(bare)[-1] == names(withbody)[-1] == "interaction_complete"
    [entry] = chat["interactions"]
    assert (entry["user_message"], entry["edits"]) == ("hello", one)
    assert entry["agent_events"] == [{"type": "ANSWER", "content": "3"}]
    assert extra.status_code == 422


@requirement("S004-12.3-branches")
async def test_branches_are_listed_and_one_call_switches_between_them(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("1"), says("2"), says("3"), says("4")]) as served:
        first = id_of(await served.say("a"))
        old = id_of(await served.say("b"))
        path = f"/chats/c/interactions/{first}/edit"
        new = id_of(await served.read("POST", path, json={"new_user_message": "A"}))
        before = await served.get("/chats/c/branches")
        # Switching to a message shows its newest end.
        switched = await served.client.post("/chats/c/branch", json={"interaction_id": first})
        shown = await messages(served)
        await served.say("c")
        prompt = [message["content"] for message in served.model.requests[-1]["messages"]]
        unknown = await served.client.post("/chats/c/branch", json={"interaction_id": "int_1"})
    assert before["head"] == new
    assert [(b["interaction_id"], b["parent_id"], b["visible"]) for b in before["branches"]] == [
        (first, None, False),
        (old, first, False),
        (new, None, True),
    ]
    assert before["branches"][2]["edits"] == first
    assert {b["status"] for b in before["branches"]} == {"COMPLETED"}
    assert (switched.status_code, switched.json()["head"]) == (200, old)
    assert shown == ["a", "b"]
    assert prompt == ["You help.", "a", "1", "b", "2", "c"]
    assert (unknown.status_code, unknown.json()["code"]) == (404, "run_not_found")


async def test_a_busy_chat_refuses_edits_and_switches_and_names_what_is_in_the_way(
    tmp_path: Path,
) -> None:
    send = calls(("Mail-send", {"to": "ada"}))
    async with serving(tmp_path, [says("1"), send, says("new")]) as served:
        one = id_of(await served.say("a"))
        waiting = (await served.say_until("approval_required", "b"))[-1].data
        path = f"/chats/c/interactions/{one}/edit"
        edit = await served.client.post(path, json={"new_user_message": "A"})
        switch = await served.client.post("/chats/c/branch", json={"interaction_id": one})
        enqueue = await served.client.post(
            path, json={"new_user_message": "A", "on_busy": "enqueue"}
        )
        edited = await served.read(
            "POST", path, json={"new_user_message": "A", "on_busy": "interrupt"}
        )
        late = await served.decide(waiting)
        shown = await messages(served)
    for answer in (edit, switch):
        assert (answer.status_code, answer.json()["code"]) == (409, "thread_busy")
        assert answer.json()["interaction_id"] == waiting["interaction_id"]
        assert int(answer.headers["Retry-After"]) > 0
    assert enqueue.status_code == 422
    assert names(edited)[-1] == "interaction_complete"
    assert (late.status_code, late.json()["code"]) == (409, "approval_withdrawn")
    assert shown == ["A"]


async def test_sixteen_edits_at_once_have_one_winner(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script: list[Turn] = [says("1"), [TextDelta("x"), gate, TurnFinished()]]
    async with serving(tmp_path, script) as served:
        one = id_of(await served.say("a"))
        path = f"/chats/c/interactions/{one}/edit"

        async def edit(number: int) -> int:
            body = {"new_user_message": f"edit {number}"}
            async with served.client.stream("POST", path, json=body) as answer:
                refused.append(answer.status_code == 409)
                if sum(refused) == 15:
                    gate.set()
                await answer.aread()
                return answer.status_code

        refused: list[bool] = []
        answers = await asyncio.gather(*(edit(number) for number in range(16)))
        branches = (await served.get("/chats/c/branches"))["branches"]
    assert sorted(answers) == [200] + [409] * 15
    assert [branch["visible"] for branch in branches] == [False, True]
