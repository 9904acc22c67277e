from __future__ import annotations

from datetime import timedelta

import pytest

from sk_agents.engine.ports import Store
from sk_agents.exceptions import LeaseHeld
from sk_agents.testing.clock import SettableClock
from sk_agents.testing.commits import append_owned, start_run, thought
from sk_agents.testing.store_contract.case import StoreCases


async def is_held(store: Store, thread_id: str = "t") -> bool:
    """Whether a live owner holds the thread, learned without changing it."""
    lost = [thread.thread_id for thread in await store.orphans()]
    return thread_id not in lost


class LeaseTimeCases(StoreCases):
    """Leases last by the store's monotonic clock and by nothing else."""

    async def test_owner_that_never_renewed_is_not_live(self, store: Store) -> None:
        await store.commit(start_run("t", owner="o"))
        assert not await is_held(store)
        assert (await store.claim("t", "p")).owner == "p"

    async def test_renewal_before_the_claim_counts(self, store: Store) -> None:
        store.renew("o", 60)
        await store.commit(start_run("t", owner="o"))
        assert await is_held(store)

    async def test_renewal_after_the_claim_counts(self, store: Store) -> None:
        await store.commit(start_run("t", owner="o"))
        store.renew("o", 60)
        assert await is_held(store)
        with pytest.raises(LeaseHeld):
            await store.claim("t", "p")

    async def test_lease_ends_with_its_time(self, store: Store, clock: SettableClock) -> None:
        store.renew("o", 60)
        await store.commit(start_run("t", owner="o"))
        clock.advance(59)
        assert await is_held(store)
        clock.advance(1)
        assert not await is_held(store)
        assert (await store.claim("t", "p")).owner == "p"

    async def test_renewal_extends_all_leases_of_the_owner(
        self, store: Store, clock: SettableClock
    ) -> None:
        store.renew("o", 60)
        for name in ("t", "u", "v"):
            await store.commit(start_run(name, owner="o"))
        clock.advance(50)
        store.renew("o", 60)
        clock.advance(50)
        assert await store.orphans() == []

    async def test_renewal_revives_an_owner_nobody_has_replaced(
        self, store: Store, clock: SettableClock
    ) -> None:
        store.renew("o", 60)
        head = (await store.commit(start_run("t", owner="o"))).thread
        clock.advance(100)
        store.renew("o", 60)
        assert await is_held(store)
        await store.commit(append_owned(head, thought()))

    async def test_shorter_renewal_shortens_the_lease(
        self, store: Store, clock: SettableClock
    ) -> None:
        store.renew("o", 60)
        await store.commit(start_run("t", owner="o"))
        store.renew("o", 5)
        clock.advance(6)
        assert not await is_held(store)

    async def test_renewal_of_one_owner_leaves_the_others(
        self, store: Store, clock: SettableClock
    ) -> None:
        for owner in ("o", "p"):
            store.renew(owner, 60)
            await store.commit(start_run(f"of-{owner}", owner=owner))
        clock.advance(50)
        store.renew("o", 60)
        clock.advance(20)
        assert [thread.thread_id for thread in await store.orphans()] == ["of-p"]

    async def test_retired_owner_holds_nothing_at_once(self, store: Store) -> None:
        for owner in ("o", "p"):
            store.renew(owner, 60)
            await store.commit(start_run(f"of-{owner}", owner=owner))
        await store.retire("o")
        assert [thread.thread_id for thread in await store.orphans()] == ["of-o"]
        assert (await store.claim("of-o", "p")).owner == "p"

    async def test_retiring_an_unknown_owner_changes_nothing(self, store: Store) -> None:
        await store.retire("nobody")
        await store.retire("nobody")

    async def test_owner_that_retired_can_renew_again(self, store: Store) -> None:
        store.renew("o", 60)
        await store.commit(start_run("t", owner="o"))
        await store.retire("o")
        store.renew("o", 60)
        assert await is_held(store)

    @pytest.mark.parametrize("moved", [timedelta(hours=-1), timedelta(days=1)])
    async def test_moving_the_wall_clock_changes_no_lease(
        self, store: Store, clock: SettableClock, moved: timedelta
    ) -> None:
        store.renew("o", 60)
        await store.commit(start_run("t", owner="o"))
        clock.set_wall(clock.now() + moved)
        clock.advance(59)
        assert await is_held(store)
        clock.advance(1)
        assert not await is_held(store)
