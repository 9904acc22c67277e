"""The seed's four flows, over real HTTP: plain, with approval, with cancellation, with an edit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from sk_agents.engine.turns import ReasoningDelta, TextDelta, TurnFinished
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.chats.serving import first, names, serving

SEND = calls(("Mail-send", {"to": "ada", "text": "hi"}))


async def test_an_interaction_streams_thinking_tools_and_the_answer(tmp_path: Path) -> None:
    script = [
        [ReasoningDelta("hm"), *calls(("Mail-look", {"what": "Oslo"}))],
        says("It is cold.", pieces=3),
    ]
    async with serving(tmp_path, script) as served:
        frames = await served.say("How is Oslo?")
    assert names(frames) == [
        "interaction_started",
        "thinking",
        "tool_call",
        "tool_result",
        "answer",
        "interaction_complete",
    ]
    call = first(frames, "tool_call")
    assert (call["type"], call["tool_name"]) == ("TOOL_CALL", "Mail-look")
    assert json.loads(call["tool_input"]) == {"what": "Oslo"}
    assert first(frames, "tool_result") == {
        "type": "TOOL_RESULT",
        "id": call["id"],
        "tool_name": "Mail-look",
        "tool_output": "about Oslo",
    }
    assert first(frames, "answer") == {"type": "ANSWER", "content": "It is cold."}
    assert first(frames, "interaction_complete")["status"] == "COMPLETED"
    deltas = [frame.data["content"] for frame in frames if frame.name == "answer_delta"]
    assert "".join(deltas) == "It is cold."


async def test_the_stream_waits_for_an_approval_and_goes_on_after_it(tmp_path: Path) -> None:
    async with serving(tmp_path, [SEND, says("Sent.")]) as served:
        seen = []
        body = {"user_message": "write to ada"}
        async with served.stream("POST", "/chats/c/interactions", json=body) as frames:
            async for frame in frames:
                seen.append(frame)
                if frame.name == "approval_required":
                    interaction = first(seen, "interaction_started")["interaction_id"]
                    answer = await served.client.post(
                        f"/chats/c/interactions/{interaction}/approve",
                        json={"approval_id": frame.data["approval_id"], "approved": True},
                    )
    assert names(seen) == [
        "interaction_started",
        "approval_required",
        "approved",
        "tool_call",
        "tool_result",
        "answer",
        "interaction_complete",
    ]
    approval_id = first(seen, "approval_required")["approval_id"]
    assert answer.status_code == 200
    assert answer.json() == {"status": "processed", "approval_id": approval_id, "approved": True}


async def test_a_cancelled_interaction_says_so_and_ends(tmp_path: Path) -> None:
    held = asyncio.Event()
    async with serving(tmp_path, [[TextDelta("so "), held, TurnFinished()]]) as served:
        seen = []
        body = {"user_message": "talk"}
        async with served.stream("POST", "/chats/c/interactions", json=body) as frames:
            async for frame in frames:
                seen.append(frame)
                if frame.name == "answer_delta":
                    interaction = first(seen, "interaction_started")["interaction_id"]
                    answer = await served.client.post(f"/chats/c/interactions/{interaction}/cancel")
    assert answer.json() == {
        "status": "cancelling",
        "interaction_id": interaction,
        "message": "Interaction will stop at next checkpoint",
    }
    assert names(seen) == ["interaction_started", "cancelled", "interaction_complete"]
    assert first(seen, "interaction_complete")["status"] == "CANCELLED"


async def test_an_edit_answers_anew_from_the_state_before_it(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("one"), says("two"), says("three")]) as served:
        await served.say("first")
        second = first(await served.say("second"), "interaction_started")["interaction_id"]
        edited = await served.read(
            "POST", f"/chats/c/interactions/{second}/edit", json={"new_user_message": "other"}
        )
        chat = (await served.client.get("/chats/c")).json()
        whole = (await served.client.get("/chats/c?include=superseded")).json()
    assert names(edited) == ["interaction_started", "answer", "interaction_complete"]
    assert [entry["user_message"] for entry in chat["interactions"]] == ["first", "other"]
    assert [entry["superseded"] for entry in whole["interactions"]] == [False, True, False]
    sent = [message["content"] for message in served.model.requests[-1]["messages"]]
    assert sent == ["You help.", "first", "one", "other"]


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_answer_that_was_cut_says_so_live_and_later(tmp_path: Path, reason: str) -> None:
    script: list[Turn] = [[TextDelta("Half of"), TurnFinished(reason)], says("Whole.")]
    async with serving(tmp_path, script) as served:
        frames = await served.say("one")
        whole = await served.say("two")
        chat = await served.get("/chats/c")
    assert first(frames, "answer") == {
        "type": "ANSWER",
        "content": "Half of",
        "finish_reason": reason,
    }
    assert "finish_reason" not in first(whole, "answer")
    kept = [entry["agent_events"][-1] for entry in chat["interactions"]]
    assert [event.get("finish_reason") for event in kept] == [reason, None]
