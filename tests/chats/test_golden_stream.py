"""A stream cut at any byte is gone on with: nothing is lost, nothing comes twice.

One stream is recorded from a real server, with text of many alphabets, tools and an approval. It is
cut after each byte, read by two parsers that know nothing of the server, and resumed as a client
would: with the last id it has seen, or, if it has seen none, by repeating its request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import httpx_sse
import pytest

from sk_agents.client.sse_parser import SseParser
from sk_agents.engine.turns import ReasoningDelta
from sk_agents.testing.scripted_model import calls, says
from tests.chaos.scale import FULL
from tests.chats.serving import Served, serving
from tests.patience import seconds

EVERY = 23
GOLDEN_BYTES = 18_000
WORDS = "Grüße из Осло, 你好 — שלום, 🧭 data: id: 7 event: answer \u2028 \r\n\t\x7f "
Durable = tuple[str, str, str]
"""Id, name and data of a frame."""


def ours(raw: bytes) -> list[Durable]:
    parser = SseParser()
    return [(frame.id, frame.event, frame.data) for frame in parser.feed(raw) if frame.id]


class _Raw(httpx.AsyncByteStream):
    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._raw), 4096):
            yield self._raw[start : start + 4096]


async def theirs(raw: bytes) -> list[Durable]:
    """By httpx-sse, which gives a frame without an id the last one's."""
    answer = httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=_Raw(raw))
    found: list[Durable] = []
    async for event in httpx_sse.EventSource(answer).aiter_sse():
        if event.id and event.id not in {seen[0] for seen in found}:
            found.append((event.id, event.event, event.data))
    return found


def cuts(raw: bytes) -> Iterator[int]:
    if FULL:
        yield from range(len(raw) + 1)
        return
    at, chosen = 0, set(range(0, len(raw) + 1, EVERY))
    while (at := raw.find(b"\n\n", at)) >= 0:
        at += 2
        chosen |= {at - 1, at, at + 1}
    yield from sorted(cut for cut in chosen if cut <= len(raw))


async def recorded(served: Served, body: dict[str, Any], key: dict[str, str]) -> bytes:
    """The whole stream, its approval given beside it."""
    raw = b""
    decided = False
    async with served.client.stream(
        "POST", "/chats/c/interactions", json=body, headers=key
    ) as answer:
        async for read in answer.aiter_raw():
            raw += read
            asked = [json.loads(data) for _, name, data in ours(raw) if name == "approval_required"]
            if asked and not decided:
                decided = True
                await served.decide(asked[0])
    return raw


async def resumed(
    served: Served, seen: list[Durable], body: dict[str, Any], key: dict[str, str]
) -> bytes:
    if not seen:
        answer = await served.client.post("/chats/c/interactions", json=body, headers=key)
    else:
        interaction = json.loads(seen[0][2])["interaction_id"]
        answer = await served.client.get(
            f"/chats/c/interactions/{interaction}/events", headers={"Last-Event-ID": seen[-1][0]}
        )
    assert answer.status_code == (204 if seen and seen[-1][1] == "interaction_complete" else 200)
    return answer.content


async def golden(served: Served, body: dict[str, Any], key: dict[str, str]) -> bytes:
    raw = await recorded(served, body, key)
    assert len(raw) > GOLDEN_BYTES
    names = [name for _, name, _ in ours(raw)]
    assert {"thinking", "tool_call", "approval_required", "approved", "answer"} <= set(names)
    ids = [int(id.partition("-")[0]) for id, _, _ in ours(raw)]
    assert ids == sorted(set(ids))
    return raw


SCRIPT = [
    [ReasoningDelta(WORDS * 4), *calls(("Mail-look", {"what": WORDS}), ("Mail-fail", {}))],
    calls(("Mail-send", {"to": WORDS, "text": WORDS * 3})),
    says(WORDS * 90, pieces=30),
]


@pytest.mark.timeout(seconds(3600))
async def test_a_stream_cut_at_any_byte_is_gone_on_with_exactly(tmp_path: Path) -> None:
    body, key = {"user_message": WORDS}, {"Idempotency-Key": "golden"}
    async with serving(tmp_path, SCRIPT) as served:
        raw = await golden(served, body, key)
        whole = ours(raw)
        assert await theirs(raw) == whole
        for cut in cuts(raw):
            seen = ours(raw[:cut])
            assert await theirs(raw[:cut]) == seen, cut
            rest = await resumed(served, seen, body, key)
            assert seen + ours(rest) == whole, cut


async def test_a_stream_cut_again_and_again_comes_whole(tmp_path: Path) -> None:
    """The connection breaks 16 times, each time a few hundred bytes on."""
    body, key = {"user_message": WORDS}, {"Idempotency-Key": "golden"}
    async with serving(tmp_path, SCRIPT) as served:
        whole = ours(await golden(served, body, key))
        seen: list[Durable] = []
        for trial in range(16):
            rest = await resumed(served, seen, body, key)
            seen += ours(rest[: 150 * (trial + 1)])
        seen += ours(await resumed(served, seen, body, key))
    assert seen == whole


async def test_a_connection_that_really_breaks_is_gone_on_with(tmp_path: Path) -> None:
    """Not cut afterwards: the socket is closed while the server sends."""
    body, key = {"user_message": WORDS}, {"Idempotency-Key": "golden"}
    gate = asyncio.Event()
    script = [*SCRIPT[:1], [*says(WORDS)[:1], gate, *says(WORDS)[1:]]]
    async with serving(tmp_path, script) as served:
        raw = b""
        async with served.client.stream(
            "POST", "/chats/c/interactions", json=body, headers=key
        ) as answer:
            async for read in answer.aiter_raw():
                raw += read
                if b"answer_delta" in raw:
                    break
        seen = ours(raw)
        gate.set()
        rest = ours(await resumed(served, seen, body, key))
        interaction = json.loads(seen[0][2])["interaction_id"]
        whole = await served.client.get(f"/chats/c/interactions/{interaction}/events")
    assert seen + rest == ours(whole.content)
