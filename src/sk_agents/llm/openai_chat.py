"""The client for every endpoint that speaks OpenAI's chat completions, on our own HTTP and orjson.

Written by hand because the general clients cost many times the CPU of the whole rest of a turn:
here a network read is parsed in one go and becomes at most a few pieces.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

import orjson

from sk_agents.engine.turns import ModelPiece, Prompt
from sk_agents.exceptions import ModelError, ModelProtocolError, ModelUnavailable
from sk_agents.llm.failures import (
    Attempts,
    RetryPolicy,
    Timing,
    error_in_stream,
    parse_retry_after,
    refusal,
)
from sk_agents.llm.http_client import HttpConnection, Timeouts
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_wire import Dialect, RequestEncoder
from sk_agents.llm.replies import PlainChunks, StreamedReply, plain_text
from sk_agents.outbound.certificates import ClientCertificate
from sk_agents.outbound.problems import connection_problem, is_lasting

logger = logging.getLogger(__name__)

MAX_REPLY_BYTES = 256 * 1024 * 1024
MAX_REFUSAL_BYTES = 64 * 1024
DROPPED = (ConnectionResetError, BrokenPipeError)
EVENT_STREAM = "text/event-stream"

MAX_EVENT_BYTES = 8 * 1024 * 1024
# As a number: looking for a byte is four times as fast as looking for bytes.
RETURN, NEWLINE = b"\r\n"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is and how it likes to be asked. The key appears in no `repr`."""

    base_url: str
    model: str
    key: str | None = field(default=None, repr=False)
    dialect: Dialect = Dialect()
    timeouts: Timeouts = Timeouts()
    retry: RetryPolicy = RetryPolicy()
    certificate: ClientCertificate | None = None
    max_event: int = MAX_EVENT_BYTES
    max_reply: int = MAX_REPLY_BYTES


class OpenAIChat:
    """A `Model` behind one endpoint.

    Raises:
        ConfigurationError: the key cannot be sent as a header.
    """

    def __init__(
        self, clients: ModelClients, endpoint: Endpoint, timing: Timing | None = None
    ) -> None:
        self._clients = clients
        self.endpoint = endpoint
        self._timing = timing or Timing()
        self._encoder = RequestEncoder(endpoint.model, endpoint.dialect)
        headers = {"Content-Type": "application/json", "Accept": EVENT_STREAM}
        if endpoint.key:
            headers["Authorization"] = f"Bearer {endpoint.key}"
        self._target = clients.target(
            f"{endpoint.base_url}/chat/completions", headers, endpoint.certificate
        )

    def stream(self, prompt: Prompt) -> _Stream:
        return _Stream(self, prompt)

    async def ask(self, body: bytes) -> HttpConnection:
        """The response to this request, whose stream follows. The caller must `release` it.

        Raises:
            OSError, ModelError: there is none.
        """
        response = await self._clients.http.send(self._target, body, self.endpoint.timeouts)
        try:
            await self._check(response)
        except BaseException:
            response.release(is_done=False)
            raise
        return response

    def encode(self, prompt: Prompt) -> bytes:
        return self._encoder.encode(prompt)

    def attempts(self) -> Attempts:
        return Attempts(self.endpoint.retry, self._timing)

    async def _check(self, response: HttpConnection) -> None:
        """Return iff a stream follows."""
        content_type = _media_type(response.headers.get(b"content-type", b""))
        if response.status == 200 and content_type == EVENT_STREAM:
            if response.headers.get(b"content-encoding", b"") in (b"", b"identity"):
                return
            raise ModelProtocolError("the reply is compressed, which was not asked for")
        body = await _beginning(response)
        key = self.endpoint.key
        if response.status != 200:
            header = response.headers.get(b"retry-after", b"").decode("latin-1")
            wait = parse_retry_after(header or None, self._timing.clock.now())
            raise refusal(response.status, body, key, retry_after=wait)
        if content_type == "application/json":
            document = _document(body)
            if isinstance(document, dict) and document.get("error"):
                raise error_in_stream(document["error"], key)
        raise ModelProtocolError(f"the reply is {content_type[:64]!r}, not an event stream")


class _Stream:
    """One reply, asked for again as often as that may be. It is no generator: the event loop would
    register one and remove it again, for every call."""

    def __init__(self, chat: OpenAIChat, prompt: Prompt) -> None:
        self._chat = chat
        self._prompt = prompt
        self._attempts = chat.attempts()
        self._body = b""
        self._reply = StreamedReply(prompt.limits)
        self._reading: _Reading | None = None
        self._response: HttpConnection | None = None
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[ModelPiece]:
        try:
            while not (self._is_over or self._reply.finished):
                pieces = await self._next()
                if pieces:
                    return pieces
        except BaseException:
            await self.aclose()
            raise
        await self.aclose()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._is_over = True
        self._release()

    async def _next(self) -> list[ModelPiece]:
        """What one read brings; nothing if the model is to be asked again."""
        try:
            response, reading = self._response, self._reading
            if response is None or reading is None:
                response, reading = await self._begin()
            read = await _read(response, self._reply)
            return reading.feed(read) if read else reading.end()
        except OSError as error:
            failure: ModelError = ModelUnavailable(
                f"the provider cannot be reached: {connection_problem(error)}",
                dropped=isinstance(error, DROPPED),
                is_final=is_lasting(error),
            )
        except ModelError as error:
            failure = error
        self._release()
        model = self._chat.endpoint.model
        await self._attempts.repeat_after(failure, model, is_begun=self._reply.begun)
        return []

    async def _begin(self) -> tuple[HttpConnection, _Reading]:
        self._body = self._body or self._chat.encode(self._prompt)
        self._reply = StreamedReply(self._prompt.limits)
        self._response = await self._chat.ask(self._body)
        self._reading = _Reading(self._reply, self._chat.endpoint)
        return self._response, self._reading

    def _release(self) -> None:
        if self._response is not None:
            self._response.release(is_done=self._reply.finished)
            self._response = None


