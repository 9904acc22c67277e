"""A conversation in the bin: nothing begins there until it is moved back."""

import asyncio
from pathlib import Path

import pytest

from sk_agents.engine.log.state import BIN, PLACE
from sk_agents.engine.models import RunStatus
from sk_agents.engine.turns import TextDelta
from sk_agents.exceptions import ThreadInBin
from sk_agents.testing.scripted_model import says
from tests.engine.kit import THREAD, USER, Talk, talking


async def move(talk: Talk, place: str | None) -> None:
    await talk.engine.catalog.label(THREAD, USER, {PLACE: place})


async def test_nothing_begins_in_the_bin_and_all_goes_on_once_it_is_moved_back(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path, script=[says("ok"), says("edited"), says("more")]) as talk:
        await talk.ask()
        await move(talk, BIN)
        before = await talk.log()
        with pytest.raises(ThreadInBin):
            await talk.say("again")
        with pytest.raises(ThreadInBin):
            await talk.edit("r1", "otherwise", run_id="edited")
        assert await talk.log() == before
        await move(talk, None)
        edited = await talk.result(await talk.edit("r1", "otherwise", run_id="edited"))
        assert edited.status is RunStatus.COMPLETED
        assert (await talk.ask("again", run_id="again")).status is RunStatus.COMPLETED


async def test_message_does_not_wait_in_the_bin_for_the_run_that_is_stopped_there(
    tmp_path: Path,
) -> None:
    gate = asyncio.Event()
    async with talking(tmp_path, script=[[TextDelta("Once"), gate, *says("")]]) as talk:
        await talk.say()
        await move(talk, BIN)
        for on_busy in ("enqueue", "interrupt"):
            with pytest.raises(ThreadInBin):
                await talk.say("and then?", on_busy=on_busy)
        gate.set()
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert len(talk.prompts) == 1
