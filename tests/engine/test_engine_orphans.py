"""What an instance makes of threads that another one left: each goes on, ends, or is left alone."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from sk_agents.engine.defaults import NoObserver
from sk_agents.engine.events import (
    Answered,
    Cancelled,
    CancelRequested,
    Event,
    Failed,
    ModelRestarted,
    ToolStarted,
)
from sk_agents.engine.log.commits import Absent, Claim, Unchanged
from sk_agents.engine.models import Effect, NewThread, RunStatus, Thread
from sk_agents.engine.run import recovery
from sk_agents.exceptions import ModelRefused, StoreBroken, StoreUnavailable
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing import SettableClock
from sk_agents.testing.commits import new_commit
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine import builders as b
from tests.engine.fake_tools import FakePolicy, FakeTools, tool
from tests.engine.kit import THREAD, UNSWEPT, USER, Setup, Talk, endings, still_clock, talking
from tests.engine.troubled_store import TroubledStore
from tests.patience import seconds

LEASE = 15.0
LOOKED = b.proposed(plugin_name="Files", function_name="look", arguments={})
SENT = b.proposed(plugin_name="Mail", function_name="send", arguments={})
# Twenty sweeps, five of which fit into a lease.
PATIENCE = LEASE / 5 * 20


async def leave(
    store: MemoryStore, *events: Event, thread: str = THREAD, agent: str = "a", losses: int = 1
) -> None:
    """A thread with these events whose owner is gone, for the given number of times."""
    new = NewThread(USER, agent=agent)
    await store.commit(new_commit(thread, Absent(new), *events, lease=Claim("gone-1")))
    for number in range(2, losses + 1):
        await store.claim(thread, f"gone-{number}")


def restarts(log: Sequence[Event]) -> list[tuple[int, int, str]]:
    return [(e.round, e.attempt, e.reason) for e in log if isinstance(e, ModelRestarted)]


@pytest.mark.parametrize(
    ("events", "round", "attempt"),
    [
        ([], 1, 2),
        ([LOOKED, b.tool_started(), b.finished()], 2, 2),
        ([ModelRestarted(run_id="r1", round=1, attempt=2)], 1, 3),
        (
            [ModelRestarted(run_id="r1", round=1, attempt=2), LOOKED]
            + [b.tool_started(), b.finished()],
            2,
            2,
        ),
    ],
    ids=["first round", "after a tool", "asked twice before", "another round asked twice"],
)
async def test_open_model_call_is_asked_once_more_and_readers_are_told_which(
    events: list[Event], round: int, attempt: int
) -> None:
    store = MemoryStore()
    await leave(store, b.started(), *events)
    before = restarts(events)
    async with talking(store, script=[says("here I am")]) as talk:
        run = await talk.ended("r1")
        assert run.status is RunStatus.COMPLETED
        log = await talk.log()
        assert restarts(log) == [*before, (round, attempt, "recovered")]
        (answer,) = [event for event in log if isinstance(event, Answered)]
        assert (answer.round, answer.content) == (round, "here I am")
        assert len(talk.prompts) == 1


class Recoveries(NoObserver):
    count = 0

    def recovered(self) -> None:
        self.count += 1


async def test_observer_is_told_of_each_thread_that_was_claimed() -> None:
    store, observer = MemoryStore(), Recoveries()
    await leave(store, b.started())
    async with talking(store, script=[says("one"), says("two")], observer=observer) as talk:
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert (await talk.ask(run_id="r2")).status is RunStatus.COMPLETED
    assert observer.count == 1


async def test_call_that_may_be_repeated_is_started_again_without_asking_the_model() -> None:
    store = MemoryStore()
    await leave(store, b.started(), LOOKED, b.tool_started())
    async with talking(store, script=[says("looked")]) as talk:
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        log = await talk.log()
        assert [e.attempt for e in log if isinstance(e, ToolStarted)] == [1, 2]
        assert restarts(log) == []
        assert talk.tools.started == [("Files-look", {})]


async def test_call_that_may_have_taken_effect_waits_for_a_person() -> None:
    store = MemoryStore()
    await leave(store, b.started(), SENT, b.tool_started())
    async with talking(store) as talk:
        state = await talk.until(lambda state: state.run("r1").status is RunStatus.WAITING)
        (approval,) = state.run("r1").pending_approvals
        assert approval.request.kind == "outcome_unknown"
        assert talk.tools.started == []
        assert restarts(await talk.log()) == []


async def test_call_that_a_person_wants_tried_again_is_the_next_attempt() -> None:
    store = MemoryStore()
    await leave(store, b.started(), SENT, b.tool_started(), b.outcome_unknown())
    async with talking(store, script=[says("sent")]) as talk:
        await talk.until(lambda state: bool(state.run("r1").pending_approvals))
        (approval_id,) = await talk.approvals("r1")
        await talk.decide(approval_id, choice="retry")
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        starts = [event for event in await talk.log() if isinstance(event, ToolStarted)]
        assert [event.attempt for event in starts] == [1, 2]
        assert starts[1].approval_id == approval_id
        assert talk.tools.started == [("Mail-send", {})]


async def test_run_that_was_asked_to_stop_is_cancelled_and_no_model_is_asked() -> None:
    store = MemoryStore()
    await leave(store, b.started(), CancelRequested(run_id="r1"))
    async with talking(store) as talk:
        assert (await talk.ended("r1")).status is RunStatus.CANCELLED
        assert talk.prompts == []
        assert restarts(await talk.log()) == []


@pytest.mark.parametrize(
    ("losses", "status"), [(3, RunStatus.COMPLETED), (4, RunStatus.FAILED)], ids=["third", "fourth"]
)
async def test_run_is_taken_up_three_times_and_then_fails(losses: int, status: RunStatus) -> None:
    store = MemoryStore(clock=still_clock())
    await leave(store, b.started(), b.queued("r2"), losses=losses)
    async with talking(store, script=[says("one"), says("two")], lease_ttl=0.2) as talk:
        run = await talk.ended("r1")
        assert run.status is status
        if run.failure is not None:
            assert run.failure.code == "recovery_attempts_exceeded"
            assert run.failure.correlation_id
        # What waits behind it goes on either way.
        assert (await talk.ended("r2")).status is RunStatus.COMPLETED


@pytest.mark.parametrize("losses", [1, 4], ids=["by its model", "by its losses"])
async def test_failure_of_a_run_that_was_lost_names_the_request_that_began_it(losses: int) -> None:
    store = MemoryStore()
    begun = b.started().model_copy(update={"correlation_id": "of the request"})
    await leave(store, begun, losses=losses)
    async with talking(store, script=[ModelRefused()]) as talk:
        run = await talk.ended("r1")
        assert run.failure is not None
        assert run.failure.correlation_id == "of the request"


async def test_run_that_is_lost_too_often_after_a_cancel_is_cancelled() -> None:
    store = MemoryStore()
    await leave(store, b.started(), CancelRequested(run_id="r1"), losses=4)
    async with talking(store) as talk:
        assert (await talk.ended("r1")).status is RunStatus.CANCELLED
        log = await talk.log()
        assert endings(log) == [RunStatus.CANCELLED]
        assert [type(e) for e in log if isinstance(e, Cancelled | Failed)] == [Cancelled]


async def test_queued_message_whose_turn_it_was_is_started_after_the_last_run() -> None:
    store = MemoryStore()
    await leave(store, *b.turn(), b.queued("r2"), b.queued("r3"))
    async with talking(store, script=[says("two"), says("three")]) as talk:
        for number in (2, 3):
            run = await talk.ended(f"r{number}")
            assert (run.status, run.parent_run) == (RunStatus.COMPLETED, f"r{number - 1}")
        assert restarts(await talk.log()) == []


async def test_run_of_an_unknown_agent_is_left_alone_for_a_while_and_then_fails() -> None:
    clock = SettableClock()
    store = MemoryStore(clock=clock)
    await leave(store, b.started(), agent="elsewhere")
    async with talking(store, clock=clock, lease_ttl=LEASE) as talk:
        clock.advance(PATIENCE)
        await talk.sweep()
        assert (await store.thread(THREAD)).owner == "gone-1"
        assert endings(await talk.log()) == []
        clock.advance(1)
        await talk.sweep()
        run = await talk.ended("r1")
        assert run.failure is not None
        assert run.failure.code == "agent_missing"
        assert (await store.thread(THREAD)).owner is None


async def test_run_of_an_unknown_agent_is_cancelled_at_once_and_the_next_one_begins() -> None:
    clock = SettableClock()
    store = MemoryStore(clock=clock)
    following = b.queued("r2").model_copy(update={"agent": "a"})
    await leave(store, b.started(), following, agent="elsewhere")
    async with talking(store, clock=clock, lease_ttl=LEASE, script=[says("two")]) as talk:
        clock.advance(LEASE + 1)
        await talk.cancel("r1")
        assert (await talk.ended("r1")).status is RunStatus.CANCELLED
        assert (await talk.ended("r2")).status is RunStatus.COMPLETED


async def test_lost_run_of_an_unknown_agent_that_was_to_stop_is_cancelled_by_the_next_sweep() -> (
    None
):
    clock = SettableClock()
    store = MemoryStore(clock=clock)
    await leave(store, b.started(), b.cancel_requested(), agent="elsewhere")
    async with talking(store, clock=clock, lease_ttl=LEASE) as talk:
        clock.advance(LEASE + 1)
        await talk.sweep()
        assert (await talk.ended("r1")).status is RunStatus.CANCELLED


async def test_damaged_thread_keeps_no_other_from_being_recovered_and_is_not_read_again() -> None:
    store = TroubledStore()
    await leave(store, b.started(), thread="damaged")
    await leave(store, b.started())
    store.damaged = {"damaged"}
    async with talking(store, script=[says("fine")]) as talk:
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        await talk.sweep()
        reads = store.read.count("damaged")
        await talk.sweep()
        assert store.read.count("damaged") == reads > 0
        assert (await store.thread("damaged")).owner == "gone-1"


async def test_damaged_threads_do_not_fill_the_place_of_an_orphan_that_can_be_recovered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many there are, a sweep looks beyond those it knows."""
    monkeypatch.setattr(recovery, "BATCH", 2)
    clock = SettableClock()
    store = TroubledStore(clock)
    async with talking(store, script=[says("fine")], clock=clock, lease_ttl=UNSWEPT) as talk:
        for number in range(4):
            await leave(store, b.started(), thread=f"damaged-{number}")
            store.damaged.add(f"damaged-{number}")
            clock.advance(1)
        await leave(store, b.started())
        for _ in range(4):
            await talk.sweep()
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED


