"""A store that takes nothing for a while, or breaks for good, in the middle of runs."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine import services
from sk_agents.engine.agent import RunLimits
from sk_agents.engine.events import Answered, Failed, LogEvent, ToolFinished
from sk_agents.engine.log.commits import Commit, Committed
from sk_agents.engine.models import RunStatus
from sk_agents.engine.ports import Clock, Signals
from sk_agents.engine.run import driver
from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    ModelRefused,
    SchemaTooNew,
    ShuttingDown,
    StoreBroken,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
    TealError,
)
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.testing import ScriptedModel, SettableClock
from sk_agents.testing.scripted_model import calls, says
from tests.engine.kit import Setup, Talk, kinds, talking
from tests.patience import seconds

# Each with how often; a commit of unknown outcome is sent again at once, some times.
TROUBLES = [(StoreFull, 2), (StoreUnavailable, 2), (StoreBusy, 2), (CommitOutcomeUnknown, 8)]


class FailingStore(SqliteStore):
    """Refuses commits that hold such an event, as often as it is told to; `None` is for ever."""

    def __init__(
        self, path: Path, kind: type[LogEvent] = Answered, clock: Clock | None = None
    ) -> None:
        super().__init__(path / "teal.sqlite", clock=clock)
        self._kind = kind
        self.error: type[TealError] = StoreFull
        self.left: int | None = 0
        self.refused = asyncio.Event()
        self.refusals = 0
        # By the event loop's clock.
        self.refused_at: list[float] = []
        self.is_broken = False

    async def commit(self, commit: Commit) -> Committed:
        if any(isinstance(event, self._kind) for event in commit.events) and self.left != 0:
            self.left = None if self.left is None else self.left - 1
            self.refusals += 1
            self.refused_at.append(asyncio.get_running_loop().time())
            self.refused.set()
            raise self.error
        return await super().commit(commit)

    def renew(self, owner: str, ttl: float) -> None:
        if self.is_broken:
            raise StoreBroken
        super().renew(owner, ttl)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "PAUSES", (0.001, 0.002, 0.01))


@asynccontextmanager
async def failing(
    at: Path,
    kind: type[LogEvent] = Answered,
    *,
    signals: Signals | None = None,
    **fields: Any,
) -> AsyncIterator[tuple[Talk, FailingStore]]:
    fields.setdefault("script", [says("it is done")])
    async with FailingStore(at, kind) as store, talking(store, signals=signals, **fields) as talk:
        yield talk, store


@pytest.mark.parametrize(("trouble", "times"), TROUBLES)
async def test_answer_that_the_store_did_not_take_at_first_is_stored_once(
    tmp_path: Path, trouble: type[TealError], times: int
) -> None:
    async with failing(tmp_path) as (talk, store):
        store.error, store.left = trouble, times
        items = await talk.items(await talk.say())
        assert kinds(items)[-2:] == ["Answered", "RunEnded"]
        run = await talk.ended("r1")
        assert run.status is RunStatus.COMPLETED
        assert run.answer is not None and run.answer.content == "it is done"
        assert store.refusals == times
        assert len(talk.prompts) == 1


async def test_tool_result_that_the_store_did_not_take_at_first_is_kept(tmp_path: Path) -> None:
    script = [calls(("Files-look", {"text": "x"})), says("seen")]
    async with failing(tmp_path, ToolFinished, script=script) as (talk, store):
        store.left = 2
        assert (await talk.ask()).status is RunStatus.COMPLETED
        assert await talk.results("r1") == ["echo x"]
        assert len(talk.tools.started) == 1


@pytest.mark.usefixtures("quick")
async def test_reader_of_a_run_that_cannot_be_stored_is_told_and_can_resume(tmp_path: Path) -> None:
    async with failing(tmp_path) as (talk, store):
        store.left = None
        accepted = await talk.say()
        with pytest.raises(StoreUnavailable):
            await talk.items(accepted)
        with pytest.raises(StoreUnavailable):
            await talk.result(accepted)
        store.left = 0
        run = await resumed(talk)
        assert run == "it is done"
        assert len(talk.prompts) == 1


async def test_tries_at_a_store_grow_no_rarer_than_the_last_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = 0.05
    monkeypatch.setattr(driver, "PAUSES", (0.0, 0.001, pause))
    async with failing(tmp_path) as (talk, store):
        store.left = 6
        accepted = await talk.say()
        with pytest.raises(StoreUnavailable):
            await talk.items(accepted)
        # Readers are told once it has lasted so long.
        assert store.refusals > 3
        assert await resumed(talk) == "it is done"
        waited = [later - before for before, later in pairwise(store.refused_at)]
        assert len(waited) == 5
        assert all(seconds > 0.9 * pause for seconds in waited[2:])


async def resumed(talk: Talk) -> str:
    """The answer, for a reader who comes back each time it is sent away."""
    async with asyncio.timeout(seconds(5)):
        while True:
            try:
                run = await talk.ended("r1")
                assert run.answer is not None
                return run.answer.content
            except StoreUnavailable:
                await asyncio.sleep(0)


@pytest.mark.usefixtures("quick")
async def test_time_without_a_store_does_not_count_as_the_run_s(tmp_path: Path) -> None:
    async with failing(tmp_path, limits=RunLimits(run_seconds=0.3)) as (talk, store):
        store.left = None
        await talk.say()
        await store.refused.wait()
        # More than the run may take, by the loop's own clock.
        async with asyncio.timeout(seconds(5)):
            while store.refusals < 60:  # noqa: ASYNC110  # a store sets no event for this
                await asyncio.sleep(0.01)
        store.left = 0
        assert await resumed(talk) == "it is done"


@pytest.mark.usefixtures("quick")
async def test_time_counts_again_once_the_store_is_back(tmp_path: Path) -> None:
    script = [calls(("Files-look", {})), [asyncio.Event()]]
    limits = RunLimits(run_seconds=0.5)
    async with failing(tmp_path, ToolFinished, script=script, limits=limits) as (talk, store):
        store.left = 3
        run = await talk.ended((await talk.say()).run_id)
        assert run.failure is not None
        assert (run.failure.code, len(talk.prompts)) == ("run_timeout", 2)


@pytest.mark.usefixtures("quick")
async def test_failure_that_the_store_does_not_take_at_first_is_stored_later(
    tmp_path: Path,
) -> None:
    script = [ModelRefused()]
    async with failing(tmp_path, Failed, script=script) as (talk, store):
        store.left = 3
        run = await talk.ask()
        assert run.failure is not None
        assert (run.failure.code, store.refusals) == ("llm_refused", 3)


@pytest.mark.usefixtures("quick")
async def test_engine_closes_while_its_store_takes_nothing_and_the_run_goes_on_later(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(services.PAUSES[-1] + 5):
        async with failing(tmp_path) as (talk, store):
            store.left = None
            await talk.say()
            await store.refused.wait()
    async with talking(tmp_path, script=[says("done at last")], owner="b") as talk:
        run = await talk.ended("r1")
        assert (run.status, run.failure) == (RunStatus.COMPLETED, None)


@pytest.mark.parametrize("error", [StoreBroken, SchemaTooNew])
async def test_store_that_must_not_be_used_any_more_gets_a_commit_once(
    tmp_path: Path, error: type[TealError]
) -> None:
    async with failing(tmp_path, lease_ttl=1e5) as (talk, store):
        store.error, store.left = error, None
        await talk.say()
        async with asyncio.timeout(seconds(5)):
            await store.refused.wait()
    # The engine has closed, so nothing is on its way any more.
    assert store.refusals == 1


class HeldRenewal(FailingStore):
    """A renewal that meets the broken store says so once it may."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_renewing, self.may_break = threading.Event(), threading.Event()

    def renew(self, owner: str, ttl: float) -> None:
        if self.is_broken:
            self.is_renewing.set()
            self.may_break.wait(seconds(5))
        super().renew(owner, ttl)


