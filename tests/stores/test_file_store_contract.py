"""The file store under the contract of durable stores that several processes share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sk_agents.persistence.file.store import FileStore
from sk_agents.testing.store_contract import Damage, MakeStore, PortableCases, SharedStoreContract
from tests.requirements import requirement


@requirement("S000-task-concurrency", "S000-task-lifecycle", "S000-error-corrupt-state")
class TestFileStore(PortableCases, SharedStoreContract):
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path / "store"

    @pytest.fixture
    def make_store(self, root: Path) -> MakeStore:
        return lambda clock: FileStore(root, clock=clock)

    @pytest.fixture
    def store_url(self, root: Path) -> str:
        return f"file://{root}"

    @pytest.fixture
    def damage(self, root: Path) -> Damage:
        def damage(thread_id: str) -> Callable[[], bytes]:
            (log,) = (
                path for path in root.rglob("log.jsonl") if f'"{thread_id}"' in path.read_text()
            )
            damaged = bytearray(log.read_bytes())
            damaged[len(damaged) // 2] ^= 1
            log.write_bytes(damaged)
            return log.read_bytes

        return damage