async def test_sweeps_go_on_after_the_store_was_away() -> None:
    store = TroubledStore(still_clock())
    store.unavailable = 2
    await leave(store, b.started())
    async with talking(store, script=[says("back")], lease_ttl=0.1) as talk:
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED


@pytest.mark.parametrize("is_claimed", [False, True])
async def test_orphan_whose_claim_failed_is_recovered_by_a_later_sweep(is_claimed: bool) -> None:
    store = TroubledStore(still_clock())
    await leave(store, b.started())
    (store.after_claim if is_claimed else store.before_claim).append(StoreUnavailable())
    async with talking(store, script=[says("back")], lease_ttl=0.2) as talk:
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert len(talk.prompts) == 1


async def test_sweep_of_a_store_that_is_away_says_so() -> None:
    store = TroubledStore()
    async with talking(store, script=[says("back")], lease_ttl=UNSWEPT) as talk:
        await talk.sweep()
        await leave(store, b.started())
        store.before_claim = [StoreUnavailable()]
        with pytest.raises(StoreUnavailable):
            await talk.sweep()
        await talk.sweep()
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED


class Broken(MemoryStore):
    async def orphans(self, limit: int = 100) -> Sequence[Thread]:
        raise StoreBroken


async def test_instance_that_finds_its_store_broken_while_it_sweeps_ends() -> None:
    async with talking(Broken()) as talk, asyncio.timeout(seconds(10)):
        await talk.engine.broken()


