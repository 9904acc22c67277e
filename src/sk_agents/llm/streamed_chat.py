"""What the clients of all providers share: asking, asking again, and reading a stream of events.

Written by hand because the general clients cost many times the CPU of the whole rest of a turn:
here a network read is parsed in one go and becomes at most a few pieces. What the events mean is
each provider's own.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Self
from urllib.parse import urlencode

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
from sk_agents.llm.openai_wire import Dialect, encoded
from sk_agents.llm.replies import StreamedReply
from sk_agents.outbound.certificates import ClientCertificate
from sk_agents.outbound.problems import connection_problem, is_lasting

logger = logging.getLogger(__name__)

MAX_REPLY_BYTES = 256 * 1024 * 1024
MAX_REFUSAL_BYTES = 64 * 1024
DROPPED = (ConnectionResetError, BrokenPipeError)
EVENT_STREAM = "text/event-stream"
JSON = "application/json"
REPLIES = (EVENT_STREAM, JSON)
UNCOMPRESSED = (b"", b"identity")

MAX_EVENT_BYTES = 8 * 1024 * 1024
# As a number: looking for a byte is four times as fast as looking for bytes.
RETURN, NEWLINE = b"\r\n"


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What an agent file adds to every request of its model. Values may be secrets."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra_body: Mapping[str, Any] = field(default_factory=dict, repr=False)
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    certificate: ClientCertificate | None = None


NO_OPTIONS = RequestOptions()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is and how it likes to be asked. The key appears in no `repr`."""

    base_url: str
    model: str
    key: str | None = field(default=None, repr=False)
    dialect: Dialect = Dialect()
    timeouts: Timeouts = Timeouts()
    retry: RetryPolicy = RetryPolicy()
    options: RequestOptions = NO_OPTIONS
    max_event: int = MAX_EVENT_BYTES
    max_reply: int = MAX_REPLY_BYTES


class EventReading(ABC):
    """Turns the bytes of one response into pieces."""

    def __init__(self, reply: StreamedReply, endpoint: Endpoint) -> None:
        self.reply = reply
        self._endpoint = endpoint
        self._events = SseReader(endpoint.max_event)
        self._left = endpoint.max_reply

    def feed(self, read: bytes) -> list[ModelPiece]:
        """Raises ModelError: it is not a reply, too large, or says that there is none."""
        self._count(read)
        for data in self._events.feed(read):
            self.take(data)
        return self._drained()

    def end(self) -> list[ModelPiece]:
        for data in self._events.end():
            try:
                self.take(data)
            except ModelProtocolError:
                # Cut in the middle of an event.
                break
        return self._drained(is_over=True)

    def _drained(self, *, is_over: bool = False) -> list[ModelPiece]:
        try:
            if is_over:
                self.reply.end()
            return self.reply.drain()
        except TypeError:
            raise ModelProtocolError("a part of the reply is not text") from None

    @abstractmethod
    def take(self, data: bytes) -> None:
        """Understand the data of one event."""

    def _count(self, read: bytes) -> None:
        self._left -= len(read)
        if self._left < 0:
            raise ModelProtocolError("the reply does not come to an end")

    def failure(self, error: Any) -> ModelError:
        return error_in_stream(error, self._endpoint.key)


class WholeReading:
    """A reply that came as one document, though a stream was asked for."""

    def __init__(self, chat: StreamedChat, reply: StreamedReply) -> None:
        self.reply = reply
        self._chat = chat
        self._body = bytearray()

    def feed(self, read: bytes) -> list[ModelPiece]:
        self._body += read
        if len(self._body) > self._chat.endpoint.max_event:
            raise ModelProtocolError("the reply does not come to an end")
        return []

    def end(self) -> list[ModelPiece]:
        document = parsed(bytes(self._body))
        if isinstance(document, dict) and document.get("error"):
            raise error_in_stream(document["error"], self._chat.endpoint.key)
        self._chat.take_whole(self.reply, document)
        self.reply.finish()
        return self.reply.drain()


