"""What becomes of a run when its readers leave."""

import asyncio
from contextlib import aclosing
from pathlib import Path

from sk_agents.engine.events import CancelRequested
from sk_agents.engine.models import RunStatus
from sk_agents.engine.turns import TextDelta
from sk_agents.testing.scripted_model import Turn, says
from tests.engine.kit import SEND_X, THREAD, Talk, talking
from tests.patience import seconds

SOON = 0.01


def held() -> tuple[asyncio.Event, Turn]:
    gate = asyncio.Event()
    return gate, [TextDelta("Once upon"), gate, *says(" a time")]


async def read_a_little(talk: Talk, run_id: str = "r1") -> None:
    """Attach, see something, leave."""
    async with asyncio.timeout(seconds(5)):
        async with aclosing(talk.engine.watch(THREAD, run_id=run_id)) as items:
            await anext(items)


async def test_a_run_ends_with_its_last_reader_if_it_is_to(tmp_path: Path) -> None:
    _, turn = held()
    async with talking(tmp_path, script=[turn], disconnect_grace=SOON) as talk:
        await talk.say(on_disconnect="cancel")
        await read_a_little(talk)
        await talk.until(lambda state: state.run("r1").phase is RunStatus.CANCELLED)
        asked = [event for event in await talk.log() if isinstance(event, CancelRequested)]
        assert [event.reason for event in asked] == ["disconnect"]


async def test_a_run_goes_on_without_readers_by_default(tmp_path: Path) -> None:
    gate, turn = held()
    async with talking(tmp_path, script=[turn], disconnect_grace=0) as talk:
        await talk.say()
        await read_a_little(talk)
        gate.set()
        assert (await talk.ended("r1")).phase is RunStatus.COMPLETED


async def test_a_reader_who_comes_back_in_time_keeps_the_run_alive(tmp_path: Path) -> None:
    gate, turn = held()
    async with talking(tmp_path, script=[turn], disconnect_grace=60) as talk:
        await talk.say(on_disconnect="cancel")
        await read_a_little(talk)
        assert talk.engine.parts.readers.ending == ["r1"]
        await read_a_little(talk)
        gate.set()
        assert (await talk.ended("r1")).phase is RunStatus.COMPLETED


async def test_a_run_that_waits_for_a_person_is_not_ended_by_a_disconnect(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X, disconnect_grace=0) as talk:
        run = await talk.ask(on_disconnect="cancel")
        assert run.status is RunStatus.WAITING
        await read_a_little(talk)
        assert talk.engine.parts.readers.ending == []
        (approval,) = run.pending_approvals
        await talk.decide(approval.request.approval_id)
        assert (await talk.ended("r1")).phase is RunStatus.COMPLETED


async def test_a_run_nobody_has_read_is_not_disconnected(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says("done")], disconnect_grace=0) as talk:
        run = await talk.ask(on_disconnect="cancel")
        assert run.phase is RunStatus.COMPLETED
