"""Stores that do not answer, leases that run out, instances that close: nothing is done twice."""

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.agent import RunLimits
from sk_agents.engine.commands import SteerRun
from sk_agents.engine.defaults import NoAudit
from sk_agents.engine.events import Event, LateResult, ModelRestarted, RunStarted, ToolStarted
from sk_agents.engine.log.commits import Commit, Committed, Park, Release
from sk_agents.engine.models import Effect, RunStatus, Thread, ThreadStatus
from sk_agents.engine.run import drivers
from sk_agents.engine.run.lease_keeper import STALL, LeaseKeeper
from sk_agents.engine.turns import ModelPiece, Prompt, TextDelta, ToolContext
from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    LimitExceeded,
    ShuttingDown,
    StoreUnavailable,
    ThreadNotFound,
)
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing import ScriptedModel, SettableClock
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine.fake_tools import FakePolicy, FakeTools, tool
from tests.engine.kit import (
    SEND_X,
    THREAD,
    UNSWEPT,
    USER,
    Setup,
    kinds,
    still_clock,
    talking,
)
from tests.engine.troubled_store import TroubledStore
from tests.patience import seconds


class Gate:
    """A tool that says when it is reached and goes on when it may."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()
        self.was_cancelled = False

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.reached.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return "through"

    async def wait(self) -> None:
        async with asyncio.timeout(seconds(5)):
            await self.reached.wait()


def sending(gate: Gate, *script: Turn, **fields: Any) -> Setup:
    """Everything allowed, and a tool that has an effect."""
    tools = FakeTools(tool("Mail-send", gate, effect=Effect.AT_MOST_ONCE))
    policy = FakePolicy(lambda call: "allow")
    return Setup([calls(("Mail-send", {})), *script], tools, policy, **fields)


@pytest.mark.parametrize("is_stored", [True, False])
async def test_start_of_unknown_outcome_is_sent_again_and_starts_one_run(is_stored: bool) -> None:
    store = TroubledStore()
    (store.after_commit if is_stored else store.before_commit).extend([CommitOutcomeUnknown()] * 3)
    async with talking(store, script=[says("once")]) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        assert len({commit.commit_id for commit in store.commits[:4]}) == 1
        assert len([e for e in await talk.log() if isinstance(e, RunStarted)]) == 1


async def test_start_whose_outcome_stays_unknown_is_an_error_and_the_run_goes_on() -> None:
    store = TroubledStore(still_clock())
    store.after_commit = [CommitOutcomeUnknown()] * 4
    async with talking(store, script=[says("once")], lease_ttl=0.2) as talk:
        with pytest.raises(CommitOutcomeUnknown):
            await talk.say()
        assert len(store.commits) == 4
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED


async def test_decision_that_was_stored_but_not_learned_is_acted_on() -> None:
    clock = still_clock()
    store = TroubledStore(clock)
    async with talking(store, script=SEND_X, clock=clock, lease_ttl=0.5) as talk:
        await talk.ask()
        await talk.parked()
        (approval_id,) = await talk.approvals("r1")
        store.after_commit = [StoreUnavailable()]
        with pytest.raises(StoreUnavailable):
            await talk.decide(approval_id)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert talk.tools.started == [("Mail-send", {"text": "x"})]


async def test_tool_is_not_started_under_a_lease_that_may_have_run_out() -> None:
    clock, asked = SettableClock(), asyncio.Event()
    store = TroubledStore(clock)
    script: list[Turn] = [[asked, *calls(("Mail-send", {}))], says("never")]
    policy = FakePolicy(lambda call: "allow")
    async with talking(store, script=script, policy=policy, clock=clock, lease_ttl=UNSWEPT) as talk:
        await talk.say()
        clock.advance(UNSWEPT)
        store.silent = {"a"}
        asked.set()
        await talk.until(lambda state: bool(state.run("r1").calls))
        await idle()
        assert talk.tools.started == []
        store.silent = set()
        assert await talk.engine.parts.services.lease.freshen()
        await talk.sweep()
        await talk.sweep()
        await talk.until(lambda state: not state.run("r1").unresolved_calls)
        assert talk.tools.started == [("Mail-send", {})]


@pytest.mark.parametrize("is_noticed", [True, False])
@pytest.mark.usefixtures("readers_look")
async def test_result_of_a_tool_whose_run_was_taken_over_is_shown_to_who_decides(
    is_noticed: bool,
) -> None:
    """Also if its owner learns of that before the tool has ended."""
    clock, gate = SettableClock(), Gate()
    store = TroubledStore(clock)
    setup = sending(gate, says("done"), clock=clock, lease_ttl=UNSWEPT)
    async with talking(store, setup) as a, talking(store, setup, owner="b") as b:
        await a.say()
        await gate.wait()
        store.silent = {"a"}
        clock.advance(2 * UNSWEPT)
        assert await b.engine.parts.services.lease.freshen()
        await b.sweep()
        await b.until(lambda state: bool(state.run("r1").pending_approvals))
        if is_noticed:
            await a.engine.parts.follower.look()
            await idle()
        gate.open.set()
        await b.until(lambda state: any(c.late_result for c in state.run("r1").calls.values()))
        late = [event for event in await b.log() if isinstance(event, LateResult)]
        assert [event.result for event in late] == ["through"]
        (approval_id,) = await b.approvals("r1")
        await b.decide(approval_id, choice="done")
        assert (await b.ended("r1")).status is RunStatus.COMPLETED
        assert await b.results("r1") == ["through"]
        assert len(setup.tools.started) == 1


async def test_harmless_tool_of_a_run_that_was_taken_over_is_ended_and_started_there() -> None:
    clock, gate = SettableClock(), Gate()
    store = TroubledStore(clock)
    tools = FakeTools(tool("Files-look", gate))
    script = [calls(("Files-look", {})), says("done")]
    setup = Setup(script, tools, clock=clock, lease_ttl=UNSWEPT)
    async with talking(store, setup) as a, talking(store, setup, owner="b") as b:
        await a.say()
        await gate.wait()
        clock.advance(2 * UNSWEPT)
        assert await b.engine.parts.services.lease.freshen()
        await b.sweep()
        await a.engine.parts.follower.look()
        await idle()
        assert gate.was_cancelled
        assert a.engine.parts.drivers.active == []
        gate.open.set()
        assert (await b.ended("r1")).status is RunStatus.COMPLETED
        assert len(tools.started) == 2


class ClosingModel(ScriptedModel):
    """Says that it has begun to speak, and that its stream was closed."""

    def __init__(self, script: Sequence[Turn]) -> None:
        super().__init__(script)
        self.has_begun, self.was_closed = asyncio.Event(), asyncio.Event()

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece], None]:
        async with aclosing(super().stream(prompt)) as pieces:
            try:
                async for some in pieces:
                    self.has_begun.set()
                    yield some
            finally:
                self.was_closed.set()


async def test_model_is_asked_no_more_for_a_run_that_another_instance_has_claimed() -> None:
    """The claim alone says so: the new owner has written nothing yet."""
    clock, model = SettableClock(), ClosingModel([[TextDelta("Once"), asyncio.Event()]])
    store = TroubledStore(clock)
    async with talking(store, model=model, clock=clock, lease_ttl=UNSWEPT) as talk:
        await talk.say()
        async with asyncio.timeout(seconds(10)):
            await model.has_begun.wait()
        before = await talk.log()
        clock.advance(2 * UNSWEPT)
        # Without a live owner it would be an orphan, which this instance takes back.
        store.renew("b", UNSWEPT)
        await store.claim(THREAD, "b")
        async with asyncio.timeout(seconds(10)):
            await model.was_closed.wait()
        assert await talk.log() == before
        assert (await store.thread(THREAD)).owner == "b"


async def test_instance_closes_in_time_though_a_tool_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drivers, "GRACE_SECONDS", 0.05)
    gate = Gate()
    async with asyncio.timeout(seconds(10)):
        async with talking(
            MemoryStore(), sending(gate, limits=RunLimits(cancel_grace_seconds=1000))
        ) as talk:
            await talk.say()
            await gate.wait()
    assert gate.was_cancelled


async def test_ordinary_turns_leave_no_warning_and_nothing_to_settle(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    script = [calls(("Files-look", {})), says("one"), says("two")]
    async with talking(store, script=script) as talk:
        await talk.say("1")
        await talk.say("2", on_busy="enqueue")
        assert (await talk.ended("r2")).status is RunStatus.COMPLETED
        await talk.parked()
    assert [record.message for record in caplog.records] == []


async def test_thread_at_rest_is_held_by_neither_its_driver_nor_its_readers() -> None:
    """Nor does a driver that has ended wait for the garbage collector."""
    asked = asyncio.Event()
    script = [calls(("Files-look", {})), [asked, *says("done")]]
    async with talking(MemoryStore(), script=script) as talk:
        accepted = await talk.say()
        (driver,) = [weakref.ref(one) for one in talk.engine.parts.drivers.active]
        others = [asyncio.create_task(talk.items(accepted)) for _ in range(2)]
        await idle()
        gc.disable()
        try:
            asked.set()
            assert (await talk.result(accepted)).status is RunStatus.COMPLETED
            await asyncio.gather(*others)
            await talk.parked()
            await idle()
            talk.tools.contexts.clear()
            assert driver() is None
        finally:
            gc.enable()
        services = talk.engine.parts.services
        known = await talk.engine.thread(THREAD, USER)
        assert (services.threads.pinned, known.listeners, services.live) == ([], [], {})


async def test_instance_that_has_closed_leaves_nothing_at_work() -> None:
    before = asyncio.all_tasks()
    async with talking(MemoryStore(), script=[says("hi")]) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        assert asyncio.all_tasks() != before
    assert asyncio.all_tasks() == before
    assert "leases" not in {thread.name for thread in threading.enumerate()}


async def test_instance_closes_though_the_store_is_away() -> None:
    store = TroubledStore()
    async with talking(store, script=[says("hi")]) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        store.before_retire = [StoreUnavailable()]
    assert store.before_retire == []


async def test_lease_is_fresh_for_two_thirds_of_its_time_and_again_once_it_is_renewed() -> None:
    clock = SettableClock()
    store = TroubledStore(clock)
    async with LeaseKeeper(store, clock, "a", ttl=900.0) as lease:
        clock.advance(599)
        assert lease.is_fresh
        clock.advance(1)
        assert not lease.is_fresh
        store.silent = {"a"}
        assert not await lease.freshen()
        store.silent = set()
        assert await lease.freshen()
        assert lease.is_fresh


class CountingClock(SettableClock):
    """Says how often other threads than the one that made it have looked at it."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self.looks = threading.Semaphore(0)

    def monotonic(self) -> float:
        if threading.get_ident() != self._thread:
            self.looks.release()
        return super().monotonic()


