"""Deltas that go out while their reader waits: at once, in order, each once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from sk_agents.engine.events import Event, RunEnded
from sk_agents.engine.log.commits import Commit, Committed
from sk_agents.engine.reading.live import LiveDelta
from sk_agents.engine.turns import ReasoningDelta, TextDelta, ToolChunk, ToolResult
from sk_agents.exceptions import ModelUnavailable
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine.fake_tools import FakeTools, tool
from tests.engine.kit import THREAD, Talk, talking
from tests.engine.late_news import LateNews
from tests.engine.test_engine_streaming import gated
from tests.patience import seconds


class Page:
    """All that reaches a client, by either way, in the order in which it does."""

    def __init__(self) -> None:
        self.is_open = True
        self.seen: list[Event | LiveDelta] = []
        self.pushed: list[LiveDelta] = []
        self.changed = asyncio.Event()

    def take(self, deltas: Sequence[LiveDelta]) -> None:
        assert self.is_open
        self.pushed += deltas
        self.show(deltas)

    def show(self, items: Sequence[Event | LiveDelta]) -> None:
        self.seen += items
        self.changed.set()

    @property
    def text(self) -> str:
        return "".join(item.content for item in self.seen if isinstance(item, LiveDelta))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(seconds(5)):
            while not holds():
                self.changed.clear()
                await self.changed.wait()


async def read(talk: Talk, page: Page, after: int) -> None:
    watched = talk.engine.watch(THREAD, after=after, run_id="r1", outlet=page)
    async for items in watched:
        page.show(items)


@asynccontextmanager
async def shown(folder: Path, turn: Turn, *pages: Page) -> AsyncIterator[None]:
    """A run is read into each of the pages until it ends; they have its beginning already."""
    async with talking(folder, script=[turn]) as talk:
        accepted = await talk.say()
        async with asyncio.timeout(seconds(10)), asyncio.TaskGroup() as group:
            for page in pages:
                group.create_task(read(talk, page, accepted.after))
            for page in pages:
                await page.until(lambda page=page: bool(page.seen))  # type: ignore[misc]
            yield


async def test_deltas_are_taken_by_an_open_outlet_without_waking_the_reader(
    tmp_path: Path,
) -> None:
    (first, second), turn = gated("Hel", "lo")
    page = Page()
    async with shown(tmp_path, turn, page):
        first.set()
        await page.until(lambda: page.text == "Hel")
        second.set()
    assert [delta.content for delta in page.pushed] == ["Hel", "lo"]
    assert [delta.offset for delta in page.pushed] == [0, 3]
    assert isinstance(page.seen[-1], RunEnded)


async def test_what_a_closed_outlet_does_not_take_comes_to_the_reader_once(
    tmp_path: Path,
) -> None:
    (first, second, third), turn = gated("one ", "two ", "three")
    page = Page()
    async with shown(tmp_path, turn, page):
        first.set()
        await page.until(lambda: page.text == "one ")
        page.is_open = False
        second.set()
        await page.until(lambda: page.text == "one two ")
        page.is_open = True
        third.set()
    assert page.text == "one two three"
    assert "two " not in [delta.content for delta in page.pushed]


async def test_deltas_never_overtake_what_is_stored(tmp_path: Path) -> None:
    script = [calls(("Files-look", {"text": "x"})), says("One. Two. Three.")]
    page = Page()
    async with talking(tmp_path, script=script) as talk:
        accepted = await talk.say()
        async with asyncio.timeout(seconds(10)):
            await read(talk, page, accepted.after)
    kinds = ["delta" if isinstance(item, LiveDelta) else item.type for item in page.seen]
    assert kinds.index("tool_finished") < kinds.index("delta")
    assert "delta" not in kinds[kinds.index("answered") :]
    seqs = [item.seq for item in page.seen if not isinstance(item, LiveDelta)]
    assert seqs == sorted(set(seqs))


async def test_each_of_several_readers_gets_the_whole_text(tmp_path: Path) -> None:
    (first, second), turn = gated("Hel", "lo")
    pages = [Page(), Page()]
    pages[1].is_open = False
    async with shown(tmp_path, turn, *pages):
        first.set()
        for page in pages:
            await page.until(lambda page=page: page.text == "Hel")  # type: ignore[misc]
        second.set()
    assert [page.text for page in pages] == ["Hello", "Hello"]
    assert not pages[1].pushed


async def test_an_outlet_that_breaks_breaks_neither_the_run_nor_its_reader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Page):
        def take(self, deltas: Sequence[LiveDelta]) -> None:
            raise RuntimeError("the handler is closed")

    (first, second), turn = gated("Hel", "lo")
    page = Broken()
    async with shown(tmp_path, turn, page):
        first.set()
        second.set()
    assert [item.type for item in page.seen if not isinstance(item, LiveDelta)][-2:] == [
        "answered",
        "run_ended",
    ]
    assert "deltas lost" in caplog.text


async def test_who_reads_the_end_before_the_run_hears_of_it_sees_no_delta_after_it(
    tmp_path: Path,
) -> None:
    page, (gates, turn) = Page(), gated("Enough.")
    async with (
        asyncio.timeout(seconds(10)),
        LateNews(tmp_path / "late.sqlite", RunEnded) as store,
        talking(store, script=[turn]) as talk,
    ):
        await talk.say()
        # With one who has left before, what follows is in the store alone.
        async with aclosing(talk.engine.watch(THREAD, run_id="r1")) as watched:
            await anext(watched)
        gates[0].set()
        await store.is_stored.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(read(talk, page, 0))
            await page.until(lambda: any(isinstance(one, RunEnded) for one in page.seen))
            store.may_tell.set()
    assert isinstance(page.seen[-1], RunEnded)


async def test_who_comes_after_a_tool_has_ended_gets_its_result_and_no_delta_of_its_output(
    tmp_path: Path,
) -> None:
    async def work(arguments: object, context: object) -> AsyncIterator[ToolChunk | ToolResult]:
        yield ToolChunk("half ")
        yield ToolResult("half a loaf")

    gate = asyncio.Event()
    script: list[Turn] = [calls(("Files-look", {})), [TextDelta("Well"), gate, *says(".")]]
    tools = FakeTools(tool("Files-look", work))
    async with asyncio.timeout(seconds(10)), talking(tmp_path, script=script, tools=tools) as talk:
        await talk.say()
        first, late = Page(), Page()
        async with asyncio.TaskGroup() as group:
            group.create_task(read(talk, first, 0))
            await first.until(lambda: "Well" in first.text)
            group.create_task(read(talk, late, 0))
            await late.until(lambda: "Well" in late.text)
            gate.set()
    assert late.text == "Well."


class SlowEnd(MemoryStore):
    """Stores the end of a run once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.may_store = asyncio.Event(), asyncio.Event()

    async def commit(self, commit: Commit) -> Committed:
        if any(isinstance(event, RunEnded) for event in commit.events):
            self.is_asked.set()
            await self.may_store.wait()
        return await super().commit(commit)


