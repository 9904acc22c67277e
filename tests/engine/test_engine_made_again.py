"""A deleted thread is gone everywhere, and one made again with its id is another one."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.models import Effect, RunStatus, Thread
from sk_agents.engine.reading import watch
from sk_agents.engine.turns import ToolChunk, ToolResult
from sk_agents.exceptions import ThreadNotFound
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing.scripted_model import calls, says
from tests.engine.fake_tools import FakePolicy, FakeTools, tool
from tests.engine.kit import THREAD, UNSWEPT, USER, Setup, Talk, endings, talking
from tests.engine.test_engine_streaming import Reader, gated
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
        watched = b.engine.watch(THREAD)
        first = await anext(watched)
        assert {item.run_id for item in first} == {"old"}
        await a.engine.delete(THREAD, USER)
        await a.ask("new", run_id="new")
        with pytest.raises(ThreadNotFound):
            async with asyncio.timeout(seconds(5)):
                await anext(watched)


async def test_reading_begins_in_the_thread_that_is_there_and_not_in_the_one_that_was_known(
    tmp_path: Path,
) -> None:
    async with two("sqlite", tmp_path, script=[says("one")] * 2) as (a, b):
        await b.ask(SECRET, run_id="old")
        await a.engine.delete(THREAD, USER)
        await a.ask("new", run_id="new")
        watched = b.engine.watch(THREAD)
        assert {item.run_id for item in await anext(watched)} == {"new"}
        await watched.aclose()


class SlowHeads(MemoryStore):
    """Its first look at how far threads are is answered once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.was_asked, self.answer = asyncio.Event(), asyncio.Event()

    async def heads(self, thread_ids: Collection[str]) -> Sequence[Thread]:
        found = await super().heads(thread_ids)
        if not self.was_asked.is_set():
            self.was_asked.set()
            await self.answer.wait()
        return found


async def test_reader_of_a_deleted_thread_gets_no_live_text_of_the_one_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)
    (gate, _), turn = gated("not for them", "")
    async with SlowHeads() as store, talking(store, script=[says("one"), turn]) as talk:
        await talk.ask("old", run_id="old")
        watched = talk.engine.watch(THREAD)
        read = await anext(watched)
        reading = asyncio.ensure_future(anext(watched))
        async with asyncio.timeout(seconds(5)):
            await store.was_asked.wait()
        await store.delete(THREAD, next_seq=(await store.thread(THREAD)).next_seq)
        # As long as the old one, and so the same place.
        await talk.say("new", run_id="new")
        while (await store.thread(THREAD)).next_seq <= len(read):
            await talk.say("next", on_busy="enqueue")
        gate.set()
        reader = Reader(talk, run_id="new")
        await reader.until_text("not for them")
        store.answer.set()
        with pytest.raises(ThreadNotFound):
            async with asyncio.timeout(seconds(5)):
                await reading
        await reader.close()


async def test_place_in_a_thread_is_no_place_in_one_made_again_before_the_reading_began(
    tmp_path: Path,
) -> None:
    async with two("sqlite", tmp_path, script=[says("one")] * 3) as (a, b):
        await b.ask(SECRET, run_id="old")
        known = await b.engine.thread(THREAD, USER)
        place = known.state.next_seq - 1
        watched = b.engine.watch(THREAD, after=place, incarnation=known.incarnation)
        await a.engine.delete(THREAD, USER)
        await a.ask("new", run_id="new")
        await a.ask("newer", run_id="newer")
        with pytest.raises(ThreadNotFound):
            async with asyncio.timeout(seconds(5)):
                await anext(watched)


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


async def test_reader_of_the_thread_made_again_gets_no_output_of_a_tool_of_the_deleted_one(
    tmp_path: Path,
) -> None:
    """The tool cannot be cancelled, and goes on after its driver has lost the thread."""
    end = asyncio.Event()

    async def send(arguments: Any, context: Any) -> AsyncIterator[ToolChunk | ToolResult]:
        yield ToolChunk(SECRET)
        await end.wait()
        yield ToolResult("sent")

    async with two(
        "sqlite",
        tmp_path,
        script=[calls(("Mail-send", {})), says("one")],
        tools=FakeTools(tool("Mail-send", send, effect=Effect.AT_MOST_ONCE)),
        policy=FakePolicy(lambda call: "allow"),
        lease_ttl=UNSWEPT,
    ) as (a, b):
        await b.say("old", run_id="old")
        reader = Reader(b, run_id="old")
        await reader.until_text(SECRET, "tool_output")
        await reader.close()
        await b.store.retire("b")
        await a.store.delete(THREAD, next_seq=(await a.store.thread(THREAD)).next_seq)
        assert (await a.ask("new", run_id="new")).status is RunStatus.COMPLETED
        assert list((await b.engine.thread(THREAD, USER)).state.runs) == ["new"]
        watched = b.engine.watch(THREAD)
        assert {item.run_id for item in await anext(watched)} == {"new"}
        await watched.aclose()
        end.set()
