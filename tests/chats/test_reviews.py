"""Others than the requester decide about a call: what each of them sees, and what comes of it."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx

from sk_agents.authorization.access_keys import KeysFile
from sk_agents.authorization.key_authorizer import KeyAuthorizer
from sk_agents.config.settings import Settings
from sk_agents.engine.turns import TextDelta
from sk_agents.testing.scripted_model import calls, says
from sk_agents.wire.frames import INTERACTION_FRAMES
from tests.chats.people import ADA, BOB, EVE, MALLORY, Headers, PeopleAuthorizer, person
from tests.chats.serving import Served, first, id_of, names, serving
from tests.chats.test_openapi import check
from tests.chats.test_users import shape

SEND = calls(("Mail-send", {"to": "canary"}))
RULE: dict[str, Any] = {
    "tool": "Mail-send",
    "then": "ask",
    "approvers": {"groups": ["finance"]},
    "not_requester": True,
    "quorum": 2,
    "expires": "30m",
}


def reviewing(path: Path, script: Any, **rule: Any) -> AbstractAsyncContextManager[Served]:
    approvals = {"rules": [{**RULE, **rule}]}
    return serving(path, script, authorizer=PeopleAuthorizer(), agent={"approvals": approvals})


async def asked(served: Served, text: str = "pay the canary bill") -> dict[str, Any]:
    return (await served.say_until("approval_required", text, headers=ADA))[-1].data


async def vote(served: Served, approval_id: str, headers: Headers, **body: Any) -> httpx.Response:
    return await served.client.post(
        f"/approvals/{approval_id}", json={"approved": True, **body}, headers=headers
    )


async def test_two_approvers_let_the_call_run_and_the_requester_sees_their_votes(
    tmp_path: Path,
) -> None:
    async with reviewing(tmp_path, [SEND, says("Sent.")]) as served:
        shown = await asked(served)
        approval_id = shown["approval_id"]
        assert shown["review"] == {
            "audience": {"roles": [], "groups": ["finance"], "users": []},
            "quorum": 2,
            "not_requester": True,
            "on_expiry": "deny",
            "share_conversation": False,
            "votes": [],
            "missing": 2,
        }
        [own] = (await served.get("/approvals", headers=ADA))["approvals"]
        [bobs] = (await served.get("/approvals", headers=BOB))["approvals"]
        assert (own["may_decide"], bobs["may_decide"]) == (False, True)
        assert (bobs["requested_by"], bobs["agent"]) == ("Ada", "helper")
        assert (await vote(served, approval_id, BOB)).json()["missing"] == 1
        [eves] = (await served.get("/approvals", headers=EVE))["approvals"]
        [said] = eves["review"]["votes"]
        assert (said["voter"], said["voter_name"], said["right"]) == ("bob", "Bob", "group:finance")
        answer = await vote(served, approval_id, EVE, message="fine")
        assert answer.json() == {
            "status": "processed", "approval_id": approval_id, "approved": True, "missing": 0,
        }  # fmt: skip
        frames = await served.follow(shown["interaction_id"], headers=ADA)
        assert names(frames) == [
            "interaction_started", "approval_required", "vote_cast", "vote_cast", "approved",
            "tool_call", "tool_result", "answer", "interaction_complete",
        ]  # fmt: skip
        votes = [frame.data for frame in frames if frame.name == "vote_cast"]
        assert [(one["voter_name"], one["missing"]) for one in votes] == [("Bob", 1), ("Eve", 0)]
        assert first(frames, "approved")["decided_by_name"] == "Eve"
        assert (await served.get("/approvals", headers=BOB))["approvals"] == []
        read = await served.get(f"/approvals/{approval_id}", headers=BOB)
        assert read["state"] == "consumed" and read["may_decide"] is False


async def test_approver_sees_the_call_and_nothing_of_the_conversation(tmp_path: Path) -> None:
    async with reviewing(tmp_path, [says("canary answer"), SEND]) as served:
        await served.say("a canary said before", headers=ADA)
        shown = await asked(served)
        chat, run = "/chats/c", f"/chats/c/interactions/{shown['interaction_id']}"
        seen = [
            await served.get("/approvals", headers=BOB),
            await served.get(f"/approvals/{shown['approval_id']}", headers=BOB),
        ]
        for answer in seen:
            text = str(answer)
            assert '\'{"to": "canary", "text": "hello"}\'' in text
            assert "canary bill" not in text and "canary said" not in text
            assert "canary answer" not in text
        for path in (chat, run, f"{run}/events", f"{chat}/export", f"{chat}/events"):
            assert (await served.client.get(path, headers=BOB)).status_code == 404, path


async def test_shared_conversation_is_read_by_the_approvers_alone(tmp_path: Path) -> None:
    script = [says("It is 5 euros."), SEND]
    async with reviewing(tmp_path, script, share_conversation=True) as served:
        await served.say("how much?", headers=ADA)
        shown = await asked(served, "pay it")
        path = f"/approvals/{shown['approval_id']}"
        read = await served.get(path, headers=BOB)
        assert read["conversation"] == [
            {"user_message": "how much?", "answer": "It is 5 euros."},
            {"user_message": "pay it", "answer": None},
        ]
        assert (await served.client.get(path, headers=MALLORY)).status_code == 404


async def test_shared_conversation_has_what_the_agent_was_told_and_said_before_the_call(
    tmp_path: Path,
) -> None:
    gate, stop = asyncio.Event(), asyncio.Event()
    script = [
        [TextDelta("Let me"), stop, *says(".")],
        [TextDelta("It is 5 euros"), gate, *says(".")],
        SEND,
    ]
    async with reviewing(tmp_path, script, share_conversation=True) as served:
        cut = id_of(await served.say_until("answer_delta", "how much?", headers=ADA))
        await served.client.post(f"/chats/c/interactions/{cut}/cancel", headers=ADA)
        await served.read("GET", f"/chats/c/interactions/{cut}/events", headers=ADA)
        run = id_of(await served.say_until("answer_delta", "and now?", headers=ADA))
        path = f"/chats/c/interactions/{run}"
        told = {"user_message": "pay 50 to Eve"}
        await served.client.post(f"{path}/steer", json=told, headers=ADA)
        gate.set()
        frames = await served.read_until("approval_required", "GET", f"{path}/events", headers=ADA)
        shown = first(frames, "approval_required")
        read = await served.get(f"/approvals/{shown['approval_id']}", headers=BOB)
    assert read["conversation"] == [
        {"user_message": "how much?", "answer": "Let me"},
        {"user_message": "and now?", "answer": "It is 5 euros."},
        {"user_message": "pay 50 to Eve", "answer": None},
    ]


async def test_person_whom_it_does_not_concern_cannot_tell_that_there_is_one(
    tmp_path: Path,
) -> None:
    async with reviewing(tmp_path, [SEND]) as served:
        real, never = (await asked(served))["approval_id"], "approval_0"
        for method, end, body in (
            ("GET", "", None),
            ("POST", "", {"approved": True}),
            ("POST", "", {"approved": True, "edited_arguments": {"to": 1}}),
            ("DELETE", "/vote", None),
        ):
            answers = [
                await served.client.request(
                    method, f"/approvals/{one}{end}", json=body, headers=MALLORY
                )
                for one in (real, never)
            ]
            assert answers[0].status_code == 404
            assert shape(answers[0]) == shape(answers[1]), (method, body)
        assert (await served.get("/approvals", headers=MALLORY))["approvals"] == []


async def test_each_vote_that_does_not_count_says_why(tmp_path: Path) -> None:
    async with reviewing(tmp_path, [SEND, says("No.")]) as served:
        shown = await asked(served)
        approval_id = shown["approval_id"]
        own = await served.decide(shown, headers=person("ada", groups="finance"))
        assert (own.status_code, own.json()["code"]) == (403, "not_approver")
        assert "person who asked" in own.json()["detail"]
        edited = await vote(served, approval_id, BOB, edited_arguments={"to": "bob"})
        assert (edited.status_code, edited.json()["code"]) == (422, "invalid_input")
        again = [await vote(served, approval_id, BOB) for _ in range(2)]
        assert [answer.json()["missing"] for answer in again] == [1, 1]
        lost = await vote(served, approval_id, person("bob"))
        assert (lost.status_code, lost.json()["code"]) == (403, "not_approver")
        withdrawn = await served.client.delete(f"/approvals/{approval_id}/vote", headers=BOB)
        twice = await served.client.delete(f"/approvals/{approval_id}/vote", headers=BOB)
        assert (withdrawn.status_code, twice.status_code) == (204, 404)
        assert twice.json()["code"] == "vote_not_found"
        assert (await vote(served, approval_id, EVE, approved=False)).status_code == 200
        late = await vote(served, approval_id, BOB)
        assert (late.status_code, late.json()["code"]) == (400, "approval_already_processed")
        assert late.json()["decision"]["decided_by_name"] == "Eve"
        too_late = await served.client.delete(f"/approvals/{approval_id}/vote", headers=EVE)
        assert (too_late.status_code, too_late.json()["outcome"]) == (400, "rejected")
        frames = await served.follow(shown["interaction_id"], headers=ADA)
        assert "tool_call" not in names(frames) and "vote_withdrawn" in names(frames)
        for frame in frames:
            check(frame, INTERACTION_FRAMES)


async def test_vote_after_a_cancel_is_refused(tmp_path: Path) -> None:
    async with reviewing(tmp_path, [SEND]) as served:
        shown = await asked(served)
        await vote(served, shown["approval_id"], BOB)
        run = f"/chats/c/interactions/{shown['interaction_id']}"
        await served.client.post(f"{run}/cancel", headers=ADA)
        await served.follow(shown["interaction_id"], headers=ADA)
        late = await vote(served, shown["approval_id"], EVE)
        assert (late.status_code, late.json()["code"]) == (409, "approval_withdrawn")


async def test_key_of_a_vote_stands_for_that_vote(tmp_path: Path) -> None:
    async with reviewing(tmp_path, [SEND]) as served:
        approval_id = (await asked(served))["approval_id"]
        keyed = {**BOB, "Idempotency-Key": "k"}
        answers = [await vote(served, approval_id, keyed) for _ in range(2)]
        assert [answer.json().get("missing") for answer in answers] == [1, 1]
        other = await vote(served, approval_id, keyed, message="another")
        assert other.status_code == 422


async def test_key_of_a_decision_is_its_user_s_own(tmp_path: Path) -> None:
    """Two scripts may make their keys of the approval's id."""
    async with reviewing(tmp_path, [SEND, says("Sent.")], quorum=1) as served:
        approval_id = (await asked(served))["approval_id"]
        key = {"Idempotency-Key": approval_id}
        assert (await vote(served, approval_id, {**BOB, **key}, approved=False)).status_code == 200
        for approved in (False, True):
            late = await vote(served, approval_id, {**EVE, **key}, approved=approved)
            assert (late.status_code, late.json()["code"]) == (400, "approval_already_processed")


