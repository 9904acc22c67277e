"""What one user may pile up: chats that are kept, approvals that wait."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from sk_agents.testing.scripted_model import calls, says
from tests.chats.proven import ADA, BOB, ProvenAuthorizer
from tests.chats.serving import Served, first, id_of, names, serving

SEND = calls(("Mail-send", {"to": "ada"}))


def refused(answer: httpx.Response, word: str) -> bool:
    """Whether it was for the quota that this word names; any other answer must be a good one."""
    if answer.status_code != 429:
        assert answer.is_success, answer.text
        return False
    body = answer.json()
    assert body["code"] == "limit_exceeded"
    assert word in body["detail"]
    assert int(answer.headers["Retry-After"]) >= 60
    return True


async def post(served: Served, path: str, body: object = None, **headers: str) -> httpx.Response:
    return await served.client.post(path, json=body, headers={**ADA, **headers})


async def start(served: Served, chat: str, **headers: str) -> httpx.Response:
    """The whole stream of an interaction, or its refusal."""
    return await post(served, f"/chats/{chat}/interactions", {"user_message": "hi"}, **headers)


@pytest.mark.parametrize("limit", [1, 3])
async def test_z3_chats_up_to_the_limit_are_made_and_one_more_is_429(
    tmp_path: Path, limit: int
) -> None:
    async with serving(
        tmp_path,
        [says("x")] * 20,
        authorizer=ProvenAuthorizer(),
        max_chats_per_user=limit,
    ) as served:
        await start(served, "c0")
        document = (await served.client.get("/chats/c0/export", headers=ADA)).json()
        for number in range(1, limit):
            assert not refused(await start(served, f"c{number}"), "chats")
        assert refused(await start(served, "more"), "chats")
        assert refused(await post(served, "/chats"), "chats")
        assert refused(await post(served, "/chats/import", document), "chats")
        assert (await served.client.get("/chats/more", headers=ADA)).status_code == 404
        # What is there goes on, and others have their own.
        assert not refused(await start(served, "c0"), "chats")
        assert (await served.say(chat="c0", headers=BOB))[-1].name == "interaction_complete"
        # Room is made at once.
        assert (await served.client.delete("/chats/c0", headers=ADA)).status_code == 204
        assert not refused(await post(served, "/chats/import", document), "chats")
        assert refused(await start(served, "more"), "chats")


async def test_z3_chats_of_an_earlier_process_count_and_the_dummy_user_has_a_limit_too(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, [says("x")] * 3) as served:
        for number in range(2):
            await served.say(chat=f"c{number}")
    async with serving(tmp_path, [says("x")] * 3, max_chats_per_user=2) as served:
        answer = await served.client.post("/chats/c3/interactions", json={"user_message": "hi"})
        assert refused(answer, "chats")
        await served.say(chat="c1")
        # A session of `/chat` is a chat like any other.
        answer = await served.client.post(
            "/chat", json={"user_message": "hi", "session_id": "s", "user_id": "dummyuser"}
        )
        assert refused(answer, "chats")


async def test_z3_repeated_request_gets_its_chat_at_the_limit_too(tmp_path: Path) -> None:
    async with serving(
        tmp_path, [says("x")], authorizer=ProvenAuthorizer(), max_chats_per_user=2
    ) as served:
        key = {"Idempotency-Key": "k"}
        made = await post(served, "/chats", {"title": "t"}, **key)
        begun = await served.say(chat="c", headers={**ADA, **key})
        assert (await post(served, "/chats", {"title": "t"}, **key)).json() == made.json()
        assert (await post(served, "/chats", {"title": "u"}, **key)).status_code == 422
        again = await served.say(chat="c", headers={**ADA, **key})
        assert id_of(again) == id_of(begun)
        assert refused(await post(served, "/chats", **{"Idempotency-Key": "other"}), "chats")


async def test_z3_many_at_once_do_not_pass_the_limit(tmp_path: Path) -> None:
    async with serving(tmp_path, authorizer=ProvenAuthorizer(), max_chats_per_user=5) as served:
        answers = await asyncio.gather(*(post(served, "/chats") for _ in range(20)))
        assert sum(refused(answer, "chats") for answer in answers) == 15
        kept = (await served.client.get("/chats", headers=ADA)).json()["chats"]
        assert len(kept) == 5


async def test_z3_chat_that_could_not_be_made_takes_no_room(tmp_path: Path) -> None:
    async with serving(tmp_path, authorizer=ProvenAuthorizer(), max_chats_per_user=2) as served:
        assert not refused(await post(served, "/chats", {"chat_id": "c"}), "chats")
        for _ in range(3):
            assert (await post(served, "/chats", {"chat_id": "c"})).status_code == 409
        assert not refused(await post(served, "/chats"), "chats")
        assert refused(await post(served, "/chats"), "chats")


@pytest.mark.parametrize("limit", [1, 3])
async def test_z8_runs_begin_until_as_many_approvals_wait(tmp_path: Path, limit: int) -> None:
    async with serving(
        tmp_path,
        [SEND] * limit + [says("done")] * 9,
        authorizer=ProvenAuthorizer(),
        max_pending_approvals=limit,
    ) as served:
        asked = []
        for number in range(limit):
            frames = await served.say_until("approval_required", chat=f"c{number}", headers=ADA)
            asked.append(first(frames, "approval_required"))
        assert refused(await start(served, "more"), "approvals")
        assert refused(
            await post(
                served,
                "/chats/c0/interactions",
                {"user_message": "then", "on_busy": "enqueue"},
            ),
            "approvals",
        )
        assert names(await served.say(chat="other", headers=BOB))[-1] == "interaction_complete"
        decided = await served.decide(asked[0], chat="c0", headers=ADA, approved=False)
        assert decided.status_code == 200
        await served.follow(asked[0]["interaction_id"], chat="c0", headers=ADA)
        assert not refused(await start(served, "more"), "approvals")


async def test_z8_edit_and_regenerate_are_runs_too_and_repeating_is_none(tmp_path: Path) -> None:
    async with serving(
        tmp_path, [says("one"), SEND], authorizer=ProvenAuthorizer(), max_pending_approvals=1
    ) as served:
        key = {"Idempotency-Key": "k"}
        begun = await served.say(chat="c", headers={**ADA, **key})
        await served.say_until("approval_required", chat="d", headers=ADA)
        path = f"/chats/c/interactions/{id_of(begun)}"
        edit = await post(served, f"{path}/edit", {"new_user_message": "x"})
        assert refused(edit, "approvals")
        assert refused(await post(served, f"{path}/regenerate"), "approvals")
        again = await served.say(chat="c", headers={**ADA, **key})
        assert id_of(again) == id_of(begun)


async def test_z8_there_is_no_limit_where_everybody_is_the_same_user(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND] * 3, max_pending_approvals=1) as served:
        for number in range(3):
            await served.say_until("approval_required", chat=f"c{number}")
        assert len((await served.get("/approvals"))["approvals"]) == 3
