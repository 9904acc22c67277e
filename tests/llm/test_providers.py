"""From a model's name to its client: the table, the keys, and what stops a start-up."""

from pathlib import Path

import pytest

from sk_agents.engine.ports import Model
from sk_agents.exceptions import ConfigurationError
from sk_agents.llm import default_model, providers
from sk_agents.llm.azure_openai import AzureOpenAI
from sk_agents.llm.default_model import AvailableModel, detect_models, installed_in_ollama
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import OpenAIChat
from sk_agents.llm.providers import PROVIDERS, ModelSpec, build_model, endpoint_of
from sk_agents.llm.scripted import ScriptPlayer
from sk_agents.llm.streamed_chat import Endpoint, RequestOptions
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import says
from tests.llm.loopback import RawServer, head, text_of

KEYS = {p.key_variable: f"{p.key_variable}'s" for p in PROVIDERS.values() if p.key_variable}


def resolved(name: str, base_url: str | None = None, **environ: str) -> Endpoint:
    return endpoint_of(ModelSpec(name, base_url), environ)


def test_bare_name_is_openais() -> None:
    endpoint = resolved("gpt-4o", OPENAI_API_KEY="k")
    assert (endpoint.base_url, endpoint.model) == ("https://api.openai.com/v1", "gpt-4o")
    assert endpoint.key == "k"
    assert endpoint.dialect.max_tokens_field == "max_completion_tokens"
    assert resolved("openai/gpt-4o", OPENAI_API_KEY="k") == endpoint


@pytest.mark.parametrize("name", [n for n, p in PROVIDERS.items() if p.client == "chat"])
def test_every_compatible_provider_has_its_address_and_key(name: str) -> None:
    endpoint = endpoint_of(ModelSpec(f"{name}/some/model:8b"), KEYS)
    assert endpoint.base_url == PROVIDERS[name].base_url
    assert endpoint.model == "some/model:8b"
    variable = PROVIDERS[name].key_variable
    assert endpoint.key == (KEYS[variable] if variable else None)


def test_own_key_serves_every_provider_whose_key_is_not_set() -> None:
    assert resolved("groq/x", TA_API_KEY="ours").key == "ours"
    assert resolved("groq/x", TA_API_KEY="ours", GROQ_API_KEY="theirs").key == "theirs"
    assert resolved("ollama/x", TA_API_KEY="ours").key is None


def test_named_variable_is_the_only_one_looked_at() -> None:
    spec = ModelSpec("groq/x", api_key_env="MY_KEY")
    assert endpoint_of(spec, {"MY_KEY": " mine\n", "GROQ_API_KEY": "theirs"}).key == "mine"
    with pytest.raises(ConfigurationError, match="MY_KEY"):
        endpoint_of(spec, {"GROQ_API_KEY": "theirs"})


@pytest.mark.parametrize("name", ["gpt-4o", "groq/x", "openrouter/a/b"])
def test_missing_key_is_found_when_the_model_is_built(name: str, clients: ModelClients) -> None:
    provider = PROVIDERS[name.partition("/")[0] if "/" in name else "openai"]
    with pytest.raises(ConfigurationError, match=f"{provider.key_variable} or TA_API_KEY"):
        build_model(ModelSpec(name), clients, {"TA_API_KEY": "  "})


def test_key_that_cannot_be_a_header_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY") as caught:
        resolved("gpt-4o", OPENAI_API_KEY="sk-\nX-Evil: 1")
    assert "Evil" not in str(caught.value)


def test_base_url_needs_no_key_and_gets_no_providers_key() -> None:
    endpoint = resolved("gpt-4o", "http://127.0.0.1:9/v1/", OPENAI_API_KEY="theirs")
    assert (endpoint.base_url, endpoint.key) == ("http://127.0.0.1:9/v1", None)
    assert endpoint.dialect.max_tokens_field == "max_tokens"
    assert resolved("gpt-4o", "http://127.0.0.1:9/v1", TA_API_KEY="ours").key == "ours"


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("meta-llama/Llama-3-8B", "meta-llama/Llama-3-8B"),
        ("anthropic/claude-sonnet-4", "anthropic/claude-sonnet-4"),
        ("openai/gpt-4o", "gpt-4o"),
        ("llama3", "llama3"),
    ],
)
def test_any_name_works_with_a_base_url(name: str, model: str) -> None:
    assert resolved(name, "http://127.0.0.1:9/v1").model == model


