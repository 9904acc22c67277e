from __future__ import annotations

from datetime import timedelta

from sk_agents.engine.log.state import fold
from sk_agents.engine.models import ApprovalState
from sk_agents.engine.ports import Store
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    ApprovalExpired,
    ApprovalNotFound,
    SequenceConflict,
)
from sk_agents.testing.clock import SettableClock
from sk_agents.testing.commits import USER, append_owned, ask, decide, start_run, thought
from sk_agents.testing.store_contract.case import StoreCases, every_event, refused


async def asked(
    store: Store, approval_id: str = "a", *, hours: float | None = None, clock: SettableClock
) -> None:
    """A parked run that waits for this approval, which may have a time limit."""
    due_at = None if hours is None else clock.now() + timedelta(hours=hours)
    head = (await store.commit(start_run("t"))).thread
    await store.commit(ask(head, approval_id, due_at=due_at, park=True))


class ApprovalCases(StoreCases):
    """An approval is decided once, in time, and by nobody else."""

    async def test_pending_approval_is_decided(self, store: Store, clock: SettableClock) -> None:
        await asked(store, clock=clock)
        committed = await store.commit(decide("t", "a"))
        assert committed.thread.runnable
        call = fold(await every_event(store, "t")).runs["run-1"].calls["call-of-a"]
        assert call.approval is not None
        assert call.approval.state is ApprovalState.APPROVED

    async def test_decision_needs_no_knowledge_of_the_log(
        self, store: Store, clock: SettableClock
    ) -> None:
        store.renew("o", 60)
        head = (await store.commit(start_run("t", owner="o"))).thread
        await store.commit(ask(head, "a"))
        await store.commit(append_owned(head, thought()))
        committed = await store.commit(decide("t", "a"))
        assert (committed.thread.owner, committed.thread.next_seq) == ("o", 6)

    async def test_second_decision_is_refused(self, store: Store, clock: SettableClock) -> None:
        await asked(store, clock=clock)
        await store.commit(decide("t", "a", "rejected"))
        await refused(store, decide("t", "a", "approved"), ApprovalAlreadyDecided)
        call = fold(await every_event(store, "t")).runs["run-1"].calls["call-of-a"]
        assert call.approval is not None
        assert call.approval.state is ApprovalState.REJECTED

    async def test_approvals_of_one_run_are_decided_one_by_one(
        self, store: Store, clock: SettableClock
    ) -> None:
        head = (await store.commit(start_run("t"))).thread
        for name in ("a", "b", "c"):
            head = (await store.commit(ask(head, name))).thread
        await store.commit(decide("t", "b"))
        assert [entry.key for entry in await store.open_entries("approval", USER)] == ["a", "c"]

    async def test_approval_of_another_thread_is_not_found(
        self, store: Store, clock: SettableClock
    ) -> None:
        await asked(store, clock=clock)
        await store.commit(start_run("u"))
        await refused(store, decide("u", "a"), ApprovalNotFound)
        await store.commit(decide("t", "a"))

    async def test_approval_is_decided_in_time_and_not_later(
        self, store: Store, clock: SettableClock
    ) -> None:
        await asked(store, hours=24, clock=clock)
        clock.advance(24 * 3600 - 1)
        assert await store.overdue("approval") == []
        clock.advance(1)
        await refused(store, decide("t", "a"), ApprovalExpired)

    async def test_approval_in_time_is_decided(self, store: Store, clock: SettableClock) -> None:
        await asked(store, hours=24, clock=clock)
        clock.advance(24 * 3600 - 1)
        await store.commit(decide("t", "a"))

    async def test_expiry_follows_the_wall_clock(self, store: Store, clock: SettableClock) -> None:
        await asked(store, hours=24, clock=clock)
        clock.set_wall(clock.now() + timedelta(days=1))
        await refused(store, decide("t", "a"), ApprovalExpired)
        clock.set_wall(clock.now() - timedelta(hours=1))
        await store.commit(decide("t", "a"))

    async def test_overdue_approval_is_expired_once(
        self, store: Store, clock: SettableClock
    ) -> None:
        await asked(store, hours=1, clock=clock)
        clock.advance(3600)
        await store.commit(decide("t", "a", "expired", overdue=True))
        again = decide("t", "a", "expired", overdue=True)
        await refused(store, again, ApprovalAlreadyDecided)
        assert await store.overdue("approval") == []

    async def test_approval_in_time_is_not_expired(
        self, store: Store, clock: SettableClock
    ) -> None:
        await asked(store, hours=1, clock=clock)
        await refused(store, decide("t", "a", "expired", overdue=True), SequenceConflict)

    async def test_approval_without_a_limit_never_expires(
        self, store: Store, clock: SettableClock
    ) -> None:
        await asked(store, clock=clock)
        clock.advance(10 * 365 * 86400)
        assert await store.overdue("approval") == []
        await refused(store, decide("t", "a", "expired", overdue=True), SequenceConflict)
        await store.commit(decide("t", "a"))

    async def test_decided_approval_stays_decided_past_its_time(
        self, store: Store, clock: SettableClock
    ) -> None:
        await asked(store, hours=1, clock=clock)
        await store.commit(decide("t", "a"))
        clock.advance(7200)
        await refused(store, decide("t", "a"), ApprovalAlreadyDecided)
        await refused(store, decide("t", "a", "expired", overdue=True), ApprovalAlreadyDecided)
