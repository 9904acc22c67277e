"""Providers with an API of their own, through litellm.

litellm is large and slow to import, so it is imported by the first request, in a thread.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from sk_agents.engine.turns import ModelPiece, Prompt
from sk_agents.exceptions import (
    ContextTooLong,
    ModelError,
    ModelRefused,
    ModelUnavailable,
)
from sk_agents.llm.failures import (
    Attempts,
    RetryPolicy,
    Timing,
    parse_retry_after,
    refusal,
)
from sk_agents.llm.http_client import Timeouts
from sk_agents.llm.openai_wire import PLAIN, Dialect, encoded, request_body
from sk_agents.llm.replies import StreamedReply

SETTINGS = {
    # Otherwise the import asks the network for a list of prices.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    # Otherwise the import reads `.env` into the environment of this process.
    "LITELLM_MODE": "PRODUCTION",
}


class LitellmChat:
    """A `Model` by its litellm name. `options` go to every call as they are.

    `trace` gives the `traceparent` of the call that is being made.
    """

    def __init__(
        self,
        name: str,
        key: str | None = None,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        timing: Timing | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        dialect: Dialect = PLAIN,
        trace: Callable[[], str | None] | None = None,
    ) -> None:
        self._name = name
        self._key = key
        self._timeouts = timeouts or Timeouts()
        self._retry = retry or RetryPolicy()
        self._timing = timing or Timing()
        self._options = options or {}
        self._dialect = dialect
        self._trace = trace

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece]]:
        library = await asyncio.to_thread(load_litellm)
        # Its exceptions derive from those of the libraries it builds on.
        foreign = importlib.import_module("openai").OpenAIError
        transport = importlib.import_module("aiohttp").ClientError
        errors = (foreign, transport, OSError)
        attempts = Attempts(self._retry, self._timing)
        while True:
            reply = StreamedReply(prompt.limits)
            try:
                async with aclosing(self._attempt(library, prompt, reply)) as steps:
                    async for pieces in steps:
                        yield pieces
                return
            except errors as error:
                failure = self._failure(error)
            except ModelError as error:
                failure = error
            await attempts.repeat_after(failure, self._name, is_begun=reply.begun)

    async def _attempt(
        self, library: Any, prompt: Prompt, reply: StreamedReply
    ) -> AsyncGenerator[list[ModelPiece]]:
        chunks = await library.acompletion(**self._request(prompt))
        try:
            async for chunk in chunks:
                reply.take(chunk.model_dump())
                pieces = reply.drain()
                if pieces:
                    yield pieces
            reply.end()
            yield reply.drain()
        finally:
            await chunks.aclose()

    def _request(self, prompt: Prompt) -> dict[str, Any]:
        request = request_body(self._name, prompt, self._dialect) | {
            "timeout": self._timeouts.idle,
            "num_retries": 0,
            "max_retries": 0,
            # What a provider does not know is left out, not refused.
            "drop_params": True,
            **self._options,
        }
        if self._key is not None:
            request["api_key"] = self._key
        if self._trace is not None and (trace := self._trace()) is not None:
            headers = request.get("extra_headers", {})
            request["extra_headers"] = {**headers, "traceparent": trace}
        return request

    def _failure(self, error: Exception) -> ModelError:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if "ContextWindowExceededError" in kinds:
            return ContextTooLong()
        if "LiteLLMUnknownProvider" in kinds:
            return ModelRefused("litellm knows no such provider")
        status = getattr(error, "status_code", None)
        if not isinstance(status, int) or status < 400:
            name = type(error).__name__
            return ModelUnavailable(f"the provider cannot be reached ({name})")
        body = encoded({"error": {"message": str(error), "code": getattr(error, "code", None)}})
        headers = getattr(error, "litellm_response_headers", None) or {}
        wait = parse_retry_after(headers.get("retry-after"), self._timing.clock.now())
        return refusal(status, body, self._key, retry_after=wait)


def load_litellm() -> Any:
    """The library, with its telemetry, its network lookups and its chatter switched off.

    Raises:
        ModelRefused: it is not installed.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        library = importlib.import_module("litellm")
    except ModuleNotFoundError as error:
        raise ModelRefused(
            f"{error.name} is not installed: pip install 'teal-agents[litellm]'"
        ) from None
    library.telemetry = False  # type: ignore[attr-defined]
    library.suppress_debug_info = True  # type: ignore[attr-defined]
    return library
