"""Chats too long to be read, or too long to be read at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import orjson
import pytest

from sk_agents.engine.events import RunQueued, RunStarted
from sk_agents.engine.models import Part, UserInput
from sk_agents.interactions import chat_thread_id
from sk_agents.testing.scripted_model import says
from tests.chats.long_chat import fill, pages_of, turn, turns
from tests.chats.serving import first, serving
from tests.cli import house
from tests.patience import seconds
from tests.requirements import requirement


@requirement("S004-11.3-long-interactions")
async def test_a_long_chat_comes_in_parts_newest_first_and_says_so(tmp_path: Path) -> None:
    events = turns(3400)
    await fill(tmp_path, events)
    async with serving(tmp_path, [says("still here")]) as served:
        newest = await served.get("/chats/c")
        pages = await pages_of(served)
        frames = await served.say("one more")
    assert newest["last_seq"] == 10_200
    assert newest["interactions"][-1]["user_message"] == "message 3399"
    assert newest["interactions"][-1]["final_agent_state"] is None
    assert len(pages) > 2
    everything = [message for page in reversed(pages) for message in page]
    assert everything == [f"message {n}" for n in range(3400)]
    assert first(frames, "answer")["content"] == "still here"


async def test_parts_of_a_long_chat_show_the_visible_branch_only(tmp_path: Path) -> None:
    """The first message was edited after 3,400 others: those are another branch."""
    events = turns(3400)
    events += turn(3400, 0) + turn(3401, 3400)
    message = UserInput(parts=(Part(content="in the middle"),))
    start, answer, end = turn(3402, 3401)
    events += [start, RunQueued(run_id="int_q", message=message), answer, end]
    events += [RunStarted(run_id="int_q", parent_run="int_3402"), *turn(3403, 3402)[1:]]
    events[-2:] = [event.model_copy(update={"run_id": "int_q"}) for event in events[-2:]]
    await fill(tmp_path, events)
    async with serving(tmp_path) as served:
        visible = await pages_of(served, "state=false")
        whole = await pages_of(served, "include=superseded")
        last = await served.get("/chats/c?include=superseded")
    shown = [message for page in reversed(visible) for message in page]
    assert shown == ["message 0", "message 3400", "message 3401", "message 3402", "in the middle"]
    assert sum(map(len, whole)) == 3404
    marks = {entry["user_message"]: entry["superseded"] for entry in last["interactions"]}
    assert (marks["message 3399"], marks["message 3400"], marks["in the middle"]) == (
        True, False, False,
    )  # fmt: skip
    assert {entry["status"] for entry in last["interactions"]} == {"COMPLETED"}


async def test_a_chat_of_500_turns_is_whole_with_all_its_states(tmp_path: Path) -> None:
    await fill(tmp_path, turns(500))
    async with serving(tmp_path) as served:
        chat = await served.get("/chats/c")
        one = await served.get("/chats/c/interactions/int_321")
        without = await served.get("/chats/c?state=false")
    assert (chat["truncated"], chat["next"], chat["last_seq"]) == (False, None, 1500)
    interactions = chat["interactions"]
    assert [entry["user_message"] for entry in interactions] == [f"message {n}" for n in range(500)]
    said = [
        message
        for n in range(500)
        for message in (
            {"role": "user", "content": f"message {n}"},
            {"role": "assistant", "content": f"answer {n}"},
        )
    ]
    for number, entry in enumerate(interactions, 1):
        assert entry["final_agent_state"] == {"messages": said[: 2 * number]}
    assert interactions[321] == one
    for entry in interactions:
        entry["final_agent_state"] = None
    assert without == chat


async def test_an_edited_chat_has_the_states_of_both_branches(tmp_path: Path) -> None:
    await fill(tmp_path, turns(3) + turn(3, 0) + turn(4, 3))
    async with serving(tmp_path) as served:
        chat = await served.get("/chats/c?include=superseded")
    states = {
        entry["id"]: [message["content"] for message in entry["final_agent_state"]["messages"][::2]]
        for entry in chat["interactions"]
    }
    assert states["int_2"] == ["message 0", "message 1", "message 2"]
    assert states["int_4"] == ["message 0", "message 3", "message 4"]


async def test_states_beyond_the_bound_come_in_parts(tmp_path: Path) -> None:
    """Fourteen answers of 2 MB make states of 2, 4, 6 ... 28 MB: 210 MB in all."""
    await fill(tmp_path, turns(14, padding=2_000_000))
    async with serving(tmp_path) as served:
        pages = await pages_of(served)
        [without] = await pages_of(served, "state=false")
        odd = await served.client.get("/chats/c?before=x")
    assert [len(page) for page in pages] == [5, 9]
    together = [message for page in reversed(pages) for message in page]
    assert together == without == [f"message {n}" for n in range(14)]
    assert (odd.status_code, odd.json()["code"]) == (400, "malformed_request")


async def test_what_runs_is_shown_as_it_was_when_the_answer_began(tmp_path: Path) -> None:
    """A reader that stops in the middle of a long chat: meanwhile the last interaction ends."""
    gate = asyncio.Event()
    await fill(tmp_path, turns(100, padding=20_000))
    async with serving(tmp_path, [[gate, *says("done")]]) as served:
        path, body = "/chats/c/interactions", {"user_message": "last"}
        async with served.client.stream("POST", path, json=body) as begun:
            frames = begun.aiter_bytes()
            await anext(frames)
            async with served.client.stream("GET", "/chats/c") as answer:
                pieces = answer.aiter_raw()
                start = await anext(pieces)
                gate.set()
                async for piece in frames:
                    if b"interaction_complete" in piece:
                        break
                rest = b"".join([piece async for piece in pieces])
        after = await served.get("/chats/c?state=false")
    chat = orjson.loads(start + rest)
    last = chat["interactions"][-1]
    assert (last["status"], last["final_agent_state"]) == ("RUNNING", None)
    assert chat["status"] == "RUNNING"
    assert chat["last_seq"] < after["last_seq"]
    assert after["interactions"][-1]["status"] == "COMPLETED"


def peak_memory(pid: int) -> int:
    """The most that the process has used, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


