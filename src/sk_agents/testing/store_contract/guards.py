from __future__ import annotations

from sk_agents.engine.events import ThreadChanged
from sk_agents.engine.log.commits import Owned, Pending, Quiet, Unchanged
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Store
from sk_agents.exceptions import (
    ApprovalNotFound,
    LeaseHeld,
    LeaseLost,
    SequenceConflict,
    ThreadNotFound,
)
from sk_agents.testing.clock import SettableClock
from sk_agents.testing.commits import (
    append,
    append_owned,
    ask,
    decide,
    decision,
    new_commit,
    start_run,
    thought,
)
from sk_agents.testing.store_contract.case import StoreCases, every_event, refused


async def driven(store: Store, owner: str = "o") -> Thread:
    """A thread whose run is driven by a live owner."""
    store.renew(owner, 60)
    return (await store.commit(start_run("t", owner=owner))).thread


class GuardCases(StoreCases):
    """Each guard holds and fails as it should; a refused commit leaves no trace."""

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
            error = await refused(
                store, append_owned(head, thought(), next_seq=wrong), SequenceConflict
            )
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
        await refused(store, commit, LeaseLost)

    async def test_owner_of_another_epoch_is_refused(self, store: Store) -> None:
        head = await driven(store)
        for epoch in (head.epoch - 1, head.epoch + 1):
            await refused(store, new_commit("t", Owned("o", epoch), thought()), LeaseLost)

    async def test_owner_of_a_thread_nobody_holds_is_refused(self, store: Store) -> None:
        await store.commit(start_run("t"))
        await refused(store, new_commit("t", Owned("o", 0), thought()), LeaseLost)

    async def test_quiet_thread_takes_a_commit_and_fences_the_old_owner(
        self, store: Store, clock: SettableClock
    ) -> None:
        head = await driven(store)
        clock.advance(61)
        committed = await store.commit(new_commit("t", Quiet(2), thought()))
        assert (committed.thread.owner, committed.thread.epoch) == (None, head.epoch + 1)
        await refused(store, append_owned(head, thought()), LeaseLost)

    async def test_quiet_is_refused_while_a_live_owner_holds_the_thread(self, store: Store) -> None:
        await driven(store)
        await refused(store, new_commit("t", Quiet(2), thought()), LeaseHeld)

    async def test_quiet_is_refused_after_an_append(self, store: Store) -> None:
        await store.commit(start_run("t"))
        for wrong in (1, 3):
            await refused(store, new_commit("t", Quiet(wrong), thought()), SequenceConflict)

    async def test_unchanged_thread_takes_a_commit_beside_its_live_owner(
        self, store: Store
    ) -> None:
        head = await driven(store)
        committed = await store.commit(append(head, thought()))
        assert (committed.thread.owner, committed.thread.epoch) == ("o", head.epoch)

    async def test_unchanged_is_refused_after_an_append(self, store: Store) -> None:
        head = await driven(store)
        await store.commit(append(head, thought()))
        error = await refused(store, append(head, thought()), SequenceConflict)
        assert error.next_seq == 3

    async def test_every_guard_but_absent_needs_the_thread(self, store: Store) -> None:
        for guard in (Owned("o", 1), Quiet(1), Unchanged(1), Pending("a"), Pending("a", True)):
            await refused(store, new_commit("t", guard, thought()), ThreadNotFound)

    async def test_pending_needs_its_approval(self, store: Store) -> None:
        await store.commit(start_run("t"))
        await refused(store, decide("t", "unheard-of"), ApprovalNotFound)

    async def test_pending_takes_several_decisions_iff_nothing_was_appended(
        self, store: Store
    ) -> None:
        head = (await store.commit(start_run("t"))).thread
        for approval_id in ("a", "b"):
            head = (await store.commit(ask(head, approval_id))).thread
        both = (decision("a"), decision("b", "rejected"))
        for wrong in (head.next_seq - 1, head.next_seq + 1):
            guard = Pending("a", next_seq=wrong, exact=True)
            await refused(store, new_commit("t", guard, *both), SequenceConflict)
        guard = Pending("a", next_seq=head.next_seq, exact=True)
        committed = await store.commit(new_commit("t", guard, *both))
        assert [event.seq for event in committed.events] == [head.next_seq, head.next_seq + 1]
        for approval_id in ("a", "b"):
            entry = await store.find("approval", approval_id)
            assert entry is not None and not entry.open

    async def test_refused_commit_changes_neither_labels_nor_index(self, store: Store) -> None:
        head = await driven(store)
        stale = append(
            head, ThreadChanged(metadata={"title": "new"}), decision("a"), thought("unseen")
        )
        await store.commit(append(head, thought()))
        await refused(store, stale, SequenceConflict)
        assert await store.find("approval", "a") is None
        assert len(await every_event(store, "t")) == 2