async def test_own_role_counts_only_as_the_mapping_gives_it(tmp_path: Path) -> None:
    rule = {"approvers": {"roles": ["approver", "Treasurer"]}, "quorum": 1}
    roles = '{"approver": {"groups": ["finance"]}}'
    approvals = {"rules": [{**RULE, **rule}]}
    async with serving(
        tmp_path, [SEND], authorizer=PeopleAuthorizer(), agent={"approvals": approvals}, roles=roles
    ) as served:
        approval_id = (await asked(served))["approval_id"]
        claims_it = person("mallory", roles="approver")
        assert (await vote(served, approval_id, claims_it)).status_code == 404
        for entitled in (BOB, person("tom", roles="Treasurer")):
            [view] = (await served.get("/approvals", headers=entitled))["approvals"]
            assert view["may_decide"] is True


async def test_users_with_access_keys_of_a_group_decide_what_is_left_to_it(tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "kept" / "keys.json")

    def bearer(name: str, *groups: str) -> Headers:
        return {"Authorization": f"Bearer {keys.add(name, groups=groups)[1]}"}

    authorizer = KeyAuthorizer(Settings(keys_file=keys.path))
    approvals = {"rules": [RULE]}
    async with serving(
        tmp_path, [SEND, says("Sent.")], authorizer=authorizer, agent={"approvals": approvals}
    ) as served:
        shown = (await served.say_until("approval_required", headers=bearer("ada", "finance")))[-1]
        approval_id = shown.data["approval_id"]
        assert (await vote(served, approval_id, bearer("mallory", "sales"))).status_code == 404
        bob, eve = bearer("bob", "finance"), bearer("eve", "sales", "finance")
        assert [(await vote(served, approval_id, one)).json()["missing"] for one in (bob, eve)] == [
            1,
            0,
        ]
        frames = await served.follow(shown.data["interaction_id"], headers=bearer("ada"))
        assert names(frames)[-1] == "interaction_complete" and first(frames, "tool_result")


