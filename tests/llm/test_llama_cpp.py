"""Our client at llama.cpp's own server, in a process of its own, with real weights.

Weights that were taught to call tools are in no registry; those here are held to a JSON schema.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sk_agents.engine.models import Message
from sk_agents.engine.turns import ModelPiece, Prompt, TextDelta, ToolSpec, TurnFinished
from sk_agents.exceptions import ContextTooLong, ModelRefused
from sk_agents.llm.failures import RetryPolicy
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import OpenAIChat
from sk_agents.llm.streamed_chat import Endpoint
from tests.missing import lacks
from tests.patience import seconds

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(seconds(200))]

PROGRAM = Path(__file__).with_name("llama_cpp_server.py")
KEY = "llama-key"
QUESTION = Message(role="user", content="Tell me about Paris.")
CITY = {"enum": ["Paris", "Rome"]}
WEATHER = ToolSpec("weather-today", "the weather", {"type": "object", "properties": {}})


@asynccontextmanager
async def llama_cpp() -> AsyncIterator[str]:
    """Its base URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), stdin=PIPE, stdout=PIPE
    )
    try:
        assert process.stdin is not None and process.stdout is not None
        async with asyncio.timeout(seconds(60)):
            address = (await process.stdout.readline()).decode().strip()
        if not address:
            lacks("libraries", "the local model is not installed: make test")
        yield f"{address}/v1"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def replied(
    clients: ModelClients, url: str, prompt: Prompt, key: str = KEY
) -> list[ModelPiece]:
    retry = RetryPolicy(attempts=1)
    model = OpenAIChat(clients, Endpoint(url, "smol", key, retry=retry))
    return [piece async for pieces in model.stream(prompt) for piece in pieces]


async def test_answers_are_streamed_several_at_once_with_usage_and_cut_where_they_must_be(
    clients: ModelClients,
) -> None:
    async with llama_cpp() as url:
        # More than the server has places for: the third waits its turn.
        prompt = Prompt([QUESTION], tools=[WEATHER], temperature=0.0, max_tokens=12)
        for pieces in await asyncio.gather(*(replied(clients, url, prompt) for _ in range(3))):
            *texts, end = pieces
            assert len(texts) > 3 and all(isinstance(text, TextDelta) for text in texts)
            assert isinstance(end, TurnFinished) and end.finish_reason == "length"
            assert end.usage.completion_tokens == 12 and end.usage.prompt_tokens > 5
            assert end.model == "smol"


async def test_answer_fits_the_schema_that_it_is_held_to(clients: ModelClients) -> None:
    async with llama_cpp() as url:
        prompt = Prompt([QUESTION], temperature=0.0, max_tokens=60, response_schema=CITY)
        *texts, end = await replied(clients, url, prompt)
        assert isinstance(end, TurnFinished) and end.finish_reason == "stop"
        said = "".join(text.content for text in texts if isinstance(text, TextDelta))
        assert json.loads(said) in ("Paris", "Rome")


async def test_errors_say_what_is_wrong(clients: ModelClients) -> None:
    async with llama_cpp() as url:
        with pytest.raises(ModelRefused, match="the API key is missing or wrong"):
            await replied(clients, url, Prompt([QUESTION]), key="another")
        long = Message(role="user", content="word " * 3000)
        with pytest.raises(ContextTooLong):
            await replied(clients, url, Prompt([long]))
        with pytest.raises(ModelRefused, match="answered 400"):
            await replied(clients, url, Prompt([QUESTION], max_tokens=-5))
