"""A model's reply of 20,000 tool calls: how long others wait for their answers beside it.

Run as a program it is the model.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import orjson
from aiohttp import web

from tests.bench.chats import Server, our_server
from tests.bench.report import Ratio, Report

CALLS = 20_000
CALLS_A_WRITE = 50
BAR_SECONDS = 0.1
PAUSE_SECONDS = 0.3
# What the message asks the model for.
ORDINARY, IN_MANY_CHUNKS, IN_ONE_CHUNK = "ordinary", "many chunks", "one chunk"


def measure(rounds: int = 3) -> Report:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as temporary:
        with model_process() as url, our_server(url, Path(temporary)) as server:
            asyncio.run(longest_wait(server, ORDINARY, "warm"))
            kinds = (ORDINARY, IN_MANY_CHUNKS, IN_ONE_CHUNK)
            waits = {
                kind: [
                    asyncio.run(longest_wait(server, kind, f"{kind[:3]}{number}"))
                    for number in range(rounds)
                ]
                for kind in kinds
            }
    return Report(
        f"a reply of {CALLS} tool calls",
        [f"  {kind:12} others' longest wait {_milliseconds(waits[kind])}" for kind in kinds],
        [
            Ratio(f"seconds, {kind}", statistics.median(waits[kind]), BAR_SECONDS, at_least=False)
            for kind in (IN_MANY_CHUNKS, IN_ONE_CHUNK)
        ],
    )


def _milliseconds(waits: Sequence[float]) -> str:
    return ", ".join(f"{1000 * wait:.0f}" for wait in waits) + " ms"


async def longest_wait(server: Server, kind: str, chat: str) -> float:
    """Of the requests that another client sends one after the other while the reply comes in."""
    async with httpx.AsyncClient(base_url=server.address, timeout=60) as client:
        has_ended = asyncio.Event()
        other = asyncio.create_task(_longest(client, has_ended))
        await asyncio.sleep(PAUSE_SECONDS)
        answer = await client.post(f"/chats/{chat}/interactions", json={"user_message": kind})
        assert b"interaction_complete" in answer.content
        await asyncio.sleep(PAUSE_SECONDS)
        has_ended.set()
        return await other


async def _longest(client: httpx.AsyncClient, has_ended: asyncio.Event) -> float:
    waits = [0.0]
    while not has_ended.is_set():
        began = time.perf_counter()
        await client.get("/health/live")
        waits.append(time.perf_counter() - began)
    return max(waits)


@contextmanager
def model_process() -> Iterator[str]:
    """The model's base address; it ends when its standard input does."""
    command = [sys.executable, "-m", "tests.bench.large_reply"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        process.communicate()


def _chunk(delta: object) -> bytes:
    return b"data: " + orjson.dumps({"choices": [{"delta": delta}]}) + b"\n\n"


def _replies() -> dict[str, list[bytes]]:
    calls = [
        {
            "index": number,
            "id": f"c{number}",
            "type": "function",
            "function": {"name": "Files-look", "arguments": "{}"},
        }
        for number in range(CALLS)
    ]
    one_each = [_chunk({"tool_calls": [call]}) for call in calls]
    return {
        ORDINARY: [_chunk({"content": "ok"})],
        IN_MANY_CHUNKS: [
            b"".join(one_each[start : start + CALLS_A_WRITE])
            for start in range(0, CALLS, CALLS_A_WRITE)
        ],
        IN_ONE_CHUNK: [_chunk({"tool_calls": calls})],
    }


async def _serve_model() -> None:
    replies = _replies()
    end = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'

    async def complete(request: web.Request) -> web.StreamResponse:
        said = (await request.json())["messages"][-1]["content"]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for part in (*replies[said], end):
                await response.write(part)
        except ConnectionError:  # the server stops reading a reply that is too large
            pass
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve_model())
