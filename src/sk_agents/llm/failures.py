"""What a provider's refusal means, and when the same request is sent again.

A provider's own words may repeat the key or the conversation, so they never become part of a
message: only the status and the provider's short code do. The words are logged at debug level,
without the key.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from sk_agents.engine.defaults import SystemClock
from sk_agents.engine.ports import Clock
from sk_agents.exceptions import (
    ContextTooLong,
    ModelError,
    ModelInterrupted,
    ModelProtocolError,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
)

logger = logging.getLogger(__name__)

CODE = re.compile(r"[A-Za-z][\w.-]{0,63}", re.ASCII)
PARAM = re.compile(r"[A-Za-z][\w.\[\]-]{0,63}", re.ASCII)
UNSUPPORTED_CODES = {"unsupported_parameter", "unsupported_value", "unknown_parameter"}
UNSUPPORTED_WORDS = re.compile(
    r"unsupported (parameter|value|field)|unrecognized request argument|unknown (parameter|field)"
    r"|(not|no longer) (supported|permitted|allowed)|does not support|is deprecated",
    re.IGNORECASE,
)
# The first name in quotes, or what follows a colon.
NAMED_PARAMETER = re.compile(
    r"[`'\"]([a-z_]{3,40})[`'\"]|(?:supplied|parameter|field): ?([a-z_]{3,40})"
)
CONTEXT_CODES = {"context_length_exceeded", "exceed_context_size_error", "request_too_large"}
CONTEXT_WORDS = re.compile(
    r"context.{0,10}(length|window|size)|prompt is too long|too many (input )?tokens"
    r"|maximum.{0,20}tokens.{0,40}(prompt|context)",
    re.IGNORECASE | re.DOTALL,
)
# Waiting does not fill an empty account.
SPENT_CODES = {"insufficient_quota", "billing_hard_limit_reached"}
# Statuses besides 5xx that the same request may well pass a moment later.
PASSING_STATUSES = {408, 409, 425}
HINTS = {
    401: "the API key is missing or wrong",
    402: "the account has no credit",
    403: "the API key may not use this model",
    404: "no such model, or a wrong base URL",
    407: "the proxy wants a user and a password: put them into the URL of HTTP_PROXY",
}
# What the litellm proxy answers to a key that it does not know, unless it has a database.
UNKNOWN_KEY_CODES = {"no_db_connection"}
UNKNOWN_MODEL_WORDS = re.compile(r"invalid model name|model.{0,100}not found", re.IGNORECASE)

Sleep = Callable[[float], Awaitable[object]]


def refusal(
    status: int, body: bytes, key: str | None, *, retry_after: float | None = None
) -> ModelError:
    """The error that this answer stands for."""
    error = error_object(body)
    _log(status, error, key)
    code = error_code(error)
    param = error_param(error)
    about = ": ".join(filter(None, (code, param)))
    name = f"the provider answered {status}" + (f" ({about})" if about else "")
    wait = {} if retry_after is None else {"retry_after": math.ceil(retry_after)}
    if status == 429:
        return ModelRateLimited(name, status=status, is_final=code in SPENT_CODES, **wait)
    if status >= 500 or status in PASSING_STATUSES:
        return ModelUnavailable(name, status=status, **wait)
    if status < 400:
        return ModelProtocolError(f"{name}: not a reply; is the base URL right?", status=status)
    if status == 413 or (status in {400, 422} and is_about_context(error)):
        return ContextTooLong(status=status)
    hint = _hint(status, code, error)
    unsupported = unsupported_parameter(error) if status in {400, 422} else None
    more = {} if unsupported is None else {"unsupported": unsupported}
    return ModelRefused(f"{name}: {hint}" if hint else name, status=status, **more)


def _hint(status: int, code: str | None, error: Mapping[str, Any]) -> str | None:
    if code in UNKNOWN_KEY_CODES:
        return HINTS[401]
    message = error.get("message")
    if status == 400 and isinstance(message, str) and UNKNOWN_MODEL_WORDS.search(message[:500]):
        return HINTS[404]
    return HINTS.get(status)


def error_in_stream(error: Any, key: str | None) -> ModelError:
    """An error object where a chunk was due; its code may be a status, a name or neither."""
    document = error if isinstance(error, Mapping) else {"message": str(error)}
    for value in (document.get("code"), document.get("status"), document.get("type")):
        status = _status(value)
        if status:
            return refusal(status, orjson.dumps({"error": dict(document)}), key)
    _log(200, document, key)
    if is_about_context(document):
        return ContextTooLong()
    code = error_code(document)
    return ModelProtocolError(f"the reply holds an error{f' ({code})' if code else ''}")


def error_object(body: bytes) -> Mapping[str, Any]:
    """The error in a body, however it is wrapped; empty for HTML and other surprises."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    if isinstance(document, list) and document:
        document = document[0]
    if not isinstance(document, Mapping):
        return {}
    inner = document.get("error", document)
    if isinstance(inner, Mapping):
        return inner
    return {"message": inner} if isinstance(inner, str) else {}


