from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable

from sk_agents.engine.log.commits import Commit
from sk_agents.engine.ports import Store
from sk_agents.exceptions import LeaseHeld, SequenceConflict, TealError, ThreadExists
from sk_agents.testing.commits import (
    append,
    append_owned,
    ask,
    decide,
    start_run,
    thought,
)
from sk_agents.testing.store_contract.case import StoreCases, every_event

WON = "won"


async def outcome_of(attempt: Awaitable[object]) -> str:
    try:
        await attempt
    except TealError as error:
        return type(error).__name__
    return WON


async def outcomes(attempts: Iterable[Awaitable[object]]) -> Counter[str]:
    """How many of these, all under way at once, won, and how the others were refused."""
    async with asyncio.timeout(60):
        return Counter(await asyncio.gather(*map(outcome_of, attempts)))


async def decided_once(stores: list[Store], approval_id: str, deciders: int = 64) -> None:
    """Let many decide one approval at once; exactly one may win."""
    counted = await outcomes(
        stores[n % len(stores)].commit(
            decide("t", approval_id, "approved" if n % 2 else "rejected", decided_by=f"user-{n}")
        )
        for n in range(deciders)
    )
    assert counted == {WON: 1, "ApprovalAlreadyDecided": deciders - 1}


async def append_until_stored(store: Store, thread_id: str, text: str) -> int:
    """Append to the log as it then is; how many tries it took."""
    for tries in range(1, 10_000):
        head = await store.thread(thread_id)
        try:
            await store.commit(append(head, thought(text)))
        except SequenceConflict:
            continue
        return tries
    raise AssertionError("never stored")


class RaceCases(StoreCases):
    """Of those who want the same thing at once exactly one gets it."""

    async def test_one_of_many_decisions_wins(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        await store.commit(ask(head, "a", park=True))
        await decided_once([store], "a")
        types = [event.type for event in await every_event(store, "t")]
        assert types.count("approval_decided") == 1

    async def test_one_of_many_creations_wins(self, store: Store) -> None:
        counted = await outcomes(store.commit(start_run("t", f"run-{n}")) for n in range(32))
        assert counted == {WON: 1, ThreadExists.__name__: 31}
        assert len(await every_event(store, "t")) == 1

    async def test_one_of_many_claims_wins(self, store: Store) -> None:
        await store.commit(start_run("t"))
        owners = [f"o{n}" for n in range(16)]
        for owner in owners:
            store.renew(owner, 60)
        counted = await outcomes(store.claim("t", owner) for owner in owners)
        assert counted == {WON: 1, LeaseHeld.__name__: 15}
        assert (await store.thread("t")).epoch == 1

    async def test_one_of_many_unchanged_commits_wins(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        counted = await outcomes(store.commit(append(head, thought(str(n)))) for n in range(64))
        assert counted == {WON: 1, SequenceConflict.__name__: 63}
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
        assert counted == {WON: 20, SequenceConflict.__name__: 20}
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
