"""A deleted thread is gone everywhere, and one made again with its id is another one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.models import RunStatus
from sk_agents.exceptions import ThreadNotFound
from sk_agents.testing.scripted_model import says
from tests.engine.kit import THREAD, UNSWEPT, USER, Setup, Talk, endings, talking
from tests.patience import seconds

SECRET = "the deleted secret"
STORES = ("sqlite", "file")


@asynccontextmanager
async def two(store: str, at: Path, **fields: Any) -> AsyncIterator[tuple[Talk, Talk]]:
    """Two instances over one store."""
    setup = Setup(**fields)
    url = f"{store}://{at / 'data'}"
    async with talking(url, setup) as a, talking(url, setup, owner="b") as b:
        yield a, b


@pytest.mark.parametrize("store", STORES)
async def test_instance_that_remembers_a_deleted_thread_never_tells_of_it_again(
    store: str, tmp_path: Path
) -> None:
    async with two(store, tmp_path, script=[says("one")] * 4) as (a, b):
        assert (await b.ask(SECRET, run_id="old")).status is RunStatus.COMPLETED
        await a.engine.delete(THREAD, USER)
        assert (await a.ask("something new", run_id="new")).status is RunStatus.COMPLETED
        assert (await b.ask("and more", run_id="next")).status is RunStatus.COMPLETED
        said = [message["content"] for message in b.prompts[-1] if message["role"] == "user"]
        assert said == ["something new", "and more"]
        for talk in (a, b):
            known = await talk.engine.thread(THREAD, USER)
            assert list(known.state.runs) == ["new", "next"]


@pytest.mark.parametrize("store", STORES)
async def test_message_to_a_thread_deleted_elsewhere_makes_it_anew(
    store: str, tmp_path: Path
) -> None:
    async with two(store, tmp_path, script=[says("one")] * 2) as (a, b):
        await b.ask(SECRET, run_id="old")
        await a.engine.delete(THREAD, USER)
        assert (await b.ask("again", run_id="new")).status is RunStatus.COMPLETED
        assert [message["content"] for message in b.prompts[-1]] == ["be kind", "again"]


async def test_reader_of_a_deleted_thread_sees_nothing_of_the_one_made_again(
    tmp_path: Path,
) -> None:
    async with two("sqlite", tmp_path, script=[says("one")] * 2) as (a, b):
        await b.ask(SECRET, run_id="old")
        watch = b.engine.watch(THREAD)
        first = await anext(watch)
        assert {item.run_id for item in first} == {"old"}
        await a.engine.delete(THREAD, USER)
        await a.ask("new", run_id="new")
        with pytest.raises(ThreadNotFound):
            async with asyncio.timeout(seconds(5)):
                await anext(watch)


async def test_place_in_a_thread_is_no_place_in_one_made_again_before_the_reading_began(
    tmp_path: Path,
) -> None:
    async with two("sqlite", tmp_path, script=[says("one")] * 3) as (a, b):
        await b.ask(SECRET, run_id="old")
        known = await b.engine.thread(THREAD, USER)
        place = known.state.next_seq - 1
        watch = b.engine.watch(THREAD, after=place, incarnation=known.incarnation)
        await a.engine.delete(THREAD, USER)
        await a.ask("new", run_id="new")
        await a.ask("newer", run_id="newer")
        with pytest.raises(ThreadNotFound):
            async with asyncio.timeout(seconds(5)):
                await anext(watch)


async def test_owner_that_was_stopped_does_not_touch_the_thread_made_again(
    tmp_path: Path,
) -> None:
    """Its lease ran out while its model was talking; owner, epoch and place are those of then."""
    release = asyncio.Event()

    class Talking:
        """A model that says its first answer when it is released."""

        def __init__(self) -> None:
            self.started = asyncio.Event()

        def stream(self, prompt: Any) -> Any:
            return self._stream(prompt)

        async def _stream(self, prompt: Any) -> AsyncIterator[Any]:
            if prompt.messages[-1].content == SECRET:
                self.started.set()
                await release.wait()
            for piece in says("answer"):
                yield [piece]

    model = Talking()
    async with two("sqlite", tmp_path, model=model, lease_ttl=UNSWEPT) as (a, b):
        await b.say(SECRET, run_id="old")
        async with asyncio.timeout(seconds(5)):
            await model.started.wait()
        # Another instance takes its lease to have run out.
        await b.store.retire("b")
        head = await a.store.thread(THREAD)
        await a.store.delete(THREAD, next_seq=head.next_seq)
        b.store.renew("b", UNSWEPT)
        await b.say("new", run_id="new")
        assert (await b.ended("new")).status is RunStatus.COMPLETED
        release.set()
        await b.say("next", run_id="next")
        assert (await b.ended("next")).status is RunStatus.COMPLETED
        log = await a.log()
        assert endings(log) == [RunStatus.COMPLETED] * 2
        assert {event.run_id for event in log} == {"new", "next"}
