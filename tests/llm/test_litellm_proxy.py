"""Our client through the litellm proxy, a program of its own that `make chaos` installs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sk_agents.engine.models import Message, ToolCall, Usage
from sk_agents.engine.turns import (
    CallRequested,
    ModelPiece,
    Prompt,
    ReasoningDelta,
    TextDelta,
    ToolSpec,
    TurnFinished,
)
from sk_agents.exceptions import (
    ContextTooLong,
    ModelError,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
)
from sk_agents.llm.failures import RetryPolicy
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import OpenAIChat
from sk_agents.llm.streamed_chat import Endpoint
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.patience import seconds
from tests.tools.mcp_servers.running import held_port

PROXY = Path(sys.prefix) / ".litellm-proxy" / "bin" / "litellm"
pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(not PROXY.exists(), reason="litellm's proxy is not installed: make chaos"),
    pytest.mark.timeout(seconds(300)),
]

KEY = "sk-proxy"
USED = Usage(prompt_tokens=6, completion_tokens=4)
HELLO = Prompt([Message(role="user", content="hello")])
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolSpec("weather-today", "the weather", CITY)
CALL = ToolCall(id="c1", plugin_name="weather", function_name="today", arguments={"city": "Bonn"})
ANSWERED = Prompt(
    [
        *HELLO.messages,
        Message(role="assistant", tool_calls=(CALL,)),
        Message(role="tool", tool_call_id="c1", content="sunny"),
    ],
    tools=[WEATHER],
)


@dataclass(frozen=True, slots=True)
class Case:
    """What the provider behind the proxy does with a prompt; nothing if it is never asked."""

    turn: Turn | Exception | None
    prompt: Prompt = HELLO
    model: str = "scripted"
    key: str = KEY


CASES = {
    "text": Case(says("hello wide world", pieces=4, usage=USED)),
    "thoughts, and cut": Case(
        [ReasoningDelta("hm"), TextDelta("so"), TurnFinished("length", USED)]
    ),
    "parallel calls": Case(
        calls(
            ("weather-today", {"city": "Bonn"}), ("weather-today", {"city": "Århus"}), usage=USED
        ),
        Prompt(HELLO.messages, tools=[WEATHER]),
    ),
    "results of calls": Case(says("It is sunny.", usage=USED), ANSWERED),
    "too many requests": Case(ModelError("slow down", status=429, headers={"retry-after": "7"})),
    "out of order": Case(ModelError("broken", status=500)),
    "not taken": Case(ModelError("temperature: must be below 2", status=400)),
    "too long": Case(ModelError("This model's maximum context length is 10 tokens", status=400)),
    "cut off": Case([TextDelta("half"), ModelError("gone")]),
    "wrong key": Case(None, key="sk-wrong"),
    "wrong model": Case(None, model="other"),
}


@dataclass(slots=True)
class Seen:
    """What came of the cases, by their names."""

    replies: dict[str, list[ModelPiece]] = field(default_factory=dict)
    errors: dict[str, ModelError] = field(default_factory=dict)
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def seen() -> Seen:
    """All cases in turn: the proxy takes half a minute to start."""
    return asyncio.run(_tried())


async def _tried() -> Seen:
    found = Seen()
    script = [case.turn for case in CASES.values() if case.turn is not None]
    async with (
        ScriptedModelServer(script) as provider,
        proxy_for(provider.base_url) as url,
        ModelClients() as clients,
    ):
        for name, case in CASES.items():
            retry = RetryPolicy(attempts=1)
            model = OpenAIChat(clients, Endpoint(url, case.model, case.key, retry=retry))
            pieces: list[ModelPiece] = []
            before = len(provider.requests)
            try:
                async for some in model.stream(case.prompt):
                    pieces += some
            except ModelError as error:
                found.errors[name] = error
            found.replies[name] = pieces
            (found.requests[name],) = provider.requests[before:] or [{}]
    return found


@asynccontextmanager
async def proxy_for(upstream: str) -> AsyncIterator[str]:
    """The proxy's base URL, once it answers."""
    model = {"model": "openai/upstream", "api_base": upstream, "api_key": "upstream-key"}
    config = {
        "model_list": [{"model_name": "scripted", "litellm_params": model}],
        "litellm_settings": {"num_retries": 0, "telemetry": False},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
        "general_settings": {"master_key": KEY},
    }
    with held_port() as port:
        pass
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proxy.yaml"
        path.write_text(json.dumps(config))
        process = await asyncio.create_subprocess_exec(
            *(str(PROXY), "--config", str(path), "--host", "127.0.0.1", "--port", str(port)),
            stdout=DEVNULL,
            stderr=DEVNULL,
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": folder},
        )
        try:
            await _answers(f"http://127.0.0.1:{port}/health/liveliness", process)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _answers(url: str, process: Process) -> None:
    async with asyncio.timeout(seconds(200)), aiohttp.ClientSession() as session:
        while True:
            assert process.returncode is None, "the proxy has ended"
            with suppress(aiohttp.ClientError):
                async with session.get(url) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)


def test_text_is_streamed_with_its_usage(seen: Seen) -> None:
    *texts, end = seen.replies["text"]
    assert texts == [TextDelta(part) for part in ("hell", "o wi", "de w", "orld")]
    assert end == TurnFinished("stop", USED)
    assert seen.requests["text"]["stream"] is True


def test_thoughts_and_a_cut_answer_come_through(seen: Seen) -> None:
    expected = [ReasoningDelta("hm"), TextDelta("so"), TurnFinished("length", USED)]
    assert seen.replies["thoughts, and cut"] == expected


def test_parallel_calls_stay_apart(seen: Seen) -> None:
    *asked, end = seen.replies["parallel calls"]
    assert all(isinstance(one, CallRequested) for one in asked)
    assert [(one.provider_id, json.loads(one.arguments)) for one in asked] == [  # type: ignore[union-attr]  # see above
        ("provider-1", {"city": "Bonn"}),
        ("provider-2", {"city": "Århus"}),
    ]
    assert end == TurnFinished("tool_calls", USED)
    (tool,) = seen.requests["parallel calls"]["tools"]
    assert tool["function"]["name"] == "weather-today"


def test_results_of_calls_reach_the_provider(seen: Seen) -> None:
    assert seen.replies["results of calls"][0] == TextDelta("It is sunny.")
    _, asked, told = seen.requests["results of calls"]["messages"]
    assert asked["tool_calls"][0]["function"]["name"] == "weather-today"
    assert (told["role"], told["tool_call_id"], told["content"]) == ("tool", "c1", "sunny")


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("too many requests", ModelRateLimited, "429"),
        ("out of order", ModelUnavailable, "500"),
        ("not taken", ModelRefused, "400"),
        ("too long", ContextTooLong, ""),
        ("wrong key", ModelRefused, "the API key is missing or wrong"),
        ("wrong model", ModelRefused, "no such model"),
    ],
)
def test_error_is_what_it_would_be_without_the_proxy(
    seen: Seen, name: str, kind: type[ModelError], words: str
) -> None:
    assert seen.replies[name] == []
    assert isinstance(seen.errors[name], kind)
    assert words in str(seen.errors[name])


def test_answer_that_breaks_off_at_the_provider_is_never_taken_for_a_whole_one(
    seen: Seen,
) -> None:
    assert "cut off" in seen.errors
    assert not any(isinstance(one, TurnFinished) for one in seen.replies["cut off"])
