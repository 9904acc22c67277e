"""Runs that lose their owners: taken over as long as they move on, given up once they do not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sk_agents.engine.models import RunStatus
from sk_agents.engine.run.recovery import MAX_RECOVERIES
from sk_agents.testing import ScriptedModel, SettableClock
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine.kit import UNSWEPT, Setup, Talk, talking
from tests.patience import seconds

LOSSES = 2 * MAX_RECOVERIES


@asynccontextmanager
async def instances(at: Path, setup: Setup) -> AsyncIterator[tuple[Talk, Talk]]:
    """Two that sweep when they are told to: by this clock, any sweep finds all leases run out."""
    async with talking(at, setup) as a, talking(at, setup, owner="b") as b:
        yield a, b


async def asked(model: ScriptedModel, times: int) -> None:
    """Until the model has been asked so many times in all."""
    async with asyncio.timeout(seconds(5)):
        while model.script.played < times:  # noqa: ASYNC110  # a script sets no event
            await asyncio.sleep(0)


async def test_run_that_moves_on_each_time_survives_any_number_of_lost_owners(
    tmp_path: Path,
) -> None:
    hangs: Turn = [asyncio.Event()]
    script = [hangs, *[calls(("Files-look", {})), hangs] * LOSSES, says("done")]
    clock = SettableClock()
    setup = Setup(script, clock=clock, lease_ttl=UNSWEPT)
    async with instances(tmp_path, setup) as (a, b):
        assert isinstance(a.model, ScriptedModel)
        await a.say()
        await asked(a.model, 1)
        for number in range(LOSSES):
            clock.advance(2 * UNSWEPT)
            await (b, a)[number % 2].sweep()
            await asked(a.model, 3 + 2 * number)
        clock.advance(2 * UNSWEPT)
        await (b, a)[LOSSES % 2].sweep()
        assert (await b.ended("r1")).status is RunStatus.COMPLETED


async def test_run_that_does_not_move_on_is_given_up(tmp_path: Path) -> None:
    hangs: Turn = [asyncio.Event()]
    clock = SettableClock()
    setup = Setup([hangs] * 10, clock=clock, lease_ttl=UNSWEPT)
    async with instances(tmp_path, setup) as (a, b):
        assert isinstance(a.model, ScriptedModel)
        await a.say()
        for number in range(MAX_RECOVERIES):
            await asked(a.model, 1 + number)
            clock.advance(2 * UNSWEPT)
            await (b, a)[number % 2].sweep()
        await asked(a.model, 1 + MAX_RECOVERIES)
        clock.advance(2 * UNSWEPT)
        await (b, a)[MAX_RECOVERIES % 2].sweep()
        run = await b.ended("r1")
        assert run.failure is not None
        assert run.failure.code == "recovery_attempts_exceeded"
