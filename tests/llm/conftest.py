import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from sk_agents.llm.model_clients import ModelClients

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, LoopFactory]:
    """What reads sockets is tested on both loops: a server runs on uvloop, a script may not."""
    if item.path.stem.startswith(("test_http", "test_openai")):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture
async def clients() -> AsyncIterator[ModelClients]:
    async with ModelClients() as opened:
        yield opened
