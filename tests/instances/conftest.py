"""Three servers that share a store, for as long as the tests of one store last.

With PostgreSQL and Redis their wake-ups and live text go through a proxy of ours, and nothing else
does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
import pytest_asyncio

from tests.chaos.scale import FULL
from tests.chaos.served_chaos import Site, open_site
from tests.instances.tcp_proxy import TcpProxy
from tests.valkey import ValkeyServer

STORES = ["postgresql", "sqlite", "redis"] if FULL else ["postgresql"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The servers outlast a test, and so must the event loop that speaks to them."""
    in_session = pytest.mark.asyncio(loop_scope="session")
    here = Path(__file__).parent
    for item in items:  # of the whole suite
        if item.path.parent == here and pytest_asyncio.is_async_test(item):
            item.add_marker(in_session, append=False)


@pytest.fixture(scope="session", params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "sqlite":
        return f"sqlite://{tmp_path_factory.mktemp('shared')}/teal.sqlite"
    if request.param == "redis":
        valkey: ValkeyServer = request.getfixturevalue("valkey")
        return valkey.url("/1")
    server: str = request.getfixturevalue("postgres")
    with psycopg.connect(server, autocommit=True) as connection:
        # Every worker of the test session has the same server.
        name = f"instances_{uuid4().hex}"
        connection.execute(f"CREATE DATABASE {name}".encode())
    return f"{server.rpartition('/')[0]}/{name}"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def signals_proxy(store_url: str) -> AsyncIterator[TcpProxy | None]:
    """Between the servers and the database, for wake-ups and live text; none without a database."""
    if store_url.startswith("sqlite:"):
        yield None
        return
    place = urlsplit(store_url)
    async with TcpProxy(str(place.hostname), int(str(place.port))) as proxy:
        yield proxy


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(
    store_url: str, signals_proxy: TcpProxy | None, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    environment = {}
    if signals_proxy is not None:
        port = urlsplit(store_url).port
        environment["TA_SIGNALS"] = store_url.replace(f":{port}/", f":{signals_proxy.port}/")
    folder = tmp_path_factory.mktemp("site")
    async with open_site(folder, store_url, instances=3, **environment) as site:
        yield site
        assert site.tracebacks() == []
