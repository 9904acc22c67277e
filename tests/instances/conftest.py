"""Three servers that share a store, for as long as the tests of one store last."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.chaos.served_chaos import Site, open_site


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The servers outlast a test, and so must the event loop that speaks to them."""
    in_session = pytest.mark.asyncio(loop_scope="session")
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and pytest_asyncio.is_async_test(item):
            item.add_marker(in_session, append=False)


@pytest.fixture(scope="session", params=["sqlite"])
def store_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite://{tmp_path_factory.mktemp('shared')}/teal.sqlite"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with open_site(tmp_path_factory.mktemp("site"), store_url, instances=3) as site:
        yield site
        assert site.tracebacks() == []
