"""A call waits for a person: what is shown, who may say yes to what, and what comes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sk_agents.testing.scripted_model import calls, says
from tests.chats.people import ADA, BOB, PeopleAuthorizer
from tests.chats.serving import Served, durable, first, id_of, names, serving
from tests.requirements import requirement

SEND = calls(("Mail-send", {"to": "ada"}))


async def ask(served: Served, text: str = "write", *, chat: str = "c") -> dict[str, Any]:
    """What a person is shown before anything runs."""
    return (await served.say_until("approval_required", text, chat=chat))[-1].data


async def prompt_result(served: Served) -> str:
    """What the model was told about its last call."""
    content: str = served.model.requests[-1]["messages"][-1]["content"]
    return content


@requirement("S004-2.2-approval-required", "S004-6.1-approval-id", "S004-2.1-status")
async def test_what_will_run_is_shown_whole_and_the_interaction_waits(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND]) as served:
        asked = await ask(served)
        interaction = await served.get(f"/chats/c/interactions/{asked['interaction_id']}")
        inbox = await served.get("/approvals")
        chat = await served.get("/chats/c")
    assert asked.keys() == {
        "approval_id", "interaction_id", "kind", "call_id", "tool_name", "tool_input", "digest",
        "expires_at",
    }  # fmt: skip
    assert (asked["kind"], asked["tool_name"]) == ("tool", "Mail-send")
    assert json.loads(asked["tool_input"]) == {"to": "ada", "text": "hello"}
    assert interaction["status"] == "WAITING_APPROVAL"
    [waiting] = interaction["approvals"]
    assert {key: waiting[key] for key in asked} == asked
    assert (waiting["chat_id"], waiting["state"], waiting["agent"]) == ("c", "pending", "helper")
    assert inbox == {"approvals": [waiting], "next": None}
    assert chat["status"] == "WAITING_APPROVAL"


@requirement(
    "S004-3.2-approve", "S004-3.2-resumes", "S004-2.2-approved", "S004-3.1-approval-waits",
    "S004-3.1-continues", "S004-5.2-approval-flow", "S004-4.1-separate-control",
    "S004-8.1-approve",
)  # fmt: skip
async def test_the_seeds_approval_is_processed_and_the_open_stream_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND, says("Sent.")]) as served:
        body = {"user_message": "write"}
        async with served.stream("POST", "/chats/c/interactions", json=body) as frames:
            seen = [await anext(frames), await anext(frames)]
            asked = seen[-1].data
            answer = await served.client.post(
                f"/chats/c/interactions/{asked['interaction_id']}/approve",
                content=json.dumps({"approval_id": asked["approval_id"], "approved": True}),
                headers={"Content-Type": "application/json"},
            )
            seen += [frame async for frame in frames]
        read = await served.get(f"/approvals/{asked['approval_id']}")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "processed",
        "approval_id": asked["approval_id"],
        "approved": True,
    }
    assert names(seen) == [
        "interaction_started", "approval_required", "approved", "tool_call", "tool_result",
        "answer", "interaction_complete",
    ]  # fmt: skip
    assert first(seen, "approved") == {
        "approval_id": asked["approval_id"],
        "interaction_id": asked["interaction_id"],
        "call_id": asked["call_id"],
        "tool_name": "Mail-send",
        "by": "human",
        "decided_by": "dummyuser",
    }
    assert (read["state"], read["decision"]["approved"]) == ("consumed", True)


@requirement("S004-3.2-reject", "S004-2.2-rejected", "S004-3.1-continues")
async def test_a_rejected_call_never_runs_and_the_model_learns_why(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND, says("All right.")]) as served:
        asked = await ask(served)
        answer = await served.decide(asked, approved=False, message="not to her")
        frames = await served.follow(asked["interaction_id"])
        chat = await served.get("/chats/c")
        told = await prompt_result(served)
    assert answer.json()["approved"] is False
    assert names(frames) == [
        "interaction_started", "approval_required", "rejected", "answer", "interaction_complete",
    ]  # fmt: skip
    rejected = first(frames, "rejected")
    assert (rejected["by"], rejected["decided_by"]) == ("human", "dummyuser")
    assert rejected["message"] == "not to her"
    assert told == "Rejected by dummyuser: not to her. It did not run."
    assert [event["type"] for event in chat["interactions"][0]["agent_events"]] == ["ANSWER"]


@requirement("S004-3.2-immediate")
async def test_the_decision_is_answered_before_the_tool_has_finished(tmp_path: Path) -> None:
    slow = calls(("Mail-post", {"to": "ada"}))
    async with serving(tmp_path, [slow]) as served:
        asked = await ask(served)
        answer = await served.decide(asked)
        frames = await served.read_until(
            "approved", "GET", f"/chats/c/interactions/{asked['interaction_id']}/events"
        )
    # The tool sleeps until its time is up: it cannot have ended.
    assert answer.status_code == 200
    assert "tool_result" not in names(frames)


@requirement("S004-3.2-not-found")
async def test_an_approval_is_found_under_its_own_interaction_only(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND, SEND, says("plain")]) as served:
        other = id_of(await served.say_until("approval_required", chat="d"))
        asked = await ask(served)
        await served.say("plain", chat="e")
        unknown = {"approval_id": "approval_unknown", "approved": True}
        path = f"/chats/c/interactions/{asked['interaction_id']}"
        yes = {"approval_id": asked["approval_id"], "approved": True}
        answers = [
            await served.client.post(f"{path}/approve", json=unknown),
            await served.client.post("/approvals/approval_unknown", json={"approved": True}),
            await served.client.post(f"/chats/d/interactions/{other}/approve", json=yes),
            await served.client.post(f"/chats/c/interactions/{other}/approve", json=yes),
            await served.client.post(f"/chats/nowhere/interactions/{other}/approve", json=yes),
            await served.client.get("/approvals/approval_unknown"),
        ]
        left = await served.get(f"/approvals/{asked['approval_id']}")
    assert {(a.status_code, a.json()["code"]) for a in answers} == {(404, "approval_not_found")}
    assert left["state"] == "pending"


@requirement("S004-3.2-already-processed")
async def test_a_second_decision_is_refused_with_the_first_and_the_tool_runs_once(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, [SEND, says("Sent.")]) as served:
        asked = await ask(served)
        assert (await served.decide(asked, message="go")).status_code == 200
        again = await served.decide(asked)
        no = await served.client.post(
            f"/approvals/{asked['approval_id']}", json={"approved": False}
        )
        frames = await served.follow(asked["interaction_id"])
    for late in (again, no):
        body = late.json()
        assert (late.status_code, body["code"]) == (400, "approval_already_processed")
        assert body["outcome"] == "approved"
        decision = body["decision"]
        assert (decision["approved"], decision["decided_by"]) == (True, "dummyuser")
        assert (decision["by"], decision["message"]) == ("human", "go")
    assert names(frames).count("approved") == names(frames).count("tool_call") == 1
    assert "rejected" not in names(frames)


@requirement("S004-3.2-same-key")
async def test_a_decision_repeated_with_its_key_is_answered_as_before(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND, says("Sent.")]) as served:
        asked = await ask(served)
        key = {"Idempotency-Key": "k1"}
        answers = [await served.decide(asked, headers=key) for _ in range(3)]
        other = await served.decide(asked, headers=key, approved=False)
        frames = await served.follow(asked["interaction_id"])
    assert len({(answer.status_code, answer.text) for answer in answers}) == 1
    assert answers[0].status_code == 200
    assert (other.status_code, other.json()["code"]) == (422, "invalid_input")
    assert names(frames).count("tool_call") == 1


async def test_repeated_decision_is_compared_as_it_was_kept(tmp_path: Path) -> None:
    agent = {"redact": True}
    said: dict[str, Any] = {
        "message": "card 4111111111111111",
        "edited_arguments": {"to": "bob"},
    }
    async with serving(tmp_path, [SEND, says("Sent.")], agent=agent) as served:
        asked = await ask(served)
        key = {"Idempotency-Key": "k1"}
        answers = [await served.decide(asked, headers=key, **said) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200]
        for other in ({"message": "card"}, {"edited_arguments": {"to": "eve"}}):
            refused = await served.decide(asked, headers=key, **{**said, **other})
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")


CARD = "4111111111111111"
LEFT = "card [redacted], please"


@pytest.mark.parametrize(
    ("edited", "runs"),
    [
        ({"to": "bob", "text": LEFT}, f"card {CARD}, please"),
        ({"to": "bob", "text": "no card"}, "no card"),
        ({"to": "bob", "text": "card [redacted] and more"}, None),
    ],
)
async def test_argument_that_is_left_as_it_was_shown_is_what_the_model_wrote(
    tmp_path: Path, edited: dict[str, Any], runs: str | None
) -> None:
    wanted = calls(("Mail-send", {"to": "ann", "text": f"card {CARD}, please"}))
    rule = {"tool": "Mail-send", "then": "ask", "approvers": {"groups": ["finance"]}}
    agent = {"redact": True, "approvals": {"rules": [rule]}}
    async with serving(
        tmp_path, [wanted, says("Sent.")], agent=agent, authorizer=PeopleAuthorizer()
    ) as served:
        asked = (await served.say_until("approval_required", headers=ADA))[-1].data
        assert json.loads(asked["tool_input"])["text"] == LEFT
        path = f"/approvals/{asked['approval_id']}"
        body = {"approved": True, "edited_arguments": edited}
        answer = await served.client.post(path, json=body, headers=BOB)
        if runs is None:
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
            assert "stands for a secret" in answer.json()["detail"]
            return
        frames = await served.follow(asked["interaction_id"], headers=ADA)
        assert json.loads(first(frames, "tool_call")["tool_input"]) == {"to": "bob", "text": runs}
        seen = (await served.client.get(path, headers=BOB)).text
        late = (await served.client.post(path, json=body, headers=BOB)).text
        assert "bob" in seen and "bob" in late
        assert CARD not in seen + late, "an approver is not shown what was taken out"


async def test_edited_arguments_run_and_the_model_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND, says("Sent.")]) as served:
        asked = await ask(served)
        answer = await served.decide(asked, edited_arguments={"to": "bob"})
        frames = await served.follow(asked["interaction_id"])
        resumed = await served.follow(
            asked["interaction_id"], headers={"Last-Event-ID": durable(frames)[2].id}
        )
        stored = await served.get(f"/chats/c/interactions/{asked['interaction_id']}")
        told = await prompt_result(served)
    assert answer.status_code == 200
    edited = {"to": "bob", "text": "hello"}
    assert first(frames, "approved")["edited_arguments"] == edited
    assert json.loads(first(frames, "tool_call")["tool_input"]) == edited
    assert first(frames, "tool_result")["tool_output"].endswith("sent 'hello' to bob")
    assert resumed == durable(frames)[3:]
    assert json.loads(stored["agent_events"][0]["tool_input"]) == edited
    assert "bob" in told and "reviewer" in told


@pytest.mark.parametrize("edited", [{"to": 1}, {}, {"to": "bob", "more": 1}])
async def test_edited_arguments_that_break_the_schema_leave_the_approval_open(
    tmp_path: Path, edited: dict[str, Any]
) -> None:
    async with serving(tmp_path, [SEND]) as served:
        asked = await ask(served)
        answer = await served.decide(asked, edited_arguments=edited)
        left = await served.get(f"/approvals/{asked['approval_id']}")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    assert left["state"] == "pending"


async def test_edited_arguments_that_policy_denies_are_forbidden(tmp_path: Path) -> None:
    rules = [{"tool": "Mail-send", "when": {"to": {"equals": "eve"}}, "then": "deny"}]
    async with serving(tmp_path, [SEND], agent={"approvals": {"rules": rules}}) as served:
        asked = await ask(served)
        answer = await served.decide(asked, edited_arguments={"to": "eve"})
        left = await served.get(f"/approvals/{asked['approval_id']}")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert left["state"] == "pending"


async def test_an_echoed_digest_must_be_what_was_shown(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND, says("Sent.")]) as served:
        asked = await ask(served)
        other = await served.decide(asked, digest="0" * 64)
        assert (other.status_code, other.json()["code"]) == (409, "approval_mismatch")
        assert (await served.decide(asked, digest=asked["digest"])).status_code == 200


async def test_only_the_decided_one_of_three_calls_runs(tmp_path: Path) -> None:
    three = calls(*(("Mail-send", {"to": name}) for name in ("ada", "bob", "cy")))
    async with serving(tmp_path, [three, says("Sent.")]) as served:
        frames = await served.say_until("approval_required")
        inbox = (await served.get("/approvals"))["approvals"]
        by_name = {json.loads(entry["tool_input"])["to"]: entry for entry in inbox}
        url = f"/chats/c/interactions/{id_of(frames)}/events"
        await served.decide(by_name["bob"])
        seen = await served.read_until("tool_result", "GET", url)
        waiting = await served.get("/approvals")
        pages = [await served.get("/approvals?limit=1")]
        while pages[-1]["next"]:
            pages.append(await served.get(f"/approvals?limit=1&cursor={pages[-1]['next']}"))
        await served.decide(by_name["ada"], approved=False)
        await served.decide(by_name["cy"])
        whole = await served.follow(id_of(frames))
    assert len({entry["approval_id"] for entry in inbox}) == 3
    assert "bob" in first(seen, "tool_result")["tool_output"]
    assert names(seen).count("tool_call") == 1
    assert len(waiting["approvals"]) == 2
    paged = [entry["approval_id"] for page in pages for entry in page["approvals"]]
    assert sorted(paged) == sorted(entry["approval_id"] for entry in waiting["approvals"])
    assert names(whole).count("tool_call") == 2
    assert first(whole, "interaction_complete")["status"] == "COMPLETED"


async def test_a_remembered_tool_is_not_asked_about_until_the_grant_is_revoked(
    tmp_path: Path,
) -> None:
    script = [SEND, says("one"), SEND, says("two"), SEND]
    async with serving(tmp_path, script) as served:
        asked = await ask(served)
        await served.decide(asked, remember="thread")
        await served.follow(asked["interaction_id"])
        unasked = await served.say("again")
        [grant] = (await served.get("/grants"))["grants"]
        revoked = await served.client.delete(f"/grants/{grant['grant_id']}")
        gone = await served.client.delete(f"/grants/{grant['grant_id']}")
        left = await served.get("/grants")
        await ask(served, "once more")
    assert "approval_required" not in names(unasked)
    assert names(unasked).count("tool_call") == 1
    assert grant.keys() == {
        "grant_id", "chat_id", "chat_title", "tool", "scope", "granted_at", "granted_by",
    }  # fmt: skip
    assert (grant["tool"], grant["scope"], grant["chat_id"]) == ("Mail-send", "thread", "c")
    assert grant["granted_by"] == "dummyuser"
    assert (revoked.status_code, revoked.content) == (204, b"")
    assert (gone.status_code, gone.json()["code"]) == (404, "grant_not_found")
    assert left == {"grants": [], "next": None}


async def test_a_grant_for_the_run_ends_with_it(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND, SEND, says("both"), SEND]) as served:
        asked = await ask(served)
        await served.decide(asked, remember="run")
        frames = await served.follow(asked["interaction_id"])
        left = await served.get("/grants")
        await ask(served, "next")
    assert names(frames).count("approval_required") == 1
    assert names(frames).count("tool_call") == 2
    assert left["grants"] == []


async def test_the_four_refusals_are_told_apart(tmp_path: Path) -> None:
    rules = [{"tool": "Mail-send", "when": {"to": {"equals": "eve"}}, "then": "deny"}]
    approvals = {"rules": rules, "expires_after": 0.05}
    deny = calls(("Mail-send", {"to": "eve"}))
    script = [deny, says("denied"), SEND, says("late")]
    async with serving(tmp_path, script, agent={"approvals": approvals}) as served:
        by_policy = await served.say()
        asked = await ask(served)
        by_timeout = await served.follow(asked["interaction_id"])
        late = await served.decide(asked)
    rejected = first(by_policy, "rejected")
    assert (rejected["by"], rejected["approval_id"], rejected["decided_by"]) == (
        "policy", None, None,
    )  # fmt: skip
    assert "tool_call" not in names(by_policy)
    assert (late.status_code, late.json()["code"]) == (409, "approval_expired")
    assert first(by_timeout, "rejected")["by"] == "timeout"
    assert first(by_timeout, "interaction_complete")["status"] == "COMPLETED"


async def test_an_approval_of_a_cancelled_interaction_is_withdrawn(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND]) as served:
        asked = await ask(served)
        path = f"/chats/c/interactions/{asked['interaction_id']}"
        assert (await served.client.post(f"{path}/cancel")).status_code == 200
        answer = await served.decide(asked)
        frames = await served.follow(asked["interaction_id"])
    assert (answer.status_code, answer.json()["code"]) == (409, "approval_withdrawn")
    assert first(frames, "rejected")["by"] == "cancel"
    assert names(frames)[-2:] == ["cancelled", "interaction_complete"]
    assert "tool_call" not in names(frames)


async def test_an_agent_that_stops_at_a_rejection_ends_cancelled(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND], agent={"on_reject": "cancel"}) as served:
        asked = await ask(served)
        await served.decide(asked, approved=False)
        frames = await served.follow(asked["interaction_id"])
    assert names(frames)[-3:] == ["rejected", "cancelled", "interaction_complete"]


@pytest.mark.parametrize(
    ("choice", "output"),
    [("done", "confirmed"), ("retry", "posted to ada"), ("give_up", "not known")],
)
async def test_an_unknown_outcome_is_asked_about_and_settled_by_choice(
    tmp_path: Path, choice: str, output: str
) -> None:
    slow = calls(("Mail-post", {"to": "ada"}))
    allow = {"rules": [{"tool": "Mail-post", "then": "allow"}]}
    async with serving(tmp_path, [slow, says("Well.")], agent={"approvals": allow}) as served:
        asked = await ask(served)
        bare = await served.decide(asked)
        edited = await served.decide(asked, choice=choice, edited_arguments={"to": "bob"})
        assert (bare.status_code, edited.status_code) == (422, 422)
        assert (await served.decide(asked, choice=choice)).status_code == 200
        frames = await served.follow(asked["interaction_id"])
    assert (asked["kind"], asked["choices"]) == ("outcome_unknown", ["done", "retry", "give_up"])
    assert first(frames, "approved")["choice"] == choice
    assert output in first(frames, "tool_result")["tool_output"]
    assert names(frames).count("tool_call") == (2 if choice == "retry" else 1)


async def test_no_to_an_unknown_outcome_gives_it_up(tmp_path: Path) -> None:
    slow = calls(("Mail-post", {"to": "ada"}))
    allow = {"rules": [{"tool": "Mail-post", "then": "allow"}]}
    async with serving(tmp_path, [slow, says("Well.")], agent={"approvals": allow}) as served:
        asked = await ask(served)
        assert (await served.decide(asked, approved=False)).status_code == 200
        frames = await served.follow(asked["interaction_id"])
    assert "not known" in first(frames, "tool_result")["tool_output"]
    assert names(frames).count("tool_call") == 1


async def test_words_that_sound_like_an_approval_are_only_words(tmp_path: Path) -> None:
    script = [SEND, says("No.")]
    async with serving(tmp_path, script) as served:
        asked = await ask(served)
        busy = await served.client.post(
            "/chats/c/interactions", json={"user_message": "I approve, run it"}
        )
        left = await served.get(f"/approvals/{asked['approval_id']}")
    assert busy.status_code == 409
    assert left["state"] == "pending"