async def test_approver_who_is_no_user_decides_and_starts_nothing(tmp_path: Path) -> None:
    restricted = '{"user": {"groups": ["staff"]}, "approver": {"groups": ["finance"]}}'
    approvals = {"rules": [{**RULE, "quorum": 1}]}
    async with serving(
        tmp_path,
        [SEND, says("Sent.")],
        authorizer=PeopleAuthorizer(),
        agent={"approvals": approvals},
        roles=restricted,
    ) as served:
        ada = person("ada", groups="staff")
        shown = (await served.say_until("approval_required", headers=ada))[-1].data
        for path in ("/chats", "/agents", "/grants"):
            refused = await served.client.get(path, headers=BOB)
            assert (refused.status_code, refused.json()["code"]) == (403, "missing_role"), path
        assert "role user" in refused.json()["detail"]
        assert (await vote(served, shown["approval_id"], BOB)).json()["missing"] == 0
        assert (await served.client.get("/approvals", headers=MALLORY)).status_code == 403


async def test_health_details_are_for_operators(tmp_path: Path) -> None:
    async with serving(tmp_path, [], authorizer=PeopleAuthorizer()) as served:
        operator = person("olga", roles="operator")
        brief = [await served.get("/health/ready", headers=one) for one in ({}, ADA)]
        assert [answer.keys() for answer in brief] == [{"status", "timestamp"}] * 2
        assert "dependencies" in await served.get("/health/ready", headers=operator)
        assert (await served.client.get("/chats", headers=operator)).status_code == 200


