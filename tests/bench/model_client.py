"""CPU of one streamed answer in our model clients, beside the least code that could read it.

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
from dataclasses import replace
from typing import Any

import aiohttp
import orjson
import uvloop

from sk_agents.engine.models import Message
from sk_agents.engine.turns import Prompt, TextDelta
from sk_agents.llm.anthropic_messages import AnthropicMessages
from sk_agents.llm.gemini import GeminiChat
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import OpenAIChat
from sk_agents.llm.openai_responses import OpenAIResponses
from sk_agents.llm.streamed_chat import Endpoint, StreamedChat
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
# Of the clients of other providers, beside ours of chat completions.
NATIVE_BAR = 1.5
NATIVES = ("anthropic", "gemini", "responses")
# Everything in one write, or a write for each token.
PACES = ("burst", "steps")
# What a model at `/calls1` or `/calls4` asks for, so many times at once, before it answers.
TOOL = "RoomPlugin-look"
CALLS = (1, 4)


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    document = {
        "id": "chatcmpl-AbCdEfGhIjKlMnOpQrStUvWxYz012",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "bench",
        "system_fingerprint": "fp_0123456789",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    return b"data: " + orjson.dumps(document) + b"\n\n"


def named(document: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (document["type"].encode(), orjson.dumps(document))


def anthropic_events() -> list[bytes]:
    usage = {"input_tokens": 20, "output_tokens": TOKENS}
    block = {"type": "content_block_start", "index": 0}
    delta = {"type": "content_block_delta", "index": 0}
    deltas = [{"type": "text_delta", "text": f" word{number}"} for number in range(TOKENS)]
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        named({"type": "message_start", "message": {"id": "msg_01", "usage": usage}}),
        named({**block, "content_block": {"type": "text", "text": ""}}),
        *(named({**delta, "delta": one}) for one in deltas),
        named({"type": "content_block_stop", "index": 0}),
        named({"type": "message_delta", "delta": ended, "usage": usage}),
        named({"type": "message_stop"}),
    ]


def gemini_events() -> list[bytes]:
    usage = {"promptTokenCount": 20, "candidatesTokenCount": TOKENS}
    found = []
    for number in range(TOKENS):
        content = {"role": "model", "parts": [{"text": f" word{number}"}]}
        reason = {"finishReason": "STOP"} if number == TOKENS - 1 else {}
        event = {
            "candidates": [{"content": content, "index": 0, **reason}],
            "usageMetadata": usage,
            "modelVersion": "bench",
        }
        found.append(b"data: " + orjson.dumps(event) + b"\n\n")
    return found


def responses_events() -> list[bytes]:
    usage = {"input_tokens": 20, "output_tokens": TOKENS}
    at = {"item_id": "msg_0123456789", "output_index": 0, "content_index": 0}
    item = {"id": "msg_0123456789", "type": "message", "role": "assistant", "content": []}
    words = [
        named(
            {
                "type": "response.output_text.delta",
                **at,
                "delta": f" word{number}",
                "sequence_number": number,
            }
        )
        for number in range(TOKENS)
    ]
    return [
        named({"type": "response.created", "response": {"id": "resp_1"}}),
        named({"type": "response.output_item.added", "output_index": 0, "item": item}),
        *words,
        named({"type": "response.completed", "response": {"id": "resp_1", "usage": usage}}),
    ]


def answer_events() -> list[bytes]:
    words = [chunk({"content": f" word{number}"}) for number in range(TOKENS)]
    usage = {"prompt_tokens": 20, "completion_tokens": TOKENS}
    last = b"data: " + orjson.dumps({"choices": [], "usage": usage}) + b"\n\ndata: [DONE]\n\n"
    return [chunk({"role": "assistant", "content": ""}), *words, chunk({}, "stop"), last]


def call_events(count: int) -> list[bytes]:
    """A reply that asks for so many calls of one tool."""
    calls = [
        {
            "index": index,
            "id": f"call_{index}",
            "type": "function",
            "function": {"name": TOOL, "arguments": f'{{"place": "room {index}"}}'},
        }
        for index in range(count)
    ]
    usage = {"prompt_tokens": 20, "completion_tokens": TOKENS}
    last = b"data: " + orjson.dumps({"choices": [], "usage": usage}) + b"\n\ndata: [DONE]\n\n"
    return [chunk({"role": "assistant", "tool_calls": calls}), chunk({}, "tool_calls"), last]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """HTTP as far as the bench needs it: a request with a length, a chunked answer."""
    streams = {
        b"messages": anthropic_events(),
        b"models": gemini_events(),
        b"responses": responses_events(),
        **{b"calls%d" % count: call_events(count) for count in CALLS},
        b"chat": answer_events(),
    }
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    framed = {
        name: [b"%x\r\n%s\r\n" % (len(event), event) for event in events]
        for name, events in streams.items()
    }
    while True:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            break
        length = int(request.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(length)
        path = request.partition(b" HTTP/1.1")[0]
        if b"/calls" in path and orjson.loads(body)["messages"][-1]["role"] == "tool":
            path = b"/chat"
        frames = next(frames for name, frames in framed.items() if b"/" + name in path)
        if request.startswith((b"POST /burst/", b"POST /calls")):
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


async def ours(model: StreamedChat) -> str:
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
            for name, native in natives(clients, f"{base}/{pace}").items():
                found[f"{pace}, {name}"] = await cpu_ms(lambda model=native: ours(model), calls)  # type: ignore[misc]
    return found


def natives(clients: ModelClients, base: str) -> dict[str, StreamedChat]:
    """The clients of other providers; each adds its own path."""
    endpoint = Endpoint(base, "bench")
    return {
        "anthropic": AnthropicMessages(clients, replace(endpoint, base_url=f"{base}/v1")),
        "gemini": GeminiChat(clients, endpoint),
        "responses": OpenAIResponses(clients, endpoint),
    }


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
        ]
        + [
            Ratio(
                f"{name} / our chat completions, {pace}",
                statistics.median(f[f"{pace}, {name}"] / f[f"{pace}, ours"] for f in rounds),
                NATIVE_BAR,
                at_least=False,
            )
            for pace in PACES
            for name in NATIVES
        ],
    )


if __name__ == "__main__":
    asyncio.run(serve())
