"""The stores that keep what they are told, each in a folder of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sk_agents.engine.ports import Store
from sk_agents.persistence.store_factory import open_store

DURABLE = {"sqlite": "teal.sqlite", "file": "store"}


@pytest.fixture(params=DURABLE)
def durable_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store, once for each kind."""
    return f"{request.param}://{tmp_path / DURABLE[request.param]}"


@pytest.fixture
def reopened(durable_url: str) -> Callable[[], Store]:
    """Another handle on the store of `durable_url`, to be entered."""
    return lambda: open_store(durable_url)