class _Reading:
    """Turns the bytes of one response into pieces."""

    def __init__(self, reply: StreamedReply, endpoint: Endpoint) -> None:
        self._reply = reply
        self._endpoint = endpoint
        self._events = SseReader(endpoint.max_event)
        self._plain = PlainChunks()
        self._left = endpoint.max_reply

    def feed(self, read: bytes) -> list[ModelPiece]:
        self._left -= len(read)
        if self._left < 0:
            raise ModelProtocolError("the reply does not come to an end")
        reply, plain, at = self._reply, self._plain, 0
        events = self._events.feed(read)
        while at < len(events):
            text, count = plain.text(events, at)
            if count:
                reply.take_text(text)
                at += count
                continue
            data = events[at]
            at += 1
            if data == b"[DONE]":
                reply.finish()
                break
            self._take(data)
        return reply.drain()

    def end(self) -> list[ModelPiece]:
        for data in self._events.end():
            if data == b"[DONE]":
                self._reply.finish()
                break
            try:
                self._take(data)
            except ModelProtocolError:
                # Cut in the middle of a chunk.
                break
        self._reply.end()
        return self._reply.drain()

    def _take(self, data: bytes) -> None:
        chunk = _document(data)
        text = plain_text(chunk)
        if text is not None:
            self._reply.take_text(text)
            self._plain.learn(data, text)
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


@lru_cache(maxsize=64)
def _media_type(header: bytes) -> str:
    return header.decode("latin-1").partition(";")[0].strip().lower()


async def _read(response: HttpConnection, reply: StreamedReply) -> bytes:
    try:
        return await response.read()
    except OSError:
        if reply.finish_reason is None:
            raise
        # The reply is complete; only its end mark was lost.
        return b""


async def _beginning(response: HttpConnection) -> bytes:
    body = bytearray()
    while len(body) < MAX_REFUSAL_BYTES and (read := await response.read()):
        body += read
    return bytes(body[:MAX_REFUSAL_BYTES])


class SseReader:
    """Feed it reads in order; it keeps only the event that is not yet complete."""

    def __init__(self, max_event: int = MAX_EVENT_BYTES) -> None:
        self._max_event = max_event
        self._tail = bytearray()
        self._searched = 0
        self._held_return = False

    def feed(self, read: bytes) -> list[bytes]:
        """The data of every event that this read completes.

        Raises:
            ModelProtocolError: one event is larger than the limit.
        """
        if RETURN in read or self._held_return:
            read = self._with_plain_newlines(read)
        if self._tail:
            complete = self._completed(read)
        else:
            complete, _, rest = read.rpartition(b"\n\n")
            self._keep(rest)
        return _data_of(complete) if complete else []

    def end(self) -> list[bytes]:
        """The data of a last event that the stream ended without closing."""
        tail = bytes(self._tail)
        self._tail.clear()
        return _data_of(tail.rstrip(b"\n"))

    def _completed(self, read: bytes) -> bytes:
        self._tail += read
        # The two newlines may have been cut apart, hence one byte back.
        end = self._tail.rfind(b"\n\n", max(0, self._searched - 1))
        if end < 0:
            self._keep(b"")
            return b""
        complete = bytes(self._tail[:end])
        rest = bytes(self._tail[end + 2 :])
        self._tail.clear()
        self._keep(rest)
        return complete

    def _keep(self, rest: bytes) -> None:
        self._tail += rest
        self._searched = len(self._tail)
        if self._searched > self._max_event:
            raise ModelProtocolError(f"one event is larger than {self._max_event} bytes")

    def _with_plain_newlines(self, read: bytes) -> bytes:
        """A return at the very end may be half of a line end, so it waits for the next read."""
        if self._held_return:
            read = b"\r" + read
        self._held_return = read.endswith(b"\r")
        if self._held_return:
            read = read[:-1]
        return read.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _data_of(text: bytes) -> list[bytes]:
    if text.startswith(b"data: "):
        found = text[6:].split(b"\n\ndata: ")
        if NEWLINE not in b"".join(found):
            # Nothing but events of one line of data each, as nearly always.
            return found
    found = []
    for event in text.split(b"\n\n"):
        if event.startswith(b"data: ") and b"\n" not in event:
            found.append(event[6:])
        elif event:
            found.extend(_data_of_lines(event))
    return found


def _data_of_lines(event: bytes) -> list[bytes]:
    """Events of several lines; a line without a colon or with another name carries no data."""
    lines = [
        line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")
    ]
    return [b"\n".join(lines)] if lines else []
