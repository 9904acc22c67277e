"""What happened in a task, told to its client: the trace, its metadata, its end, its stream."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.persistence.tasks.view import StoreTasks
from sk_agents.ska_types import AgentTask
from sk_agents.testing.scripted_model import calls, says
from tests.requirements import requirement
from tests.surfaces.teal_server import P, message, server

PAST = datetime(2020, 1, 1, tzinfo=UTC)
EXPIRED = "3f0c9d3e-0000-4000-8000-000000000001"


@requirement("S000-task-execution-trace")
async def test_task_and_request_tell_the_steps_tools_and_results(tmp_path: Path) -> None:
    async with server(tmp_path, [calls(("Clock-now", {})), says("noon"), says("again")]) as at:
        reply = (await at.post(P, message("What time is it?"))).json()
        place = f"{P}/requests/{reply['request_id']}"
        steps = (await at.get(place)).json()["trace"]
        assert [step["kind"] for step in steps] == ["tool_call", "tool_result", "answer", "end"]
        call, result, answer, end = steps
        assert (call["tool_name"], call["arguments"]) == ("Clock-now", {})
        assert (result["tool_name"], result["outcome"], result["content"]) == (
            "Clock-now",
            "ok",
            "noon",
        )
        assert (answer["content"], end["outcome"]) == ("noon", "completed")
        await at.post(P, message("And now?", task_id=reply["task_id"]))
        task = (await at.get(f"{P}/tasks/{reply['task_id']}")).json()
        assert [step["kind"] for step in task["trace"]][4:] == ["answer", "end"]
        assert task["trace"][:4] == steps


async def test_metadata_comes_back_and_its_keys_can_be_changed(tmp_path: Path) -> None:
    async with server(tmp_path, [says("one"), says("two")]) as at:
        first = message("hello", metadata={"ticket": 7, "tags": ["a", None], "old": True})
        task_id = (await at.post(P, first)).json()["task_id"]
        place = f"{P}/tasks/{task_id}"
        assert (await at.get(place)).json()["metadata"] == first["metadata"]
        changed = message("more", task_id=task_id, metadata={"ticket": 8, "old": None})
        assert (await at.post(P, changed)).status_code == 200
        found = (await at.get(place)).json()["metadata"]
        assert found == {"ticket": 8, "tags": ["a", None]}
        large = message("hello", metadata={"x": "y" * 20_000})
        assert (await at.post(P, large)).status_code == 422


async def test_task_takes_no_message_once_it_has_expired(tmp_path: Path) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    async with server(tmp_path, [says("one"), says("two")]) as at:
        made = await at.post(P, message("hello", expires_at=later.isoformat()))
        task = (await at.get(f"{P}/tasks/{made.json()['task_id']}")).json()
        assert datetime.fromisoformat(task["expires_at"]) == later
        assert (await at.post(P, message(task_id=task["task_id"]))).status_code == 200
        times = dict.fromkeys(("created_at", "last_updated_at", "expires_at"), PAST)
        ids = {"task_id": EXPIRED, "session_id": EXPIRED, "user_id": "alice"}
        async with SqliteStore(at.place.database) as store:
            await StoreTasks(store).create(AgentTask.model_validate({**ids, **times, "items": []}))
        late = await at.post(P, message(task_id=EXPIRED))
        assert (late.status_code, "expired" in late.json()["detail"]) == (409, True)
        past = message(expires_at=PAST.isoformat())
        assert (await at.post(P, past)).status_code == 422


async def test_stream_of_a_request_can_be_read_again(tmp_path: Path) -> None:
    async with server(tmp_path, [says("The whole answer.", pieces=3)]) as at:
        reply = (await at.post(P, message("hello"))).json()
        for place in (f"requests/{reply['request_id']}", f"tasks/{reply['task_id']}"):
            again = await at.get(f"{P}/{place}/sse")
            assert again.headers["Content-Type"].startswith("text/event-stream")
            assert "event: final-response" in again.text
            assert "The whole answer." in again.text
        missing = await at.get(f"{P}/tasks/{reply['request_id']}/sse")
        assert missing.status_code == 404
