"""The store contract over a user's own class."""

import pytest

from sk_agents.persistence.tasks.bridge import TaskBridgeStore
from sk_agents.testing.store_contract import MakeStore, StoreContract
from tests.requirements import requirement
from tests.toy_tasks import AsyncTasks, ConditionalTasks, JsonTasks


@requirement("S001-persistence-sync-class")
class TestPlainMethods(StoreContract):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        return lambda clock: TaskBridgeStore(JsonTasks(), clock=clock, settle=0)


@requirement("S001-persistence-sync-class")
class TestCoroutines(StoreContract):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        return lambda clock: TaskBridgeStore(AsyncTasks(), clock=clock, settle=0)


class TestConditionalUpdates(StoreContract):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        return lambda clock: TaskBridgeStore(ConditionalTasks(), clock=clock)
