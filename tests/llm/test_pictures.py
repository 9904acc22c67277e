"""Pictures that tools return, as each provider takes them; nothing of them for models that cannot
see."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from sk_agents.engine.models import Message, Part, ToolCall
from sk_agents.engine.run.conversation import Conversation, Past
from sk_agents.engine.turns import Prompt
from sk_agents.llm import anthropic_messages, gemini, openai_responses
from sk_agents.llm.local import plain_messages
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_wire import Dialect, RequestEncoder, request_body
from sk_agents.llm.providers import ModelSpec, build_model
from sk_agents.llm.streamed_chat import Endpoint, StreamedChat
from sk_agents.llm.tokens import estimate_message
from sk_agents.llm.vision import sees_images

PNG = "data:image/png;base64,iVBORw0KGgo="
SEES = Dialect(sees_images=True)
CALLS = (
    ToolCall(id="c1", plugin_name="P", function_name="draw", arguments={}),
    ToolCall(id="c2", plugin_name="P", function_name="look", arguments={}),
)
ROUND = [
    Message(role="user", content="draw"),
    Message(role="assistant", tool_calls=CALLS),
    Message(
        role="tool",
        content="[picture]",
        tool_call_id="c1",
        parts=(Part(kind="image", content=PNG), Part(kind="image", content=PNG)),
    ),
    Message(role="tool", content="plain", tool_call_id="c2"),
]
ANSWER = Message(role="assistant", content="There.")
URL = {"type": "image_url", "image_url": {"url": PNG}}
INLINE = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}


def endpoint(model: str, dialect: Dialect = SEES) -> Endpoint:
    return Endpoint("http://h", model, dialect=dialect)


@pytest.mark.parametrize("messages", [ROUND, [*ROUND, ANSWER]])
def test_chat_completions_get_them_after_the_last_result_of_the_round(
    messages: Sequence[Message],
) -> None:
    sent = request_body("m", Prompt(messages), SEES)["messages"]
    assert [one["role"] for one in sent[:5]] == ["user", "assistant", "tool", "tool", "user"]
    assert [one["content"] for one in sent[2:4]] == ["[picture]", "plain"]
    assert sent[4]["content"][1:] == [URL, URL]
    assert sent[5:] == ([] if len(messages) == 4 else [{"role": "assistant", "content": "There."}])


def test_past_that_is_encoded_once_is_the_same() -> None:
    encoder = RequestEncoder("m", SEES)
    past = Past([*ROUND, ANSWER])
    for more in ([], [*ROUND, ANSWER]):
        past.messages.extend(more)
        now = [Message(role="user", content="and now?"), *ROUND[1:]]
        conversation = Conversation([Message(role="system", content="s")], past, now)
        sent = json.loads(encoder.encode(Prompt(conversation)))["messages"]
        assert sent == request_body("m", Prompt(list(conversation)), SEES)["messages"]


def test_anthropic_gets_them_in_the_result() -> None:
    body = anthropic_messages.request_body(endpoint("claude-sonnet-4-6"), Prompt(ROUND))
    first, second = body["messages"][-1]["content"]
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    picture = {"type": "image", "source": source}
    assert first["content"] == [{"type": "text", "text": "[picture]"}, picture, picture]
    assert second["content"] == "plain"


def test_responses_get_them_in_the_output() -> None:
    body = openai_responses.request_body(endpoint("gpt-5.4"), Prompt(ROUND))
    first, second = body["input"][-2:]
    picture = {"type": "input_image", "image_url": PNG}
    assert first["output"] == [{"type": "input_text", "text": "[picture]"}, picture, picture]
    assert second["output"] == "plain"


def test_gemini_gets_them_in_the_response_and_older_ones_beside_it() -> None:
    newer = gemini.request_body(endpoint("gemini-3.1-pro"), Prompt(ROUND))["contents"][-1]["parts"]
    assert newer[0]["functionResponse"]["parts"] == [INLINE, INLINE]
    assert len(newer) == 2
    older = gemini.request_body(endpoint("gemini-2.5-pro"), Prompt(ROUND))["contents"][-1]["parts"]
    assert "parts" not in older[0]["functionResponse"]
    assert older[1:3] == [INLINE, INLINE]


@pytest.mark.parametrize("kind", [anthropic_messages, gemini, openai_responses, None])
def test_model_that_cannot_see_is_sent_the_line_about_them_only(kind: Any) -> None:
    blind = endpoint("m", Dialect())
    body = kind.request_body(blind, Prompt(ROUND)) if kind else request_body("m", Prompt(ROUND))
    text = json.dumps(body)
    assert "iVBORw0KGgo" not in text
    assert "[picture]" in text


def test_local_model_reads_the_line_about_them() -> None:
    assert [one.content for one in plain_messages(ROUND)][2] == "Result of P-draw: [picture]"


def test_picture_counts_as_one_whatever_its_size() -> None:
    large = Part(kind="image", content="data:image/png;base64," + "A" * 4_000_000)
    assert estimate_message(Message(role="tool", content="x", parts=(large,))) < 2_000


@pytest.mark.parametrize(
    ("name", "sees"),
    [
        ("gpt-5.4-mini", True),
        ("gpt-4o", True),
        ("gpt-4", False),
        ("gpt-3.5-turbo", False),
        ("o3", True),
        ("o3-mini", False),
        ("anthropic/claude-sonnet-4-6", True),
        ("gemini/gemini-3.1-pro", True),
        ("ollama/llava:13b", True),
        ("openrouter/qwen/qwen2.5-vl-72b", True),
        ("ollama/llama3.2", False),
        ("ollama/llama3.2-vision", True),
        ("deepseek/deepseek-chat", False),
        ("scripted-test", False),
    ],
)
def test_which_models_see_is_known_by_their_names(name: str, sees: bool) -> None:
    assert sees_images(name) is sees


@pytest.mark.parametrize(("said", "sees"), [(None, False), (True, True), (False, False)])
async def test_agent_file_has_the_last_word(said: bool | None, sees: bool) -> None:
    spec = ModelSpec("my-own", base_url="http://h/v1", sees_images=said)
    async with ModelClients() as clients:
        model = build_model(spec, clients, {})
    assert isinstance(model, StreamedChat)
    assert model.endpoint.dialect.sees_images is sees
