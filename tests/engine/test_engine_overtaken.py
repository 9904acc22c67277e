"""What an instance drives, or is about to, and others have claimed, deleted, changed or damaged."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

import pytest

from sk_agents.engine.commands import SteerRun
from sk_agents.engine.events import ThreadChanged, ToolStarted
from sk_agents.engine.log.commits import (
    Absent,
    Claim,
    Commit,
    Committed,
    Pending,
    Release,
    Unchanged,
)
from sk_agents.engine.models import NewThread, RunStatus
from sk_agents.engine.ports import Clock
from sk_agents.engine.threads.catalog import RACES
from sk_agents.engine.turns import Question, TextDelta, ToolContext
from sk_agents.exceptions import (
    Conflict,
    SequenceConflict,
    StoreBroken,
    StoreUnavailable,
    TealError,
    ThreadNotFound,
)
from sk_agents.testing import SettableClock
from sk_agents.testing.commits import new_commit
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine import builders as b
from tests.engine.fake_tools import FakeTools, tool
from tests.engine.kit import SEND_X, THREAD, UNSWEPT, USER, Setup, talking, waiting
from tests.engine.test_engine_orphans import leave
from tests.engine.test_engine_troubles import ClosingModel, Gate, idle, sending
from tests.engine.troubled_store import Hook, TroubledStore
from tests.patience import seconds


async def delete(store: TroubledStore, thread: str = THREAD) -> None:
    """As another instance does."""
    head = await store.thread(thread)
    await store.delete(thread, next_seq=head.next_seq, incarnation=head.incarnation)


async def until_no_driver(talk: Any) -> None:
    async with asyncio.timeout(seconds(10)):
        while talk.engine.parts.drivers.active:  # noqa: ASYNC110  # an end is no event here
            await asyncio.sleep(0)


async def test_run_whose_thread_was_deleted_elsewhere_leaves_nothing_to_settle(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, gate = SettableClock(), asyncio.Event()
    store = TroubledStore(clock)
    script: list[Turn] = [[gate, *says("late")], says("new")]
    async with talking(store, script=script, clock=clock, lease_ttl=UNSWEPT) as talk:
        await talk.say()
        clock.advance(2 * UNSWEPT)
        await delete(store)
        gate.set()
        await until_no_driver(talk)
        dropped = [r for r in caplog.records if r.message == "run dropped"]
        assert [(r.levelno, getattr(r, "error", "")) for r in dropped] == [
            (logging.WARNING, "LeaseLost")
        ]
        looks = []
        for _ in range(3):
            await talk.sweep()
            looks.append(store.looked.count(THREAD))
        assert looks[1] == looks[2]
        # Its id can be used again.
        run = await talk.ask()
        assert run.answer is not None and run.answer.content == "new"


async def test_tool_that_asks_in_a_thread_that_was_deleted_elsewhere_is_ended() -> None:
    clock, reached, go_on = SettableClock(), asyncio.Event(), asyncio.Event()
    store = TroubledStore(clock)

    async def asks_on(arguments: dict[str, Any], context: ToolContext) -> str:
        assert context.ask is not None
        reached.set()
        await go_on.wait()
        with suppress(Exception):
            await context.ask(Question("Which one?"))
        await asyncio.Event().wait()
        return "never"

    setup = Setup(
        [calls(("Files-look", {}))],
        FakeTools(tool("Files-look", asks_on)),
        clock=clock,
        lease_ttl=UNSWEPT,
    )
    async with talking(store, setup) as talk:
        await talk.say()
        await reached.wait()
        clock.advance(2 * UNSWEPT)
        await delete(store)
        go_on.set()
        await until_no_driver(talk)


class DeletedAtOnce(TroubledStore):
    """The thread is deleted as soon as its next run has begun, and then `look` is called."""

    look: Hook | None = None

    async def commit(self, commit: Commit) -> Committed:
        done = await super().commit(commit)
        look, self.look = self.look, None
        if look is not None and isinstance(commit.lease, Claim):
            await self.retire(commit.lease.owner)
            await delete(self)
            await look()
        return done


async def test_run_is_not_driven_if_its_thread_was_deleted_at_once() -> None:
    store = DeletedAtOnce()
    async with talking(store, script=[says("one"), says("two")], lease_ttl=UNSWEPT) as talk:
        await talk.ask()
        await talk.parked()

        async def look() -> None:
            with pytest.raises(ThreadNotFound):
                await talk.engine.thread(THREAD, USER)

        store.look = look
        accepted = await talk.say()
        await until_no_driver(talk)
        with pytest.raises(ThreadNotFound):
            await talk.items(accepted)
        assert len(talk.prompts) == 1


async def test_model_is_asked_no_more_for_a_thread_that_was_made_again_elsewhere() -> None:
    clock, model = SettableClock(), ClosingModel([[TextDelta("Once"), asyncio.Event()]])
    store = TroubledStore(clock)
    async with talking(store, model=model, clock=clock, lease_ttl=UNSWEPT) as talk:
        await talk.say()
        async with asyncio.timeout(seconds(10)):
            await model.has_begun.wait()
        clock.advance(2 * UNSWEPT)
        await delete(store)
        again = new_commit(THREAD, Absent(NewThread("eve")), *b.turn("r9"))
        await store.commit(again)
        await talk.engine.parts.follower.look()
        async with asyncio.timeout(seconds(10)):
            await model.was_closed.wait()
        assert (await store.thread(THREAD)).user_id == "eve"
        assert [event.run_id for event in await talk.log()] == ["r9"] * len(b.turn("r9"))


@pytest.mark.usefixtures("readers_look")
async def test_damaged_thread_keeps_no_other_run_from_being_stopped_from_elsewhere() -> None:
    store = TroubledStore()
    setup = Setup([[TextDelta("a"), asyncio.Event()]] * 2, lease_ttl=UNSWEPT)
    async with talking(store, setup) as here, talking(store, setup, owner="b") as there:
        for thread in ("damaged", THREAD):
            await here.say(thread=thread, run_id=f"of-{thread}")
        for thread in ("damaged", THREAD):
            await there.cancel(f"of-{thread}", thread=thread)
        store.damaged = {"damaged"}
        await here.engine.parts.follower.look()
        assert (await there.ended(f"of-{THREAD}")).status is RunStatus.CANCELLED


class LateStart(TroubledStore):
    """Says late that a tool's start is stored."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.is_stored, self.may_tell = asyncio.Event(), asyncio.Event()

    async def commit(self, commit: Commit) -> Committed:
        done = await super().commit(commit)
        if any(isinstance(event, ToolStarted) for event in commit.events):
            self.is_stored.set()
            await self.may_tell.wait()
        return done