class RenewingStore(MemoryStore):
    """Counts how often leases are renewed."""

    renewals = 0

    def renew(self, owner: str, ttl: float) -> None:
        self.renewals += 1
        super().renew(owner, ttl)


async def test_leases_are_left_to_run_out_once_the_loop_has_stood_still_for_too_long() -> None:
    clock = CountingClock()
    store = RenewingStore(clock=clock)
    async with LeaseKeeper(store, clock, "a", ttl=0.06):
        # From here on nothing is awaited: the loop stands still, and a second thread renews.
        clock.advance(STALL)
        for _ in range(4):
            assert clock.looks.acquire(timeout=seconds(10))
        renewals = store.renewals
        assert renewals > 1
        clock.advance(1)
        # One look may have been on its way.
        for _ in range(6):
            assert clock.looks.acquire(timeout=seconds(10))
        assert store.renewals <= renewals + 1


async def test_leases_are_not_renewed_any_more_once_they_are_to_run_out() -> None:
    clock = SettableClock()
    store = RenewingStore(clock=clock)
    async with LeaseKeeper(store, clock, "a", ttl=900.0) as lease:
        assert lease.is_fresh
        lease.stop_renewing()
        renewals = store.renewals
        assert not lease.is_fresh
        assert not await lease.freshen()
        assert store.renewals == renewals


