"""The memory store under the contract of all stores, and its own bounds."""

import pytest

from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing.store_contract import MakeStore, StoreContract
from tests.requirements import requirement


@requirement("S000-state-in-memory", "S000-task-concurrency")
class TestMemoryStore(StoreContract):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        return lambda clock: MemoryStore(clock=clock)
