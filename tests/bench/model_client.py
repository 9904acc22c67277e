"""CPU of one streamed answer in our model client, beside the least code that could read it.

The model is a subprocess that sends canned bytes, so that all CPU measured here is the client's.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import aiohttp
import orjson
import uvloop

from sk_agents.engine.models import Message
from sk_agents.engine.turns import Prompt, TextDelta
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import OpenAIChat
from sk_agents.llm.streamed_chat import Endpoint
from tests.bench.report import Ratio, Report

TOKENS = 32
# A long answer says everything so many times more.
LONG = 8
PROMPT = Prompt(
    [
        Message(role="system", content="You answer questions."),
        Message(role="user", content="What does it depend on?"),
    ]
)
ANSWER = "".join(f" word{number}" for number in range(TOKENS))
BAR = 1.0
# Everything in one write, or a write for each token.
PACES = ("burst", "steps")


def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    document = {
        "id": "chatcmpl-AbCdEfGhIjKlMnOpQrStUvWxYz012",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "bench",
        "system_fingerprint": "fp_0123456789",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    return b"data: " + orjson.dumps(document) + b"\n\n"


def answer_events() -> list[bytes]:
    words = [chunk({"content": f" word{number}"}) for number in range(TOKENS)]
    usage = {"prompt_tokens": 20, "completion_tokens": TOKENS}
    last = b"data: " + orjson.dumps({"choices": [], "usage": usage}) + b"\n\ndata: [DONE]\n\n"
    return [chunk({"role": "assistant", "content": ""}), *words, chunk({}, "stop"), last]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """HTTP as far as the bench needs it: a request with a length, a chunked answer."""
    events = answer_events()
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    frames = [b"%x\r\n%s\r\n" % (len(event), event) for event in events]
    while True:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            break
        length = int(request.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        if request.startswith(b"POST /burst/"):
            writer.write(b"".join([head, *frames, b"0\r\n\r\n"]))
        else:
            writer.write(head)
            if request.startswith(b"POST /held/"):
                writer.write(frames[1])
                await reader.read()
                break
            is_long = request.startswith(b"POST /long/")
            pause = 0.01 if is_long or request.startswith(b"POST /paced/") else 0
            words = frames[1 : 1 + TOKENS] * LONG if is_long else []
            for frame in (*words, *frames):
                writer.write(frame)
                await asyncio.sleep(pause)
            writer.write(b"0\r\n\r\n")
    writer.close()


async def serve() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@contextmanager
def model_process() -> Iterator[str]:
    """The model's base address; it ends when its standard input does."""
    command = [sys.executable, "-m", "tests.bench.model_client"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.communicate()


async def bare(session: aiohttp.ClientSession, url: str) -> str:
    body = {
        "model": "bench",
        "messages": [{"role": m.role, "content": m.content} for m in PROMPT.messages],
        "stream": True,
    }
    texts, rest = [], b""
    headers = {"Content-Type": "application/json"}
    async with session.post(url, data=orjson.dumps(body), headers=headers) as response:
        async for read in response.content.iter_any():
            *events, rest = (rest + read).split(b"\n\n")
            for event in events:
                if event == b"data: [DONE]":
                    break
                choices = orjson.loads(event[6:])["choices"]
                texts.append(choices[0]["delta"].get("content") or "" if choices else "")
    return "".join(texts)


async def ours(model: OpenAIChat) -> str:
    return "".join(
        [
            piece.content
            async for pieces in model.stream(PROMPT)
            for piece in pieces
            if isinstance(piece, TextDelta)
        ]
    )


async def cpu_ms(call: Callable[[], Awaitable[str]], calls: int) -> float:
    """CPU of this process for one call."""
    assert await call() == ANSWER
    gc.collect()
    start = time.process_time()
    for _ in range(calls):
        await call()
    return (time.process_time() - start) / calls * 1000


async def _round(base: str, calls: int) -> dict[str, float]:
    found = {}
    async with ModelClients() as clients, aiohttp.ClientSession() as session:
        for pace in PACES:
            model = OpenAIChat(clients, Endpoint(f"{base}/{pace}", "bench"))
            url = f"{base}/{pace}/chat/completions"
            found[f"{pace}, bare"] = await cpu_ms(lambda url=url: bare(session, url), calls)  # type: ignore[misc]
            found[f"{pace}, ours"] = await cpu_ms(lambda model=model: ours(model), calls)  # type: ignore[misc]
    return found


def measure(calls: int = 500, repetitions: int = 7) -> Report:
    with model_process() as base:
        rounds = [uvloop.run(_round(base, calls)) for _ in range(repetitions)]
    return Report(
        f"A streamed answer of {TOKENS} tokens: CPU ms in the client (median of {repetitions})",
        [
            f"  {name:<28} {statistics.median(found[name] for found in rounds):>9.3f}"
            for name in rounds[0]
        ],
        [
            Ratio(
                f"our client / bare reader, {pace}",
                statistics.median(f[f"{pace}, ours"] / f[f"{pace}, bare"] for f in rounds),
                BAR,
                at_least=False,
            )
            for pace in PACES
        ],
    )


if __name__ == "__main__":
    asyncio.run(serve())
