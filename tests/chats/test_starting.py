"""`POST /chats/{chat_id}/interactions`: what is sent, in which form, and when."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest

from sk_agents.engine.models import Usage
from sk_agents.engine.turns import ReasoningDelta, TextDelta, TurnFinished
from sk_agents.exceptions import ModelError
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.chats.serving import durable, first, id_of, names, serving
from tests.requirements import requirement

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "connection": "keep-alive",
    "x-accel-buffering": "no",
}
SEED_FRAME = re.compile(rb"(?:id: [0-9]+-[0-9a-f]{8}\n)?event: [a-z_]+\ndata: (\{.*\})")


@requirement(
    "S004-3.1-start", "S004-3.1-content-type", "S004-3.1-headers", "S004-2.2-format",
    "S004-2.2-interaction-started", "S004-2.2-interaction-complete", "S004-4.1-plain-http",
    "S004-8.1-basic",
)  # fmt: skip
async def test_the_seeds_request_on_a_new_chat_is_answered_by_a_stream_in_the_seeds_form(
    tmp_path: Path,
) -> None:
    script = [says("Hi.", usage=Usage(prompt_tokens=7, completion_tokens=2))]
    async with serving(tmp_path, script) as served:
        # curl's own header and body, as the seed prints them.
        answer = await served.client.post(
            "/chats/test_chat/interactions",
            content=b'{"user_message": "Hello"}',
            headers={"Content-Type": "application/json", "Accept": "*/*"},
        )
    assert answer.status_code == 200
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    *frames, rest = answer.content.split(b"\n\n")
    assert rest == b""
    matches = [SEED_FRAME.fullmatch(frame) for frame in frames]
    payloads = [json.loads(match[1]) for match in matches if match]
    assert len(payloads) == len(frames)
    started, ended = payloads[0], payloads[-1]
    assert started.keys() == {"interaction_id", "chat_id", "status", "created_at"}
    assert (started["chat_id"], started["status"]) == ("test_chat", "RUNNING")
    assert datetime.fromisoformat(started["created_at"]).utcoffset() == timedelta(0)
    assert ended == {
        "interaction_id": started["interaction_id"],
        "status": "COMPLETED",
        "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
    }


@requirement(
    "S004-5.1-standard-flow", "S004-2.1-event-type", "S004-2.1-tool-call",
    "S004-2.1-tool-result", "S004-2.1-thinking", "S004-2.1-answer", "S004-2.2-tool-call",
    "S004-2.2-tool-result", "S004-2.2-thinking", "S004-2.2-answer", "S004-3.1-complete",
)  # fmt: skip
async def test_a_turn_with_a_tool_sends_the_seeds_events_in_the_seeds_order(
    tmp_path: Path,
) -> None:
    script = [
        [ReasoningDelta("I look it up."), *calls(("Mail-look", {"what": "Oslo"}))],
        [ReasoningDelta("It is known."), *says("Cold.")],
    ]
    async with serving(tmp_path, script) as served:
        frames = await served.say()
    call_id = first(frames, "tool_call")["id"]
    payloads = [(frame.name, frame.data) for frame in durable(frames)[1:-1]]
    tool = {"id": call_id, "tool_name": "Mail-look"}
    assert payloads == [
        ("thinking", {"type": "THINKING", "content": "I look it up."}),
        ("tool_call", {"type": "TOOL_CALL", **tool, "tool_input": '{"what": "Oslo"}'}),
        ("tool_result", {"type": "TOOL_RESULT", **tool, "tool_output": "about Oslo"}),
        ("thinking", {"type": "THINKING", "content": "It is known."}),
        ("answer", {"type": "ANSWER", "content": "Cold."}),
    ]
    assert names(frames)[0] == "interaction_started"
    assert names(frames).count("interaction_complete") == 1 and frames[-1].name.endswith("complete")
    ids = [frame.seq for frame in durable(frames)]
    assert ids == sorted(set(ids))


@requirement("S004-3.1-running", "S004-2.1-interaction-running", "S004-3.1-streaming")
async def test_the_interaction_is_stored_before_it_is_announced_and_events_come_meanwhile(
    tmp_path: Path,
) -> None:
    gate = asyncio.Event()
    script: list[Turn] = [[TextDelta("so "), gate, TextDelta("far"), TurnFinished()]]
    async with serving(tmp_path, script) as served:
        path = "/chats/c/interactions"
        async with served.stream("POST", path, json={"user_message": "hello"}) as frames:
            started = await anext(frames)
            stored = (await served.get("/chats/c"))["interactions"]
            piece = await anext(frames)
            gate.set()
            rest = [frame async for frame in frames]
    assert [entry["id"] for entry in stored] == [started.data["interaction_id"]]
    assert stored[0]["status"] == "RUNNING"
    assert (stored[0]["user_message"], stored[0]["agent_events"]) == ("hello", [])
    assert (stored[0]["final_agent_state"], stored[0]["completed_at"]) == (None, None)
    assert (piece.name, piece.data["content"], piece.id) == ("answer_delta", "so ", "")
    assert rest[-1].data["status"] == "COMPLETED"


@requirement("S004-11.1-flush")
async def test_each_piece_arrives_as_a_frame_of_its_own_before_the_next_one_is_made(
    tmp_path: Path,
) -> None:
    gates = [asyncio.Event() for _ in range(4)]
    turn = [step for number, gate in enumerate(gates) for step in (TextDelta(f"{number}"), gate)]
    async with serving(tmp_path, [[*turn, TurnFinished()]]) as served:
        body = {"user_message": "count"}
        async with served.stream("POST", "/chats/c/interactions", json=body) as frames:
            await anext(frames)
            for number, gate in enumerate(gates):
                piece = await anext(frames)
                assert (piece.data["content"], piece.data["offset"]) == (f"{number}", number)
                assert piece.data.keys() == {
                    "interaction_id", "round", "attempt", "offset", "content",
                }  # fmt: skip
                gate.set()
            assert [frame.name async for frame in frames] == ["answer", "interaction_complete"]


async def test_reasoning_is_previewed_as_thinking(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script = [[ReasoningDelta("hm"), gate, *says("Yes.")]]
    async with serving(tmp_path, script) as served:
        body = {"user_message": "think"}
        async with served.stream("POST", "/chats/c/interactions", json=body) as frames:
            await anext(frames)
            piece = await anext(frames)
            gate.set()
            rest = [frame async for frame in frames]
    assert (piece.name, piece.data["content"]) == ("thinking_delta", "hm")
    assert first(rest, "thinking")["content"] == "hm"


@requirement("S004-2.2-error", "S004-7.2-error-event")
async def test_a_failing_model_sends_error_and_then_the_end(tmp_path: Path) -> None:
    async with serving(tmp_path, [ModelError("canary", status=400), says("ok")]) as served:
        frames = await served.say()
        chat = await served.get("/chats/c")
        next_turn = await served.say("again")
    assert names(frames) == ["interaction_started", "error", "interaction_complete"]
    error = first(frames, "error")
    assert error.keys() == {"interaction_id", "code", "message", "correlation_id"}
    assert error["code"].startswith("llm_") and "canary" not in json.dumps(error)
    assert first(frames, "interaction_complete")["status"] == "FAILED"
    [stored] = chat["interactions"]
    assert stored["status"] == "FAILED"
    assert stored["error"] == {key: error[key] for key in ("code", "message", "correlation_id")}
    assert first(next_turn, "interaction_complete")["status"] == "COMPLETED"


async def test_a_failing_tool_is_a_result_and_the_model_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path, [calls(("Mail-fail", {})), says("It failed.")]) as served:
        frames = await served.say()
    assert "it cannot be done" in first(frames, "tool_result")["tool_output"]
    assert first(frames, "interaction_complete")["status"] == "COMPLETED"


@pytest.mark.parametrize(
    ("tool", "arguments"), [("Mail-nothing", {}), ("Mail-look", {"what": 1}), ("Mail-look", {})]
)
async def test_a_call_that_cannot_run_shows_as_a_call_with_an_error(
    tmp_path: Path, tool: str, arguments: dict[str, object]
) -> None:
    async with serving(tmp_path, [calls((tool, arguments)), says("Well.")]) as served:
        frames = await served.say()
    call, result = first(frames, "tool_call"), first(frames, "tool_result")
    assert (call["tool_name"], json.loads(call["tool_input"])) == (tool, arguments)
    assert (result["id"], result["tool_name"]) == (call["id"], tool)
    assert "SENT" not in result["tool_output"]


async def test_a_streaming_tools_output_is_previewed(tmp_path: Path) -> None:
    async with serving(tmp_path, [calls(("Mail-count", {"to": 3})), says("Done.")]) as served:
        frames = await served.say()
    chunks = [frame.data for frame in frames if frame.name == "tool_output"]
    assert all(chunk.keys() == {"interaction_id", "call_id", "offset", "chunk"} for chunk in chunks)
    output = first(frames, "tool_result")["tool_output"]
    assert output == "1\n2\n3\n"
    assert output.startswith("".join(chunk["chunk"] for chunk in chunks))


async def test_who_comes_in_the_middle_of_a_tools_output_knows_where_each_piece_belongs(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script = [calls(("Mail-drip", {"pipe": str(pipe)})), says("Done.")]
    async with serving(tmp_path, script) as served:
        body = {"user_message": "hello"}
        async with served.stream("POST", "/chats/c/interactions", json=body) as early:
            seen = []
            async for frame in early:
                seen.append(frame)
                if frame.name == "tool_output":
                    break
            path = f"/chats/c/interactions/{id_of(seen)}/events"
            late = await served.read_until("tool_output", "GET", path)
            resumed = await served.read_until(
                "tool_output", "GET", path, headers={"Last-Event-ID": str(late[-2].id)}
            )
            await asyncio.to_thread(lambda: pipe.open("w").close())
            seen += [frame async for frame in early]
    for frames in (late, resumed):
        piece = first(frames, "tool_output")
        assert (piece["offset"], piece["chunk"]) == (0, "one ")
    pieces = [frame.data for frame in seen if frame.name == "tool_output"]
    assert [(piece["offset"], piece["chunk"]) for piece in pieces[:2]] in (
        [(0, "one "), (4, "two")],
        # The result may be stored before the last piece was shown.
        [(0, "one ")],
    )
    assert first(seen, "tool_result")["tool_output"] == "one two"


async def test_the_chats_own_agent_answers_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("one")]) as served:
        agents = await served.get("/agents")
        await served.say(body={"agent": "helper"})
        for stranger in ("nobody", "tealagents/v1alpha1/helper/0.1"):
            answer = await served.client.post(
                "/chats/d/interactions", json={"user_message": "hi", "agent": stranger}
            )
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
        assert (await served.client.get("/chats/d")).status_code == 404
    [helper] = agents["agents"]
    assert (helper["name"], helper["description"]) == ("helper", "Helps.")
    assert helper["examples"] == ["Look up Oslo"]
    assert [tool["name"] for tool in helper["tools"]] == [
        "Mail-look", "Mail-send", "Mail-post", "Mail-draw", "Mail-fail", "Mail-count", "Mail-drip",
    ]  # fmt: skip


@requirement("S004-8.1-reattach")
async def test_a_second_reader_sees_the_same_from_the_beginning(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script: list[Turn] = [[TextDelta("half "), gate, TextDelta("whole"), TurnFinished()]]
    async with serving(tmp_path, script) as served:
        body = {"user_message": "hello"}
        async with served.stream("POST", "/chats/c/interactions", json=body) as frames:
            mine = [await anext(frames), await anext(frames)]
            url = f"/chats/c/interactions/{id_of(mine)}/events"
            async with served.stream("GET", url) as others:
                theirs = [await anext(others), await anext(others)]
                gate.set()
                theirs += [frame async for frame in others]
            mine += [frame async for frame in frames]
    assert durable(theirs) == durable(mine)
    assert theirs[1].data == {**mine[1].data, "offset": 0, "content": "half "}


async def test_a_client_that_accepts_no_stream_is_told_so_and_nothing_runs(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x")]) as served:
        answer = await served.client.post(
            "/chats/c/interactions",
            json={"user_message": "hi"},
            headers={"Accept": "application/json"},
        )
        assert (answer.status_code, answer.json()["code"]) == (406, "not_acceptable")
        assert (await served.client.get("/chats/c")).status_code == 404
        events = await served.say()
        url = f"/chats/c/interactions/{id_of(events)}/events"
        accept = {"Accept": "text/html, application/json;q=0.9"}
        assert (await served.client.get(url, headers=accept)).status_code == 406
        head: httpx.Response = await served.client.head(url)
        assert head.status_code == 405
        assert (await served.client.head("/chats/c/interactions")).status_code == 405
        assert len((await served.get("/chats/c"))["interactions"]) == 1


async def test_the_id_of_an_interaction_begins_with_its_millisecond(tmp_path: Path) -> None:
    """So that an index of them grows at one end."""
    async with serving(tmp_path, [says("x"), says("y")]) as served:
        before = int(time.time() * 1000)
        ids = [id_of(await served.say()) for _ in range(2)]
        after = int(time.time() * 1000)
    assert all(re.fullmatch("int_[0-9a-f]{32}", interaction_id) for interaction_id in ids)
    moments = [int(interaction_id[4:16], 16) for interaction_id in ids]
    assert before <= moments[0] <= moments[1] <= after
    assert len({interaction_id[16:] for interaction_id in ids}) == 2
