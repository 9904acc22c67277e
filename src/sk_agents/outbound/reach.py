"""Trying an address: whether an answer of any kind comes back."""

from __future__ import annotations

from urllib.parse import urlsplit

import aiohttp

from sk_agents.exceptions import ConfigurationError
from sk_agents.outbound.aiohttp_options import request_options, request_problem
from sk_agents.outbound.certificates import ClientCertificate
from sk_agents.outbound.network import Network

SECONDS = 10.0
# What a proxy answers in the place of a server that it cannot reach, or does not want to.
PROXY_STATUSES = {407, 502, 503, 504}


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


async def reach(
    network: Network, url: str, certificate: ClientCertificate | None = None
) -> str | None:
    """`None` if something answers there over HTTP, else what is wrong. It asks for `/` alone."""
    try:
        options = await request_options(network, url, certificate)
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{origin_of(url)}/", allow_redirects=False, **options) as response,
        ):
            is_proxys = "proxy" in options and response.status in PROXY_STATUSES
            if is_proxys and url.startswith("http:"):
                return f"the proxy, or the server behind it, answers {response.status}"
            return None
    except ConfigurationError as error:
        return str(error)
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
        return request_problem(error, network, url)
