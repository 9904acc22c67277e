"""The client for every endpoint that speaks OpenAI's chat completions, on aiohttp and orjson.

Written by hand because the general clients cost many times the CPU of the whole rest of a turn:
here a network read is parsed in one go and becomes at most a few pieces.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
from yarl import URL

from sk_agents.engine.turns import ModelPiece, Prompt
from sk_agents.exceptions import (
    ModelError,
    ModelInterrupted,
    ModelProtocolError,
    ModelUnavailable,
)
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_wire import Dialect, encoded_request
from sk_agents.llm.provider_errors import error_in_stream, refusal
from sk_agents.llm.replies import Reply
from sk_agents.llm.retry import Attempts, Pace, RetryPolicy, is_passing, parse_retry_after
from sk_agents.llm.sse_reader import MAX_EVENT_BYTES, SseReader

logger = logging.getLogger(__name__)

MAX_REPLY_BYTES = 256 * 1024 * 1024
MAX_REFUSAL_BYTES = 64 * 1024
# aiohttp warns of larger bodies in one piece.
MAX_BODY_IN_ONE_PIECE = 1024 * 1024
# How long an ended reply may take to give its connection back to the pool.
PARTING_SECONDS = 0.2
TRANSPORT_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)
DROPPED = (aiohttp.ServerDisconnectedError, ConnectionResetError, BrokenPipeError)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds: to connect, between two reads (the wait for the first included), in all."""

    connect: float = 10.0
    idle: float = 300.0
    total: float = 1800.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is and how it likes to be asked. The key appears in no `repr`."""

    base_url: str
    model: str
    key: str | None = field(default=None, repr=False)
    dialect: Dialect = Dialect()
    timeouts: Timeouts = Timeouts()
    retry: RetryPolicy = RetryPolicy()
    max_event: int = MAX_EVENT_BYTES
    max_reply: int = MAX_REPLY_BYTES


class OpenAIChat:
    """A `Model` behind one endpoint."""

    def __init__(self, clients: ModelClients, endpoint: Endpoint, pace: Pace | None = None) -> None:
        self._clients = clients
        self._endpoint = endpoint
        self._pace = pace or Pace()
        self._url = URL(f"{endpoint.base_url}/chat/completions")
        self._headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if endpoint.key:
            self._headers["Authorization"] = f"Bearer {endpoint.key}"
        timeouts = endpoint.timeouts
        self._timeout = aiohttp.ClientTimeout(
            total=timeouts.total, sock_connect=timeouts.connect, sock_read=timeouts.idle
        )

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece]]:
        endpoint = self._endpoint
        body = encoded_request(endpoint.model, prompt, endpoint.dialect)
        attempts = Attempts(endpoint.retry, self._pace)
        while True:
            reply = Reply()
            try:
                async with aclosing(self._attempt(body, reply)) as reads:
                    async for pieces in reads:
                        yield pieces
                return
            except TRANSPORT_ERRORS as error:
                failure = _transport_failure(error)
            except ModelError as error:
                failure = error
            if reply.begun:
                raise _in_the_middle(failure)
            if not await attempts.may_repeat_after(failure):
                raise failure
            logger.info(
                "the model is asked again",
                extra={"model": endpoint.model, "attempt": attempts.made, "code": failure.code},
            )

    async def _attempt(self, body: bytes, reply: Reply) -> AsyncGenerator[list[ModelPiece]]:
        response = await self._post(body)
        try:
            await self._check(response)
            reading = _Reading(reply, self._endpoint)
            while not reply.finished:
                try:
                    read = await response.content.readany()
                except TRANSPORT_ERRORS:
                    if reply.finish_reason is None:
                        raise
                    # All was said; only the farewell was lost.
                    read = b""
                pieces = reading.feed(read) if read else reading.end()
                if pieces:
                    yield pieces
            if not response.content.at_eof():
                await _part(response)
        finally:
            response.close()

    async def _post(self, body: bytes) -> aiohttp.ClientResponse:
        data = body if len(body) <= MAX_BODY_IN_ONE_PIECE else io.BytesIO(body)
        return await self._clients.session.post(
            self._url,
            data=data,
            headers=self._headers,
            timeout=self._timeout,
            # The key goes to the address it was configured for and to no other.
            allow_redirects=False,
        )

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        """Return iff a stream follows."""
        if response.status == 200 and response.content_type == "text/event-stream":
            return
        body = await _beginning(response)
        key = self._endpoint.key
        if response.status != 200:
            header = response.headers.get("Retry-After")
            wait = parse_retry_after(header, self._pace.clock.now())
            raise refusal(response.status, body, key, retry_after=wait)
        if response.content_type == "application/json":
            document = _document(body)
            if isinstance(document, dict) and document.get("error"):
                raise error_in_stream(document["error"], key)
        raise ModelProtocolError(f"the reply is {response.content_type}, not an event stream")


class _Reading:
    """The way from bytes to pieces for one response."""

    def __init__(self, reply: Reply, endpoint: Endpoint) -> None:
        self._reply = reply
        self._endpoint = endpoint
        self._events = SseReader(endpoint.max_event)
        self._left = endpoint.max_reply

    def feed(self, read: bytes) -> list[ModelPiece]:
        self._left -= len(read)
        if self._left < 0:
            raise ModelProtocolError("the reply does not come to an end")
        for data in self._events.feed(read):
            self._take(data)
            if self._reply.finished:
                break
        return self._reply.drain()

    def end(self) -> list[ModelPiece]:
        for data in self._events.end():
            try:
                self._take(data)
            except ModelProtocolError:
                # Cut in the middle of a chunk.
                break
        self._reply.end()
        return self._reply.drain()

    def _take(self, data: bytes) -> None:
        if data == b"[DONE]":
            self._reply.finish()
            return
        chunk = _document(data)
        if self._reply.take_plain(chunk):
            return
        if isinstance(chunk, dict) and chunk.get("error"):
            raise error_in_stream(chunk["error"], self._endpoint.key)
        self._reply.take(chunk)


def _document(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        # Unlike orjson, it accepts half of a character: the other half may follow.
        return json.loads(data.decode())
    except (ValueError, RecursionError):
        raise ModelProtocolError("a chunk of the reply is not JSON") from None


def _in_the_middle(failure: ModelError) -> ModelError:
    """What would have been tried again at the start is an interruption further on."""
    return ModelInterrupted() if is_passing(failure) else failure


def _transport_failure(error: Exception) -> ModelError:
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.InvalidURL):
        return ModelProtocolError("the other end does not speak HTTP")
    name = type(error).__name__
    return ModelUnavailable(
        f"the provider cannot be reached ({name})", dropped=isinstance(error, DROPPED)
    )


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    while len(body) < MAX_REFUSAL_BYTES:
        read = await response.content.readany()
        if not read:
            break
        body += read
    return bytes(body[:MAX_REFUSAL_BYTES])


async def _part(response: aiohttp.ClientResponse) -> None:
    """Read to the end of the response, if it is near: only then is its connection reusable."""
    try:
        async with asyncio.timeout(PARTING_SECONDS):
            while not response.content.at_eof():
                await response.content.readany()
    except TRANSPORT_ERRORS:
        return
