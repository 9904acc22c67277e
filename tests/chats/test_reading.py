"""Reading chats back: the seed's shape, interactions, states."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from sk_agents.engine.turns import ReasoningDelta
from sk_agents.testing.scripted_model import calls, says
from tests.chats.serving import first, id_of, serving
from tests.requirements import requirement

SEED_CHAT = {"id", "interactions", "created_at"}
OUR_CHAT = {
    "title", "agent", "status", "updated_at", "last_seq", "last_event_id", "truncated", "next",
    "pinned", "place", "tags",
}  # fmt: skip
SEED_INTERACTION = {
    "id", "status", "user_message", "agent_events", "final_agent_state", "created_at",
    "completed_at",
}  # fmt: skip
OUR_INTERACTION = {
    "agent", "items", "parent_id", "edits", "superseded", "usage", "cost", "error",
    "partial", "approvals", "steering", "stopping", "feedback",
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