async def test_orphan_that_could_not_be_marked_is_given_back_and_recovered() -> None:
    store = TroubledStore(still_clock())
    await leave(store, b.started())
    store.before_commit = [StoreUnavailable()]
    async with talking(store, script=[says("back")], lease_ttl=0.2) as talk:
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert restarts(await talk.log()) == [(1, 2, "recovered")]


async def test_queue_that_was_emptied_while_it_was_claimed_is_given_back() -> None:
    store = TroubledStore()
    await leave(store, *b.turn(), b.queued("r2"))

    async def cancel() -> None:
        head = await store.thread(THREAD)
        ended = b.cancelled("r2")
        await store.commit(new_commit(THREAD, Unchanged(head.next_seq), *ended))

    store.on_claim = cancel
    async with talking(store) as talk:
        assert (await talk.ended("r2")).status is RunStatus.CANCELLED
        await talk.parked()
        head = await store.thread(THREAD)
        assert (head.runnable, head.queued, head.active_run) == (False, 0, None)


async def test_start_that_never_reached_the_store_is_looked_for_only_a_minute() -> None:
    clock = SettableClock()
    store = TroubledStore(clock)
    async with talking(store, clock=clock, lease_ttl=UNSWEPT) as talk:
        await talk.sweep()
        store.before_commit = [StoreUnavailable()]
        with pytest.raises(StoreUnavailable):
            await talk.say()
        looks = []
        for seconds in (0, 60, 1, 0):
            clock.advance(seconds)
            await talk.sweep()
            looks.append(store.looked.count(THREAD))
        # A start asks once itself.
        assert [look - looks[0] for look in looks] == [0, 1, 1, 1]