class StreamedChat(ABC):
    """A `Model` behind one endpoint.

    Raises:
        ConfigurationError: the key cannot be sent as a header.
    """

    # Parameters without which a model can be asked as well.
    dispensable: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        clients: ModelClients,
        endpoint: Endpoint,
        timing: Timing | None,
        path: str,
        headers: Mapping[str, str],
    ) -> None:
        self._clients = clients
        self.endpoint = endpoint
        self._timing = timing or Timing()
        self._left_out: frozenset[str] = frozenset()
        options = endpoint.options
        given = {name.lower() for name in options.headers}
        kept = {name: value for name, value in headers.items() if name.lower() not in given}
        url = endpoint.base_url + path
        if options.query:
            url += ("&" if "?" in url else "?") + urlencode(options.query)
        all_headers = {"Content-Type": JSON, "Accept": EVENT_STREAM, **kept, **options.headers}
        self._target = clients.target(url, all_headers, options.certificate)

    def stream(self, prompt: Prompt) -> ReplyStream:
        return ReplyStream(self, prompt)

    @abstractmethod
    def encode(self, prompt: Prompt) -> bytes:
        """The body of a request."""

    @abstractmethod
    def reading(self, reply: StreamedReply) -> EventReading: ...

    def take_whole(self, reply: StreamedReply, document: Any) -> None:
        """Understand a reply that came as one document.

        Raises:
            ModelProtocolError: it is none.
        """
        raise ModelProtocolError("the reply is a JSON document, not an event stream")

    def leave_out(self, parameter: str) -> bool:
        """Ask without this parameter from now on, if that can be; the provider does not know it."""
        if parameter in self._left_out or parameter not in self.dispensable:
            return False
        self._left_out |= {parameter}
        return True

    def encoded_body(self, body: Mapping[str, Any]) -> bytes:
        """The body without what was left out."""
        return encoded({name: body[name] for name in body if name not in self._left_out})

    async def ask(self, body: bytes) -> HttpConnection:
        """The response to this request, whose stream follows. The caller must `release` it.

        Raises:
            OSError, ModelError: there is none.
        """
        response = await self._clients.http.send(self._target, body, self.endpoint.timeouts)
        if _has_reply(response):
            return response
        try:
            raise await self._refusal(response)
        finally:
            response.release(is_done=False)

    def attempts(self) -> Attempts:
        return Attempts(self.endpoint.retry, self._timing)

    async def _refusal(self, response: HttpConnection) -> ModelError:
        """What a response means that brings no reply."""
        content_type = _content_type(response)
        if response.status == 200 and content_type in REPLIES:
            return ModelProtocolError("the reply is compressed, which was not asked for")
        body = await _beginning(response)
        if response.status != 200:
            header = response.headers.get(b"retry-after", b"").decode("latin-1")
            wait = parse_retry_after(header or None, self._timing.clock.now())
            return refusal(response.status, body, self.endpoint.key, retry_after=wait)
        return ModelProtocolError(f"the reply is {content_type[:64]!r}, not an event stream")


class ReplyStream:
    """One reply, asked for again as often as that may be. It is no generator: the event loop would
    register one and remove it again, for every call."""

    def __init__(self, chat: StreamedChat, prompt: Prompt) -> None:
        self._chat = chat
        self._prompt = prompt
        self._attempts = chat.attempts()
        self._body = b""
        self._reply = StreamedReply(prompt.limits)
        self._reading: EventReading | WholeReading
        self._response: HttpConnection | None = None
        self._is_over = False
        self._has_begun = False
        self._has_left_out = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[ModelPiece]:
        try:
            while not (self._is_over or self._reply.finished):
                try:
                    response = self._response or await self._begin()
                    try:
                        read = await response.read()
                    except OSError:
                        if self._reply.finish_reason is None:
                            raise
                        # The reply is complete; only its end mark was lost.
                        read = b""
                    pieces = self._reading.feed(read) if read else self._reading.end()
                except (OSError, ModelError) as error:
                    await self._repeat_after(error)
                    continue
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

    async def _repeat_after(self, error: OSError | ModelError) -> None:
        """Return when the model is to be asked again.

        Raises:
            ModelError: it is not.
        """
        failure = _unreachable(error) if isinstance(error, OSError) else error
        self._release()
        if not self._leaves_out(failure):
            model = self._chat.endpoint.model
            await self._attempts.repeat_after(failure, model, is_begun=self._reply.begun)

    def _leaves_out(self, failure: ModelError) -> bool:
        """Whether to ask once more, without a parameter that the provider does not know."""
        parameter = failure.attributes.get("unsupported")
        if parameter is None or self._has_left_out or not self._chat.leave_out(parameter):
            return False
        self._has_left_out, self._body = True, b""
        logger.warning(
            "the model is asked without a parameter that it does not support",
            extra={"model": self._chat.endpoint.model, "parameter": parameter},
        )
        return True

    async def _begin(self) -> HttpConnection:
        self._body = self._body or self._chat.encode(self._prompt)
        if self._has_begun:
            # Of the last attempt.
            self._reply = StreamedReply(self._prompt.limits)
        self._response = response = await self._chat.ask(self._body)
        self._has_begun = True
        is_whole = _content_type(response) == JSON
        self._reading = (
            WholeReading(self._chat, self._reply) if is_whole else self._chat.reading(self._reply)
        )
        return response

    def _release(self) -> None:
        if self._response is not None:
            self._response.release(is_done=self._reply.finished)
            self._response = None


def parsed(data: bytes) -> Any:
    """Raises ModelProtocolError: it is not JSON."""
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
def media_type(header: bytes) -> str:
    return header.decode("latin-1").partition(";")[0].strip().lower()


def _unreachable(error: OSError) -> ModelUnavailable:
    return ModelUnavailable(
        f"the provider cannot be reached: {connection_problem(error)}",
        dropped=isinstance(error, DROPPED),
        is_final=is_lasting(error),
    )


def _has_reply(response: HttpConnection) -> bool:
    return (
        response.status == 200
        and _content_type(response) in REPLIES
        and response.headers.get(b"content-encoding", b"") in UNCOMPRESSED
    )


def _content_type(response: HttpConnection) -> str:
    return media_type(response.headers.get(b"content-type", b""))


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
            if rest:
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
