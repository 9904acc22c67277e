"""One server over HTTP: requests, their repetition, and streams of bytes.

What is asked and what the answers mean is not known here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from inspect import isawaitable
from typing import Any, Protocol, TypeVar, runtime_checkable
from urllib.parse import quote, urlsplit

import aiohttp
import orjson
from pydantic import BaseModel, ValidationError

from sk_agents import __version__
from sk_agents.client.errors import (
    ClientError,
    ProtocolError,
    ServerUnreachable,
    TealServerError,
    server_error,
)

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
# A server breaks its silence every fifteen seconds: three times nothing means that it is gone.
SILENCE_SECONDS = 45.0
# Shorter than servers keep an idle connection, so that none is used while it is being closed.
IDLE_SECONDS = 3.0
MAX_PROBLEM_BYTES = 64 * 1024
# Waits between tries, in seconds.
GIVE_UP_AFTER = 60.0
FIRST_WAIT = 0.25
LONGEST_WAIT = 5.0


@runtime_checkable
class TokenSource(Protocol):
    """Gives the token of each request, and another one when the server refuses it."""

    async def current(self) -> str | None:
        """The token to send; `None` to send none.

        Raises:
            ClientError: there was one, and it cannot be renewed.
        """

    async def renewed(self, refused: str) -> str | None:
        """Another token than this one, which the server refused; `None` if there is none.

        Raises:
            ClientError: it cannot be renewed.
        """


Token = str | Callable[[], str | Awaitable[str]] | TokenSource | None
"""A bearer token, or what gives a fresh one: it is asked before every request."""

Record = TypeVar("Record", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """`is_repeatable`: doing it twice is doing it once.

    `settled_by` are statuses that mean, to a repeated request, that an earlier try arrived. An
    answer that is no JSON is given as its bytes.
    """

    method: str
    path: str
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    is_repeatable: bool = True
    settled_by: frozenset[int] = frozenset()
    is_json: bool = True


def path_of(*segments: str) -> str:
    """The segments as a path; each stays one segment whatever is in it.

    Raises:
        ValueError: a segment is empty or would lead elsewhere.
    """
    if any(segment in {"", ".", ".."} for segment in segments):
        raise ValueError("an id may not be empty, '.' or '..'")
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


@dataclass(frozen=True, slots=True)
class RetryTiming:
    """What waiting needs from outside, so that tests neither wait nor depend on chance."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random


class Backoff:
    """The tries at one thing. Time counts from the first failure after the last sign of life.

    A sign of life starts the time again. Only progress, or life that has lasted, also shortens the
    waits again: a server that answers and falls over at once is not asked in a tight loop.
    """

    def __init__(self, give_up_after: float, pace: RetryTiming) -> None:
        self._give_up_after = give_up_after
        self._pace = pace
        self._tries = 0
        self._tried_at = 0.0
        self._lost_at: float | None = None

    def note_life(self) -> None:
        self._lost_at = None
        if self._pace.monotonic() - self._tried_at > LONGEST_WAIT:
            self._tries = 0

    def note_progress(self) -> None:
        self._lost_at = None
        self._tries = 0

    async def wait(self, failure: ClientError, *, at_least: float = 0.0) -> None:
        """Wait before the next try.

        Raises:
            ClientError: `failure` itself, at once: another try would not help, or would come too
                late.
        """
        if not failure.is_passing:
            raise failure
        now = self._pace.monotonic()
        if self._lost_at is None:
            self._lost_at = now
        delay = self._delay(max(at_least, failure.retry_after or 0.0))
        if now - self._lost_at + delay > self._give_up_after:
            raise failure
        # A server that is not there at all should not look like one that is slow.
        level = logging.WARNING if self._tries == 1 else logging.DEBUG
        logger.log(level, "trying the server again", extra={"reason": str(failure)})
        self._tries += 1
        await self._pace.sleep(delay)
        self._tried_at = self._pace.monotonic()

    def _delay(self, at_least: float) -> float:
        growing = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(self._tries, 16))
        jittered = growing * (0.5 + 0.5 * self._pace.chance())
        # The jitter comes on top: clients that were given one moment must not all return in it.
        return at_least + jittered * 0.25 if at_least > 0 else jittered


class ByteStream:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def read(self) -> bytes:
        """What came next; empty at the end.

        Raises:
            ServerUnreachable: cut off, or silent for too long.
        """
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ServerUnreachable(f"The stream was cut off: {_reason(error)}") from error


