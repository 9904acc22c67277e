"""A store and a model of it live through the same random life; they must never disagree."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import (
    Absent,
    Claim,
    ClaimIfFree,
    Commit,
    Guard,
    LeaseChange,
    Owned,
    Park,
    Pending,
    Quiet,
    Release,
    Unchanged,
)
from sk_agents.engine.models import NewThread
from sk_agents.engine.ports import Clock, Store, ThreadQuery
from sk_agents.exceptions import TealError
from sk_agents.testing import commits
from sk_agents.testing.clock import SettableClock
from sk_agents.testing.random_life import VERBS, Life
from sk_agents.testing.store_model import StoreModel

OpenStore = Callable[[Clock], AbstractAsyncContextManager[Store]]

THREADS = st.sampled_from(["t1", "t2", "t3"])
USERS = ("ann", "bob")
OWNERS = st.sampled_from(["o1", "o2"])
EVENTS = st.lists(st.sampled_from(VERBS), max_size=4)
LEASES: st.SearchStrategy[LeaseChange | None] = st.one_of(
    st.none(), st.builds(ClaimIfFree, OWNERS), st.just(Release()), st.just(Park())
)
OFF = st.sampled_from([0, 0, 0, 0, -1, 1])

FULL = os.environ.get("TEAL_CHAOS") == "full"
SIZE = settings(
    max_examples=400 if FULL else 15,
    stateful_step_count=60 if FULL else 25,
    deadline=None,
)


def store_machine(open_store: OpenStore) -> type[RuleBasedStateMachine]:
    """A state machine for the stores that `open_store` makes, each time an empty one.

    Its `TestCase` is a test for pytest; `TEAL_CHAOS=full` makes it long.
    """

    class Machine(StoreMachine):
        def __init__(self) -> None:
            super().__init__(open_store)

    Machine.TestCase.settings = SIZE
    return Machine


class StoreMachine(RuleBasedStateMachine):
    def __init__(self, open_store: OpenStore) -> None:
        super().__init__()
        self.clock = SettableClock()
        self.model = StoreModel(self.clock)
        self.life = Life(self.clock)
        self.last: Commit | None = None
        self.runner = asyncio.Runner()
        self.opened = open_store(self.clock)
        self.store = self.run(self.opened.__aenter__())

    def teardown(self) -> None:
        self.run(self.opened.__aexit__(None, None, None))
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(60):
                return await work

        return self.runner.run(bounded())

    @rule(thread=THREADS, user=st.sampled_from(USERS), verbs=EVENTS, owner=OWNERS | st.none())
    def create(self, thread: str, user: str, verbs: list[str], owner: str | None) -> None:
        guard = Absent(NewThread(user_id=user, metadata={"title": "new"}))
        self.send(thread, guard, verbs, Claim(owner) if owner else None)

    @rule(thread=THREADS, verbs=EVENTS, off=OFF, lease=LEASES)
    def commit_unchanged(
        self, thread: str, verbs: list[str], off: int, lease: LeaseChange | None
    ) -> None:
        self.send(thread, Unchanged(self.next_seq(thread) + off), verbs, lease)

    @rule(thread=THREADS, verbs=EVENTS, off=OFF, lease=LEASES | st.builds(Claim, OWNERS))
    def commit_quiet(
        self, thread: str, verbs: list[str], off: int, lease: LeaseChange | None
    ) -> None:
        self.send(thread, Quiet(self.next_seq(thread) + off), verbs, lease)

    @rule(
        thread=THREADS,
        verbs=EVENTS,
        stranger=OWNERS | st.none(),
        epoch_off=OFF,
        seq_off=OFF | st.none(),
        lease=st.sampled_from([None, None, Release(), Park()]),
    )
    def commit_owned(
        self,
        thread: str,
        verbs: list[str],
        stranger: str | None,
        epoch_off: int,
        seq_off: int | None,
        lease: LeaseChange | None,
    ) -> None:
        head = self.model.heads.get(thread, {"owner": None, "epoch": 0})
        guard = Owned(
            stranger or head["owner"] or "nobody",
            head["epoch"] + epoch_off,
            self.next_seq(thread) + (seq_off or 0),
            exact=seq_off is not None,
        )
        self.send(thread, guard, verbs, lease)

    @rule(thread=THREADS, overdue=st.booleans(), choose=st.integers(0, 5), lease=LEASES)
    def decide(self, thread: str, overdue: bool, choose: int, lease: LeaseChange | None) -> None:
        asked = self.life.asked or ["never-asked"]
        approval_id = asked[choose % len(asked)]
        row = self.model.entries.get(("approval", approval_id))
        if choose and row is not None:
            thread = row["thread_id"]
        run_id = row["run_id"] if row else "run-0"
        event = commits.decision(approval_id, "expired" if overdue else "approved", run_id=run_id)
        self.send(thread, Pending(approval_id, overdue), [], lease, event)

    @precondition(lambda self: self.last is not None)
    @rule()
    def send_the_last_commit_again(self) -> None:
        assert self.last is not None
        self.agree(self.last)

    @precondition(lambda self: self.last is not None and self.last.events)
    @rule()
    def reuse_the_last_commit_id(self) -> None:
        assert self.last is not None
        other = commits.thought("other")
        self.agree(Commit(self.last.thread_id, self.last.commit_id, self.last.guard, (other,)))

    @rule(thread=THREADS, owner=OWNERS)
    def claim(self, thread: str, owner: str) -> None:
        expected = outcome(lambda: self.model.claim(thread, owner))
        found = outcome(lambda: self.run(self.store.claim(thread, owner)))
        if isinstance(expected, dict):
            found = shown(found, expected)
        assert found == expected

    @rule(owner=OWNERS, ttl=st.sampled_from([5.0, 60.0]))
    def renew(self, owner: str, ttl: float) -> None:
        self.model.renew(owner, ttl)
        self.store.renew(owner, ttl)

    @rule(owner=OWNERS)
    def retire(self, owner: str) -> None:
        self.model.retire(owner)
        self.run(self.store.retire(owner))

    @rule(seconds=st.sampled_from([0.5, 10, 61, 3600]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(hours=st.sampled_from([-1, 24]))
    def move_the_wall_clock(self, hours: int) -> None:
        self.clock.set_wall(self.clock.now() + timedelta(hours=hours))

    @rule(thread=THREADS, off=OFF)
    def delete(self, thread: str, off: int) -> None:
        seq = self.next_seq(thread) + off
        expected = outcome(lambda: self.model.delete(thread, seq))
        assert outcome(lambda: self.run(self.store.delete(thread, next_seq=seq))) == expected

    @rule(thread=THREADS, seq=st.integers(-1, 12), limit=st.integers(1, 5))
    def read_a_page(self, thread: str, seq: int, limit: int) -> None:
        if thread in self.model.logs:
            start = max(seq, 0)
            page = self.run(self.store.events_after(thread, seq, limit))
            assert list(page) == self.model.logs[thread][start : start + limit]

    @invariant()
    def heads_and_logs_agree(self) -> None:
        for thread in ("t1", "t2", "t3"):
            expected = outcome(lambda thread=thread: self.model.head(thread))  # type: ignore[misc]
            found = outcome(lambda thread=thread: self.run(self.store.thread(thread)))  # type: ignore[misc]
            if isinstance(expected, dict):
                found = shown(found, expected)
                log = self.run(self.store.events_after(thread, 0))
                assert list(log) == self.model.logs[thread]
            assert found == expected

    @invariant()
    def lists_agree(self) -> None:
        store, model = self.store, self.model
        assert [head.thread_id for head in self.run(store.orphans())] == model.orphans()
        late = self.run(store.overdue("approval"))
        assert {entry.key for entry in late} == model.overdue_keys()
        for user in USERS:
            page = self.run(store.threads(ThreadQuery(user)))
            assert [head.thread_id for head in page.threads] == model.listed(user)
            for kind in ("run", "approval", "grant"):
                entries = self.run(store.open_entries(kind, user))
                assert [entry.key for entry in entries] == model.open_keys(kind, user)
        for (kind, key), row in model.entries.items():
            assert shown(self.run(store.find(kind, key)), row) == row

    def next_seq(self, thread: str) -> int:
        return int(self.model.heads.get(thread, {"next_seq": 1})["next_seq"])

    def send(
        self,
        thread: str,
        guard: Guard,
        verbs: list[str],
        lease: LeaseChange | None,
        *events: Event,
    ) -> None:
        made = [*events, *self.life.events(self.model.logs.get(thread, []), verbs)]
        self.last = Commit(thread, self.life.new("commit"), guard, tuple(made), lease)
        self.agree(self.last)

    def agree(self, commit: Commit) -> None:
        expected = outcome(lambda: self.model.commit(commit))
        found = outcome(lambda: self.run(self.store.commit(commit)))
        if isinstance(expected, tuple):
            assert not isinstance(found, type), f"{commit} was refused with {found}"
            assert (shown(found.thread, expected[0]), list(found.events)) == expected
        else:
            assert found == expected


def outcome(attempt: Callable[[], Any]) -> Any:
    """What it returned, or the class of the error it raised."""
    try:
        return attempt()
    except TealError as error:
        return type(error)


def shown(found: Any, expected: dict[str, Any]) -> Any:
    """The fields of a head or an entry that the model knows, too."""
    if found is None or isinstance(found, type):
        return found
    return {key: getattr(found, key) for key in expected}