@pytest.mark.parametrize("is_claimed", [True, False])
async def test_tool_whose_instance_slept_before_its_start_runs_only_if_the_run_is_still_its_own(
    is_claimed: bool,
) -> None:
    """When it goes on it renews its leases, so they are fresh again: not all of them are its."""
    clock = SettableClock()
    store = LateStart(clock)
    setup = Setup([calls(("Files-look", {})), says("done")], clock=clock, lease_ttl=UNSWEPT)
    async with talking(store, setup) as talk:
        await talk.say()
        async with asyncio.timeout(seconds(10)):
            await store.is_stored.wait()
        clock.advance(2 * UNSWEPT)
        if is_claimed:
            await store.claim(THREAD, "b")
        assert await talk.engine.parts.services.lease.freshen()
        store.may_tell.set()
        await until_no_driver(talk)
        assert len(talk.tools.started) == (0 if is_claimed else 1)


async def test_run_that_is_driven_again_keeps_the_lease_that_was_left_behind() -> None:
    """Its first driver could not read what was said meanwhile, and gave up."""
    store = TroubledStore()
    gate = asyncio.Event()
    script: list[Turn] = [says("one"), [gate, *says("two")]]
    async with talking(store, script=script, lease_ttl=UNSWEPT) as talk:
        await talk.sweep()

        async def rename() -> None:
            head = await store.thread(THREAD)
            renamed = ThreadChanged(metadata={"title": "x"})
            await store.commit(new_commit(THREAD, Unchanged(head.next_seq), renamed))
            store.before_read = [StoreUnavailable()]

        store.before_such = (lambda commit: isinstance(commit.lease, Release), rename)
        await talk.say()
        await until_no_driver(talk)
        assert store.before_such is None
        await talk.engine.steer(SteerRun(THREAD, USER, "r1", "and this"))
        await talk.sweep()
        gate.set()
        run = await talk.ended("r1")
        assert run.answer is not None and run.answer.content == "two"
        assert len(talk.prompts) == 2


async def test_run_that_came_back_is_driven_although_its_last_driver_waits_for_a_tool() -> None:
    clock, gate = SettableClock(), Gate()
    store = TroubledStore(clock)
    async with talking(store, sending(gate, clock=clock, lease_ttl=UNSWEPT)) as talk:
        await talk.sweep()
        await idle()
        await talk.say()
        await gate.wait()
        clock.advance(2 * UNSWEPT)
        await store.claim(THREAD, "b")
        await talk.engine.parts.follower.look()
        await idle()
        # It is claimed back, which cannot be said at once.
        assert await talk.engine.parts.services.lease.freshen()
        store.after_claim = [StoreUnavailable()]
        with pytest.raises(StoreUnavailable):
            await talk.sweep()
        await talk.sweep()
        # Whether the tool has had its effect is not known to the new driver.
        await talk.until(lambda state: bool(state.run("r1").pending_approvals))
        gate.open.set()