class ServerConnection:
    """Opened by `open`, closed by `close`. Failed requests are repeated as `Backoff` allows,
    except those that could then be done twice."""

    def __init__(
        self,
        base_url: str,
        *,
        token: Token,
        user: str | None,
        give_up_after: float,
        silence: float,
        pace: RetryTiming,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(
                f"not the address of a server: {base_url!r}; one is like http://127.0.0.1:8000"
            )
        self._base_url = base_url.rstrip("/")
        self._token = token
        self._named = {} if user is None else {"user_id": user}
        self._give_up_after = give_up_after
        self._silence = silence
        self._pace = pace
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_SECONDS, sock_read=self._silence
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": f"teal-client/{__version__}"},
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def backoff(self) -> Backoff:
        return Backoff(self._give_up_after, self._pace)

    async def call(self, request: ServerRequest) -> Any:
        """The JSON of the answer, or its bytes; `None` if it has no content.

        Raises:
            TealServerError: refused.
            ServerUnreachable: no answer in time.
            ProtocolError: the answer is not JSON.
        """
        backoff = self.backoff()
        is_repeated = False
        while True:
            try:
                return await self._call_once(request)
            except ClientError as failure:
                if is_repeated and getattr(failure, "status", None) in request.settled_by:
                    return None
                if not request.is_repeatable and _may_have_been_done(failure):
                    raise
                await backoff.wait(failure)
            is_repeated = True

    async def read(self, kind: type[Record], request: ServerRequest) -> Record:
        """The answer as a record of this kind.

        Raises:
            TealServerError, ServerUnreachable: as `call`.
            ProtocolError: the answer does not fit.
        """
        return record_of(kind, await self.call(request))

    @asynccontextmanager
    async def stream(self, request: ServerRequest) -> AsyncGenerator[ByteStream | None, None]:
        """The answer as it comes, `None` if there is nothing (more) to read. One try only.

        Raises:
            TealServerError, ServerUnreachable: as `call`.
            ProtocolError: the answer is no event stream.
        """
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
        response = await self._send(request, headers)
        try:
            if response.status == 204:
                yield None
                return
            if response.content_type != "text/event-stream":
                raise ProtocolError(f"expected a stream of events, not {response.content_type}")
            yield ByteStream(response)
        finally:
            response.close()

    async def _call_once(self, request: ServerRequest) -> Any:
        accept = "application/json" if request.is_json else "*/*"
        async with await self._send(request, {"Accept": accept}) as response:
            try:
                body = await response.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise ServerUnreachable(f"The answer was cut off: {_reason(error)}") from error
        if response.status == 204 or not body:
            return None
        if not request.is_json:
            return body
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise ProtocolError("the server's answer is not JSON") from error

    async def _send(
        self, request: ServerRequest, headers: dict[str, str]
    ) -> aiohttp.ClientResponse:
        """A refused token is renewed once: a request with it has done nothing."""
        token = await self._fresh_token()
        response = await self._send_once(request, headers, token)
        if response.status == 401 and token and isinstance(self._token, TokenSource):
            other = await self._token.renewed(token)
            if other is not None:
                response.close()
                response = await self._send_once(request, headers, other)
        if not 200 <= response.status < 300:
            raise await refusal(response)
        return response

    async def _send_once(
        self, request: ServerRequest, headers: Mapping[str, str], token: str | None
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("The client is not open: use `async with TealClient(...)`.")
        headers = {**headers, **({"Authorization": f"Bearer {token}"} if token else {})}
        data = None
        if request.body is not None:
            data = orjson.dumps(request.body)
            headers["Content-Type"] = "application/json"
        try:
            return await self._session.request(
                request.method,
                self._base_url + request.path,
                params={**request.query, **self._named},
                data=data,
                headers={**headers, **request.headers},
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(error) from error

    async def _fresh_token(self) -> str | None:
        if isinstance(self._token, TokenSource):
            return await self._token.current()
        token = self._token() if callable(self._token) else self._token
        return await token if isawaitable(token) else token


def record_of(kind: type[Record], document: Any) -> Record:
    """Raises ProtocolError: the document does not fit."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise ProtocolError(f"the server sent an unusable {kind.__name__}") from error


def _may_have_been_done(failure: ClientError) -> bool:
    match failure:
        case ServerUnreachable():
            return failure.was_sent
        case TealServerError():
            return failure.status != 429 and failure.code != "shutting_down"
        case _:
            return True


def _unreachable(error: Exception) -> ServerUnreachable:
    was_sent = not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    is_passing = not isinstance(error, aiohttp.ClientSSLError)
    message = f"The server cannot be reached: {_reason(error)}"
    return ServerUnreachable(message, was_sent=was_sent, is_passing=is_passing)


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"there is no host named {error.host}"
    if isinstance(error, aiohttp.ClientSSLError):
        return str(error)
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        # Its own text says "ssl" also where there is none.
        return f"{error.host} port {error.port}: {os.strerror(error.os_error.errno)}"
    return str(error) or type(error).__name__


async def refusal(response: aiohttp.ClientResponse) -> ClientError:
    try:
        problem = orjson.loads(await _at_most(response.content, MAX_PROBLEM_BYTES))
    except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError):
        # Something between us and the server speaks; its status is what there is to know.
        problem = {}
    finally:
        response.close()
    if not isinstance(problem, dict):
        problem = {}
    retry_after = _seconds(response.headers.get("Retry-After"))
    return server_error(response.status, problem, retry_after=retry_after)


async def _at_most(content: aiohttp.StreamReader, size: int) -> bytes:
    try:
        return await content.readexactly(size)
    except asyncio.IncompleteReadError as whole:
        return whole.partial


def _seconds(value: str | None) -> float | None:
    """The header is a number of seconds or a date. Nonsense counts as absent."""
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