async def test_lease_that_was_fresh_at_a_moment_is_trusted_for_a_third_of_its_time() -> None:
    clock = SettableClock()
    async with LeaseKeeper(MemoryStore(clock=clock), clock, "a", ttl=900.0) as lease:
        moment = clock.monotonic()
        clock.advance(299)
        assert lease.has_held_since(moment)
        clock.advance(1)
        assert not lease.has_held_since(moment)


async def test_reply_that_ends_without_an_end_is_asked_for_once_more() -> None:
    script: list[Turn] = [[TextDelta("Hel")], says("Hello")]
    async with talking(MemoryStore(), script=script) as talk:
        run = await talk.ask()
        assert run.answer is not None
        assert run.answer.content == "Hello"
        restarted = [e for e in await talk.log() if isinstance(e, ModelRestarted)]
        assert [(e.round, e.attempt, e.reason) for e in restarted] == [(1, 2, "llm_interrupted")]


class RecordingQuota:
    """Admits every run, or none."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[str, bool]] = []
        self._error = error

    async def admit(self, user_id: str, *, makes_thread: bool) -> None:
        self.asked.append((user_id, makes_thread))
        if self._error is not None:
            raise self._error


async def test_quota_is_asked_about_each_run_and_whether_it_makes_a_thread() -> None:
    quota = RecordingQuota()
    script = [says("one"), [asyncio.Event()], says("three")]
    async with talking(MemoryStore(), script=script) as talk:
        await talk.ask("1", quota=quota)
        await talk.say("2", quota=quota)
        await talk.say("3", quota=quota, on_busy="enqueue")
        await talk.edit("r1", "1!", quota=quota, on_busy="interrupt")
    assert quota.asked == [(USER, True), (USER, False), (USER, False), (USER, False)]


async def test_title_is_given_to_a_thread_that_has_none() -> None:
    store = MemoryStore()
    async with talking(store, script=[says("x")] * 3) as talk:
        titles = []
        for title in (None, "first", "second"):
            await talk.ask(title=title)
            titles.append((await store.thread(THREAD)).metadata.get("title"))
        assert titles == [None, "first", "first"]


async def test_run_that_is_not_admitted_leaves_nothing() -> None:
    full = RecordingQuota(LimitExceeded("enough"))
    store = MemoryStore()
    async with talking(store, script=[says("one"), says("two")]) as talk:
        with pytest.raises(LimitExceeded):
            await talk.say("1", quota=full)
        with pytest.raises(ThreadNotFound):
            await store.thread(THREAD)
        await talk.ask("1")
        before = await talk.log()
        with pytest.raises(LimitExceeded):
            await talk.say("2", quota=full)
        with pytest.raises(LimitExceeded):
            await talk.edit("r2", "1!", quota=full)
        assert await talk.log() == before


@pytest.mark.parametrize("is_running", [True, False])
async def test_reader_of_a_draining_instance_gets_what_is_there_and_is_sent_elsewhere(
    is_running: bool,
) -> None:
    turn: Turn = [TextDelta("half"), asyncio.Event()] if is_running else says("whole")
    async with talking(MemoryStore(), script=[turn]) as talk:
        accepted = await talk.say()
        if not is_running:
            await talk.result(accepted)
        watched = talk.engine.watch(THREAD)
        async with asyncio.timeout(seconds(5)):
            seen = list(await anext(watched))

            async def read_on() -> None:
                async for items in watched:
                    seen.extend(items)

            reading = asyncio.create_task(read_on())
            await idle()
            talk.engine.drain()
            with pytest.raises(ShuttingDown):
                await reading
    assert [getattr(item, "type", "") for item in seen][0] == "run_started"


async def idle() -> None:
    """Long enough for everything that can go on to have gone on."""
    for _ in range(200):
        await asyncio.sleep(0)


class HeldAnswer(MemoryStore):
    """Holds back its first answer that a thread is not there."""

    def __init__(self) -> None:
        super().__init__()
        self.has_looked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def thread(self, thread_id: str) -> Thread:
        try:
            return await super().thread(thread_id)
        except ThreadNotFound:
            if not self.has_looked.is_set():
                self.has_looked.set()
                await self.may_answer.wait()
            raise


async def test_thread_made_while_it_was_looked_for_is_not_taken_for_deleted() -> None:
    store, asked = HeldAnswer(), asyncio.Event()
    async with talking(store, script=[[asked, *says("done")]]) as talk:
        looking = asyncio.ensure_future(talk.engine.thread(THREAD, USER))
        await store.has_looked.wait()
        await talk.say()
        store.may_answer.set()
        with pytest.raises(ThreadNotFound):
            await looking
        asked.set()
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert not any(isinstance(event, ModelRestarted) for event in await talk.log())


class HeldHead(MemoryStore):
    """Holds back what it has read of a thread, once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.has_looked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def thread(self, thread_id: str) -> Thread:
        head = await super().thread(thread_id)
        if self.holds:
            self.holds = False
            self.has_looked.set()
            await self.may_answer.wait()
        return head


