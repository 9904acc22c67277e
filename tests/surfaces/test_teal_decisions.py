"""A resume that decides several calls: all of them in one commit, or none."""

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from sk_agents.engine.events import ApprovalDecided
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.surfaces.teal_server import FREE_CLOCK, Json, P, Server, place, server, serving

PEOPLE = ("ann", "bob", "cat")
SCRIPT: list[Turn] = [calls(*(("Mail-send", {"to": to}) for to in PEOPLE)), says("done")]
GOING_ON = f"on_reject: continue\n    {FREE_CLOCK}"


def decision(call: Json, action: str = "approve", **fields: Any) -> Json:
    return {"tool_call_id": call["id"], "action": action, **fields}


def path_of(paused: Json) -> str:
    return f"{P}/resume/{paused['request_id']}"


def deciding_commits(folder: Path) -> int:
    with closing(apsw.Connection(str(folder / "teal.sqlite"))) as db:
        bodies = [bytes(body) for (body,) in db.execute("SELECT CAST(body AS BLOB) FROM record")]
    return sum(b"approval_decided" in body for body in bodies)


async def decided(at: Server, task_id: str) -> list[ApprovalDecided]:
    async with SqliteStore(at.place.database) as store:
        events = await store.events_after(task_id, 0, 1000)
    return [event for event in events if isinstance(event, ApprovalDecided)]


@pytest.mark.parametrize("by_action", [True, False])
async def test_resume_of_three_calls_is_one_commit_and_one_event_each(
    tmp_path: Path, by_action: bool
) -> None:
    async with server(tmp_path, SCRIPT) as at:
        paused = await at.ask()
        each = {"decisions": [decision(call) for call in paused["tool_calls"]]}
        body = {"action": "approve"} if by_action else each
        reply = (await at.post(path_of(paused), body)).json()
        assert (reply["status"], reply["output"]) == ("Completed", "done")
        assert sorted(at.place.sent) == [f"{to} hi Bearer alice" for to in PEOPLE]
        events = await decided(at, paused["task_id"])
        assert [event.call_id for event in events] == [call["id"] for call in paused["tool_calls"]]
        assert deciding_commits(tmp_path) == 1


BAD: dict[str, tuple[Json, int]] = {
    "arguments that break the schema": ({"edited_arguments": {"to": 7}}, 422),
    "an argument nobody knows": ({"edited_arguments": {"to": "x", "cc": "y"}}, 422),
    "an unknown call": ({"tool_call_id": "call_of_somebody"}, 404),
    "no such action": ({"action": "perhaps"}, 422),
}


@pytest.mark.parametrize("stream", ["", "/sse"])
@pytest.mark.parametrize("bad", BAD)
async def test_one_bad_decision_among_three_decides_none(
    tmp_path: Path, bad: str, stream: str
) -> None:
    fields, status = BAD[bad]
    async with server(tmp_path, SCRIPT) as at:
        paused = await at.ask()
        ann, bob, cat = paused["tool_calls"]
        body = {"decisions": [decision(ann), decision(bob, "reject"), decision(cat) | fields]}
        assert (await at.post(f"{path_of(paused)}{stream}", body)).status_code == status
        assert await decided(at, paused["task_id"]) == []
        assert at.place.sent == []
        still = (await at.get(f"{P}/requests/{paused['request_id']}")).json()
        assert (still["status"], still["tool_calls"]) == ("Paused", paused["tool_calls"])
        assert (await at.post(paused["approval_url"])).json()["status"] == "Completed"


async def test_one_that_is_decided_already_is_409_and_decides_none_of_the_others(
    tmp_path: Path,
) -> None:
    async with server(tmp_path, SCRIPT) as at:
        paused = await at.ask()
        ann, bob, cat = paused["tool_calls"]
        await at.post(path_of(paused), {"decisions": [decision(bob)]})
        body = {"decisions": [decision(one) for one in (ann, bob, cat)]}
        response = await at.post(path_of(paused), body)
        assert (response.status_code, response.json()["code"]) == (
            409,
            "approval_already_processed",
        )
        assert [one["tool_call_id"] for one in response.json()["decisions"]] == [bob["id"]]
        assert at.place.sent == ["bob hi Bearer alice"]
        assert len(await decided(at, paused["task_id"])) == 1


async def test_mixed_decisions_are_each_acted_on(tmp_path: Path) -> None:
    async with server(tmp_path, SCRIPT, more=GOING_ON) as at:
        paused = await at.ask()
        ann, bob, cat = paused["tool_calls"]
        edited = {"to": "dan", "text": "hello"}
        body = {
            "decisions": [
                decision(cat, edited_arguments=edited),
                decision(ann, "reject", message="not her"),
                decision(bob),
            ]
        }
        assert (await at.post(path_of(paused), body)).json()["status"] == "Completed"
        assert sorted(at.place.sent) == ["bob hi Bearer alice", "dan hello Bearer alice"]
        assert deciding_commits(tmp_path) == 1


async def test_restart_after_the_decisions_finds_all_of_them(tmp_path: Path) -> None:
    async with place(tmp_path, SCRIPT) as at:
        async with serving(at) as first:
            paused = await first.ask()
            body = {"decisions": [decision(call) for call in paused["tool_calls"]]}
            reply = await first.post(path_of(paused), body, Idempotency_Key="k")
        async with serving(at) as second:
            again = await second.post(path_of(paused), body, Idempotency_Key="k")
            assert (again.status_code, again.json()) == (200, reply.json())
            assert len(at.sent) == 3


@pytest.mark.parametrize("other", [{"action": "reject"}, {"decisions": None}])
async def test_key_of_another_resume_is_422_and_decides_nothing(
    tmp_path: Path, other: Json
) -> None:
    async with server(tmp_path, SCRIPT) as at:
        paused = await at.ask()
        ann, bob, _ = paused["tool_calls"]
        first = {"decisions": [decision(ann)]}
        assert (await at.post(path_of(paused), first, Idempotency_Key="k")).status_code == 200
        body = {"decisions": [decision(bob)]} if "decisions" in other else other
        response = await at.post(path_of(paused), body, Idempotency_Key="k")
        assert (response.status_code, response.json()["code"]) == (422, "invalid_input")
        assert len(await decided(at, paused["task_id"])) == 1
