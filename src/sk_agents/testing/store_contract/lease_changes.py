from __future__ import annotations

import pytest

from sk_agents.engine.events import Event, ModelRestarted, ToolFinished, ToolStarted
from sk_agents.engine.log.commits import Claim, ClaimIfFree, Owned, Park, Quiet, Release
from sk_agents.engine.models import ThreadStatus
from sk_agents.engine.ports import Store
from sk_agents.exceptions import LeaseHeld, LeaseLost, ThreadNotFound
from sk_agents.testing.clock import SettableClock
from sk_agents.testing.commits import (
    append,
    append_owned,
    ask,
    call_proposed,
    create,
    decide,
    new_commit,
    run_ended,
    run_started,
    start_run,
    thought,
)
from sk_agents.testing.store_contract.case import StoreCases, refused


class LeaseChangeCases(StoreCases):
    """Commits take and give up leases; a claim takes one for recovery."""

    async def test_claim_in_a_quiet_commit_takes_the_lease(self, store: Store) -> None:
        head = (await store.commit(create("t"))).thread
        committed = await store.commit(
            new_commit("t", Quiet(head.next_seq), run_started(), lease=Claim("o"))
        )
        assert (committed.thread.owner, committed.thread.epoch) == ("o", 1)

    async def test_claim_if_free_takes_a_free_lease(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        committed = await store.commit(append(head, thought(), lease=ClaimIfFree("o")))
        assert (committed.thread.owner, committed.thread.epoch) == ("o", head.epoch + 1)
        assert await store.thread("t") == committed.thread

    async def test_claim_if_free_takes_the_lease_of_an_owner_whose_time_is_up(
        self, store: Store, clock: SettableClock
    ) -> None:
        store.renew("o", 60)
        head = (await store.commit(start_run("t", owner="o"))).thread
        clock.advance(61)
        committed = await store.commit(append(head, thought(), lease=ClaimIfFree("p")))
        assert (committed.thread.owner, committed.thread.epoch) == ("p", head.epoch + 1)
        await refused(store, append_owned(head, thought()), LeaseLost)

    async def test_claim_if_free_leaves_a_live_owner_and_still_appends(self, store: Store) -> None:
        store.renew("o", 60)
        head = (await store.commit(start_run("t", owner="o"))).thread
        committed = await store.commit(append(head, thought(), lease=ClaimIfFree("p")))
        assert (committed.thread.owner, committed.thread.epoch) == ("o", head.epoch)
        assert committed.thread.next_seq == head.next_seq + 1

    async def test_claim_if_free_wakes_a_parked_run(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        await store.commit(ask(head, "a", park=True))
        committed = await store.commit(decide("t", "a", lease=ClaimIfFree("p")))
        assert (committed.thread.owner, committed.thread.runnable) == ("p", True)
        assert committed.thread.status is ThreadStatus.RUNNING

    async def test_release_gives_up_the_lease(self, store: Store) -> None:
        store.renew("o", 60)
        head = (await store.commit(start_run("t", owner="o"))).thread
        committed = await store.commit(append_owned(head, run_ended(), lease=Release()))
        assert committed.thread.owner is None
        await refused(store, append_owned(head, thought()), LeaseLost)

    async def test_release_without_events_leaves_the_run_to_others(self, store: Store) -> None:
        store.renew("o", 60)
        head = (await store.commit(start_run("t", owner="o"))).thread
        committed = await store.commit(append_owned(head, lease=Release()))
        assert committed.events == ()
        assert (committed.thread.owner, committed.thread.runnable) == (None, True)
        assert [thread.thread_id for thread in await store.orphans()] == ["t"]

    async def test_park_waits_for_a_person(self, store: Store) -> None:
        store.renew("o", 60)
        head = (await store.commit(start_run("t", owner="o"))).thread
        committed = await store.commit(append_owned(head, thought(), lease=Park()))
        assert (committed.thread.owner, committed.thread.runnable) == (None, False)
        assert committed.thread.status is ThreadStatus.WAITING
        assert await store.orphans() == []

    async def test_released_lease_can_be_claimed_while_the_old_owner_lives(
        self, store: Store
    ) -> None:
        store.renew("o", 60)
        head = (await store.commit(start_run("t", owner="o"))).thread
        await store.commit(append_owned(head, lease=Release()))
        assert (await store.claim("t", "p")).owner == "p"

    async def test_every_claim_has_a_new_epoch_even_for_the_same_owner(self, store: Store) -> None:
        await store.commit(start_run("t", owner="o"))
        first = await store.claim("t", "o")
        second = await store.claim("t", "o")
        assert second.epoch == first.epoch + 1
        stale = new_commit("t", Owned("o", first.epoch), thought())
        await refused(store, stale, LeaseLost)

    async def test_claim_takes_a_free_thread_and_lets_its_owner_write(self, store: Store) -> None:
        await store.commit(start_run("t"))
        head = await store.claim("t", "o")
        assert (head.owner, await store.thread("t")) == ("o", head)
        await store.commit(append_owned(head, thought()))

    async def test_claim_counts_recoveries_until_a_run_moves_on(self, store: Store) -> None:
        await store.commit(start_run("t", owner="lost"))
        assert [(await store.claim("t", f"o{n}")).recoveries for n in range(3)] == [1, 2, 3]
        head = await store.thread("t")
        head = (await store.commit(append(head, thought()))).thread
        assert head.recoveries == 3
        head = (await store.commit(append(head, run_ended()))).thread
        assert head.recoveries == 0

    @pytest.mark.parametrize(
        "progress",
        [
            (thought(),),
            (call_proposed("c"),),
            (call_proposed("c"), ToolFinished(run_id="run-1", call_id="c", result="r")),
        ],
        ids=["thinking", "proposal", "result"],
    )
    async def test_progress_by_the_new_owner_begins_the_count_anew(
        self, store: Store, progress: tuple[Event, ...]
    ) -> None:
        await store.commit(start_run("t", owner="lost"))
        head = [await store.claim("t", f"o{n}") for n in range(2)][-1]
        assert (await store.commit(append_owned(head, *progress))).thread.recoveries == 0
        assert (await store.claim("t", "next")).recoveries == 1

    async def test_asking_or_starting_once_more_is_no_progress(self, store: Store) -> None:
        await store.commit(start_run("t", owner="lost"))
        head = await store.claim("t", "o")
        head = (await store.commit(append_owned(head, call_proposed("c")))).thread
        head = await store.claim("t", "p")
        again = ModelRestarted(run_id="run-1", round=1, attempt=2)
        started = ToolStarted(run_id="run-1", call_id="c")
        assert (await store.commit(append_owned(head, again, started))).thread.recoveries == 1

    async def test_claim_of_what_was_given_back_is_no_recovery(self, store: Store) -> None:
        head = (await store.commit(start_run("t", owner="o"))).thread
        await store.commit(append_owned(head, lease=Release()))
        assert (await store.claim("t", "next")).recoveries == 0

    async def test_claim_appends_nothing(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        assert (await store.claim("t", "o")).next_seq == head.next_seq
        assert len(await store.events_after("t", 0)) == 1

    async def test_claim_of_a_thread_with_a_live_owner_is_refused(self, store: Store) -> None:
        store.renew("o", 60)
        head = (await store.commit(start_run("t", owner="o"))).thread
        for owner in ("p", "o"):
            with pytest.raises(LeaseHeld):
                await store.claim("t", owner)
        assert await store.thread("t") == head

    async def test_claim_of_an_unknown_thread_is_not_found(self, store: Store) -> None:
        with pytest.raises(ThreadNotFound):
            await store.claim("nothing", "o")