async def test_an_answer_of_100_mb_takes_little_memory_and_keeps_nobody_waiting(
    tmp_path: Path,
) -> None:
    await fill(tmp_path, turns(500, padding=750))
    config = house.write_agent(tmp_path / "helper")
    store = ("--store", f"sqlite:///{tmp_path}/chats.sqlite")
    with house.serving(tmp_path, str(config), *store) as served:
        async with httpx.AsyncClient(base_url=served.url, timeout=seconds(60)) as client:
            await client.get("/chats/c?state=false")
            before = peak_memory(served.process.pid)
            size = 0
            async with client.stream("GET", "/chats/c") as answer:
                async for chunk in answer.aiter_raw():
                    if size == 0:
                        # Nobody reads on: the server is free for others.
                        assert (await client.get("/health/live")).status_code == 200
                    size += len(chunk)
            grown = peak_memory(served.process.pid) - before
    assert size > 100_000_000
    assert chunk.endswith(b'"truncated":false,"next":null}')
    assert grown < 50_000_000


@pytest.mark.parametrize(("megabytes", "kept"), [(1, ["c1", "c2"]), (4, ["c0", "c1", "c2"])])
async def test_as_many_conversations_stay_in_memory_as_the_operator_gives_room(
    tmp_path: Path, megabytes: int, kept: list[str]
) -> None:
    script = [says("ok") for _ in range(4)]
    async with serving(tmp_path, script, conversation_memory_mb=megabytes) as served:
        for chat in ("c0", "c1", "c2"):
            await served.say("a" * 200_000, chat=chat)
        threads = served.app.state.engines.main.parts.services.threads
        ids = {chat: chat_thread_id("dummyuser", chat) for chat in ("c0", "c1", "c2")}
        assert [chat for chat, thread_id in ids.items() if threads.known(thread_id)] == kept
        # What was forgotten is read again.
        await served.say("and?", chat="c0")
    _, earlier, *_, last = served.model.requests[-1]["messages"]
    assert "aaa" in earlier["content"]
    assert last["content"] == "and?"