async def test_store_that_breaks_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A commit meets it, and a renewal that had begun before."""
    gate = asyncio.Event()
    async with (
        HeldRenewal(tmp_path) as store,
        talking(store, script=[[gate, *says("lost")]]) as talk,
        asyncio.timeout(seconds(5)),
    ):
        await talk.say()
        store.error, store.left, store.is_broken = StoreBroken, None, True
        renewing = asyncio.create_task(talk.engine.parts.services.lease.freshen())
        await asyncio.to_thread(store.is_renewing.wait, seconds(5))
        gate.set()
        await talk.engine.broken()
        assert store.refused.is_set()
        store.may_break.set()
        assert not await renewing
        with pytest.raises(ShuttingDown):
            await talk.ended("r1")
    critical = [one.message for one in caplog.records if one.levelname == "CRITICAL"]
    assert len(critical) == 1


@pytest.mark.parametrize("by_renewal", [False, True], ids=["commit", "renewal"])
async def test_broken_store_leaves_its_runs_and_readers_to_other_instances(
    tmp_path: Path, by_renewal: bool
) -> None:
    gate = asyncio.Event()
    script = [[gate, *says("lost")], says("kept")]
    clock = SettableClock()
    setup = Setup(script, clock=clock, lease_ttl=1.0)
    async with FailingStore(tmp_path, clock=clock) as store, talking(store, setup) as a:
        accepted = await a.say()
        assert isinstance(a.model, ScriptedModel)
        reader = asyncio.create_task(a.items(accepted))
        store.error, store.left = StoreBroken, None
        if by_renewal:
            store.is_broken = True
        else:
            gate.set()
        async with asyncio.timeout(seconds(5)):
            await a.engine.broken()
            with pytest.raises(ShuttingDown):
                await reader
        with pytest.raises(StoreBroken):
            await a.engine.ping()
        with pytest.raises(ShuttingDown):
            await a.say("more", thread="u")
        clock.advance(2.0)
        async with talking(tmp_path, setup, owner="b") as b:
            run = await b.ended("r1")
            assert run.answer is not None and run.answer.content == "kept"