async def test_thread_made_again_while_the_deleted_one_was_read_stays_known() -> None:
    store, asked = HeldHead(), asyncio.Event()
    async with talking(store, script=[says("first"), [asked, *says("second")]]) as talk:
        await talk.ask()
        await talk.parked()
        store.holds = True
        looking = asyncio.ensure_future(talk.engine.thread(THREAD, USER))
        await store.has_looked.wait()
        await talk.engine.delete(THREAD, USER)
        await talk.say()
        made = await talk.engine.thread(THREAD, USER)
        store.may_answer.set()
        assert await looking is made
        assert not made.is_deleted
        asked.set()
        assert (await talk.ended("r2")).status is RunStatus.COMPLETED


class LateEnd(MemoryStore):
    """Stores the first end of a run at once, and says so late."""

    def __init__(self) -> None:
        super().__init__()
        self.has_stored, self.may_answer = asyncio.Event(), asyncio.Event()

    async def commit(self, commit: Commit) -> Committed:
        done = await super().commit(commit)
        if isinstance(commit.lease, Release) and not self.has_stored.is_set():
            self.has_stored.set()
            await self.may_answer.wait()
        return done


async def test_thread_made_again_is_driven_although_the_driver_of_the_deleted_one_lasts() -> None:
    store = LateEnd()
    async with talking(store, script=[says("first"), says("second")]) as talk:
        await talk.say()
        await store.has_stored.wait()
        await talk.engine.delete(THREAD, USER)
        await talk.say()
        assert (await talk.ended("r2")).status is RunStatus.COMPLETED
        store.may_answer.set()


