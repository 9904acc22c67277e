"""Thumbs and notes for answers: kept in the log, shown to their writer, read by operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sk_agents.testing.scripted_model import calls, says
from tests.chats.people import ADA, BOB, PeopleAuthorizer, person
from tests.chats.serving import Served, id_of, serving

OPERATOR = person("olga", roles="operator")


async def answered(served: Served, headers: Any = ADA, chat: str = "c") -> str:
    return id_of(await served.say("what year is it", chat=chat, headers=headers))


def place(interaction: str, chat: str = "c") -> str:
    return f"/chats/{chat}/interactions/{interaction}/feedback"


async def test_a_rating_is_kept_replaced_and_taken_back(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("1999")], authorizer=PeopleAuthorizer()) as served:
        interaction = await answered(served)
        body = {"rating": "down", "note": "Wrong year."}
        given = await served.client.put(place(interaction), json=body, headers=ADA)
        chat = await served.get("/chats/c", headers=ADA)
        again = await served.client.put(place(interaction), json=body, headers=ADA)
        same = await served.get("/chats/c", headers=ADA)
        await served.client.put(place(interaction), json={"rating": "up"}, headers=ADA)
        path = f"/chats/c/interactions/{interaction}"
        replaced = (await served.get(path, headers=ADA))["feedback"]
        gone = await served.client.delete(place(interaction), headers=ADA)
        after = (await served.get(path, headers=ADA))["feedback"]
        twice = await served.client.delete(place(interaction), headers=ADA)
        frames = await served.read_until(
            "feedback_given", "GET", "/chats/c/events?after=0", headers=ADA
        )
    assert (given.status_code, given.json()["note"]) == (200, "Wrong year.")
    assert chat["interactions"][0]["feedback"] == given.json() == again.json()
    assert chat["last_seq"] == same["last_seq"]
    assert (replaced["rating"], replaced["note"]) == ("up", None)
    assert (gone.status_code, after, twice.status_code) == (204, None, 204)
    assert frames[-1].data["interaction_id"] == interaction
    assert (frames[-1].data["rating"], frames[-1].data["note"]) == ("down", "Wrong year.")


async def test_operators_read_ratings_and_notes_and_nothing_that_was_said(tmp_path: Path) -> None:
    script = [says("the answer"), says("another")]
    async with serving(tmp_path, script, authorizer=PeopleAuthorizer()) as served:
        first, second = await answered(served), await answered(served, BOB)
        note = {"rating": "down", "note": "Wrong year."}
        await served.client.put(place(first), json=note, headers=ADA)
        await served.client.put(place(second), json={"rating": "up"}, headers=BOB)
        refused = await served.client.get("/feedback", headers=ADA)
        page = await served.client.get("/feedback", headers=OPERATOR)
        pages: list[Any] = []
        cursor: str | None = None
        while cursor is not None or not pages:
            asked = {"limit": "1", **({"cursor": cursor} if cursor else {})}
            pages.append(await served.get("/feedback", params=asked, headers=OPERATOR))
            cursor = pages[-1]["next"]
        later = {"since": "2999-01-01T00:00:00Z"}
        none = await served.get("/feedback", params=later, headers=OPERATOR)
        other = await served.get("/feedback", params={"agent": "x"}, headers=OPERATOR)
        bare = {"since": "2026-01-01T00:00:00"}
        unzoned = await served.client.get("/feedback", params=bare, headers=OPERATOR)
        trail = await served.get("/audit", headers=OPERATOR)
        await served.client.delete("/chats/c", headers=ADA)
        left = await served.get("/feedback", headers=OPERATOR)
    assert refused.status_code == 403
    rows = {row["user_id"]: row for row in page.json()["feedback"]}
    assert {"the answer", "what year is it"}.isdisjoint(page.text.split('"'))
    assert rows["ada"] == {
        "at": rows["ada"]["at"], "rating": "down", "note": "Wrong year.", "agent": "helper",
        "user_id": "ada", "chat_id": "c", "interaction_id": first,
    }  # fmt: skip
    assert sorted(row["user_id"] for part in pages for row in part["feedback"]) == ["ada", "bob"]
    assert (none["feedback"], other["feedback"], unzoned.status_code) == ([], [], 422)
    entries = {(entry["what"], entry["who"]) for entry in trail["entries"]}
    assert {("rating", "ada"), ("feedback_exporting", "olga")} <= entries
    assert "Wrong year." not in str(trail)
    assert [row["user_id"] for row in left["feedback"]] == ["bob"]


async def test_only_what_has_ended_and_is_ones_own_can_be_rated(tmp_path: Path) -> None:
    script = [calls(("Mail-send", {"to": "ada"})), says("x")]
    async with serving(tmp_path, script, authorizer=PeopleAuthorizer()) as served:
        waiting = id_of(await served.say_until("approval_required", headers=ADA))
        body = {"rating": "up"}
        early = await served.client.put(place(waiting), json=body, headers=ADA)
        foreign = await served.client.put(place(waiting), json=body, headers=BOB)
        unknown = await served.client.put(place("int_x"), json=body, headers=ADA)
    assert [answer.status_code for answer in (early, foreign, unknown)] == [404] * 3


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "rating"),
        ({"rating": "sideways"}, "rating"),
        ({"rating": "up", "note": " "}, "note"),
        ({"rating": "up", "note": "x" * 4001}, "note"),
        ({"rating": "up", "stars": 5}, "stars"),
    ],
)
async def test_a_rating_that_means_nothing_is_refused_by_its_field(
    tmp_path: Path, body: dict[str, Any], field: str
) -> None:
    async with serving(tmp_path, [says("x")]) as served:
        interaction = id_of(await served.say())
        refused = await served.client.put(place(interaction), json=body)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["loc"] == ["body", field]


async def test_a_rating_goes_with_an_export_and_not_with_a_share(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x")], authorizer=PeopleAuthorizer()) as served:
        interaction = await answered(served)
        body = {"rating": "down", "note": "Wrong year."}
        await served.client.put(place(interaction), json=body, headers=ADA)
        document = await served.get("/chats/c/export", headers=ADA)
        await served.client.post(
            "/chats/import", params={"chat_id": "again"}, json=document, headers=ADA
        )
        back = await served.get("/chats/again", headers=ADA)
        share = (await served.client.post("/chats/c/shares", json={}, headers=ADA)).json()
        shared = await served.client.get(f"/shared/{share['share_id']}", headers=BOB)
        copied = await served.client.post(f"/shared/{share['share_id']}/copy", headers=BOB)
        copy = await served.client.get(f"/chats/{copied.json()['id']}", headers=BOB)
    assert [event["rating"] for event in document["events"] if event["type"] == "rated"] == ["down"]
    assert back["interactions"][0]["feedback"]["note"] == "Wrong year."
    assert shared.json()["interactions"][0]["feedback"] is None
    assert copy.json()["interactions"][0]["feedback"] is None
    assert "Wrong year." not in shared.text + copy.text


async def test_secrets_in_a_note_are_redacted_as_in_messages(tmp_path: Path) -> None:
    agent = {"redact": {"kinds": ["cards"]}}
    async with serving(tmp_path, [says("x")], agent=agent) as served:
        interaction = id_of(await served.say())
        body = {"rating": "up", "note": "my card is 4111 1111 1111 1111"}
        given = await served.client.put(place(interaction), json=body)
    assert "4111" not in given.json()["note"]
