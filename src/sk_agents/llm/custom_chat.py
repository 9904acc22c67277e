"""A chat client of semantic-kernel, from a factory of the operator's own, as a `Model`.

It is known by its methods alone: `get_streaming_chat_message_contents`, or
`get_chat_message_contents` where it cannot stream.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from sk_agents.engine.turns import ModelPiece, Prompt
from sk_agents.exceptions import ModelError, ModelInterrupted, ModelUnavailable
from sk_agents.llm.custom_kernel import KernelWords, chunk_of
from sk_agents.llm.openai_wire import encoded
from sk_agents.llm.provider_errors import refusal
from sk_agents.llm.replies import Reply
from sk_agents.llm.retry import Attempts, Pace, RetryPolicy, is_passing

logger = logging.getLogger(__name__)

STREAMING = "get_streaming_chat_message_contents"
WHOLE = "get_chat_message_contents"
MOST_CAUSES = 8
# Parts of the names under which client libraries report that nobody answered.
UNREACHED = ("Timeout", "Connect")


class KernelChat:
    """`structured` says that the model takes a schema for its answer."""

    def __init__(
        self,
        name: str,
        service: Any,
        *,
        structured: bool = False,
        retry: RetryPolicy | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._name = name
        self._service = service
        self._structured = structured
        self._retry = retry or RetryPolicy()
        self._pace = pace or Pace()
        self._words: KernelWords | None = None

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece]]:
        attempts = Attempts(self._retry, self._pace)
        while True:
            reply = Reply(prompt.limits)
            try:
                async with aclosing(self._attempt(prompt, reply)) as steps:
                    async for pieces in steps:
                        yield pieces
                return
            except ModelError as error:
                failure = error
            except Exception as error:
                # The client is foreign code.
                failure = _failure(error)
            if reply.begun:
                raise ModelInterrupted() if is_passing(failure) else failure
            if not await attempts.may_repeat_after(failure):
                raise failure
            logger.info(
                "the model is asked again",
                extra={"model": self._name, "attempt": attempts.made, "code": failure.code},
            )

    async def _attempt(self, prompt: Prompt, reply: Reply) -> AsyncGenerator[list[ModelPiece]]:
        request = await self._request(prompt)
        async with aclosing(self._contents(request, reply)) as contents:
            async for content in contents:
                reply.take(chunk_of(content))
                pieces = reply.drain()
                if pieces:
                    yield pieces
        # A client that ends without an error has said everything, with or without a reason.
        reply.finish()
        yield reply.drain()

    async def _contents(self, request: dict[str, Any], reply: Reply) -> AsyncGenerator[Any]:
        streaming = getattr(self._service, STREAMING, None)
        if streaming is not None:
            try:
                batches = streaming(**request)
                if inspect.isawaitable(batches):
                    batches = await batches
                async with aclosing(batches):
                    async for batch in batches:
                        yield _first(batch)
                return
            except NotImplementedError:
                if reply.begun or not hasattr(self._service, WHOLE):
                    raise
        whole = getattr(self._service, WHOLE)
        if inspect.iscoroutinefunction(whole):
            batch = await whole(**request)
        else:
            batch = await asyncio.to_thread(whole, **request)
            batch = await batch if inspect.isawaitable(batch) else batch
        yield _first(batch)

    async def _request(self, prompt: Prompt) -> dict[str, Any]:
        if self._words is None:
            # Some of the library's modules take long to import.
            self._words = await asyncio.to_thread(KernelWords)
        words = self._words
        request = {
            "chat_history": words.chat_history(prompt.messages),
            "settings": words.execution_settings(
                self._service, prompt, structured=self._structured
            ),
        }
        return {**request, "kernel": words.kernel(prompt.tools)} if prompt.tools else request


def _first(batch: Any) -> Any:
    """Of several answers to one prompt only the first is ours."""
    return batch[0] if isinstance(batch, list | tuple) and batch else batch


def _failure(error: Exception) -> ModelError:
    """What a status anywhere among the causes means; the library wraps its clients' errors."""
    logger.warning("the model's client failed with %s", type(error).__name__)
    for cause in _causes(error):
        status = getattr(cause, "status_code", None)
        if isinstance(status, int) and 400 <= status < 600:
            document = {"message": str(cause), "code": getattr(cause, "code", None)}
            return refusal(status, encoded({"error": document}), None)
        name = type(cause).__name__
        if isinstance(cause, OSError) or any(part in name for part in UNREACHED):
            return ModelUnavailable(f"the provider cannot be reached ({name})")
    return ModelError(f"the model's client failed ({type(error).__name__})")


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if found is None:
            return
        yield found
        inside = (entry for entry in found.args if isinstance(entry, BaseException))
        found = found.__cause__ or next(inside, None) or found.__context__