async def test_more_orphans_than_are_taken_on_at_once_are_all_recovered() -> None:
    store = MemoryStore()
    threads = [f"t{number}" for number in range(20)]
    for thread in threads:
        await leave(store, b.started(), thread=thread)
    async with talking(store, script=[says("x")] * len(threads)) as talk:
        await talk.sweep()
        for thread in threads:
            assert (await talk.ended("r1", thread=thread)).status is RunStatus.COMPLETED


async def test_answer_is_stored_once_the_store_is_back() -> None:
    store = TroubledStore(still_clock())
    gate = asyncio.Event()
    script: list[Turn] = [[gate, *says("kept")]]
    async with talking(store, script=script, lease_ttl=0.5) as talk:
        accepted = await talk.say()
        store.before_commit = [StoreUnavailable()]
        gate.set()
        run = await talk.result(accepted)
        assert run.answer is not None
        assert run.answer.content == "kept"
        assert len(talk.prompts) == 1


async def test_run_whose_driver_breaks_ends_as_failed_and_the_thread_goes_on() -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("a bug")

    policy = FakePolicy(breaks)
    script = [calls(("Files-look", {})), says("again")]
    async with talking(
        MemoryStore(clock=still_clock()), script=script, policy=policy, lease_ttl=0.2
    ) as talk:
        run = await talk.ask()
        assert run.failure is not None
        assert run.failure.code == "internal"
        assert (await talk.ask()).status is RunStatus.COMPLETED


async def test_run_whose_start_was_stored_but_not_answered_is_driven() -> None:
    store = TroubledStore(still_clock())
    async with talking(store, script=[says("hello")], lease_ttl=0.5) as talk:
        store.after_commit = [StoreUnavailable()]
        with pytest.raises(StoreUnavailable):
            await talk.say()
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert restarts(await talk.log()) == []


async def test_instance_that_closes_starts_no_queued_run() -> None:
    store = MemoryStore()
    gate = asyncio.Event()
    reached = asyncio.Event()

    async def hold(arguments: dict[str, object], context: object) -> str:
        reached.set()
        await gate.wait()
        return "sent"

    tools = FakeTools(tool("Mail-send", hold, effect=Effect.AT_MOST_ONCE))
    policy = FakePolicy(lambda call: "allow")
    script = [calls(("Mail-send", {})), says("one"), says("two")]
    async with talking(store, script=script, tools=tools, policy=policy) as talk:
        await talk.say("1")
        async with asyncio.timeout(seconds(5)):
            await reached.wait()
        await talk.say("2", on_busy="enqueue")
        talk.engine.drain()
        gate.set()
        await talk.parked()
        assert len(talk.prompts) == 1
        head = await store.thread(THREAD)
        assert (head.active_run, head.runnable, head.queued) == ("r1", True, 1)


