"""Two engines on one file: a run is driven here and read there, and ends with its last reader."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sk_agents.engine.commands import SteerRun
from sk_agents.engine.events import CancelRequested
from sk_agents.engine.models import RunStatus, Thread
from sk_agents.engine.ports import Clock
from sk_agents.engine.turns import TextDelta
from sk_agents.exceptions import StoreBusy, StoreFull, TealError
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.testing import SettableClock
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine.kit import THREAD, UNSWEPT, USER, Setup, Talk, talking
from tests.patience import seconds

# Timers run in real time, marks grow old by the clock that the test sets.
SOON = 0.02
LONG = 60.0


class TellingStore(SqliteStore):
    """Says what was written and read about readers. Reading a thread can take long."""

    def __init__(self, path: Path, clock: Clock, told: "Told") -> None:
        super().__init__(path, clock=clock)
        self._told = told
        self.may_read = asyncio.Event()
        self.may_read.set()

    async def thread(self, thread_id: str) -> Thread:
        await self.may_read.wait()
        return await super().thread(thread_id)

    async def mark_watched(self, run_ids: Collection[str], *, ago: float = 0.0) -> None:
        self._told.fail()
        await super().mark_watched(run_ids, ago=ago)
        self._told.marks.put_nowait(sorted(run_ids))

    async def unwatched_for(self, run_id: str) -> float | None:
        self._told.fail()
        unwatched = await super().unwatched_for(run_id)
        self._told.looks.put_nowait(unwatched)
        return unwatched


class Told:
    def __init__(self) -> None:
        self.marks: asyncio.Queue[object] = asyncio.Queue()
        self.looks: asyncio.Queue[object] = asyncio.Queue()
        self.troubles: list[TealError] = []

    async def nothing(self) -> None:
        """From now on each attempt fails, and none is under way."""
        self.troubles = [StoreBusy() for _ in range(100_000)]
        failed = len(self.troubles) - 10
        async with asyncio.timeout(seconds(10)):
            while len(self.troubles) > failed:  # noqa: ASYNC110  # a trouble sets no event
                await asyncio.sleep(SOON)

    def fail(self) -> None:
        if self.troubles:
            raise self.troubles.pop()


@dataclass(slots=True)
class Instances:
    """`a` drives."""

    a: Talk
    b: Talk
    there: TellingStore
    clock: SettableClock
    told: Told

    async def marked(self, count: int = 2) -> None:
        """Until somebody has told that many times, from now on, that they read the run."""
        await _next(self.told.marks, count)

    async def looked(self, count: int = 2) -> None:
        """Until somebody has asked that many times, from now on, for other readers."""
        await _next(self.told.looks, count)

    async def phase(self) -> RunStatus:
        return (await self.a.engine.thread(THREAD, USER)).state.run("r1").phase


async def _next(queue: asyncio.Queue[object], count: int) -> None:
    while not queue.empty():
        queue.get_nowait()
    async with asyncio.timeout(seconds(10)):
        for _ in range(count):
            await queue.get()


@asynccontextmanager
async def two(at: Path, *script: Turn) -> AsyncIterator[Instances]:
    """Their leases outlast whatever the clock is set to."""
    clock, told = SettableClock(), Told()
    setup = Setup(script, clock=clock, lease_ttl=UNSWEPT, disconnect_grace=SOON, reader_period=SOON)
    path = at / "teal.sqlite"
    async with (
        TellingStore(path, clock, told) as here,
        TellingStore(path, clock, told) as there,
        talking(here, setup) as a,
        talking(there, setup, owner="b") as b,
    ):
        yield Instances(a, b, there, clock, told)


@asynccontextmanager
async def reading(talk: Talk) -> AsyncIterator[None]:
    """A reader who has seen something and is waiting for more."""
    async with aclosing(talk.engine.watch(THREAD, run_id="r1")) as items:
        async with asyncio.timeout(seconds(5)):
            await anext(items)
        more = asyncio.ensure_future(anext(items, None))
        try:
            yield
        finally:
            more.cancel()
            await asyncio.gather(more, return_exceptions=True)


def held() -> tuple[asyncio.Event, Turn]:
    gate = asyncio.Event()
    return gate, [TextDelta("Once upon"), gate, *says(" a time")]


async def is_cancelled_in_time(at: Instances) -> None:
    ended = asyncio.ensure_future(
        at.a.until(lambda state: state.run("r1").phase is RunStatus.CANCELLED)
    )
    while not ended.done():
        at.clock.advance(LONG)
        await asyncio.wait({ended}, timeout=5 * SOON)
    await ended
    asked = [event for event in await at.a.log() if isinstance(event, CancelRequested)]
    assert [event.reason for event in asked] == ["disconnect"]


async def test_a_reader_there_keeps_a_run_alive_that_has_lost_its_reader_here(
    tmp_path: Path,
) -> None:
    async with two(tmp_path, held()[1]) as at:
        await at.a.say(on_disconnect="cancel")
        async with reading(at.a), reading(at.b):
            await at.marked()
        async with reading(at.b):
            await at.looked()
            for _ in range(5):
                at.clock.advance(SOON)
                await at.marked()
                await at.looked()
            assert await at.phase() is RunStatus.RUNNING
        await is_cancelled_in_time(at)


async def test_a_run_read_only_there_ends_with_its_reader_there(tmp_path: Path) -> None:
    async with two(tmp_path, held()[1]) as at:
        await at.a.say(on_disconnect="cancel")
        async with reading(at.b):
            await at.looked()
            assert await at.phase() is RunStatus.RUNNING
        await is_cancelled_in_time(at)


async def test_who_leaves_there_does_not_end_what_is_read_here(tmp_path: Path) -> None:
    gate, turn = held()
    async with two(tmp_path, turn) as at:
        await at.a.say(on_disconnect="cancel")
        async with reading(at.a):
            async with reading(at.b):
                await at.marked()
            assert at.b.engine.parts.readers.ending == []
            at.clock.advance(LONG)
            gate.set()
            assert (await at.a.ended("r1")).phase is RunStatus.COMPLETED


async def test_who_left_before_a_decision_does_not_end_what_it_continues(tmp_path: Path) -> None:
    gate, turn = held()
    first: Turn = [TextDelta("Well"), ask := asyncio.Event(), *calls(("Mail-send", {}))]
    async with two(tmp_path, first, turn) as at:
        accepted = await at.a.say(on_disconnect="cancel")
        async with reading(at.b):
            await at.marked()
            at.there.may_read.clear()
            ask.set()
            assert (await at.a.result(accepted)).status is RunStatus.WAITING
        at.clock.advance(LONG)
        await at.a.decide(*await at.a.approvals("r1"))
        at.there.may_read.set()
        await at.marked(1)
        at.clock.advance(LONG)
        await at.looked()
        gate.set()
        assert (await at.a.ended("r1")).phase is RunStatus.COMPLETED


@pytest.mark.parametrize("is_said_there", [True, False])
async def test_who_left_before_more_was_said_does_not_end_what_goes_on(
    tmp_path: Path, is_said_there: bool
) -> None:
    gate, turn = held()
    async with two(tmp_path, turn, says("and so on")) as at:
        await at.a.say(on_disconnect="cancel")
        async with reading(at.b):
            await at.marked()
            # Nobody looks for readers before more is said.
            await at.told.nothing()
        at.clock.advance(1)
        talk = at.b if is_said_there else at.a
        await talk.engine.steer(SteerRun(THREAD, USER, "r1", "go on"))
        assert await at.phase() is RunStatus.RUNNING
        at.clock.advance(LONG)
        at.told.troubles = []
        await at.looked()
        assert await at.phase() is RunStatus.RUNNING
        gate.set()
        assert (await at.a.ended("r1")).phase is RunStatus.COMPLETED


@pytest.mark.parametrize("trouble", [StoreBusy(), StoreFull()], ids=["busy", "full"])
async def test_a_store_in_trouble_is_asked_and_told_again(
    tmp_path: Path, trouble: TealError
) -> None:
    async with two(tmp_path, held()[1]) as at:
        await at.a.say(on_disconnect="cancel")
        at.told.troubles = [trouble] * 3
        async with reading(at.b):
            await at.marked()
            at.told.troubles = [trouble] * 3
            async with reading(at.a):
                pass
            await at.marked()
            assert await at.phase() is RunStatus.RUNNING
        at.told.troubles = [trouble] * 3
        await is_cancelled_in_time(at)


async def test_runs_driven_where_they_are_read_leave_no_mark(tmp_path: Path) -> None:
    async with two(tmp_path, says("one"), says("two")) as at:
        for _ in range(2):
            accepted = await at.a.say(on_disconnect="cancel")
            await at.a.items(accepted)
        assert (at.told.marks.empty(), at.told.looks.empty()) == (True, True)