def error_code(error: Mapping[str, Any]) -> str | None:
    for value in (error.get("code"), error.get("type"), error.get("status")):
        if isinstance(value, str) and CODE.fullmatch(value):
            return value
    return None


def error_param(error: Mapping[str, Any]) -> str | None:
    """Which parameter the provider complains of."""
    param = error.get("param")
    return param if isinstance(param, str) and PARAM.fullmatch(param) else None


def unsupported_parameter(error: Mapping[str, Any]) -> str | None:
    """The parameter that the provider does not know or take, if that is what the error says."""
    message = error.get("message", error.get("detail"))
    said = message[:2000] if isinstance(message, str) else ""
    if isinstance(message, list):
        return _extra_field(message)
    is_unsupported = error.get("code") in UNSUPPORTED_CODES or UNSUPPORTED_WORDS.search(said)
    if not is_unsupported:
        return None
    param = error_param(error)
    if param is None and (named := NAMED_PARAMETER.search(said)):
        param = named[1] or named[2]
    return param.split(".")[0] if param else None


def _extra_field(problems: list[Any]) -> str | None:
    """As servers made with pydantic say it: where, and that nothing may be there."""
    for problem in problems:
        if isinstance(problem, Mapping) and problem.get("type") == "extra_forbidden":
            place = problem.get("loc")
            if isinstance(place, list) and len(place) > 1 and isinstance(place[1], str):
                return place[1]
    return None


def is_about_context(error: Mapping[str, Any]) -> bool:
    if {error.get("code"), error.get("type")} & CONTEXT_CODES:
        return True
    message = error.get("message")
    return isinstance(message, str) and CONTEXT_WORDS.search(message[:2000]) is not None


_STATUS_OF_NAMES = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "overloaded_error": 529,
    "server_error": 500,
    "internal_server_error": 500,
    "service_unavailable": 503,
}


def _status(value: Any) -> int | None:
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) == 3 else _STATUS_OF_NAMES.get(value)
    return value if isinstance(value, int) and 400 <= value < 600 else None


def _log(status: int, error: Mapping[str, Any], key: str | None) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        detail = str(error.get("message", ""))[:500]
        if key:
            detail = detail.replace(key, "***")
        logger.debug("the provider refused", extra={"status": status, "detail": detail})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`attempts` counts the first one; `total_wait` bounds all of it, failed attempts included."""

    attempts: int = 4
    first_wait: float = 0.5
    longest_wait: float = 20.0
    total_wait: float = 60.0


@dataclass(frozen=True, slots=True)
class Timing:
    """The clock, the sleep and the chance that waiting needs; tests give their own."""

    clock: Clock = SystemClock()
    sleep: Sleep = asyncio.sleep
    chance: Callable[[], float] = random.random


class Attempts:
    """The attempts at one request."""

    def __init__(self, policy: RetryPolicy, timing: Timing) -> None:
        self._policy = policy
        self._timing = timing
        self._begun = timing.clock.monotonic()
        self.made = 1

    async def repeat_after(self, failure: ModelError, model: str, *, is_begun: bool) -> None:
        """Return when the request may be sent again.

        Raises:
            ModelInterrupted: the failure came in the middle of a reply.
            ModelError: the failure itself; it is sent no more.
        """
        if is_begun:
            raise ModelInterrupted() if is_passing(failure) else failure
        if not await self.may_repeat_after(failure):
            raise failure
        logger.info(
            "the model is asked again",
            extra={"model": model, "attempt": self.made, "code": failure.code},
        )

    async def may_repeat_after(self, failure: ModelError) -> bool:
        """Wait as long as the policy says; False, without waiting, if that is out of bounds."""
        if self.made >= self._policy.attempts or not is_passing(failure):
            return False
        # A pooled connection that its other end had closed: the first repeat costs nothing.
        at_once = failure.attributes.get("dropped") and self.made == 1
        delay = 0.0 if at_once else self._delay(failure.attributes.get("retry_after"))
        passed = self._timing.clock.monotonic() - self._begun
        if passed + delay > self._policy.total_wait:
            return False
        self.made += 1
        if delay > 0:
            await self._timing.sleep(delay)
        return True

    def _delay(self, retry_after: float | None) -> float:
        policy = self._policy
        growing = min(policy.longest_wait, policy.first_wait * 2.0 ** (self.made - 1))
        jittered = growing * (0.5 + 0.5 * self._timing.chance())
        # The jitter comes on top: clients that got the same moment must not all return in it.
        return jittered if retry_after is None else retry_after + jittered * 0.25


def is_passing(failure: ModelError) -> bool:
    """The same request may well succeed a moment later."""
    return isinstance(
        failure, ModelRateLimited | ModelUnavailable | ModelInterrupted
    ) and not failure.attributes.get("is_final")


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds from now; the header is a number or an HTTP date. Nonsense counts as absent."""
    if value is None or len(value) > 64:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - now).total_seconds()
    # NaN and infinity are numbers too.
    return max(0.0, seconds) if -1e9 < seconds < 1e9 else None
