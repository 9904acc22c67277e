"""Reading chats back: the seed's shape, interactions, states, and chats too long for one answer."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from sk_agents.engine.commits import Absent, Commit, Unchanged
from sk_agents.engine.events import Answered, Event, RunEnded, RunQueued, RunStarted
from sk_agents.engine.models import NewThread, Part, RunStatus, UserInput
from sk_agents.engine.turns import ReasoningDelta
from sk_agents.interactions import chat_thread_id
from sk_agents.persistence.store_factory import open_store
from sk_agents.testing.scripted_model import calls, says
from tests.chats.serving import Served, first, id_of, serving
from tests.requirements import requirement

SEED_CHAT = {"id", "interactions", "created_at"}
OUR_CHAT = {"title", "agent", "status", "updated_at", "last_seq", "truncated", "next"}
SEED_INTERACTION = {
    "id", "status", "user_message", "agent_events", "final_agent_state", "created_at",
    "completed_at",
}  # fmt: skip
OUR_INTERACTION = {
    "agent", "items", "parent_id", "edits", "superseded", "usage", "error", "partial",
    "approvals",
}  # fmt: skip


@requirement(
    "S004-3.4-get-chat", "S004-3.4-shape", "S004-2.1-chat", "S004-2.1-interaction",
    "S004-2.1-agent-state", "S004-2.1-times", "S004-3.1-final-state",
)  # fmt: skip
async def test_a_chat_has_the_seeds_fields_and_only_ours_beside_them(tmp_path: Path) -> None:
    look = [ReasoningDelta("hm"), *calls(("Mail-look", {"what": "Oslo"}))]
    async with serving(tmp_path, [look, says("Cold."), says("Bye.")]) as served:
        frames = await served.say("How is Oslo?", chat="chat_123")
        await served.say("Thanks", chat="chat_123")
        chat = await served.get("/chats/chat_123")
        alone = await served.get(f"/chats/chat_123/interactions/{id_of(frames)}")
    assert chat.keys() == SEED_CHAT | OUR_CHAT
    assert (chat["id"], chat["title"], chat["status"]) == ("chat_123", "How is Oslo?", "COMPLETED")
    assert (chat["truncated"], chat["next"]) == (False, None)
    one, two = chat["interactions"]
    assert alone == one
    for entry in (one, two):
        assert entry.keys() == SEED_INTERACTION | OUR_INTERACTION
        for time in (entry["created_at"], entry["completed_at"], chat["created_at"]):
            assert datetime.fromisoformat(time).utcoffset() == timedelta(0)
    assert [(entry["user_message"], entry["status"]) for entry in (one, two)] == [
        ("How is Oslo?", "COMPLETED"),
        ("Thanks", "COMPLETED"),
    ]
    call = first(frames, "tool_call")
    assert one["agent_events"] == [
        first(frames, "thinking"), call, first(frames, "tool_result"), first(frames, "answer"),
    ]  # fmt: skip
    said = [
        {"role": "user", "content": "How is Oslo?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": "Mail-look", "arguments": '{"what": "Oslo"}'},
                }
            ],
        },
        {"role": "tool", "content": "about Oslo", "tool_call_id": call["id"]},
        {"role": "assistant", "content": "Cold."},
    ]
    assert one["final_agent_state"] == {"messages": said}
    assert two["final_agent_state"]["messages"][4:] == [
        {"role": "user", "content": "Thanks"},
        {"role": "assistant", "content": "Bye."},
    ]
    assert (two["parent_id"], one["parent_id"]) == (one["id"], None)


@requirement("S004-3.4-unknown")
async def test_what_is_not_there_is_404(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x")]) as served:
        await served.say()
        for path in ("", "/events", "/branches", "/export", "/interactions/int_1"):
            answer = await served.client.get(f"/chats/nowhere{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "thread_not_found")
            assert answer.headers["content-type"] == "application/problem+json"
        for path in ("", "/events"):
            answer = await served.client.get(f"/chats/c/interactions/int_1{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "run_not_found")


async def test_states_are_left_out_on_request(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x")]) as served:
        await served.say()
        [entry] = (await served.get("/chats/c?state=false"))["interactions"]
    assert (entry["status"], entry["final_agent_state"]) == ("COMPLETED", None)


def turn(number: int, parent: int | None) -> list[Event]:
    run_id = f"int_{number}"
    message = UserInput(parts=(Part(content=f"message {number}"),))
    follows = f"int_{parent}" if parent is not None else None
    return [
        RunStarted(run_id=run_id, message=message, parent_run=follows),
        Answered(run_id=run_id, content=f"answer {number}"),
        RunEnded(run_id=run_id, status=RunStatus.COMPLETED),
    ]


async def fill(folder: Path, events: list[Event]) -> None:
    """Write chat `c` as a long use of the server would have left it."""
    thread_id = chat_thread_id("dummyuser", "c")
    new = NewThread("dummyuser", wire_id="c", surface="chats", agent="helper")
    async with open_store(f"sqlite:///{folder}/chats.sqlite") as store:
        for start in range(0, len(events), 3000):
            guard = Unchanged(start + 1) if start else Absent(new)
            part = tuple(events[start : start + 3000])
            await store.commit(Commit(thread_id, f"fill {start}", guard, part))


async def pages_of(served: Served, query: str = "") -> list[list[str]]:
    pages, before = [], ""
    while True:
        page = await served.get(f"/chats/c?{query}{before}")
        pages.append([entry["user_message"] for entry in page["interactions"]])
        assert page["truncated"] is (page["next"] is not None)
        if page["next"] is None:
            return pages
        before = f"&before={page['next']}"


@requirement("S004-11.3-long-interactions")
async def test_a_long_chat_comes_in_parts_newest_first_and_says_so(tmp_path: Path) -> None:
    events = [event for n in range(3400) for event in turn(n, n - 1 if n else None)]
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
    events = [event for n in range(3400) for event in turn(n, n - 1 if n else None)]
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


async def test_many_states_come_in_parts_too(tmp_path: Path) -> None:
    await fill(tmp_path, [event for n in range(300) for event in turn(n, n - 1 if n else None)])
    async with serving(tmp_path) as served:
        pages = await pages_of(served)
        [without] = await pages_of(served, "state=false")
        odd = await served.client.get("/chats/c?before=x")
    assert len(pages) > 1
    together = [message for page in reversed(pages) for message in page]
    assert together == without == [f"message {n}" for n in range(300)]
    assert (odd.status_code, odd.json()["code"]) == (400, "malformed_request")