def test_openai_base_url_from_the_environment_is_honoured() -> None:
    url = "http://gateway.example/v1/chat/completions"
    assert resolved("gpt-4o", OPENAI_BASE_URL=url).base_url == "http://gateway.example/v1"
    assert resolved("gpt-4o", OPENAI_BASE_URL=url, OPENAI_API_KEY="k").key == "k"
    assert resolved("groq/x", OPENAI_BASE_URL=url, GROQ_API_KEY="k").base_url.startswith("https")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("box:1234", "http://box:1234/v1"),
        ("https://ollama.example", "https://ollama.example/v1"),
    ],
)
def test_ollamas_own_variable_is_honoured(host: str, url: str) -> None:
    assert resolved("ollama/llama3", OLLAMA_HOST=host).base_url == url


@pytest.mark.parametrize(
    "url",
    ["localhost:8080", "ftp://x/v1", "http://", "http://x:99999/", "http://u:p@x/", "http://x?y"],
)
def test_bad_base_url_stops_the_start(url: str) -> None:
    with pytest.raises(ConfigurationError, match="base_url"):
        resolved("m", url)


@pytest.mark.parametrize("name", ["", " ", "openai/", "nobody/x"])
def test_unusable_name_stops_the_start(name: str, clients: ModelClients) -> None:
    with pytest.raises(ConfigurationError, match="model"):
        build_model(ModelSpec(name), clients, KEYS)


@pytest.mark.parametrize(
    ("name", "extra"),
    [("cohere/command-x", "litellm"), ("bedrock/x", "litellm"), ("local/smollm2", "local")],
)
def test_missing_package_is_named_with_its_extra(
    name: str, extra: str, clients: ModelClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "find_spec", lambda module: None)
    with pytest.raises(ConfigurationError, match=rf"teal-agents\[{extra}\]"):
        build_model(ModelSpec(name), clients, KEYS)


def test_scripts_are_found_beside_the_agent_file(tmp_path: Path, clients: ModelClients) -> None:
    (tmp_path / "talk.yaml").write_text("turns: [{text: hi}]")
    model = build_model(ModelSpec("scripted/talk.yaml", folder=tmp_path), clients, {})
    assert isinstance(model, ScriptPlayer)


async def test_built_model_speaks(clients: ModelClients) -> None:
    async with ScriptedModelServer([says("hi")]) as server:
        model: Model = build_model(ModelSpec("any", server.base_url), clients, {"TA_API_KEY": "k"})
        assert isinstance(model, OpenAIChat)
        assert await text_of(model) == "hi"
        assert server.requests[0]["model"] == "any"
        assert server.headers[0]["Authorization"] == "Bearer k"


async def test_set_keys_and_a_running_ollama_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_model, "find_spec", lambda module: None)
    probed = []

    async def probe(url: str) -> list[str]:
        probed.append(url)
        return ["llama3.2:1b"]

    environ = {"GROQ_API_KEY": "secret", "TA_API_KEY": "secret"}
    assert await detect_models(environ, probe) == [
        AvailableModel("openai/", "TA_API_KEY is set"),
        AvailableModel("groq/", "GROQ_API_KEY is set"),
        AvailableModel("ollama/llama3.2:1b", "Ollama runs here"),
    ]
    assert probed == ["http://127.0.0.1:11434/v1"]


