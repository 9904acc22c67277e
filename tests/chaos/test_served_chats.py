"""A served chat whose server is killed: what was acknowledged is there, and it goes on."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from httpx_sse import ServerSentEvent

from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.chaos.scale import trials
from tests.chaos.server_process import Server
from tests.chats.serving import write_agent
from tests.patience import seconds

KILLS = trials(full=100, small=5)
# How long a process may take to leave, and more than enough for a busy machine.
LEAVE_SECONDS = seconds(20)


@asynccontextmanager
async def server(folder: Path, script: Sequence[Turn]) -> AsyncIterator[Server]:
    async with ScriptedModelServer(script) as model:
        served = Server(folder, write_agent(folder / "helper", model.base_url))
        await served.start()
        try:
            yield served
        finally:
            await served.close()


@pytest.mark.timeout(seconds(1800))
async def test_an_announced_message_survives_kill_9_on_the_very_byte(tmp_path: Path) -> None:
    async with server(tmp_path, [says("ok")] * (4 * KILLS)) as served:
        for trial in range(KILLS):
            text = f"hello {trial} é 🧭 \u2028"
            body = json.dumps({"user_message": text}, ensure_ascii=False).encode()
            seen = await served.say_and_die(f"chat_{trial}", body)
            found = re.search(rb'"interaction_id":"(int_\w+)"', seen)
            assert found is not None
            await served.restart()
            [kept] = (await served.get(f"/chats/chat_{trial}"))["interactions"]
            assert (kept["id"], kept["user_message"]) == (found[1].decode(), text)
        path = f"/chats/chat_{KILLS - 1}/interactions/{kept['id']}/events"
        async with served.stream("GET", path) as events:
            names = [event.event async for event in events]
    assert names[0] == "interaction_started" and names[-1] == "interaction_complete"


async def read_until(events: AsyncIterator[ServerSentEvent], name: str) -> list[ServerSentEvent]:
    seen = []
    async for event in events:
        seen.append(event)
        if event.event == name:
            return seen
    raise AssertionError(f"no {name} in {[event.event for event in seen]}")


def interaction_of(seen: list[ServerSentEvent]) -> str:
    interaction: str = seen[0].json()["interaction_id"]
    return interaction


async def test_an_answer_cut_by_kill_9_is_given_whole_to_who_resumes(tmp_path: Path) -> None:
    cut: Turn = [TextDelta("It was a "), asyncio.Event(), TurnFinished()]
    async with server(tmp_path, [cut, says("It was a long story.", pieces=4)]) as served:
        body = {"user_message": "tell me"}
        async with served.stream("POST", "/chats/c/interactions", json=body) as events:
            seen = await read_until(events, "answer_delta")
            served.kill()
            with pytest.raises(Exception, match="peer closed|incomplete"):
                await read_until(events, "answer")
        await served.restart()
        path = f"/chats/c/interactions/{interaction_of(seen)}/events"
        async with served.stream("GET", path, headers={"Last-Event-ID": seen[0].id}) as events:
            rest = [event async for event in events]
    durable = [event for event in rest if event.event in ("answer", "interaction_complete")]
    assert [event.event for event in durable] == ["answer", "interaction_complete"]
    assert durable[0].json()["content"] == "It was a long story."
    assert durable[1].json()["status"] == "COMPLETED"


async def test_an_approval_outlives_kill_9_and_continues_the_run(tmp_path: Path) -> None:
    send = calls(("Mail-send", {"to": "ada"}))
    async with server(tmp_path, [send, says("Sent.")]) as served:
        body = {"user_message": "write"}
        async with served.stream("POST", "/chats/c/interactions", json=body) as events:
            seen = await read_until(events, "approval_required")
            served.kill()
        asked = seen[-1].json()
        await served.restart()
        [waiting] = (await served.get("/approvals"))["approvals"]
        path = f"/chats/c/interactions/{asked['interaction_id']}"
        yes = {"approval_id": asked["approval_id"], "approved": True, "digest": asked["digest"]}
        answer = await served.client.post(f"{served.url}{path}/approve", json=yes)
        async with served.stream("GET", f"{path}/events", headers={"Last-Event-ID": seen[-1].id}
        ) as events:  # fmt: skip
            names = [event.event async for event in events if not event.event.endswith("delta")]
    assert {key: waiting[key] for key in asked} == asked
    assert answer.status_code == 200
    assert names == ["approved", "tool_call", "tool_result", "answer", "interaction_complete"]


async def test_sigterm_ends_open_streams_with_where_to_resume(tmp_path: Path) -> None:
    held: Turn = [TextDelta("It was a "), asyncio.Event(), TurnFinished()]
    async with server(tmp_path, [held, says("It was short.")]) as served:
        body = {"user_message": "tell me"}
        async with (
            served.stream("POST", "/chats/c/interactions", json=body) as mine,
        ):
            seen = await read_until(mine, "answer_delta")
            async with served.stream("GET", "/chats/c/events") as chat:
                served.terminate()
                seen += [event async for event in mine]
                watched = [event async for event in chat]
        async with asyncio.timeout(LEAVE_SECONDS):
            assert await served.ended() == 0
        path = f"/chats/c/interactions/{interaction_of(seen)}/events"
        assert seen[-1].event == "stream_end"
        assert seen[-1].json() == {"reason": "shutting_down", "resume_url": path}
        assert seen[-1].retry
        assert "interaction_complete" not in [event.event for event in seen]
        assert watched[-1].json() == {"reason": "shutting_down", "resume_url": "/chats/c/events"}
        await served.start()
        async with served.stream("GET", path) as events:
            rest = [event async for event in events]
    assert rest[-1].event == "interaction_complete"
    assert rest[-1].json()["status"] == "COMPLETED"


async def test_a_server_whose_store_breaks_sends_its_readers_elsewhere_and_ends(
    tmp_path: Path,
) -> None:
    """The second commit of the turn, which holds the answer, finds the store broken."""
    async with server(tmp_path, [says("said in vain"), says("kept")]) as served:
        served.environment["TEAL_FAILPOINT"] = "committing:break:2"
        await served.stop()
        await served.start()
        body = {"user_message": "hello", "on_disconnect": "continue"}
        async with served.stream("POST", "/chats/c/interactions", json=body) as events:
            seen = await read_until(events, "stream_end")
        end = seen[-1].json()
        assert end["reason"] == "shutting_down"
        assert end["resume_url"].endswith(f"{interaction_of(seen)}/events")
        assert await served.ended() == 74
        del served.environment["TEAL_FAILPOINT"]
        await served.start()
        async with served.stream("GET", end["resume_url"]) as events:
            seen = await read_until(events, "interaction_complete")
        [answer] = [event.json() for event in seen if event.event == "answer"]
        assert answer["content"] == "kept"