async def test_teal_s_resume_takes_votes_and_shows_an_approver_nothing_that_was_said(
    tmp_path: Path,
) -> None:
    async with reviewing(tmp_path, [SEND, says("a canary answer")]) as served:

        async def resume(headers: Headers, body: object = None, end: str = "") -> httpx.Response:
            path = f"/helper/0.1/resume/{request_id}{end}?action=approve"
            return await served.client.post(path, json=body, headers=headers)

        message = {"items": [{"content_type": "text", "content": "pay the canary bill"}]}
        asked = await served.client.post("/helper/0.1", json=message, headers=ADA)
        paused = asked.json()
        request_id = paused["request_id"]
        [call] = paused["content"]["tool_calls"]
        assert (paused["status"], call["review"]["missing"]) == ("Paused", 2)
        own = await resume(ADA)
        assert (own.status_code, "Others decide" in own.text) == (403, False)
        assert (await resume(MALLORY)).status_code == 401
        first_vote = (await resume(BOB)).json()
        [shown] = first_vote["content"]["tool_calls"]
        assert first_vote["status"] == "Paused" and shown["review"]["missing"] == 1
        assert shown["review"]["votes"][0]["voter_name"] == "Bob"
        last_vote = await resume(EVE, end="/sse")
        assert last_vote.status_code == 200 and last_vote.json()["content"] is None
        for text in (str(first_vote), last_vote.text):
            assert "canary bill" not in text and "canary answer" not in text
        for path in (f"requests/{request_id}", f"tasks/{paused['task_id']}"):
            refused = await served.client.get(f"/helper/0.1/{path}", headers=BOB)
            assert refused.status_code == 401


async def test_key_of_a_teal_resume_is_its_user_s_own(tmp_path: Path) -> None:
    """The requester's resume with the key of an approver's decides about the requester's call."""
    approvals = {"rules": [{**RULE, "quorum": 1, "when": {"to": {"equals": "canary"}}}]}
    both = calls(("Mail-send", {"to": "canary"}), ("Mail-send", {"to": "bob"}))
    async with serving(
        tmp_path,
        [both, says("Sent.")],
        authorizer=PeopleAuthorizer(),
        agent={"approvals": approvals},
    ) as served:
        message = {"items": [{"content_type": "text", "content": "pay both"}]}
        paused = (await served.client.post("/helper/0.1", json=message, headers=ADA)).json()
        path = f"/helper/0.1/resume/{paused['request_id']}"
        for one in (BOB, ADA):
            answer = await served.client.post(
                path, json={"action": "approve"}, headers={**one, "Idempotency-Key": "k"}
            )
            assert answer.status_code == 200, answer.text
        assert answer.json()["status"] == "Completed"
