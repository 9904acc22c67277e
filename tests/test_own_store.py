"""A store of the operator's own, by module and class."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from sk_agents.app import create_app
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.config.store_url import store_name
from sk_agents.exceptions import ConfigurationError
from sk_agents.wiring import build_stores

DEMOS = Path(__file__).parents[1] / "demos"
OWN = """
from sk_agents.persistence.memory.store import MemoryStore

COMMITS = []


class Mine(MemoryStore):
    def __init__(self, app_config):
        super().__init__()
        self.place = app_config.get("MY_PLACE")

    async def commit(self, commit):
        COMMITS.append(commit.thread_id)
        return await super().commit(commit)


class HalfAStore:
    durability = MemoryStore.durability

    async def commit(self, commit): ...
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    path.chmod(0o600)
    return str(path)


async def test_named_store_keeps_the_conversations(module: str) -> None:
    settings = Settings(store_module=module, store_class="Mine")
    app = create_app(settings, load_agent_files([DEMOS / "11_hitl"]))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):
        body = {"items": [{"content_type": "text", "content": "hello"}]}
        reply = (await client.post("/RecordsAgent/0.1", json=body)).json()
    assert reply["status"] == "Completed"
    assert store_name(settings) == f"Mine of {module}"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"store_class": "HalfAStore"}, "is no Store: it has no __aenter__"),
        ({"store_class": "Mine", "store": "memory:"}, "both set; choose one"),
        ({"store_class": "Mine", "encryption_keys": "x" * 64}, "encrypt"),
        ({"store_class": "Absent"}, "has no class 'Absent'"),
    ],
)
def test_store_that_cannot_be_used_stops_the_start(
    module: str, more: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        build_stores(Settings.model_validate({"store_module": module, **more}))
