"""litellm's providers, spoken to through a provider on loopback where litellm is installed."""

import sys

import pytest

from sk_agents.engine.models import Message, Usage
from sk_agents.engine.turns import ModelPiece, Prompt, TextDelta, ToolSpec, TurnFinished
from sk_agents.exceptions import (
    ContextTooLong,
    ModelError,
    ModelInterrupted,
    ModelRateLimited,
    ModelRefused,
)
from sk_agents.llm.litellm_chat import LitellmChat, load_litellm
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.providers import ModelSpec, build_model
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.llm.loopback import HELLO, RawServer, Waits, head, pieces_of, text_of
from tests.requirements import requirement

pytestmark = pytest.mark.filterwarnings("ignore")  # litellm's own warnings are not ours to mend


@pytest.fixture(scope="module", autouse=True)
def litellm() -> None:
    """Its import takes longer than a call may."""
    load_litellm()


def model_at(server: ScriptedModelServer | RawServer, waits: Waits | None = None) -> LitellmChat:
    options = {"api_base": server.base_url}
    return LitellmChat("openai/m", "sk-secret", timing=(waits or Waits()).timing, options=options)


async def test_missing_litellm_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(ModelRefused, match=r"teal-agents\[litellm\]"):
        await pieces_of(LitellmChat("anthropic/claude-x"))
    with pytest.raises(ModelRefused, match="litellm is not installed"):
        load_litellm()


@requirement("S004-1-litellm")
async def test_text_and_usage_arrive() -> None:
    usage = Usage(prompt_tokens=3, completion_tokens=2)
    async with ScriptedModelServer([says("hello there", pieces=4, usage=usage)]) as server:
        *deltas, end = await pieces_of(model_at(server), Prompt(HELLO.messages, temperature=0.0))
        assert server.requests[0]["temperature"] == 0.0
    assert "".join(d.content for d in deltas if isinstance(d, TextDelta)) == "hello there"
    assert end == TurnFinished("stop", usage)


async def test_calls_come_whole() -> None:
    turn = calls(("a-b", {"x": 1}), ("c-d", {}))
    prompt = Prompt([Message(role="user", content="x")], tools=[ToolSpec("a-b", "b", {})])
    async with ScriptedModelServer([turn]) as server:
        pieces = await pieces_of(model_at(server), prompt)
    assert pieces[:2] == list(turn)[:2]
    assert isinstance(pieces[-1], TurnFinished)
    assert pieces[-1].finish_reason == "tool_calls"


async def test_passing_failure_is_tried_again_and_then_reported() -> None:
    waits = Waits()
    limited = ModelError("slow", status=429, headers={"Retry-After": "5"})
    async with ScriptedModelServer([limited, says("hi"), *[limited] * 9]) as server:
        assert await text_of(model_at(server, waits)) == "hi"
        assert waits.seconds[0] >= 5
        with pytest.raises(ModelRateLimited):
            await text_of(model_at(server, waits))


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (401, b'{"error":{"message":"bad key sk-secret"}}', ModelRefused),
        (400, b'{"error":{"code":"context_length_exceeded","message":"x"}}', ContextTooLong),
        (404, b'{"error":{"message":"no model"}}', ModelRefused),
    ],
)
async def test_refusals_are_told_apart_and_show_no_key(
    status: int, body: bytes, expected: type[ModelError]
) -> None:
    length = f"Content-Length: {len(body)}"
    answer = [head(f"{status} No", "application/json", length), body]
    async with RawServer(answer) as server:
        with pytest.raises(expected) as caught:
            await text_of(model_at(server))
    assert "sk-secret" not in str(caught.value)


async def test_cut_stream_is_an_interruption() -> None:
    turn: Turn = [TextDelta("half"), ModelError("cut")]
    async with ScriptedModelServer([turn]) as server:
        seen: list[ModelPiece] = []
        with pytest.raises(ModelInterrupted):
            async for pieces in model_at(server).stream(HELLO):
                seen += pieces
    assert seen == [TextDelta("half")]


async def test_base_url_of_a_litellm_name_goes_to_litellm(clients: ModelClients) -> None:
    async with ScriptedModelServer([says("hi")]) as server:
        spec = ModelSpec("litellm/openai/m", server.base_url)
        model = build_model(spec, clients, {"TA_API_KEY": "k"})
        assert isinstance(model, LitellmChat)
        assert await text_of(model) == "hi"
