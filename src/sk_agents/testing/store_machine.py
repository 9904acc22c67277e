"""A store and a model of it get the same random commits; they must never disagree."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sk_agents.engine.events import BranchChanged, Event, GrantChanged, Imported, ThreadChanged
from sk_agents.engine.log import commits as c
from sk_agents.engine.models import NewThread, RunStatus, ThreadStatus
from sk_agents.engine.ports import Clock, Count, Store, ThreadQuery
from sk_agents.exceptions import TealError
from sk_agents.testing import commits
from sk_agents.testing.predictable import SettableClock
from sk_agents.testing.store_model import StoreModel

Lease = c.LeaseChange | None
OpenStore = Callable[[Clock], AbstractAsyncContextManager[Store]]

# What may happen next in a thread, as far as it makes sense after its log.
VERBS = (
    *("start", "queue", "next", "end", "drop"),
    *("ask", "cancel", "branch", "root", "label", "think", "import", "grant", "revoke"),
)
THREADS = st.sampled_from(["t1", "t2", "t3"])
USERS = ("ann", "bob")
OWNERS = st.sampled_from(["o1", "o2"])
EVENTS = st.lists(st.sampled_from(VERBS), max_size=4)
LEASES: st.SearchStrategy[Lease] = st.one_of(
    st.none(), st.builds(c.ClaimIfFree, OWNERS), st.just(c.Release()), st.just(c.Park())
)
ADDITIONS = st.lists(
    st.builds(
        Count,
        st.sampled_from(["k1", "k2"]),
        st.integers(-3, 4),
        st.sampled_from([5.0, 60.0]),
        st.sampled_from([None, 5, 8]),
    ),
    max_size=3,
)
OFF = st.sampled_from([0, 0, 0, 0, -1, 1])

FULL = os.environ.get("TEAL_CHAOS") == "full"
SIZE = settings(
    max_examples=400 if FULL else 15, stateful_step_count=60 if FULL else 25, deadline=None
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
        self.random_events = RandomEvents(self.clock)
        self.last: c.Commit | None = None
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
        guard = c.Absent(NewThread(user_id=user, metadata={"title": "new"}))
        self.send(thread, guard, verbs, c.Claim(owner) if owner else None)

    @rule(thread=THREADS, verbs=EVENTS, off=OFF, lease=LEASES)
    def commit_unchanged(self, thread: str, verbs: list[str], off: int, lease: Lease) -> None:
        self.send(thread, c.Unchanged(self.next_seq(thread) + off), verbs, lease)

    @rule(thread=THREADS, verbs=EVENTS, off=OFF, lease=LEASES | st.builds(c.Claim, OWNERS))
    def commit_quiet(self, thread: str, verbs: list[str], off: int, lease: Lease) -> None:
        self.send(thread, c.Quiet(self.next_seq(thread) + off), verbs, lease)

    @rule(
        thread=THREADS,
        verbs=EVENTS,
        stranger=OWNERS | st.none(),
        epoch_off=OFF,
        seq_off=OFF | st.none(),
        lease=st.sampled_from([None, None, c.Release(), c.Park()]),
    )
    def commit_owned(
        self,
        thread: str,
        verbs: list[str],
        stranger: str | None,
        epoch_off: int,
        seq_off: int | None,
        lease: Lease,
    ) -> None:
        head = self.model.heads.get(thread, {"owner": None, "epoch": 0})
        guard = c.Owned(
            stranger or head["owner"] or "stranger",
            head["epoch"] + epoch_off,
            self.next_seq(thread) + (seq_off or 0),
            exact=seq_off is not None,
        )
        self.send(thread, guard, verbs, lease)

    @rule(thread=THREADS, overdue=st.booleans(), choose=st.integers(0, 5), lease=LEASES)
    def decide(self, thread: str, overdue: bool, choose: int, lease: Lease) -> None:
        asked = self.random_events.asked or ["never-asked"]
        approval_id = asked[choose % len(asked)]
        row = self.model.entries.get(("approval", approval_id))
        if choose and row is not None:
            thread = row["thread_id"]
        run_id = row["run_id"] if row else "run-0"
        event = commits.decision(approval_id, "expired" if overdue else "approved", run_id=run_id)
        self.send(thread, c.Pending(approval_id, overdue), [], lease, event)

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
        self.agree(c.Commit(self.last.thread_id, self.last.commit_id, self.last.guard, (other,)))

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

    @rule(additions=ADDITIONS)
    def count(self, additions: list[Count]) -> None:
        known = [added for added in additions if not self.model.is_doubtful(added.key)]
        expected = outcome(lambda: self.model.count(known))
        assert outcome(lambda: list(self.run(self.store.count(known)))) == expected
        sums = self.run(self.store.sums("k")).items()
        certain = {key: found for key, found in sums if not self.model.is_doubtful(key)}
        assert certain == self.model.sums()

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
        self, name: str, guard: c.Guard, verbs: list[str], lease: Lease, *events: Event
    ) -> None:
        made = [*events, *self.random_events.events(self.model.logs.get(name, []), verbs)]
        self.last = c.Commit(name, self.random_events.new("commit"), guard, tuple(made), lease)
        self.agree(self.last)

    def agree(self, commit: c.Commit) -> None:
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


class RandomEvents:
    """Turns verbs into events, with names never used before. `asked` are all approvals so far."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self.asked: list[str] = []

    def new(self, what: str) -> str:
        return f"{what}-{next(self._numbers)}"

    def events(self, log: Sequence[Event], verbs: Sequence[str]) -> list[Event]:
        """One event for each verb that makes sense after this log and the verbs before it."""
        made: list[Event] = []
        for verb in verbs:
            active, queue = unfinished([*log, *made])
            made.extend(self._boundary(verb, active, queue) or self._step(verb, active))
        return made

    def _boundary(self, verb: str, active: str | None, queue: list[str]) -> list[Event]:
        match verb:
            case "start" if active is None:
                return [commits.run_started(self.new("run"))]
            case "queue":
                return [commits.run_queued(self.new("run"))]
            case "next" if active is None and queue:
                return [commits.run_started(queue[0]).model_copy(update={"message": None})]
            case "end" if active is not None:
                return [commits.run_ended(active)]
            case "drop" if queue:
                return [commits.run_ended(queue[-1], RunStatus.CANCELLED)]
        return []

    def _step(self, verb: str, active: str | None) -> list[Event]:
        name = self.new(verb)
        odd = len(name) % 2
        match verb:
            case "ask":
                self.asked.append(name)
                due_at = self._clock.now() + timedelta(hours=1) if len(self.asked) % 2 else None
                return [commits.approval(name, active or "run-0", due_at=due_at)]
            case "cancel":
                return [commits.cancel_requested(active or "run-0")]
            case "branch" | "root":
                return [BranchChanged(head_run=name if verb == "branch" else None)]
            case "label":
                return [ThreadChanged(metadata={"title": name, "seen": None if odd else True})]
            case "think":
                return [commits.thought(name)]
            case "import":
                return [Imported(status=ThreadStatus.FAILED if odd else None)]
            case "grant" | "revoke":
                granted = verb == "grant"
                return [GrantChanged(grant_id="g", tool="t", scope="thread", granted=granted)]
        return []


def unfinished(log: Sequence[Event]) -> tuple[str | None, list[str]]:
    """The run under way, if any, and those in the queue."""
    runs: dict[str, bool] = {}
    for event in log:
        if event.type in ("run_queued", "run_started"):
            runs[event.run_id] = event.type == "run_started"
        elif event.type == "run_ended":
            runs.pop(event.run_id, None)
    active = next((run_id for run_id, started in runs.items() if started), None)
    return active, [run_id for run_id, started in runs.items() if not started]
