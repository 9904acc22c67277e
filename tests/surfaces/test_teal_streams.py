"""Streams of Teal's API: what is in them, how they end, and that silence is broken."""

import asyncio
from pathlib import Path

import httpx

from sk_agents.engine.models import Usage
from sk_agents.engine.turns import ReasoningDelta, TextDelta, TurnFinished
from sk_agents.exceptions import ModelError
from sk_agents.http.sse import KEEPALIVE_SECONDS
from sk_agents.tealagents.v1alpha1.config import ServedTealAgent
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.patience import seconds
from tests.requirements import requirement
from tests.surfaces.teal_server import (
    P,
    Script,
    eventually,
    frames,
    listening,
    message,
    server,
    streaming,
)

IDS = ("session_id", "task_id", "request_id")


def ids_of(data: dict[str, str]) -> tuple[str, ...]:
    return tuple(data[name] for name in IDS)


@requirement("S001-stream-ids")
async def test_stream_is_pieces_of_the_answer_and_then_the_whole(tmp_path: Path) -> None:
    script = [
        [ReasoningDelta("hm"), *says("Good day to you.", pieces=5)[:-1]]
        + [TurnFinished("stop", Usage(prompt_tokens=4, completion_tokens=5))]
    ]
    async with server(tmp_path, script) as at:
        events = await at.events(body=message())
        *partial, (name, final) = events
        assert {one for one, _ in partial} == {"partial-response"}
        assert name == "final-response"
        assert "".join(data["output_partial"] for _, data in partial) == "Good day to you."
        assert final["output"] == "Good day to you."
        assert final["token_usage"]["total_tokens"] == 9
        assert {ids_of(data) for _, data in events} == {ids_of(final)}
        assert {data["source"] for _, data in events} == {"Helper:0.1"}


async def test_pieces_arrive_while_the_model_still_talks(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script: Script = [[TextDelta("Good"), gate, TextDelta(" day."), TurnFinished("stop", Usage())]]
    async with server(tmp_path, script) as at, streaming(at, f"{P}/sse", message()) as live:
        await live.until(b'"output_partial":"Good"}')
        assert live.status == 200
        gate.set()
        await live.until(b"event: final-response")
        heard = [data["output_partial"] for name, data in frames(live.arrived.decode())[:-1]]
        assert "".join(heard) == "Good day."


async def test_pieces_leave_a_real_server_one_by_one_and_the_end_comes_last(
    tmp_path: Path,
) -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    script: Script = [
        [TextDelta("Good"), gates[0], TextDelta(" day"), gates[1], TextDelta("."), *says("")]
    ]
    async with (
        asyncio.timeout(seconds(20)),
        server(tmp_path, script) as at,
        listening(at.app) as address,
        httpx.AsyncClient() as client,
        client.stream(
            "POST",
            f"{address}{P}/sse",
            json=message(),
            headers={"Authorization": "Bearer alice"},
        ) as answer,
    ):
        heard = b""
        async for part in answer.aiter_bytes():
            heard += part
            for gate, word in zip(gates, (b"Good", b" day"), strict=True):
                if word in heard:
                    gate.set()
    events = frames(heard.decode())
    pieces = [data["output_partial"] for name, data in events if name == "partial-response"]
    assert pieces == ["Good", " day", "."]
    assert events[-1][0] == "final-response"
    assert events[-1][1]["output"] == "Good day."


@requirement("S000-error-keepalive")
async def test_silence_is_broken_by_comments_and_by_events_with_the_ids(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script: Script = [[gate, *says("hi")]]
    async with (
        server(tmp_path, script, served={"keepalive": 0.01}) as at,
        streaming(at, f"{P}/sse", message()) as live,
    ):
        await live.until(b"event: keepalive")
        gate.set()
        await live.until(b"event: final-response")
        events = frames(live.arrived.decode())
        assert live.arrived.startswith(b": keepalive\n\n")
        assert events[0][0] == "keepalive"
        assert ids_of(events[0][1]) == ids_of(events[-1][1])


def test_silence_lasts_fifteen_seconds_at_most_and_thirty_without_an_event() -> None:
    defaults = ServedTealAgent.__dataclass_fields__
    assert defaults["keepalive"].default == KEEPALIVE_SECONDS == 15.0


@requirement("S001-stream-errors")
async def test_failing_stream_ends_with_an_error_and_the_task_takes_a_next_request(
    tmp_path: Path,
) -> None:
    script: Script = [ModelError("secret words of the provider", status=400), says("better now")]
    async with server(tmp_path, script) as at:
        [(name, data)] = await at.events(body=message())
        assert name == "error"
        assert all(data[one] for one in (*IDS, "error", "code", "correlation_id"))
        assert "secret" not in str(data)
        again = await at.events(body=message("again", task_id=data["task_id"]))
        assert again[-1][1]["output"] == "better now"
        assert (await at.get(f"{P}/requests/{data['request_id']}")).json()["status"] == "Failed"


async def test_stream_cut_in_the_middle_of_the_models_reply_ends_with_an_error(
    tmp_path: Path,
) -> None:
    broken: Turn = [TextDelta("Goo"), ModelError("gone")]
    async with server(tmp_path, [broken, broken]) as at:
        events = await at.events(body=message())
        assert events[-1][0] == "error"


async def test_reader_who_leaves_stops_nothing(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script: Script = [[TextDelta("Good"), gate, TextDelta(" day."), TurnFinished("stop", Usage())]]
    async with server(tmp_path, script) as at:
        async with streaming(at, f"{P}/sse", message()) as live:
            await live.until(b"partial-response")
            [(_, data)] = frames(live.arrived.decode())
        gate.set()
        path = f"{P}/requests/{data['request_id']}"

        async def output() -> str | None:
            seen: str | None = (await at.get(path)).json().get("output")
            return seen

        await eventually(output, "Good day.")


async def test_canceled_stream_ends_with_an_error_that_says_so(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with (
        server(tmp_path, [[TextDelta("Good"), gate]]) as at,
        streaming(at, f"{P}/sse", message()) as live,
    ):
        await live.until(b"partial-response")
        [(_, data)] = frames(live.arrived.decode())
        canceled = await at.post(f"{P}/requests/{data['request_id']}/cancel")
        assert canceled.json()["status"] == "Canceled"
        assert canceled.json()["output"] == "Good"
        await live.until(b"event: error")
        assert frames(live.arrived.decode())[-1][1]["code"] == "canceled"


async def test_what_is_said_beside_a_call_is_no_part_of_the_answer(tmp_path: Path) -> None:
    script = [[TextDelta("Let me look."), *calls(("Clock-now", {}))], says("It is noon.")]
    async with server(tmp_path, script) as at:
        events = await at.events(body=message("what time is it?"))
        assert events[-1][1]["output"] == "It is noon."
        assert events[-1][1]["extra_data"] == {"items": [{"key": "zone", "value": "UTC"}]}