async def test_instance_that_closes_ends_a_cancelled_run_and_leaves_the_next_to_others() -> None:
    store = MemoryStore()
    gate, reached = asyncio.Event(), asyncio.Event()

    async def hold(arguments: dict[str, object], context: object) -> str:
        reached.set()
        await gate.wait()
        return "sent"

    tools = FakeTools(tool("Mail-send", hold, effect=Effect.AT_MOST_ONCE))
    setup = Setup([calls(("Mail-send", {})), says("two")], tools, FakePolicy(lambda call: "allow"))
    async with talking(store, setup) as talk:
        await talk.say("1")
        async with asyncio.timeout(seconds(5)):
            await reached.wait()
        await talk.say("2", on_busy="enqueue")
        await talk.cancel("r1")
        # The run now waits for its tool; then it ends.
        talk.engine.drain()
        gate.set()
        await talk.parked()
        assert endings(await talk.log()) == [RunStatus.CANCELLED]
        head = await store.thread(THREAD)
        assert (head.active_run, head.runnable, head.queued) == (None, True, 1)
        assert len(talk.prompts) == 1
    async with talking(store, setup, owner="b") as there:
        assert (await there.ended("r2")).status is RunStatus.COMPLETED


class DrainsAfterLooking(MemoryStore):
    """Its orphans are asked for, and then the instance is to close."""

    drain: Callable[[], None] = staticmethod(lambda: None)

    async def orphans(self, limit: int = 100) -> Sequence[Thread]:
        found = await super().orphans(limit)
        self.drain()
        return found


async def test_orphan_that_was_found_before_the_instance_closed_is_left_to_others() -> None:
    store = DrainsAfterLooking()
    async with talking(store, lease_ttl=UNSWEPT) as talk:
        await talk.sweep()
        await leave(store, b.started())
        store.drain = talk.engine.drain
        await talk.sweep()
        head = await store.thread(THREAD)
        assert (head.owner, head.runnable) == ("gone-1", True)


async def test_orphan_that_was_claimed_while_the_instance_closed_is_handed_over() -> None:
    store = TroubledStore()
    async with talking(store, lease_ttl=UNSWEPT) as talk:
        await talk.sweep()
        await leave(store, b.started())

        async def drain() -> None:
            talk.engine.drain()

        store.on_claim = drain
        await talk.sweep()
        await talk.parked()
        assert (await store.thread(THREAD)).runnable
        assert talk.prompts == []


async def test_run_that_was_started_while_the_instance_closed_is_handed_over() -> None:
    store = TroubledStore()
    async with talking(store, lease_ttl=UNSWEPT) as talk:

        async def drain() -> None:
            talk.engine.drain()

        store.before_such = (lambda commit: isinstance(commit.lease, Claim), drain)
        await talk.say()
        await talk.parked()
        assert (await store.thread(THREAD)).runnable
        assert talk.prompts == []


@asynccontextmanager
async def two_whose_leases_ran_out(
    store: MemoryStore, clock: SettableClock, script: Sequence[Turn]
) -> AsyncIterator[tuple[Talk, Talk]]:
    """As after a store that was away for longer: neither has renewed them since."""
    setups = [Setup(script, clock=clock, lease_ttl=UNSWEPT) for _ in range(2)]
    async with talking(store, setups[0]) as a, talking(store, setups[1], owner="b") as other:
        clock.advance(2 * UNSWEPT)
        yield a, other


async def test_orphan_is_not_taken_again_from_an_instance_whose_leases_had_run_out() -> None:
    """A few such claims, one of the other, and it would be given up as lost."""
    clock, gate = SettableClock(), asyncio.Event()
    store = MemoryStore(clock=clock)
    await leave(store, b.started())
    script: list[Turn] = [[gate, *says("done")]]
    async with two_whose_leases_ran_out(store, clock, script) as (first, second):
        await first.sweep()
        await second.sweep()
        head = await store.thread(THREAD)
        assert (head.owner, head.recoveries) == ("a", 1)
        gate.set()
        assert (await first.ended("r1")).status is RunStatus.COMPLETED


async def test_run_is_not_taken_from_an_instance_that_begins_it_when_its_leases_have_run_out() -> (
    None
):
    clock, gate = SettableClock(), asyncio.Event()
    store = MemoryStore(clock=clock)
    script: list[Turn] = [[gate, *says("done")]]
    async with two_whose_leases_ran_out(store, clock, script) as (first, second):
        await first.say()
        await second.sweep()
        assert (await store.thread(THREAD)).recoveries == 0
        gate.set()
        run = await first.ended("r1")
        assert run.status is RunStatus.COMPLETED and run.attempts is None
