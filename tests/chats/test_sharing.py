"""Read-only links to chats: made, read, copied, taken back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sk_agents.testing.header_authorizer import HeaderAuthorizer
from sk_agents.testing.scripted_model import says
from tests.chats.people import PeopleAuthorizer
from tests.chats.serving import id_of, serving

ADA, BOB = {"Authorization": "ada"}, {"Authorization": "bob"}


async def test_link_shows_the_chat_up_to_its_interaction_until_it_is_taken_back(
    tmp_path: Path,
) -> None:
    turns = [says("one"), says("two"), says("three")]
    async with serving(tmp_path, turns, authorizer=HeaderAuthorizer()) as served:
        first = id_of(await served.say("first", headers=ADA))
        made = await served.client.post("/chats/c/shares", json={}, headers=ADA)
        await served.say("later", headers=ADA)
        link = made.json()
        place = f"/shared/{link['share_id']}"
        read = await served.client.get(place, headers=BOB)
        copied = await served.client.post(f"{place}/copy", headers=BOB)
        own = copied.json()["id"]
        await served.say("and I say", chat=own, headers=BOB)
        mine = await served.get(f"/chats/{own}", headers=BOB)
        theirs = await served.get("/chats/c", headers=ADA)
        nobody = await served.client.get(place)
        wrong = await served.client.get(
            place[:-1] + ("0" if place[-1] != "0" else "1"), headers=BOB
        )
        foreign = await served.client.delete(place, headers=BOB)
        listed = await served.get("/chats/c/shares", headers=ADA)
        gone = await served.client.delete(place, headers=ADA)
        after = await served.client.get(place, headers=BOB)
    assert (made.status_code, link["interaction_id"]) == (201, first)
    assert link["path"] == f"/#{place}"
    shown = read.json()
    assert [(turn["user_message"]) for turn in shown["interactions"]] == ["first"]
    assert copied.status_code == 201
    assert [turn["user_message"] for turn in mine["interactions"]] == ["first", "and I say"]
    assert [turn["user_message"] for turn in theirs["interactions"]] == ["first", "later"]
    assert not {turn["id"] for turn in mine["interactions"]} & {first}
    assert (nobody.status_code, wrong.status_code, foreign.status_code) == (401, 404, 404)
    assert listed == {"shares": [link]}
    assert (gone.status_code, after.status_code) == (204, 404)


async def test_chat_in_the_bin_is_shared_with_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("one")]) as served:
        unknown = await served.client.post("/chats/c/shares", json={})
        await served.say("first")
        link = (await served.client.post("/chats/c/shares", json={})).json()
        other = await served.client.post("/chats/c/shares", json={"interaction_id": "int_x"})
        await served.client.patch("/chats/c", json={"place": "bin"})
        binned = await served.client.get(f"/shared/{link['share_id']}")
        garbage = await served.client.get("/shared/garbage")
        await served.client.patch("/chats/c", json={"place": "list"})
        back = await served.client.get(f"/shared/{link['share_id']}")
    assert (unknown.status_code, other.status_code) == (404, 404)
    assert (binned.status_code, garbage.status_code, back.status_code) == (404, 404, 200)


async def test_links_made_and_taken_back_at_once_are_all_as_acknowledged(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("one")]) as served:
        await served.say("first")

        async def make() -> str:
            made = await served.client.post("/chats/c/shares", json={})
            assert made.status_code == 201
            return str(made.json()["share_id"])

        old = [await make() for _ in range(6)]
        new, revoked = await asyncio.gather(
            asyncio.gather(*(make() for _ in range(6))),
            asyncio.gather(*(served.client.delete(f"/shared/{link}") for link in old)),
        )
        listed = await served.get("/chats/c/shares")
    assert {answer.status_code for answer in revoked} == {204}
    assert {share["share_id"] for share in listed["shares"]} == set(new)


async def test_copy_holds_files_that_were_first_said_on_another_branch(tmp_path: Path) -> None:
    table = {"content_type": "text", "content": "a,b\n" * 1000, "name": "table.csv"}
    async with serving(tmp_path, [says("one"), says("two")]) as served:
        first = id_of(await served.say("first", body={"items": [table]}))
        edit = {"new_user_message": "again", "items": [table]}
        await served.read("POST", f"/chats/c/interactions/{first}/edit", json=edit)
        link = (await served.client.post("/chats/c/shares", json={})).json()
        copied = await served.client.post(f"/shared/{link['share_id']}/copy")
        (turn,) = (await served.get(f"/chats/{copied.json()['id']}"))["interactions"]
    assert (turn["user_message"], turn["items"]) == ("again", [table])


async def test_link_names_the_person_who_made_it_also_in_a_copy(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("one")], authorizer=PeopleAuthorizer()) as served:
        await served.say("first", headers=ADA)
        link = (await served.client.post("/chats/c/shares", headers=ADA)).json()
        place = f"/shared/{link['share_id']}"
        copy = (await served.client.post(f"{place}/copy", headers=BOB)).json()["id"]
        again = (await served.client.post(f"/chats/{copy}/shares", headers=BOB)).json()
        shown = [
            (await served.get(path, headers=ADA))["shared_by"]
            for path in (place, f"/shared/{again['share_id']}")
        ]
    assert shown == ["Ada", "Bob"]


async def test_link_to_a_chat_in_the_bin_can_be_taken_back_and_none_be_made(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, [says("one")]) as served:
        await served.say("first")
        link = (await served.client.post("/chats/c/shares")).json()
        await served.client.patch("/chats/c", json={"place": "bin"})
        refused = await served.client.post("/chats/c/shares")
        gone = await served.client.delete(f"/shared/{link['share_id']}")
        await served.client.patch("/chats/c", json={"place": "list"})
        back = await served.client.get(f"/shared/{link['share_id']}")
    assert (refused.status_code, refused.json()["code"]) == (409, "thread_in_bin")
    assert (gone.status_code, back.status_code) == (204, 404)
