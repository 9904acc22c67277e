"""The memory store under the contract of all stores, and its own bounds."""

import pytest

from sk_agents.audit.server_log import ServerLog
from sk_agents.engine.defaults import RandomIds
from sk_agents.exceptions import StoreFull
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing.commits import USER, start_run
from sk_agents.testing.store_contract import MakeStore, StoreContract
from tests.requirements import requirement


@requirement("S000-state-in-memory", "S000-task-concurrency")
class TestMemoryStore(StoreContract):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        return lambda clock: MemoryStore(clock=clock)


async def test_deletion_that_is_noted_first_makes_room_in_a_full_store() -> None:
    async with MemoryStore(max_threads=1) as store, ServerLog(store, RandomIds()) as audit:
        head = (await store.commit(start_run("t", owner=None))).thread
        with pytest.raises(StoreFull):
            await store.commit(start_run("other", "run-other"))
        await audit.deleting(head, who=USER, reason="asked for")
        await store.delete("t", next_seq=head.next_seq)