async def test_thread_whose_decision_the_store_refused_is_not_looked_for() -> None:
    """A refused commit has taken no lease."""
    store = TroubledStore()
    async with talking(store, script=SEND_X, lease_ttl=UNSWEPT) as talk:
        await talk.sweep()
        approval_id = await waiting(talk)
        await talk.parked()
        store.before_commit = [SequenceConflict() for _ in range(RACES)]
        with pytest.raises(Conflict):
            await talk.decide(approval_id)
        assert store.before_commit == []
        looks = store.looked.count(THREAD)
        await talk.sweep()
        assert store.looked.count(THREAD) == looks


class HeadsFail(TroubledStore):
    """Heads cannot be read as often as there are errors."""

    def __init__(self) -> None:
        super().__init__()
        self.before_heads: list[TealError] = []

    async def heads(self, *arguments: Any) -> Any:
        if self.before_heads:
            raise self.before_heads.pop()
        return await super().heads(*arguments)


@pytest.mark.usefixtures("readers_look")
async def test_runs_are_looked_at_again_after_the_store_was_away() -> None:
    store = HeadsFail()
    setup = Setup([[TextDelta("a"), asyncio.Event()]], lease_ttl=UNSWEPT)
    async with talking(store, setup) as here, talking(store, setup, owner="b") as there:
        await here.say()
        store.before_heads = [StoreUnavailable()]
        await there.cancel("r1")
        assert (await there.ended("r1")).status is RunStatus.CANCELLED
        assert store.before_heads == []


async def test_instance_that_finds_its_store_broken_while_it_looks_ends() -> None:
    store = HeadsFail()
    async with talking(store, script=[[asyncio.Event()]], lease_ttl=UNSWEPT) as talk:
        await talk.say()
        store.before_heads = [StoreBroken()]
        async with asyncio.timeout(seconds(10)):
            await talk.engine.broken()


async def test_thread_made_again_while_it_was_claimed_is_driven() -> None:
    """The claim took what was not meant: nobody else may drive it now."""
    store = TroubledStore()

    async def make_again() -> None:
        await delete(store)
        await leave(store, b.started("r2"))

    async with talking(store, script=[says("again")], lease_ttl=UNSWEPT) as talk:
        await talk.sweep()
        await leave(store, b.started())
        store.on_claim = make_again
        await talk.sweep()
        assert (await store.thread(THREAD)).owner == "a"
        await talk.sweep()
        run = await talk.ended("r2")
        assert run.answer is not None and run.answer.content == "again"


@pytest.mark.parametrize("happens", ["claimed", "deleted"])
async def test_orphan_that_is_gone_when_it_is_claimed_is_no_error(
    happens: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = TroubledStore()

    async def other() -> None:
        if happens == "claimed":
            store.renew("b", UNSWEPT)
            await store.claim(THREAD, "b")
        else:
            await delete(store)

    async with talking(store, lease_ttl=UNSWEPT) as talk:
        await talk.sweep()
        await leave(store, b.started())
        store.on_claim = other
        await talk.sweep()
        assert talk.engine.parts.drivers.active == []
        looks = store.looked.count(THREAD)
        await talk.sweep()
        assert store.looked.count(THREAD) == looks
    assert caplog.records == []


async def test_expiry_whose_past_could_not_be_read_is_acted_on_by_the_next_sweep() -> None:
    """The commit took the lease; what others had said before it could not be read."""
    clock = SettableClock()
    store = TroubledStore(clock)
    async with talking(store, script=SEND_X, clock=clock, lease_ttl=UNSWEPT) as talk:
        await waiting(talk)
        await talk.parked()

        async def rename() -> None:
            head = await store.thread(THREAD)
            renamed = ThreadChanged(metadata={"title": "x"})
            await store.commit(new_commit(THREAD, Unchanged(head.next_seq), renamed))
            store.before_read = [StoreUnavailable()]

        clock.advance(86_401)
        store.before_such = (lambda commit: isinstance(commit.guard, Pending), rename)
        with pytest.raises(StoreUnavailable):
            await talk.sweep()
        assert (await store.thread(THREAD)).owner == "a"
        await talk.sweep()
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert talk.tools.started == []
