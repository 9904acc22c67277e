from __future__ import annotations

from datetime import timedelta

from sk_agents.engine.ports import Store
from sk_agents.testing.clock import SettableClock
from sk_agents.testing.commits import start_run
from sk_agents.testing.store_contract.case import StoreCases, snapshot


class WatchingCases(StoreCases):
    """Marks of who reads a run: by the store's monotonic clock, and beside the log."""

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
