from collections.abc import AsyncIterator

import pytest

from sk_agents.llm.model_clients import ModelClients


@pytest.fixture
async def clients() -> AsyncIterator[ModelClients]:
    async with ModelClients() as opened:
        yield opened
