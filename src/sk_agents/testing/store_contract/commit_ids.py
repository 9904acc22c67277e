from __future__ import annotations

from dataclasses import replace

from sk_agents.engine.log.commits import Release
from sk_agents.engine.ports import Store
from sk_agents.exceptions import CommitReused, SequenceConflict
from sk_agents.testing.clock import SettableClock
from sk_agents.testing.commits import (
    append,
    append_owned,
    ask,
    decide,
    start_run,
    thought,
)
from sk_agents.testing.store_contract.case import StoreCases, every_event, refused


class CommitIdCases(StoreCases):
    """A commit whose outcome is unknown is sent again: it is stored once."""

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
            await refused(store, replace(commit, events=events), CommitReused)

    async def test_used_id_without_events_changes_no_lease(self, store: Store) -> None:
        head = (await store.commit(start_run("t", owner="o"))).thread
        commit = append_owned(head, thought())
        await store.commit(commit)
        await refused(store, replace(commit, events=(), lease=Release()), CommitReused)

    async def test_id_of_a_refused_commit_is_free(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        commit = append(head._replace(next_seq=9), thought("a"))
        await refused(store, commit, SequenceConflict)
        right = replace(append(head, thought("other")), commit_id=commit.commit_id)
        assert [event.seq for event in (await store.commit(right)).events] == [2]

    async def test_same_id_in_two_threads_is_two_commits(self, store: Store) -> None:
        first = start_run("t")
        second = replace(start_run("u"), commit_id=first.commit_id)
        await store.commit(first)
        await store.commit(second)
        assert len(await every_event(store, "t")) == len(await every_event(store, "u")) == 1
