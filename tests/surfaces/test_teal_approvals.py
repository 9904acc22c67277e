"""Tool calls that wait for a person, over REST and SSE."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.models import Usage
from sk_agents.engine.turns import TextDelta
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.requirements import requirement
from tests.surfaces.teal_server import (
    FREE_CLOCK,
    Json,
    P,
    Script,
    Server,
    eventually,
    message,
    place,
    server,
    serving,
)

BOB: tuple[str, Json] = ("Mail-send", {"to": "bob"})
EVE: tuple[str, Json] = ("Mail-send", {"to": "eve"})
CLOCK: tuple[str, Json] = ("Clock-now", {})
GOING_ON = f"on_reject: continue\n    {FREE_CLOCK}"


def spent(prompt: int, completion: int) -> Usage:
    return Usage(prompt_tokens=prompt, completion_tokens=completion)


def mail(*more: tuple[str, Json]) -> list[Turn]:
    """Asks to write to Bob, and for what else is named, then says so."""
    return [calls(BOB, *more, usage=spent(5, 2)), says("done", usage=spent(7, 3))]


async def status(at: Server, task_id: str) -> str | None:
    stored = await at.place.stored(task_id)
    return stored.status if stored else None


@requirement(
    "S002-response-approval-request",
    "S000-responses-ids",
)
async def test_paused_reply_shows_the_calls_as_they_would_run(tmp_path: Path) -> None:
    async with server(tmp_path, mail()) as at:
        reply = await at.ask("write to bob")
        assert reply["status"] == "Paused"
        content = reply["content"]
        assert all(reply[name] == value for name, value in content.items())
        ids = {key: reply[key] for key in ("session_id", "task_id", "request_id")}
        assert content["message"] == "Human intervention required."
        base = f"{P}/resume/{ids['request_id']}?action="
        assert content["approval_url"].startswith(f"{base}approve&pause=")
        assert content["rejection_url"].startswith(f"{base}reject&pause=")
        [call] = content["tool_calls"]
        assert call["id"] and call["approval_id"] and call["digest"]
        assert json.loads(call["arguments"]) == {"to": "bob", "text": "hi"}
        assert {k: call[k] for k in ("name", "plugin_name", "function_name", "content_type")} == {
            "name": "Mail-send",
            "plugin_name": "Mail",
            "function_name": "send",
            "content_type": "function_call",
        }
        assert at.place.sent == []
        await eventually(lambda: status(at, ids["task_id"]), "Paused")
        assert (await at.get(f"{P}/tasks/{ids['task_id']}")).json()["status"] == "Paused"


@requirement("S002-response-resume", "S002-response-fields")
async def test_approval_url_works_as_given_and_usage_and_extra_data_cover_all_rounds(
    tmp_path: Path,
) -> None:
    async with server(tmp_path, mail(CLOCK)) as at:
        paused = await at.ask("write to bob")
        done = await at.post(paused["approval_url"])
        assert done.status_code == 200
        reply = done.json()
        assert reply["status"] == "Completed"
        assert reply["content"] == {
            "session_id": paused["session_id"],
            "task_id": paused["task_id"],
            "request_id": paused["request_id"],
            "output": "done",
            "source": "Helper:0.1",
            "token_usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17},
            "extra_data": {
                "items": [{"key": "sent_to", "value": "bob"}, {"key": "zone", "value": "UTC"}]
            },
        }
        assert all(reply[name] == value for name, value in reply["content"].items())
        assert at.place.sent == ["bob hi Bearer alice"]


@requirement("S002-paused-authorization")
async def test_plugin_gets_the_header_of_who_decides_and_no_header_is_stored(
    tmp_path: Path,
) -> None:
    async with server(tmp_path, mail()) as at:
        paused = await at.ask()
        assert (await at.post(paused["approval_url"], user="  alice")).status_code == 200
        assert at.place.sent == ["bob hi Bearer   alice"]
        assert b"Bearer" not in at.place.kept
        assert b"bob" in at.place.kept


async def test_rejection_url_ends_the_request_and_cancels_the_task(tmp_path: Path) -> None:
    async with server(tmp_path, mail(EVE)) as at:
        paused = await at.ask("write to bob")
        done = await at.post(paused["rejection_url"])
        assert done.status_code == 200
        assert done.json() == {
            "session_id": paused["session_id"],
            "task_id": paused["task_id"],
            "request_id": paused["request_id"],
            "message": "Tool execution rejected.",
        }
        assert await status(at, paused["task_id"]) == "Canceled"
        assert at.place.sent == []
        assert len(at.prompts) == 1


@requirement("S000-task-follow-on")
async def test_rejected_task_takes_a_follow_on(tmp_path: Path) -> None:
    async with server(tmp_path, [calls(BOB), says("fine")]) as at:
        paused = await at.ask("write to bob")
        busy = await at.post(P, message("hm", task_id=paused["task_id"]))
        assert (busy.status_code, busy.json()["code"]) == (409, "thread_busy")
        await at.post(paused["rejection_url"])
        assert (await at.ask("then not", task_id=paused["task_id"]))["output"] == "fine"


@pytest.mark.parametrize("prefix", [P, f"{P}/tealagents/v1alpha1"])
async def test_action_in_the_body_does_the_same_under_both_paths(
    tmp_path: Path, prefix: str
) -> None:
    async with server(tmp_path, mail()) as at:
        paused = await at.ask()
        path = f"{prefix}/resume/{paused['request_id']}"
        assert (await at.post(path, {"action": "approve"})).json()["output"] == "done"
        assert at.place.sent == ["bob hi Bearer alice"]


@requirement("S002-response-paused-stream")
async def test_paused_stream_ends_with_the_question_and_the_resumed_one_tells_the_rest(
    tmp_path: Path,
) -> None:
    async with server(tmp_path, mail(CLOCK)) as at:
        events = await at.events(body=message("write"))
        assert events[-1][0] == "hitl-response"
        question = events[-1][1]
        path, _, query = question["approval_url"].partition("?")
        rest = await at.events(f"{path}/sse?{query}")
        assert [name for name, _ in rest] == ["partial-response", "final-response"]
        assert rest[0][1]["output_partial"] == rest[1][1]["output"] == "done"
        assert rest[1][1]["token_usage"]["total_tokens"] == 17
        for _, data in (*events, *rest):
            assert (data["session_id"], data["task_id"], data["request_id"]) == (
                question["session_id"],
                question["task_id"],
                question["request_id"],
            )


async def test_rejected_stream_ends_with_the_rejection(tmp_path: Path) -> None:
    async with server(tmp_path, mail()) as at:
        paused = await at.ask()
        path = f"{P}/resume/{paused['request_id']}/sse"
        [(name, data)] = await at.events(path, {"action": "reject"})
        assert (name, data["message"]) == ("final-response", "Tool execution rejected.")


@requirement("S000-request-idempotency-execution")
async def test_pause_survives_a_restart_and_its_tool_runs_once(tmp_path: Path) -> None:
    async with place(tmp_path, mail()) as at:
        async with serving(at) as before:
            paused = await before.ask("write to bob")
        async with serving(at) as after:
            assert (await after.get(f"{P}/requests/{paused['request_id']}")).json()[
                "tool_calls"
            ] == paused["tool_calls"]
            resumes = await asyncio.gather(*(after.post(paused["approval_url"]) for _ in range(8)))
            statuses = sorted(response.status_code for response in resumes)
            assert statuses == [200] + [409] * 7
            assert at.sent == ["bob hi Bearer alice"]


async def test_second_resume_is_409_with_the_recorded_decision(tmp_path: Path) -> None:
    async with server(tmp_path, mail()) as at:
        paused = await at.ask()
        await at.post(paused["approval_url"])
        again = await at.post(paused["rejection_url"])
        assert again.status_code == 409
        body = again.json()
        assert body["code"] == "approval_already_processed"
        [decision] = body["decisions"]
        assert (decision["outcome"], decision["decided_by"]) == ("approved", "alice")
        assert decision["tool_call_id"] == paused["tool_calls"][0]["id"]
        assert body["request_id"] == paused["request_id"]


async def test_resume_sent_again_with_its_key_gets_the_reply_again(tmp_path: Path) -> None:
    async with server(tmp_path, mail()) as at:
        paused = await at.ask()
        first = await at.post(paused["approval_url"], Idempotency_Key="k")
        again = await at.post(paused["approval_url"], Idempotency_Key="k")
        assert (first.status_code, again.status_code) == (200, 200)
        assert first.json() == again.json()
        assert len(at.place.sent) == 1


@requirement("S002-approval-foreign-user")
async def test_another_user_can_neither_see_nor_decide(tmp_path: Path) -> None:
    async with server(tmp_path, mail()) as at:
        paused = await at.ask()
        for path in (paused["approval_url"], f"{P}/resume/{paused['request_id']}/sse"):
            response = await at.post(path, {"action": "approve"}, "mallory")
            assert response.status_code == 401
            assert response.headers["WWW-Authenticate"] == "Bearer"
        seen = await at.get(f"{P}/requests/{paused['request_id']}", "mallory")
        assert seen.status_code == 401
        assert "Mail" not in seen.text
        assert at.place.sent == []
        assert (await at.post(paused["approval_url"])).status_code == 200


@requirement("S000-request-hitl-target")
async def test_resume_acts_on_its_own_request_only(tmp_path: Path) -> None:
    async with server(tmp_path, [calls(BOB), calls(EVE), says("done")]) as at:
        first, second = await at.ask(), await at.ask()
        crossed = {"decisions": [_decision(second["tool_calls"][0])]}
        response = await at.post(f"{P}/resume/{first['request_id']}", crossed)
        assert response.status_code == 404
        assert (await at.post(second["approval_url"])).json()["output"] == "done"
        assert at.place.sent == ["eve hi Bearer alice"]
        waiting = await at.get(f"{P}/requests/{first['request_id']}")
        assert waiting.json()["status"] == "Paused"


def _decision(call: Json, action: str = "approve", **fields: Any) -> Json:
    return {"tool_call_id": call["id"], "action": action, **fields}


async def test_decision_for_one_of_several_runs_it_and_the_others_wait(tmp_path: Path) -> None:
    async with server(tmp_path, mail(EVE)) as at:
        paused = await at.ask()
        bob, eve = paused["tool_calls"]
        path = f"{P}/resume/{paused['request_id']}"
        still = (await at.post(path, {"decisions": [_decision(eve)]})).json()
        assert still["status"] == "Paused"
        assert [call["id"] for call in still["tool_calls"]] == [bob["id"]]
        assert at.place.sent == ["eve hi Bearer alice"]
        again = await at.post(path, {"decisions": [_decision(eve)]})
        assert again.status_code == 409
        # What was shown first still holds for what is left of it.
        assert (await at.post(paused["approval_url"])).json()["status"] == "Completed"
        assert len(at.place.sent) == 2


async def test_reviewer_edits_arguments_and_the_model_is_told(tmp_path: Path) -> None:
    async with server(tmp_path, mail()) as at:
        paused = await at.ask()
        [call] = paused["tool_calls"]
        path = f"{P}/resume/{paused['request_id']}"
        wrong = {"decisions": [_decision(call, edited_arguments={"to": 7})]}
        assert (await at.post(path, wrong)).status_code == 422
        edit = {"to": "carol", "text": "hello"}
        right = {"decisions": [_decision(call, edited_arguments=edit)]}
        assert (await at.post(path, right)).json()["status"] == "Completed"
        assert at.place.sent == ["carol hello Bearer alice"]
        assert "reviewer changed" in at.prompts[1][-1]["content"]


async def test_agent_that_goes_on_is_told_who_refused_and_why(tmp_path: Path) -> None:
    async with server(tmp_path, mail(), more=GOING_ON) as at:
        paused = await at.ask()
        refused = _decision(paused["tool_calls"][0], "reject", message="not today")
        path = f"{P}/resume/{paused['request_id']}"
        reply = (await at.post(path, {"decisions": [refused]})).json()
        assert (reply["status"], reply["output"]) == ("Completed", "done")
        assert at.prompts[1][-1]["content"] == "Rejected by alice: not today. It did not run."
        assert at.place.sent == []


async def test_stopping_after_a_refusal_is_no_rejection(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script: Script = [calls(BOB), [TextDelta("Well"), gate]]
    async with server(tmp_path, script, more=GOING_ON) as at:
        paused = await at.ask()
        resuming = asyncio.ensure_future(at.post(paused["rejection_url"]))

        async def asked() -> int:
            return len(at.prompts)

        await eventually(asked, 2)
        canceled = (await at.post(f"{P}/requests/{paused['request_id']}/cancel")).json()
        assert canceled["status"] == "Canceled"
        assert "message" not in canceled
        assert (await resuming).json() == canceled


async def test_refusal_beside_an_approval_keeps_both_from_running(tmp_path: Path) -> None:
    async with server(tmp_path, mail(EVE)) as at:
        paused = await at.ask()
        bob, eve = paused["tool_calls"]
        path = f"{P}/resume/{paused['request_id']}"
        both = {"decisions": [_decision(bob), _decision(eve, "reject")]}
        assert (await at.post(path, both)).json()["message"] == "Tool execution rejected."
        assert at.place.sent == []


async def test_request_that_pauses_twice_must_be_told_which_pause_is_meant(tmp_path: Path) -> None:
    async with server(tmp_path, [calls(BOB), calls(EVE), says("done")]) as at:
        first = await at.ask()
        second = (await at.post(first["approval_url"])).json()
        assert (second["status"], second["request_id"]) == ("Paused", first["request_id"])
        assert second["approval_url"] != first["approval_url"]
        path = f"{P}/resume/{first['request_id']}"
        unclear = await at.post(path, {"action": "approve"})
        assert (unclear.status_code, unclear.json()["code"]) == (409, "pause_required")
        stale = await at.post(first["approval_url"])
        assert (stale.status_code, stale.json()["code"]) == (409, "approval_mismatch")
        assert stale.json()["decisions"][0]["outcome"] == "approved"
        assert len(at.place.sent) == 1
        pause = int(second["approval_url"].rpartition("=")[2])
        assert (await at.post(path, {"action": "approve", "pause": pause})).json()["output"] == (
            "done"
        )
        assert at.place.sent == ["bob hi Bearer alice", "eve hi Bearer alice"]


async def test_stale_key_does_not_decide_a_later_pause(tmp_path: Path) -> None:
    async with server(tmp_path, [calls(BOB), calls(EVE), says("done")]) as at:
        first = await at.ask()
        path = f"{P}/resume/{first['request_id']}"
        body = {"action": "approve"}
        second = await at.post(path, body, Idempotency_Key="k")
        again = await at.post(path, body, Idempotency_Key="k")
        assert second.json() == again.json()
        assert again.json()["status"] == "Paused"
        assert at.place.sent == ["bob hi Bearer alice"]


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"action": "maybe"},
        {"action": "approve", "decisions": [{"tool_call_id": "x", "action": "approve"}]},
        {"decisions": []},
        {"decisions": [{"tool_call_id": "x", "action": "approve"}] * 2},
        {"decisions": [{"tool_call_id": "x", "action": "reject", "edited_arguments": {}}]},
        {"action": "approve", "approved": True},
        {"action": "approve", "pause": "soon"},
        [],
    ],
)
async def test_resume_that_makes_no_sense_is_422_and_decides_nothing(
    tmp_path: Path, body: Any
) -> None:
    async with server(tmp_path, mail()) as at:
        paused = await at.ask()
        response = await at.post(f"{P}/resume/{paused['request_id']}", body)
        assert response.status_code == 422
        assert (await at.post(paused["approval_url"])).status_code == 200


@pytest.mark.parametrize(
    "query", ["?action=perhaps", "?action=approve&pause=x", "?action=approve&pause=-1"]
)
async def test_address_that_makes_no_sense_is_422(tmp_path: Path, query: str) -> None:
    async with server(tmp_path, mail()) as at:
        paused = await at.ask()
        response = await at.post(f"{P}/resume/{paused['request_id']}{query}")
        assert response.status_code == 422


async def test_body_that_contradicts_the_address_is_422(tmp_path: Path) -> None:
    async with server(tmp_path, mail()) as at:
        paused = await at.ask()
        for body in ({"action": "reject"}, {"pause": 99}, {"decisions": [_decision({"id": "x"})]}):
            assert (await at.post(paused["approval_url"], body)).status_code == 422


async def test_resume_of_what_never_paused_is_409(tmp_path: Path) -> None:
    async with server(tmp_path, [says("hi")]) as at:
        reply = await at.ask()
        response = await at.post(f"{P}/resume/{reply['request_id']}", {"action": "approve"})
        assert (response.status_code, response.json()["code"]) == (409, "conflict")
