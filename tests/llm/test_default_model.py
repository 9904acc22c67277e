"""Which model a server without configuration finds, and what it does not wait for."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sk_agents.exceptions import ConfigurationError
from sk_agents.llm.default_model import (
    USUAL_MODELS,
    DefaultModel,
    NoModel,
    choose_model,
)
from sk_agents.llm.providers import PROVIDERS
from tests.llm.loopback import RawServer, head
from tests.patience import seconds


async def no_ollama(url: str) -> Sequence[str]:
    return []


async def must_not_ask(url: str) -> Sequence[str]:
    raise AssertionError(url)


@pytest.mark.parametrize(
    ("environ", "name", "because"),
    [
        ({"OPENAI_API_KEY": "k"}, "gpt-5.4-mini", "OPENAI_API_KEY is set"),
        ({"TA_API_KEY": "k"}, "gpt-5.4-mini", "TA_API_KEY is set"),
        ({"OPENAI_BASE_URL": "http://x/v1"}, "gpt-5.4-mini", "OPENAI_BASE_URL is set"),
        ({"ANTHROPIC_API_KEY": "k"}, USUAL_MODELS["anthropic"], "ANTHROPIC_API_KEY is set"),
        ({"GEMINI_API_KEY": "k"}, USUAL_MODELS["gemini"], "GEMINI_API_KEY is set"),
        ({"GROQ_API_KEY": "k"}, USUAL_MODELS["groq"], "GROQ_API_KEY is set"),
        (
            {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"},
            "gpt-5.4-mini",
            "OPENAI_API_KEY is set",
        ),
        ({"AZURE_API_KEY": "k", "GROQ_API_KEY": "k"}, USUAL_MODELS["groq"], "GROQ_API_KEY is set"),
    ],
)
async def test_key_that_is_set_decides_and_nothing_else_is_asked(
    environ: dict[str, str], name: str, because: str
) -> None:
    assert await choose_model(None, environ, must_not_ask) == DefaultModel(name, because)


@pytest.mark.parametrize("provider", ["anthropic", "gemini"])
async def test_providers_with_a_client_of_ours_need_no_litellm(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    variable = PROVIDERS[provider].key_variable
    assert variable is not None
    chosen = await choose_model(None, {variable: "k"}, must_not_ask)
    assert isinstance(chosen, DefaultModel)
    assert chosen.name == USUAL_MODELS[provider]


async def test_setting_is_stronger_than_every_key() -> None:
    chosen = await choose_model(
        "groq/x", {"OPENAI_API_KEY": "k", "GROQ_API_KEY": "k"}, must_not_ask
    )
    assert chosen == DefaultModel("groq/x", "TA_MODEL is set")


async def test_setting_that_cannot_be_used_stops_the_start_naming_itself() -> None:
    with pytest.raises(ConfigurationError, match=r"^TA_MODEL: .*GROQ_API_KEY"):
        await choose_model("groq/x", {}, must_not_ask)


async def test_running_ollama_is_used_and_models_for_search_are_left_alone() -> None:
    listed = b'{"data": [{"id": "nomic-embed-text"}, {"id": "llama3.2:1b"}]}'
    async with RawServer([head("200 OK", "application/json"), listed]) as server:
        host = server.base_url.removesuffix("/v1")
        chosen = await choose_model(None, {"OLLAMA_HOST": host})
    assert chosen == DefaultModel("ollama/llama3.2:1b", "Ollama runs here")


async def test_ollama_that_does_not_answer_is_not_waited_for() -> None:
    async def silent(url: str) -> Sequence[str]:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async with asyncio.timeout(seconds(5)):
        assert await choose_model(None, {}, silent) == DefaultModel(
            "local/smollm2", "no key is set"
        )


async def test_local_model_is_the_last_resort_and_gets_no_tools() -> None:
    chosen = await choose_model(None, {}, no_ollama)
    assert isinstance(chosen, DefaultModel)
    assert chosen.agent_fields() == {"model": "local/smollm2", "plugins": []}


async def test_without_anything_there_is_no_model_and_what_was_found_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for package in ("xllamacpp", "litellm"):
        monkeypatch.setitem(sys.modules, package, None)
    assert await choose_model(None, {}, no_ollama) == NoModel()
    azure = await choose_model(None, {"AZURE_API_KEY": "k"}, no_ollama)
    assert azure == NoModel(("AZURE_API_KEY is set, but name a model with TA_MODEL",))
    cohere = await choose_model(None, {"COHERE_API_KEY": "k"}, no_ollama)
    assert isinstance(cohere, NoModel)
    assert "teal-agents[litellm]" in cohere.notes[0]


def test_usual_models_are_of_providers_that_need_a_key() -> None:
    assert all(PROVIDERS[name].key_variable for name in USUAL_MODELS)


def test_usual_models_are_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    section = page.partition("## What a server without configuration uses")[2].partition("\n## ")[0]
    listed = dict(re.findall(r"^\| `(\w+)`.* \| `(\S+)` \|$", section, re.MULTILINE))
    assert listed == {PROVIDERS[p].key_variable: name for p, name in USUAL_MODELS.items()}
