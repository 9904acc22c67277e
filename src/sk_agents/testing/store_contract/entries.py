from __future__ import annotations

from datetime import timedelta

from sk_agents.engine.events import GrantChanged
from sk_agents.engine.models import Entry
from sk_agents.engine.ports import Store
from sk_agents.testing.clock import SettableClock
from sk_agents.testing.commits import (
    USER,
    append,
    approval,
    ask,
    create,
    decide,
    run_queued,
    start_run,
)
from sk_agents.testing.store_contract.case import StoreCases


def grant(grant_id: str, *, granted: bool = True) -> GrantChanged:
    return GrantChanged(
        run_id="run-1", grant_id=grant_id, tool="files-write", scope="thread", granted=granted
    )


class EntryCases(StoreCases):
    """Runs, approvals and grants are found across threads by their own keys."""

    async def test_run_is_found_when_started_and_when_queued(self, store: Store) -> None:
        head = (await store.commit(start_run("t", "run-1"))).thread
        await store.commit(append(head, run_queued("run-2")))
        for run_id in ("run-1", "run-2"):
            found = await store.find("run", run_id)
            assert found == Entry("run", run_id, "t", USER, run_id, open=False)

    async def test_approval_is_found_open_and_decided(
        self, store: Store, clock: SettableClock
    ) -> None:
        due_at = clock.now() + timedelta(hours=1)
        head = (await store.commit(start_run("t"))).thread
        await store.commit(ask(head, "a", due_at=due_at))
        assert await store.find("approval", "a") == Entry(
            "approval", "a", "t", USER, "run-1", True, due_at
        )
        await store.commit(decide("t", "a"))
        found = await store.find("approval", "a")
        assert found is not None
        assert (found.open, found.thread_id) == (False, "t")

    async def test_grant_is_open_until_taken_back(self, store: Store) -> None:
        head = (await store.commit(create("t", grant("g")))).thread
        assert [entry.key for entry in await store.open_entries("grant", USER)] == ["g"]
        await store.commit(append(head, grant("g", granted=False)))
        assert await store.open_entries("grant", USER) == []

    async def test_unknown_key_and_other_kind_find_nothing(self, store: Store) -> None:
        await store.commit(start_run("t", "run-1"))
        assert await store.find("run", "run-9") is None
        assert await store.find("approval", "run-1") is None

    async def test_open_entries_are_the_users_own(self, store: Store) -> None:
        for user in ("ann", "bob"):
            await store.commit(create(f"of-{user}", approval(f"for-{user}"), user=user))
        assert [entry.key for entry in await store.open_entries("approval", "ann")] == ["for-ann"]
        assert await store.open_entries("approval", "eve") == []
        assert await store.open_entries("approval", "") == []

    async def test_open_entries_are_of_one_kind(self, store: Store) -> None:
        head = (await store.commit(start_run("t", "run-1"))).thread
        await store.commit(append(head, approval("a"), grant("g")))
        keys = {
            kind: [entry.key for entry in await store.open_entries(kind, USER)]
            for kind in ("run", "approval", "grant")
        }
        assert keys == {"run": [], "approval": ["a"], "grant": ["g"]}

    async def test_open_entries_are_paged_by_key(self, store: Store) -> None:
        names = [f"a{number:02}" for number in range(25)]
        for number, name in enumerate(reversed(names)):
            await store.commit(create(f"t{number}", approval(name)))
        pages: list[list[str]] = []
        after = None
        while page := await store.open_entries("approval", USER, after=after, limit=10):
            pages.append([entry.key for entry in page])
            after = pages[-1][-1]
        assert pages == [names[:10], names[10:20], names[20:]]

    async def test_page_goes_on_after_a_key_that_is_no_longer_open(self, store: Store) -> None:
        await store.commit(create("t", approval("a"), approval("b"), approval("c")))
        await store.commit(decide("t", "b"))
        following = await store.open_entries("approval", USER, after="b")
        assert [entry.key for entry in following] == ["c"]

    async def test_overdue_lists_the_most_overdue_first(
        self, store: Store, clock: SettableClock
    ) -> None:
        start = clock.now()
        for minutes in (30, 10, 20, 90):
            due_at = start + timedelta(minutes=minutes)
            await store.commit(create(f"t{minutes}", approval(f"a{minutes}", due_at=due_at)))
        await store.commit(create("t", approval("without-limit")))
        assert await store.overdue("approval") == []
        clock.advance(3600)
        assert [entry.key for entry in await store.overdue("approval")] == ["a10", "a20", "a30"]
        assert [entry.key for entry in await store.overdue("approval", 2)] == ["a10", "a20"]

    async def test_overdue_lists_neither_decided_ones_nor_other_kinds(
        self, store: Store, clock: SettableClock
    ) -> None:
        due_at = clock.now() + timedelta(minutes=1)
        await store.commit(create("t", approval("a", due_at=due_at), approval("b", due_at=due_at)))
        await store.commit(decide("t", "a"))
        clock.advance(60)
        assert [entry.key for entry in await store.overdue("approval")] == ["b"]
        assert await store.overdue("run") == []
