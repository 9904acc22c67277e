"""A network's choices in aiohttp's words. Apart, because aiohttp takes a fifth of a second to
import, which servers without it save."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from sk_agents.outbound.certificates import ClientCertificate
from sk_agents.outbound.network import Network
from sk_agents.outbound.problems import ProxyRefused, connection_problem


async def request_options(
    network: Network, url: str, certificate: ClientCertificate | None = None
) -> dict[str, Any]:
    """Arguments of a request to this address.

    Raises:
        ConfigurationError: the proxy or a certificate cannot be used.
    """
    options: dict[str, Any] = {}
    proxy = network.proxy_for(url)
    if urlsplit(url).scheme == "https" or (proxy is not None and proxy.scheme == "https"):
        options["ssl"] = await network.loaded_context(certificate)
    if proxy is not None:
        options["proxy"] = URL.build(
            scheme=proxy.scheme,
            host=proxy.host,
            port=proxy.port,
            user=proxy.user,
            password=proxy.password or None,
        )
    return options


def request_problem(error: Exception, network: Network, url: str) -> str:
    """Why a request failed, as `connection_problem` says it."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        proxy = network.proxy_for(url)
        return connection_problem(ProxyRefused(proxy.url if proxy else "", error.status))
    return connection_problem(error)
