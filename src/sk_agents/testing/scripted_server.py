"""A script behind a real socket, in the words of OpenAI's chat completions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from aiohttp import web

from sk_agents.engine.turns import (
    CallRequested,
    ModelPiece,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
)
from sk_agents.exceptions import ModelError
from sk_agents.testing.scripted_model import Script, Step, Turn

PATH = "/v1/chat/completions"
DEFAULT_STATUS = 500


class ScriptedModelServer:
    """Serves one script on a free port of the loopback address while it is entered.

    An error at the start of a turn is answered with its `status` (500 if it has none) and its
    `headers`; one further on cuts the connection. A turn without `TurnFinished` ends its stream
    early but cleanly. `requests` are the bodies received, `headers` what came with them.
    """

    def __init__(self, script: Sequence[Turn | Exception]) -> None:
        self.script = Script(script)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.base_url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post(PATH, self._complete)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        port = self._runner.addresses[0][1]
        self.base_url = f"http://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        turn = self.script.next_turn()
        if turn and isinstance(turn[0], Exception):
            return refusal(turn[0])
        if not body.get("stream"):
            return web.json_response(await whole_completion(body, turn))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        await send(request, response, turn, Chunks(body.get("model", ""), with_usage))
        return response


async def send(
    request: web.Request, response: web.StreamResponse, turn: Turn, chunks: Chunks
) -> None:
    for step in turn:
        match step:
            case asyncio.Event():
                await step.wait()
            case Exception():
                # As a lost network would end it, in the middle of the answer.
                if request.transport is not None:
                    request.transport.abort()
                return
            case _:
                pieces = step if isinstance(step, tuple) else (step,)
                frames = [f"data: {chunk}\n\n" for piece in pieces for chunk in chunks.of(piece)]
                await response.write("".join(frames).encode())
    await response.write_eof()


class Chunks:
    """The stream's chunks, each as JSON text."""

    def __init__(self, model: str, with_usage: bool) -> None:
        self._model = model
        self._with_usage = with_usage
        self._calls = 0

    def of(self, piece: ModelPiece) -> Iterator[str]:
        match piece:
            case TextDelta():
                yield self._chunk({"content": piece.content})
            case ReasoningDelta():
                yield self._chunk({"reasoning_content": piece.content})
            case CallRequested():
                yield from self._call(piece)
            case TurnFinished():
                yield self._chunk({}, finish_reason=piece.finish_reason)
                if self._with_usage:
                    yield self._document([], usage=usage_of(piece))
                yield "[DONE]"

    def _call(self, piece: CallRequested) -> Iterator[str]:
        """As providers do it: the name first, the arguments in parts."""
        index, self._calls = self._calls, self._calls + 1
        function = {"name": piece.name, "arguments": ""}
        first = {"index": index, "id": piece.provider_id, "type": "function", "function": function}
        yield self._chunk({"tool_calls": [first]})
        middle = len(piece.arguments) // 2
        for part in (piece.arguments[:middle], piece.arguments[middle:]):
            more = {"index": index, "function": {"arguments": part}}
            yield self._chunk({"tool_calls": [more]})

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> str:
        return self._document([{"index": 0, "delta": delta, "finish_reason": finish_reason}])

    def _document(self, choices: list[Any], usage: dict[str, int] | None = None) -> str:
        document = {
            "id": "chatcmpl-scripted",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": self._model,
            "choices": choices,
        }
        return json.dumps(document if usage is None else document | {"usage": usage})


async def whole_completion(body: dict[str, Any], turn: Turn) -> dict[str, Any]:
    """The answer to a request that does not stream."""
    pieces: list[Step] = []
    for step in turn:
        if isinstance(step, asyncio.Event):
            await step.wait()
        pieces.extend(step if isinstance(step, tuple) else [step])
    texts = [piece.content for piece in pieces if isinstance(piece, TextDelta)]
    asked = [piece for piece in pieces if isinstance(piece, CallRequested)]
    end = next((piece for piece in pieces if isinstance(piece, TurnFinished)), TurnFinished())
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
    if asked:
        functions = [{"name": call.name, "arguments": call.arguments} for call in asked]
        message["tool_calls"] = [
            {"id": call.provider_id, "type": "function", "function": function}
            for call, function in zip(asked, functions, strict=True)
        ]
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model", ""),
        "choices": [{"index": 0, "message": message, "finish_reason": end.finish_reason}],
        "usage": usage_of(end),
    }


def usage_of(end: TurnFinished) -> dict[str, int]:
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    return {name: getattr(end.usage, name) for name in names}


def refusal(error: Exception) -> web.Response:
    attributes = error.attributes if isinstance(error, ModelError) else {}
    return web.json_response(
        {"error": {"message": str(error), "type": "scripted"}},
        status=attributes.get("status", DEFAULT_STATUS),
        headers=attributes.get("headers"),
    )
