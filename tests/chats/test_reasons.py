"""A rule that wants a reason: nobody decides without one, and what was said is kept."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from sk_agents.testing.scripted_model import calls, says
from tests.chats.people import ADA, BOB, PeopleAuthorizer
from tests.chats.serving import Served, first, serving

SEND = calls(("Mail-send", {"to": "ada"}))
RULE: dict[str, Any] = {"tool": "Mail-send", "then": "ask", "reason_required": True}


def asking(path: Path, script: Any, **rule: Any) -> AbstractAsyncContextManager[Served]:
    approvals = {"rules": [{**RULE, **rule}]}
    return serving(path, script, authorizer=PeopleAuthorizer(), agent={"approvals": approvals})


async def asked(served: Served) -> dict[str, Any]:
    return (await served.say_until("approval_required", headers=ADA))[-1].data


async def decide(served: Served, approval: dict[str, Any], who: Any = ADA, **body: Any) -> Any:
    path = f"/approvals/{approval['approval_id']}"
    return await served.client.post(path, json=body, headers=who)


async def test_a_yes_without_a_reason_is_refused_by_its_field_and_stays_open(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path, [SEND, says("Sent.")]) as served:
        shown = await asked(served)
        bare = await decide(served, shown, approved=True)
        blank = await decide(served, shown, approved=True, message="  ")
        remembered = await decide(served, shown, approved=True, message="ok", remember="thread")
        taken = await decide(served, shown, approved=True, message="agreed with Bob")
        frames = await served.follow(shown["interaction_id"], headers=ADA)
    assert shown["reason_required"] is True
    assert [answer.status_code for answer in (bare, blank, remembered)] == [422] * 3
    assert bare.json()["errors"][0]["loc"] == ["body", "message"]
    assert "each time" in remembered.json()["detail"]
    assert taken.status_code == 200
    assert first(frames, "approved")["message"] == "agreed with Bob"
    assert first(frames, "answer")["content"] == "Sent."


async def test_a_no_needs_a_reason_too_and_the_model_reads_it(tmp_path: Path) -> None:
    async with asking(tmp_path, [SEND, says("Then not.")]) as served:
        shown = await asked(served)
        bare = await decide(served, shown, approved=False)
        taken = await decide(served, shown, approved=False, message="not on a Sunday")
        await served.follow(shown["interaction_id"], headers=ADA)
        [_, request] = served.model.requests
    assert (bare.status_code, taken.status_code) == (422, 200)
    assert "not on a Sunday" in request["messages"][-1]["content"]


async def test_each_vote_has_its_reason(tmp_path: Path) -> None:
    approvers = {"groups": ["finance"]}
    async with asking(tmp_path, [SEND, says("Sent.")], approvers=approvers) as served:
        shown = await asked(served)
        bare = await decide(served, shown, BOB, approved=True)
        voted = await decide(served, shown, BOB, approved=True, message="it is in the plan")
        frames = await served.follow(shown["interaction_id"], headers=ADA)
    assert (bare.status_code, voted.status_code) == (422, 200)
    assert first(frames, "vote_cast")["message"] == "it is in the plan"


async def test_a_standing_approval_gives_no_reason(tmp_path: Path) -> None:
    again = calls(("Mail-send", {"to": "bob"}))
    rule = {"when": {"to": {"equals": "bob"}}}
    async with asking(tmp_path, [SEND, again, says("Sent.")], **rule) as served:
        shown = await asked(served)
        await decide(served, shown, approved=True, remember="thread")
        path = f"/chats/c/interactions/{shown['interaction_id']}/events"
        async with served.stream("GET", path, headers=ADA) as frames:
            questions = []
            async for frame in frames:
                if frame.name == "approval_required":
                    questions.append(frame.data.get("reason_required"))
                if len(questions) == 2:
                    break
    assert questions == [None, True]


async def test_an_edit_does_not_get_round_a_reason(tmp_path: Path) -> None:
    rule = {"when": {"to": {"equals": "bob"}}}
    async with asking(tmp_path, [SEND, says("Sent.")], **rule) as served:
        shown = await asked(served)
        edited = await decide(served, shown, approved=True, edited_arguments={"to": "bob"})
    assert edited.status_code == 403
