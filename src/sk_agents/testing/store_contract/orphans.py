from __future__ import annotations

from sk_agents.engine.log.commits import Release
from sk_agents.engine.ports import Store
from sk_agents.testing.clock import SettableClock
from sk_agents.testing.commits import (
    append,
    append_owned,
    ask,
    create,
    decide,
    run_ended,
    run_queued,
    start_run,
    thought,
)
from sk_agents.testing.store_contract.case import StoreCases


async def orphan_ids(store: Store, limit: int = 100) -> list[str]:
    return [thread.thread_id for thread in await store.orphans(limit)]


class OrphanCases(StoreCases):
    """Recovery is shown the threads with work to do and nobody live to do it."""

    async def test_running_thread_without_a_lease_is_an_orphan(self, store: Store) -> None:
        committed = await store.commit(start_run("t"))
        assert await store.orphans() == [committed.thread]

    async def test_running_thread_of_a_live_owner_is_none(self, store: Store) -> None:
        store.renew("o", 60)
        await store.commit(start_run("t", owner="o"))
        assert await orphan_ids(store) == []

    async def test_running_thread_of_a_lost_owner_is_one(
        self, store: Store, clock: SettableClock
    ) -> None:
        store.renew("o", 60)
        await store.commit(start_run("t", owner="o"))
        clock.advance(60)
        assert await orphan_ids(store) == ["t"]

    async def test_idle_and_ended_threads_are_none(self, store: Store) -> None:
        await store.commit(create("idle"))
        head = (await store.commit(start_run("ended"))).thread
        await store.commit(append(head, run_ended()))
        assert await orphan_ids(store) == []

    async def test_parked_thread_is_none_until_it_is_decided(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        await store.commit(ask(head, "a", park=True))
        assert await orphan_ids(store) == []
        await store.commit(decide("t", "a"))
        assert await orphan_ids(store) == ["t"]

    async def test_idle_thread_with_a_queue_is_one(self, store: Store) -> None:
        await store.commit(create("t", run_queued("run-1")))
        assert await orphan_ids(store) == ["t"]

    async def test_thread_whose_run_ended_with_a_queue_is_one(self, store: Store) -> None:
        store.renew("o", 60)
        head = (await store.commit(start_run("t", owner="o"))).thread
        await store.commit(append(head, run_queued("run-2")))
        assert await orphan_ids(store) == []
        await store.commit(append_owned(head, run_ended(), lease=Release()))
        assert await orphan_ids(store) == ["t"]

    async def test_claimed_orphan_is_none_while_its_owner_lives(self, store: Store) -> None:
        await store.commit(start_run("t"))
        store.renew("o", 60)
        await store.claim("t", "o")
        assert await orphan_ids(store) == []

    async def test_longest_untouched_comes_first(self, store: Store, clock: SettableClock) -> None:
        heads = {}
        for name in ("b", "c", "a"):
            heads[name] = (await store.commit(start_run(name))).thread
            clock.advance(1)
        assert await orphan_ids(store) == ["b", "c", "a"]
        await store.commit(append(heads["b"], thought()))
        assert await orphan_ids(store) == ["c", "a", "b"]

    async def test_limit_keeps_the_longest_untouched(
        self, store: Store, clock: SettableClock
    ) -> None:
        for number in range(12):
            await store.commit(start_run(f"t{number:02}"))
            clock.advance(1)
        assert await orphan_ids(store, 5) == [f"t{number:02}" for number in range(5)]

    async def test_orphans_of_all_users_are_listed(self, store: Store) -> None:
        for user in ("ann", "bob"):
            await store.commit(start_run(f"of-{user}", user=user))
        assert await orphan_ids(store) == ["of-ann", "of-bob"]