@pytest.mark.parametrize("ends", ["cancelled", "failed"])
async def test_who_comes_while_the_end_is_being_stored_sees_no_delta_of_it(ends: str) -> None:
    store, gate = SlowEnd(), asyncio.Event()
    turn: Turn = [TextDelta("Once upon"), gate, ModelUnavailable()]
    async with asyncio.timeout(seconds(10)), talking(store, script=[turn]) as talk:
        first = Page()
        await talk.say()
        async with asyncio.TaskGroup() as group:
            group.create_task(read(talk, first, 0))
            await first.until(lambda: first.text == "Once upon")
            if ends == "cancelled":
                await talk.cancel("r1")
            else:
                gate.set()
            await store.is_asked.wait()
            late = Page()
            group.create_task(read(talk, late, 0))
            await late.until(lambda: bool(late.seen))
            store.may_store.set()
    assert (first.text, late.text) == ("Once upon", "")
    assert isinstance(late.seen[-1], RunEnded)
    assert isinstance(first.seen[-1], RunEnded)


async def test_reasoning_of_the_model_is_streamed_as_it_comes(tmp_path: Path) -> None:
    gates = [asyncio.Event() for _ in range(3)]
    thoughts: Turn = [
        ReasoningDelta("Hm."),
        gates[0],
        TextDelta("Well"),
        gates[1],
        ReasoningDelta("Oh."),
    ]
    turn: Turn = [*thoughts, gates[2], *says(".")]
    page = Page()
    async with shown(tmp_path, turn, page):
        for gate, text in zip(gates, ("Hm.", "Hm.Well", "Hm.WellOh."), strict=True):
            await page.until(lambda text=text: page.text == text)  # type: ignore[misc]
            gate.set()
    kinds = [item.kind for item in page.seen if isinstance(item, LiveDelta)]
    assert kinds == ["thinking", "answer", "thinking", "answer"]