async def test_run_waits_for_its_user_although_the_chat_is_named_while_it_is_parked() -> None:
    clock = still_clock()
    store = TroubledStore(clock)
    async with talking(store, script=SEND_X, clock=clock, lease_ttl=0.5) as talk:

        async def rename() -> None:
            await talk.engine.catalog.label(THREAD, USER, {"title": "Mail"})

        store.before_such = (lambda commit: isinstance(commit.lease, Park), rename)
        await talk.ask()
        await talk.parked()
        assert store.before_such is None
        head = await store.thread(THREAD)
        assert (head.status, head.metadata) == (ThreadStatus.WAITING, {"title": "Mail"})
        await talk.decide(*await talk.approvals("r1"))
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert talk.tools.started == [("Mail-send", {"text": "x"})]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_what_is_said_while_calls_are_stored_is_heard_before_their_tools_start(
    is_cancelled: bool,
) -> None:
    store = TroubledStore(still_clock())
    script = [calls(("Files-look", {"text": "x"})), says("done")]
    async with talking(store, script=script, lease_ttl=0.5) as talk:

        async def interfere() -> None:
            if is_cancelled:
                await talk.cancel("r1")
            else:
                await talk.engine.steer(SteerRun(THREAD, USER, "r1", "quickly"))

        def starts_a_tool(commit: Commit) -> bool:
            return any(isinstance(event, ToolStarted) for event in commit.events)

        store.before_such = (starts_a_tool, interfere)
        await talk.say()
        run = await talk.ended("r1")
        assert store.before_such is None
        assert len(run.calls) == 1
        if is_cancelled:
            assert (run.status, talk.tools.started) == (RunStatus.CANCELLED, [])
        else:
            assert run.status is RunStatus.COMPLETED
            assert talk.tools.started == [("Files-look", {"text": "x"})]
            assert talk.prompts[1][-1]["content"] == "quickly"


