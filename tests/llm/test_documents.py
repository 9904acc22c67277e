"""PDFs as each provider takes them; their text for models that do not read any."""

import json
from typing import Any

import pytest

from sk_agents.engine.models import Attachment, Message, Part
from sk_agents.engine.turns import Prompt
from sk_agents.llm import anthropic_messages, gemini, openai_responses
from sk_agents.llm.local import plain_messages
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_wire import MAX_PAGES, Dialect, request_body
from sk_agents.llm.providers import ModelSpec, build_model
from sk_agents.llm.streamed_chat import Endpoint, StreamedChat
from sk_agents.llm.tokens import estimate_message

URI = "data:application/pdf;base64,JVBERi0="
READS = Dialect(reads_pdfs=True)


def asked(pages: int = 2) -> Prompt:
    original = Attachment(media_type="application/pdf", uri=URI, size=5)
    text = "[page 1] Invoice"
    part = Part(kind="file", content=text, name="a.pdf", original=original, pages=pages)
    return Prompt([Message(role="user", parts=(Part(content="pay"), part))])


def endpoint(dialect: Dialect = READS) -> Endpoint:
    return Endpoint("http://h", "m", dialect=dialect)


def test_chat_completions_get_a_file() -> None:
    (message,) = request_body("m", asked(), READS)["messages"]
    assert message["content"] == [
        {"type": "text", "text": "pay"},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": URI}},
    ]


def test_responses_get_an_input_file() -> None:
    (message,) = openai_responses.request_body(endpoint(), asked())["input"]
    assert message["content"][1] == {
        "type": "input_file",
        "filename": "a.pdf",
        "file_data": URI,
    }


def test_anthropic_gets_a_document() -> None:
    (message,) = anthropic_messages.request_body(endpoint(), asked())["messages"]
    document = message["content"][1]
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    assert (document["type"], document["source"], document["title"]) == (
        "document",
        source,
        "a.pdf",
    )


def test_gemini_gets_inline_data() -> None:
    (content,) = gemini.request_body(endpoint(), asked())["contents"]
    inline = {"mimeType": "application/pdf", "data": "JVBERi0="}
    assert content["parts"][1] == {"inlineData": inline}


@pytest.mark.parametrize("kind", [anthropic_messages, gemini, openai_responses, None])
@pytest.mark.parametrize(("dialect", "pages"), [(Dialect(), 2), (READS, MAX_PAGES + 1)])
def test_others_and_long_ones_get_the_text(kind: Any, dialect: Dialect, pages: int) -> None:
    prompt = asked(pages)
    body = (
        kind.request_body(endpoint(dialect), prompt) if kind else request_body("m", prompt, dialect)
    )
    text = json.dumps(body)
    assert "JVBERi0" not in text
    assert "File a.pdf:\\n[page 1] Invoice" in text


def test_local_model_gets_the_text() -> None:
    (message,) = plain_messages(asked().messages)
    assert message.content == "pay\nFile a.pdf:\n[page 1] Invoice"


def test_pages_are_counted_as_pictures() -> None:
    (message,) = asked(pages=10).messages
    assert 10_000 < estimate_message(message) < 13_000


@pytest.mark.parametrize(
    ("name", "options", "reads"),
    [
        ("gpt-5.4", {}, True),
        ("gpt-3.5-turbo", {}, False),
        ("openai_responses/gpt-5.4", {}, True),
        ("anthropic/claude-sonnet-4-6", {}, True),
        ("gemini/gemini-3.1-pro", {}, True),
        ("groq/llama-4-scout", {}, False),
        ("gpt-5.4", {"base_url": "http://gateway/v1"}, False),
        ("gpt-5.4", {"base_url": "http://gateway/v1", "reads_pdfs": True}, True),
        ("gpt-5.4", {"reads_pdfs": False}, False),
        ("azure/gpt-5.4", {"base_url": "https://a.openai.azure.com"}, False),
    ],
)
async def test_who_reads_pdfs_is_known_by_provider_and_model(
    name: str, options: dict[str, Any], reads: bool
) -> None:
    keys = ("OPENAI", "ANTHROPIC", "GEMINI", "GROQ", "AZURE")
    environ = {f"{key}_API_KEY": "k" for key in keys} | {"TA_API_KEY": "k"}
    async with ModelClients() as clients:
        model = build_model(ModelSpec(name, **options), clients, environ)
    assert isinstance(model, StreamedChat)
    assert model.endpoint.dialect.reads_pdfs is reads
