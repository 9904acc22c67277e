from __future__ import annotations

import pytest

from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import Claim, Commit, Owned, Park, Quiet, Release
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Store
from sk_agents.exceptions import LeaseLost, SequenceConflict
from sk_agents.testing.commits import append_owned, new_commit, run_ended, start_run, thought
from sk_agents.testing.store_contract.case import StoreCases, every_event

TRIES = {0: 34, 1: 33, 5: 33}


def stale_commits(old: Thread, count: int) -> list[Commit]:
    """What a lost owner may still try: any events, any expectation, any change of the lease."""
    changes = [None, Release(), Park(), Claim("o")]
    events: list[list[Event]] = [[run_ended()], [thought()], [thought(), thought()]]
    return [
        append_owned(
            old,
            *events[n % 3],
            lease=changes[n % 4],
            next_seq=None if n % 2 else old.next_seq + n // 2,
        )
        for n in range(count)
    ]


class FencingCases(StoreCases):
    """An owner that was replaced never writes again, whatever the new one has done."""

    @pytest.mark.parametrize("written", TRIES)
    async def test_stale_owner_never_commits(self, store: Store, written: int) -> None:
        old = (await store.commit(start_run("t", owner="o"))).thread
        new = await store.claim("t", "p")
        for n in range(written):
            await store.commit(append_owned(new, thought(f"new {n}")))
        log = await every_event(store, "t")
        head = await store.thread("t")
        for commit in stale_commits(old, TRIES[written]):
            with pytest.raises(LeaseLost):
                await store.commit(commit)
        assert await every_event(store, "t") == log
        assert await store.thread("t") == head

    async def test_stale_owner_is_fenced_when_the_same_name_claims_again(
        self, store: Store
    ) -> None:
        old = (await store.commit(start_run("t", owner="o"))).thread
        new = await store.claim("t", "o")
        with pytest.raises(LeaseLost) as raised:
            await store.commit(append_owned(old, thought()))
        assert raised.value.epoch == new.epoch
        await store.commit(append_owned(new, thought()))

    async def test_stale_owner_is_fenced_after_release_and_new_claim(self, store: Store) -> None:
        old = (await store.commit(start_run("t", owner="o"))).thread
        await store.commit(append_owned(old, thought(), lease=Release()))
        await store.commit(new_commit("t", Quiet(3), thought(), lease=Claim("o")))
        with pytest.raises(LeaseLost):
            await store.commit(append_owned(old, thought()))

    async def test_guess_of_the_new_epoch_under_the_old_name_is_refused(self, store: Store) -> None:
        await store.commit(start_run("t", owner="o"))
        new = await store.claim("t", "p")
        with pytest.raises(LeaseLost):
            await store.commit(new_commit("t", Owned("o", new.epoch), thought()))

    async def test_lost_lease_is_reported_before_a_wrong_seq(self, store: Store) -> None:
        old = (await store.commit(start_run("t", owner="o"))).thread
        await store.claim("t", "p")
        with pytest.raises(LeaseLost):
            await store.commit(append_owned(old, thought(), next_seq=99))
        new = await store.thread("t")
        with pytest.raises(SequenceConflict):
            await store.commit(append_owned(new, thought(), next_seq=99))