class LateDeletion(MemoryStore):
    """Says late that a thread was deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.has_deleted, self.may_answer = asyncio.Event(), asyncio.Event()

    async def delete(
        self, thread_id: str, *, next_seq: int, incarnation: str | None = None
    ) -> None:
        await super().delete(thread_id, next_seq=next_seq, incarnation=incarnation)
        self.has_deleted.set()
        await self.may_answer.wait()


async def test_thread_made_again_before_its_deletion_is_reported_stays_known() -> None:
    store, asked = LateDeletion(), asyncio.Event()
    async with talking(store, script=[says("first"), [asked, *says("second")]]) as talk:
        await talk.ask()
        deleting = asyncio.ensure_future(talk.engine.delete(THREAD, USER))
        await store.has_deleted.wait()
        await talk.say()
        made = await talk.engine.thread(THREAD, USER)
        store.may_answer.set()
        await deleting
        assert await talk.engine.thread(THREAD, USER) is made
        assert not made.is_deleted
        asked.set()
        assert (await talk.ended("r2")).status is RunStatus.COMPLETED


@pytest.mark.parametrize("number", [1, 4])
async def test_turn_whose_tools_may_run_takes_four_commits(number: int) -> None:
    store = TroubledStore()
    script = [calls(*[("Mail-send", {"text": str(one)}) for one in range(number)]), says("done")]
    policy = FakePolicy(lambda call: "allow")
    async with talking(store, script=script, policy=policy) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        assert len(talk.tools.started) == number
        assert len(store.commits) == 4


async def test_result_asked_for_after_a_decision_elsewhere_is_what_comes_of_it() -> None:
    """Also where the run is driven, and about to wait for that decision."""
    store, setup = TroubledStore(), Setup(SEND_X)
    results: list[asyncio.Task[RunStatus]] = []
    async with talking(store, setup) as a, talking(store, setup, owner="b") as b:

        async def result() -> RunStatus:
            return (await a.engine.result(THREAD, "r1")).status

        async def decide() -> None:
            await b.decide(*await b.approvals("r1"))
            results.append(asyncio.create_task(result()))
            await idle()

        store.before_such = (lambda commit: isinstance(commit.lease, Park), decide)
        await a.say()
        assert (await a.ended("r1")).status is RunStatus.COMPLETED
        assert await results[0] is RunStatus.COMPLETED


class KeptCalls(NoAudit):
    """The server's log as far as it keeps calls; its store is away at first."""

    def __init__(self) -> None:
        self.kept: list[Event] = []
        self.is_away = True

    async def keep_calls(self, thread: Thread, events: Sequence[Event]) -> None:
        if any(isinstance(event, ToolStarted) for event in events) and self.is_away:
            self.is_away = False
            raise StoreUnavailable
        self.kept += events


@pytest.mark.parametrize("is_durable", [False, True])
async def test_calls_in_a_store_that_keeps_nothing_are_in_the_servers_log_before_their_tools_start(
    tmp_path: Path, is_durable: bool
) -> None:
    audit = KeptCalls()
    known_at_start: list[str] = []

    def look(arguments: dict[str, Any], context: ToolContext) -> str:
        known_at_start.extend(kinds(audit.kept))
        return "seen"

    async with talking(
        tmp_path if is_durable else MemoryStore(),
        script=[calls(("Files-look", {})), says("done")],
        tools=FakeTools(tool("Files-look", look)),
        audit=audit,
    ) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        assert len(talk.tools.started) == 1
    assert ("ToolStarted" in known_at_start, bool(audit.kept)) == (not is_durable, not is_durable)
