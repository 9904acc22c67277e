"""What a lease promises, and which owners and readers are alive.

- Commits take and give up leases; a claim takes one for recovery.
- Leases last by the store's monotonic clock and by nothing else.
- An owner that was replaced never writes again, whatever the new one has done.
- Recovery is shown the threads with work to do and no live owner to do it.
- Marks that a run is read go by the store's monotonic clock, and lie beside the log.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from sk_agents.engine.events import Event, ModelRestarted, ToolFinished, ToolStarted
from sk_agents.engine.log.commits import Claim, ClaimIfFree, Commit, Owned, Park, Quiet, Release
from sk_agents.engine.models import Thread, ThreadStatus
from sk_agents.engine.ports import Store
from sk_agents.exceptions import LeaseHeld, LeaseLost, SequenceConflict, ThreadNotFound
from sk_agents.testing.commits import (
    append,
    append_owned,
    ask,
    call_proposed,
    create,
    decide,
    new_commit,
    run_ended,
    run_queued,
    run_started,
    start_run,
    thought,
)
from sk_agents.testing.predictable import SettableClock
from sk_agents.testing.store_contract.case import StoreCases, every_event, refused, snapshot


async def is_held(store: Store) -> bool:
    """Whether a live owner holds the thread `t`, learned without changing it."""
    return "t" not in await orphan_ids(store)


TRIES = {0: 34, 1: 33, 5: 33}


def stale_commits(old: Thread, count: int) -> list[Commit]:
    """What a lost owner may still try: any events, any expectation, any change of the lease."""
    changes = [None, Release(), Park(), Claim("o")]
    events: list[list[Event]] = [[run_ended()], [thought()], [thought(), thought()]]
    seqs = [None if n % 2 else old.next_seq + n // 2 for n in range(count)]
    return [
        append_owned(old, *events[n % 3], lease=changes[n % 4], next_seq=seq)
        for n, seq in enumerate(seqs)
    ]


async def orphan_ids(store: Store, limit: int = 100) -> list[str]:
    return [thread.thread_id for thread in await store.orphans(limit)]


class LeaseCases(StoreCases):
    async def test_claim_in_a_quiet_commit_takes_the_lease(self, store: Store) -> None:
        head = (await store.commit(create("t"))).thread
        commit = new_commit("t", Quiet(head.next_seq), run_started(), lease=Claim("o"))
        committed = await store.commit(commit)
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
        for _ in range(2):
            await store.retire("unknown")

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

    async def test_run_that_nobody_marked_has_no_age(self, store: Store) -> None:
        await store.commit(start_run("t", owner="o"))
        assert await store.unwatched_for("run-1") is None

    async def test_mark_grows_old_with_the_clock(self, store: Store, clock: SettableClock) -> None:
        await store.mark_watched(["r"])
        assert await store.unwatched_for("r") == 0
        clock.advance(40)
        assert await store.unwatched_for("r") == 40

    async def test_mark_is_renewed(self, store: Store, clock: SettableClock) -> None:
        await store.mark_watched(["r"])
        clock.advance(40)
        await store.mark_watched(["r"])
        clock.advance(2)
        assert await store.unwatched_for("r") == 2

    async def test_mark_may_be_of_earlier(self, store: Store, clock: SettableClock) -> None:
        await store.mark_watched(["r"], ago=30)
        clock.advance(1)
        assert await store.unwatched_for("r") == 31

    async def test_earlier_mark_leaves_a_later_one(
        self, store: Store, clock: SettableClock
    ) -> None:
        await store.mark_watched(["r"])
        clock.advance(2)
        await store.mark_watched(["r"], ago=30)
        assert await store.unwatched_for("r") == 2

    async def test_many_runs_are_marked_at_once(self, store: Store, clock: SettableClock) -> None:
        await store.mark_watched(["r", "Run/é 🧭", "r"])
        clock.advance(1)
        assert [await store.unwatched_for(r) for r in ("r", "Run/é 🧭", "s")] == [1, 1, None]

    async def test_marking_nothing_changes_nothing(self, store: Store) -> None:
        await store.mark_watched([])
        assert await store.unwatched_for("r") is None

    async def test_mark_of_one_run_leaves_the_others(
        self, store: Store, clock: SettableClock
    ) -> None:
        await store.mark_watched(["r"])
        clock.advance(5)
        await store.mark_watched(["s"])
        assert await store.unwatched_for("r") == 5

    async def test_mark_changes_no_thread(self, store: Store) -> None:
        await store.commit(start_run("t", owner="o"))
        before = await snapshot(store, "t")
        await store.mark_watched(["run-1"])
        assert await snapshot(store, "t") == before

    async def test_moving_the_wall_clock_changes_no_mark(
        self, store: Store, clock: SettableClock
    ) -> None:
        await store.mark_watched(["r"])
        clock.set_wall(clock.now() + timedelta(days=1))
        assert await store.unwatched_for("r") == 0

    async def test_mark_is_forgotten_after_a_day(self, store: Store, clock: SettableClock) -> None:
        await store.mark_watched(["r"])
        clock.advance(24 * 3600)
        assert await store.unwatched_for("r") is None
        await store.mark_watched(["s"])
        assert await store.unwatched_for("r") is None