async def test_other_machines_are_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_model, "find_spec", lambda module: None)

    async def probe(url: str) -> list[str]:
        raise AssertionError(url)

    assert await detect_models({"OLLAMA_HOST": "ollama.example"}, probe) == []


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b'{"data": [{"id": "a"}, {"id": "b:1"}]}', ["a", "b:1"]),
        (b'{"data": 5}', []),
        (b"<html>", []),
    ],
)
async def test_ollamas_models_are_listed(body: bytes, names: list[str]) -> None:
    answer = [head("200 OK", "application/json"), body]
    async with RawServer(answer) as server:
        assert await installed_in_ollama(server.base_url) == names


async def test_no_ollama_is_no_error() -> None:
    async with RawServer([]) as server:
        assert await installed_in_ollama(server.base_url) == []


@pytest.mark.parametrize(
    ("name", "url", "field"),
    [
        ("gpt-5", "https://api.openai.com/v1", "max_completion_tokens"),
        ("some/name", "https://api.openai.com/v1/", "max_completion_tokens"),
        ("gpt-5", "https://gateway.example/v1", "max_tokens"),
    ],
)
def test_dialect_follows_the_host_however_it_was_named(name: str, url: str, field: str) -> None:
    assert resolved(name, url).dialect.max_tokens_field == field
    if name == "gpt-5":
        assert resolved(name, OPENAI_BASE_URL=url).dialect.max_tokens_field == field


@pytest.mark.parametrize("name", ["scripted/echo", "local/smollm2"])
def test_options_of_requests_are_refused_where_there_are_none(
    name: str, clients: ModelClients
) -> None:
    spec = ModelSpec(name, options=RequestOptions(seed=1))
    with pytest.raises(ConfigurationError, match="not asked over a network"):
        build_model(spec, clients, {})


@pytest.mark.parametrize(
    ("spec", "model", "url", "key"),
    [
        (ModelSpec("claude-x", api="anthropic"), "claude-x", "https://api.anthropic.com/v1", "a"),
        (ModelSpec("gpt-5", api="responses"), "gpt-5", "https://api.openai.com/v1", "o"),
        (ModelSpec("openai/gpt-5", api="responses"), "gpt-5", "https://api.openai.com/v1", "o"),
        (ModelSpec("groq/x", api="chat"), "x", "https://api.groq.com/openai/v1", "g"),
        (ModelSpec("x/y", "http://h/v1", api="gemini"), "x/y", "http://h/v1", None),
        (ModelSpec("anthropic/c", "http://h", api="anthropic"), "c", "http://h", None),
    ],
)
def test_api_decides_what_is_spoken_and_whose_key_is_sent(
    spec: ModelSpec, model: str, url: str, key: str | None, clients: ModelClients
) -> None:
    environ = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o", "GROQ_API_KEY": "g"}
    endpoint = endpoint_of(spec, environ)
    assert (endpoint.model, endpoint.base_url, endpoint.key) == (model, url, key)
    build_model(spec, clients, environ)


@pytest.mark.parametrize(
    ("name", "url", "expected"),
    [
        ("azure/dep", "https://r.openai.azure.com", AzureOpenAI),
        ("azure/gpt-4o", "https://gateway.example/v1", OpenAIChat),
        ("anthropic/claude-x", "https://gateway.example/v1", OpenAIChat),
    ],
)
def test_makers_name_behind_a_gateway_is_the_models(
    name: str, url: str, expected: type, clients: ModelClients
) -> None:
    built = build_model(ModelSpec(name, url), clients, {"TA_API_KEY": "k"})
    assert type(built) is expected
    assert isinstance(built, OpenAIChat)
    assert built.endpoint.model == ("dep" if expected is AzureOpenAI else name)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("anthropic/claude-x", RequestOptions(seed=1)),
        ("openai_responses/x", RequestOptions(stop=("END",))),
    ],
)
def test_option_that_an_api_has_no_word_for_stops_the_start(
    name: str, options: RequestOptions, clients: ModelClients
) -> None:
    with pytest.raises(ConfigurationError, match="its API has no"):
        build_model(ModelSpec(name, options=options), clients, KEYS)
