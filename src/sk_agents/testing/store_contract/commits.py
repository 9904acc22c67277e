"""What a commit promises.

- Each guard holds and fails as it should; a refused commit leaves no trace.
- A commit whose outcome is unknown is sent again: it is stored once.
- An approval is decided once and in time.
- Of commits that exclude each other, sent at once, exactly one is taken.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from datetime import timedelta

from sk_agents import exceptions as errors
from sk_agents.engine.events import ThreadChanged
from sk_agents.engine.log.commits import Commit, Owned, Pending, Quiet, Release, Unchanged
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import ApprovalState, Thread
from sk_agents.engine.ports import Store
from sk_agents.testing.commits import (
    USER,
    append,
    append_owned,
    ask,
    decide,
    decision,
    new_commit,
    start_run,
    thought,
)
from sk_agents.testing.predictable import SettableClock
from sk_agents.testing.store_contract.case import StoreCases, every_event, refused
from sk_agents.testing.store_worker import append_until_stored


async def driven(store: Store, owner: str = "o") -> Thread:
    """A thread whose run is driven by a live owner."""
    store.renew(owner, 60)
    return (await store.commit(start_run("t", owner=owner))).thread


async def asked(store: Store, *, hours: float | None = None) -> None:
    """A parked run that waits for the approval `a`, which may have a time limit."""
    head = (await store.commit(start_run("t"))).thread
    due_at = None if hours is None else head.created_at + timedelta(hours=hours)
    await store.commit(ask(head, "a", due_at=due_at, park=True))


WON = "won"


async def approval_state(store: Store) -> ApprovalState:
    approval = fold(await every_event(store, "t")).runs["run-1"].calls["call-of-a"].approval
    assert approval is not None
    return approval.state


async def outcome_of(attempt: Awaitable[object]) -> str:
    try:
        await attempt
    except errors.TealError as error:
        return type(error).__name__
    return WON


async def outcomes(attempts: Iterable[Awaitable[object]]) -> Counter[str]:
    """How many of these, all under way at once, won, and how the others were refused."""
    async with asyncio.timeout(60):
        return Counter(await asyncio.gather(*map(outcome_of, attempts)))


async def decided_once(stores: list[Store], approval_id: str, deciders: int = 64) -> None:
    """Let many decide one approval at once; exactly one may win."""
    made = [
        decide("t", approval_id, "approved" if n % 2 else "rejected", decided_by=f"user-{n}")
        for n in range(deciders)
    ]
    counted = await outcomes(stores[n % len(stores)].commit(one) for n, one in enumerate(made))
    assert counted == {WON: 1, "ApprovalAlreadyDecided": deciders - 1}


class CommitCases(StoreCases):
    async def test_owner_appends(self, store: Store) -> None:
        head = await driven(store)
        committed = await store.commit(append_owned(head, thought()))
        assert committed.thread.next_seq == 3
        assert await store.thread("t") == committed.thread

    async def test_owner_appends_at_the_seq_it_expects(self, store: Store) -> None:
        head = await driven(store)
        committed = await store.commit(append_owned(head, thought(), next_seq=2))
        assert [event.seq for event in committed.events] == [2]

    async def test_owner_expecting_another_seq_is_refused(self, store: Store) -> None:
        head = await driven(store)
        for wrong in (0, 1, 3):
            commit = append_owned(head, thought(), next_seq=wrong)
            error = await refused(store, commit, errors.SequenceConflict)
            assert error.next_seq == 2

    async def test_owner_goes_on_after_an_outsider_appended(self, store: Store) -> None:
        head = await driven(store)
        await store.commit(append(head, thought("from outside")))
        committed = await store.commit(append_owned(head, thought()))
        assert committed.thread.next_seq == 4

    async def test_owner_whose_time_is_up_may_write_until_someone_takes_over(
        self, store: Store, clock: SettableClock
    ) -> None:
        head = await driven(store)
        clock.advance(61)
        assert (await store.commit(append_owned(head, thought()))).thread.next_seq == 3

    async def test_stranger_is_refused(self, store: Store) -> None:
        head = await driven(store)
        commit = new_commit("t", Owned("stranger", head.epoch), thought())
        await refused(store, commit, errors.LeaseLost)

    async def test_owner_of_another_epoch_is_refused(self, store: Store) -> None:
        head = await driven(store)
        for epoch in (head.epoch - 1, head.epoch + 1):
            await refused(store, new_commit("t", Owned("o", epoch), thought()), errors.LeaseLost)

    async def test_owner_of_a_thread_nobody_holds_is_refused(self, store: Store) -> None:
        await store.commit(start_run("t"))
        await refused(store, new_commit("t", Owned("o", 0), thought()), errors.LeaseLost)

    async def test_quiet_thread_takes_a_commit_and_fences_the_old_owner(
        self, store: Store, clock: SettableClock
    ) -> None:
        head = await driven(store)
        clock.advance(61)
        committed = await store.commit(new_commit("t", Quiet(2), thought()))
        assert (committed.thread.owner, committed.thread.epoch) == (None, head.epoch + 1)
        await refused(store, append_owned(head, thought()), errors.LeaseLost)

    async def test_quiet_is_refused_while_a_live_owner_holds_the_thread(self, store: Store) -> None:
        await driven(store)
        await refused(store, new_commit("t", Quiet(2), thought()), errors.LeaseHeld)

    async def test_quiet_is_refused_after_an_append(self, store: Store) -> None:
        await store.commit(start_run("t"))
        for wrong in (1, 3):
            await refused(store, new_commit("t", Quiet(wrong), thought()), errors.SequenceConflict)

    async def test_unchanged_thread_takes_a_commit_beside_its_live_owner(
        self, store: Store
    ) -> None:
        head = await driven(store)
        committed = await store.commit(append(head, thought()))
        assert (committed.thread.owner, committed.thread.epoch) == ("o", head.epoch)

    async def test_unchanged_is_refused_after_an_append(self, store: Store) -> None:
        head = await driven(store)
        await store.commit(append(head, thought()))
        error = await refused(store, append(head, thought()), errors.SequenceConflict)
        assert error.next_seq == 3

    async def test_every_guard_but_absent_needs_the_thread(self, store: Store) -> None:
        for guard in (Owned("o", 1), Quiet(1), Unchanged(1), Pending("a"), Pending("a", True)):
            await refused(store, new_commit("t", guard, thought()), errors.ThreadNotFound)

    async def test_pending_needs_its_approval(self, store: Store) -> None:
        await store.commit(start_run("t"))
        await refused(store, decide("t", "unheard-of"), errors.ApprovalNotFound)

    async def test_pending_takes_several_decisions_iff_nothing_was_appended(
        self, store: Store
    ) -> None:
        head = (await store.commit(start_run("t"))).thread
        for approval_id in ("a", "b"):
            head = (await store.commit(ask(head, approval_id))).thread
        both = (decision("a"), decision("b", "rejected"))
        for wrong in (head.next_seq - 1, head.next_seq + 1):
            guard = Pending("a", next_seq=wrong, exact=True)
            await refused(store, new_commit("t", guard, *both), errors.SequenceConflict)
        guard = Pending("a", next_seq=head.next_seq, exact=True)
        committed = await store.commit(new_commit("t", guard, *both))
        assert [event.seq for event in committed.events] == [head.next_seq, head.next_seq + 1]
        for approval_id in ("a", "b"):
            entry = await store.find("approval", approval_id)
            assert entry is not None and not entry.open

    async def test_refused_commit_changes_neither_labels_nor_index(self, store: Store) -> None:
        head = await driven(store)
        changed = ThreadChanged(metadata={"title": "new"})
        stale = append(head, changed, decision("a"), thought("unseen"))
        await store.commit(append(head, thought()))
        await refused(store, stale, errors.SequenceConflict)
        assert await store.find("approval", "a") is None
        assert len(await every_event(store, "t")) == 2

    async def test_same_commit_again_answers_what_it_did(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        commit = append(head, thought("a"), thought("b"))
        first = await store.commit(commit)
        again = await store.commit(commit)
        assert again.events == first.events
        assert [event.seq for event in again.events] == [2, 3]
        assert len(await every_event(store, "t")) == 3

    async def test_first_commit_of_a_thread_can_be_sent_again(self, store: Store) -> None:
        commit = start_run("t", owner="o")
        first = await store.commit(commit)
        again = await store.commit(commit)
        assert (again.events, again.thread.epoch) == (first.events, 1)

    async def test_repeated_commit_keeps_its_first_date(
        self, store: Store, clock: SettableClock
    ) -> None:
        commit = start_run("t")
        first = await store.commit(commit)
        clock.advance(10)
        assert (await store.commit(commit)).events == first.events

    async def test_repeated_commit_returns_the_head_of_now(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        commit = append(head, thought("a"))
        head = (await store.commit(commit)).thread
        later = (await store.commit(append(head, thought("b")))).thread
        assert (await store.commit(commit)).thread == later

    async def test_repeated_commit_is_known_after_its_guard_stopped_holding(
        self, store: Store
    ) -> None:
        head = (await store.commit(start_run("t", owner="o"))).thread
        commit = append_owned(head, thought(), lease=Release())
        first = await store.commit(commit)
        await store.claim("t", "p")
        assert (await store.commit(commit)).events == first.events
        assert (await store.thread("t")).owner == "p"

    async def test_repeated_decision_answers_like_the_first(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        await store.commit(ask(head, "a"))
        commit = decide("t", "a")
        first = await store.commit(commit)
        assert (await store.commit(commit)).events == first.events

    async def test_used_id_with_other_events_is_refused(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        commit = append(head, thought("a"), thought("b"))
        await store.commit(commit)
        for events in (
            (thought("a"), thought("c")),
            (thought("a"),),
            (thought("a"), thought("b"), thought("c")),
            (),
        ):
            await refused(store, replace(commit, events=events), errors.CommitReused)

    async def test_used_id_without_events_changes_no_lease(self, store: Store) -> None:
        head = (await store.commit(start_run("t", owner="o"))).thread
        commit = append_owned(head, thought())
        await store.commit(commit)
        await refused(store, replace(commit, events=(), lease=Release()), errors.CommitReused)

    async def test_id_of_a_refused_commit_is_free(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        commit = append(head._replace(next_seq=9), thought("a"))
        await refused(store, commit, errors.SequenceConflict)
        right = replace(append(head, thought("other")), commit_id=commit.commit_id)
        assert [event.seq for event in (await store.commit(right)).events] == [2]

    async def test_same_id_in_two_threads_is_two_commits(self, store: Store) -> None:
        first = start_run("t")
        second = replace(start_run("u"), commit_id=first.commit_id)
        await store.commit(first)
        await store.commit(second)
        assert len(await every_event(store, "t")) == len(await every_event(store, "u")) == 1

    async def test_pending_approval_is_decided(self, store: Store) -> None:
        await asked(store)
        committed = await store.commit(decide("t", "a"))
        assert committed.thread.runnable
        assert await approval_state(store) is ApprovalState.APPROVED

    async def test_decision_needs_no_knowledge_of_the_log(self, store: Store) -> None:
        store.renew("o", 60)
        head = (await store.commit(start_run("t", owner="o"))).thread
        await store.commit(ask(head, "a"))
        await store.commit(append_owned(head, thought()))
        committed = await store.commit(decide("t", "a"))
        assert (committed.thread.owner, committed.thread.next_seq) == ("o", 6)

    async def test_second_decision_is_refused(self, store: Store) -> None:
        await asked(store)
        await store.commit(decide("t", "a", "rejected"))
        await refused(store, decide("t", "a", "approved"), errors.ApprovalAlreadyDecided)
        assert await approval_state(store) is ApprovalState.REJECTED

    async def test_approvals_of_one_run_are_decided_one_by_one(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        for name in ("a", "b", "c"):
            head = (await store.commit(ask(head, name))).thread
        await store.commit(decide("t", "b"))
        assert [entry.key for entry in await store.open_entries("approval", USER)] == ["a", "c"]

    async def test_approval_of_another_thread_is_not_found(self, store: Store) -> None:
        await asked(store)
        await store.commit(start_run("u"))
        await refused(store, decide("u", "a"), errors.ApprovalNotFound)
        await store.commit(decide("t", "a"))

    async def test_approval_is_decided_in_time_and_not_later(
        self, store: Store, clock: SettableClock
    ) -> None:
        await asked(store, hours=24)
        clock.advance(24 * 3600 - 1)
        assert await store.overdue("approval") == []
        clock.advance(1)
        await refused(store, decide("t", "a"), errors.ApprovalExpired)

    async def test_approval_in_time_is_decided(self, store: Store, clock: SettableClock) -> None:
        await asked(store, hours=24)
        clock.advance(24 * 3600 - 1)
        await store.commit(decide("t", "a"))

    async def test_expiry_follows_the_wall_clock(self, store: Store, clock: SettableClock) -> None:
        await asked(store, hours=24)
        clock.set_wall(clock.now() + timedelta(days=1))
        await refused(store, decide("t", "a"), errors.ApprovalExpired)
        clock.set_wall(clock.now() - timedelta(hours=1))
        await store.commit(decide("t", "a"))

    async def test_overdue_approval_is_expired_once(
        self, store: Store, clock: SettableClock
    ) -> None:
        await asked(store, hours=1)
        clock.advance(3600)
        await store.commit(decide("t", "a", "expired", overdue=True))
        again = decide("t", "a", "expired", overdue=True)
        await refused(store, again, errors.ApprovalAlreadyDecided)
        assert await store.overdue("approval") == []

    async def test_approval_in_time_is_not_expired(self, store: Store) -> None:
        await asked(store, hours=1)
        await refused(store, decide("t", "a", "expired", overdue=True), errors.SequenceConflict)

    async def test_approval_without_a_limit_never_expires(
        self, store: Store, clock: SettableClock
    ) -> None:
        await asked(store)
        clock.advance(10 * 365 * 86400)
        assert await store.overdue("approval") == []
        await refused(store, decide("t", "a", "expired", overdue=True), errors.SequenceConflict)
        await store.commit(decide("t", "a"))

    async def test_decided_approval_stays_decided_past_its_time(
        self, store: Store, clock: SettableClock
    ) -> None:
        await asked(store, hours=1)
        await store.commit(decide("t", "a"))
        clock.advance(7200)
        await refused(store, decide("t", "a"), errors.ApprovalAlreadyDecided)
        expire = decide("t", "a", "expired", overdue=True)
        await refused(store, expire, errors.ApprovalAlreadyDecided)

    async def test_one_of_many_decisions_wins(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        await store.commit(ask(head, "a", park=True))
        await decided_once([store], "a")
        types = [event.type for event in await every_event(store, "t")]
        assert types.count("approval_decided") == 1

    async def test_one_of_many_creations_wins(self, store: Store) -> None:
        counted = await outcomes(store.commit(start_run("t", f"run-{n}")) for n in range(32))
        assert counted == {WON: 1, errors.ThreadExists.__name__: 31}
        assert len(await every_event(store, "t")) == 1

    async def test_one_of_many_claims_wins(self, store: Store) -> None:
        await store.commit(start_run("t"))
        owners = [f"o{n}" for n in range(16)]
        for owner in owners:
            store.renew(owner, 60)
        counted = await outcomes(store.claim("t", owner) for owner in owners)
        assert counted == {WON: 1, errors.LeaseHeld.__name__: 15}
        assert (await store.thread("t")).epoch == 1

    async def test_one_of_many_unchanged_commits_wins(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        counted = await outcomes(store.commit(append(head, thought(str(n)))) for n in range(64))
        assert counted == {WON: 1, errors.SequenceConflict.__name__: 63}
        assert [event.seq for event in await every_event(store, "t")] == [1, 2]

    async def test_writers_that_try_again_are_all_stored_without_gaps(self, store: Store) -> None:
        await store.commit(start_run("t"))
        texts = [str(number) for number in range(24)]
        async with asyncio.timeout(60):
            await asyncio.gather(*(append_until_stored(store, "t", text) for text in texts))
        log = await every_event(store, "t")
        assert [event.seq for event in log] == list(range(1, 26))
        assert sorted(event.model_dump()["content"] for event in log[1:]) == sorted(texts)

    async def test_commits_of_one_owner_are_all_stored(self, store: Store) -> None:
        head = (await store.commit(start_run("t", owner="o"))).thread
        commits = [append_owned(head, thought(str(n)), thought(str(n))) for n in range(50)]
        assert await outcomes(map(store.commit, commits)) == {WON: 50}
        log = (await every_event(store, "t"))[1:]
        pairs = [event.model_dump()["content"] for event in log]
        assert pairs[::2] == pairs[1::2]
        assert [event.seq for event in log] == list(range(2, 102))

    async def test_commits_to_many_threads_are_all_stored(self, store: Store) -> None:
        names = [f"t{number}" for number in range(100)]
        counted = await outcomes(store.commit(start_run(name, f"run-{name}")) for name in names)
        assert counted == {WON: 100}
        for name in names:
            assert [event.run_id for event in await every_event(store, name)] == [f"run-{name}"]

    async def test_refused_commits_do_not_undo_their_neighbours(self, store: Store) -> None:
        head = (await store.commit(start_run("t", owner="o"))).thread
        good = [append_owned(head, thought(f"good {n}")) for n in range(20)]
        bad = [append_owned(head, thought("bad"), next_seq=99) for _ in range(20)]
        mixed: list[Commit] = [commit for pair in zip(good, bad, strict=True) for commit in pair]
        counted = await outcomes(map(store.commit, mixed))
        assert counted == {WON: 20, errors.SequenceConflict.__name__: 20}
        contents = [event.model_dump().get("content") for event in await every_event(store, "t")]
        assert sorted(filter(None, contents)) == sorted(f"good {n}" for n in range(20))

    async def test_same_commit_sent_many_times_at_once_is_stored_once(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        commit = append(head, thought("once"))
        assert await outcomes(store.commit(commit) for _ in range(32)) == {WON: 32}
        assert len(await every_event(store, "t")) == 2

    async def test_cancelled_waiter_leaves_a_whole_commit_or_none(self, store: Store) -> None:
        head = (await store.commit(start_run("t", owner="o"))).thread
        commits = [append_owned(head, thought("a"), thought("b")) for _ in range(20)]
        tasks = [asyncio.ensure_future(store.commit(commit)) for commit in commits]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(*tasks, return_exceptions=True)
        log = await every_event(store, "t")
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        assert len(log) % 2 == 1
        for commit in commits:
            await store.commit(commit)
        assert len(await every_event(store, "t")) == 41

    async def test_renewals_from_an_os_thread_do_not_wait_for_the_loop(self, store: Store) -> None:
        head = (await store.commit(start_run("t", owner="o"))).thread
        async with asyncio.timeout(60):
            renewals = [asyncio.to_thread(store.renew, "o", 60.0) for _ in range(20)]
            commits = [store.commit(append_owned(head, thought())) for _ in range(20)]
            await asyncio.gather(*renewals, *commits)
        assert await store.orphans() == []
