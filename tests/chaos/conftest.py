"""A place for experiments: a store, a model, a ledger."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.chaos.instances import Site, open_site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(tmp_path) as opened:
        yield opened
