"""What readers of a run see: deltas as they come, the log in order, nothing twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from sk_agents.engine.events import (
    Answered,
    Event,
    ModelRestarted,
    RunEnded,
    Thinking,
    ToolFinished,
)
from sk_agents.engine.models import RunStatus
from sk_agents.engine.reading.live import LiveDelta
from sk_agents.engine.turns import ReasoningDelta, TextDelta, ToolChunk, ToolContext, ToolResult
from sk_agents.exceptions import ModelInterrupted, RunNotFound, ShuttingDown, StateCorrupt
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing.scripted_model import Step, Turn, calls, says
from tests.engine.fake_tools import FakeTools, tool
from tests.engine.kit import BOUND, THREAD, UNSWEPT, Setup, Talk, kinds, talking
from tests.engine.test_engine_troubles import idle
from tests.engine.troubled_store import TroubledStore
from tests.patience import seconds
from tests.requirements import requirement


class Reader:
    """Reads a run step by step, remembering everything it was given."""

    def __init__(self, talk: Talk, *, after: int = 0, run_id: str | None = "r1") -> None:
        self._watched = talk.engine.watch(THREAD, after=after, run_id=run_id)
        self.items: list[Event | LiveDelta] = []

    async def until_text(self, text: str, kind: str = "answer") -> None:
        while self.text(kind) != text:
            await self.step()

    async def step(self) -> None:
        async with asyncio.timeout(seconds(5)):
            self.items.extend(await anext(self._watched))

    async def close(self) -> None:
        await self._watched.aclose()

    async def to_the_end(self) -> list[Event | LiveDelta]:
        async with asyncio.timeout(seconds(5)):
            async for items in self._watched:
                self.items.extend(items)
        return self.items

    @property
    def deltas(self) -> list[LiveDelta]:
        return [item for item in self.items if isinstance(item, LiveDelta)]

    def text(self, kind: str = "answer") -> str:
        """The last attempt's text, put together by offsets as a client does it."""
        text = ""
        for delta in self.deltas:
            if delta.kind == kind:
                assert delta.offset in (0, len(text))
                text = (text if delta.offset else "") + delta.content
        return text


def gated(*words: str) -> tuple[list[asyncio.Event], Turn]:
    """A turn that says each word when its gate opens."""
    gates = [asyncio.Event() for _ in words]
    steps: list[Step] = []
    for gate, word in zip(gates, words, strict=True):
        steps += [gate, TextDelta(word)]
    return gates, [*steps, *says("")]


@pytest.mark.parametrize("http", [False, True])
async def test_text_is_streamed_piece_by_piece_before_it_is_stored(
    tmp_path: Path, http: bool
) -> None:
    (first, second), turn = gated("Hel", "lo")
    async with talking(tmp_path, script=[turn], http=http) as talk:
        accepted = await talk.say()
        reader = Reader(talk, after=accepted.after)
        first.set()
        await reader.until_text("Hel")
        assert kinds(await talk.log()) == ["RunStarted"]
        second.set()
        items = await reader.to_the_end()
        offsets = [(delta.offset, delta.content) for delta in reader.deltas]
        assert offsets in ([(0, "Hel"), (3, "lo")], [(0, "Hel")])
        assert kinds(items)[-2:] == ["Answered", "RunEnded"]
        answer = next(item for item in items if isinstance(item, Answered))
        assert answer.content == "Hello"


async def test_reader_who_comes_late_first_gets_the_text_so_far(tmp_path: Path) -> None:
    gates, turn = gated("one ", "two ", "three")
    async with talking(tmp_path, script=[turn]) as talk:
        await talk.say()
        early = Reader(talk)
        gates[0].set()
        gates[1].set()
        await early.until_text("one two ")
        late = Reader(talk)
        await late.until_text("one two ")
        assert [(delta.offset, delta.content) for delta in late.deltas] == [(0, "one two ")]
        gates[2].set()
        assert kinds(await late.to_the_end())[-1] == "RunEnded"


async def test_two_readers_see_the_same_events(tmp_path: Path) -> None:
    script = [calls(("Files-look", {}), ("Mail-send", {})), says("ok", pieces=2)]
    async with talking(tmp_path, script=script) as talk:
        accepted = await talk.say()
        readers = [asyncio.create_task(talk.items(accepted)) for _ in range(2)]
        await talk.result(accepted)
        await talk.decide(*await talk.approvals("r1"))
        one, two = await asyncio.gather(*readers)
        stored = [[item for item in seen if not isinstance(item, LiveDelta)] for seen in (one, two)]
        assert stored[0] == stored[1] == await talk.log()


@requirement("S002-loop-streaming")
async def test_run_that_is_only_asked_for_its_result_is_intercepted_like_a_watched_one(
    tmp_path: Path,
) -> None:
    turns = [calls(("Files-look", {}), ("Mail-send", {})), says("ok")]
    async with talking(tmp_path, script=turns * 2) as talk:
        for thread in ("watched", "drained"):
            accepted = await talk.say(thread=thread)
            reader = asyncio.create_task(talk.items(accepted)) if thread == "watched" else None
            run = await talk.result(accepted)
            assert run.status is RunStatus.WAITING
            await talk.decide(*await talk.approvals(run.run_id, thread=thread))
            assert (await talk.result(accepted)).status is RunStatus.COMPLETED
            if reader is not None:
                await reader
        asked = [[e.type for e in await talk.log(t)] for t in ("watched", "drained")]
        assert sorted(asked[0]) == sorted(asked[1])


async def test_no_delta_follows_the_stored_form_of_its_round(tmp_path: Path) -> None:
    looks: list[Turn] = [[TextDelta(f"look {n}"), *calls(("Files-look", {}))] for n in range(5)]
    async with talking(tmp_path, script=[*looks, says("done", pieces=4)]) as talk:
        items = await talk.items(await talk.say())
        closed: set[tuple[str, object]] = set()
        for item in items:
            match item:
                case LiveDelta(kind="tool_output"):
                    assert ("call", item.call_id) not in closed
                case LiveDelta():
                    assert ("round", item.round) not in closed
                case Thinking() | Answered():
                    closed.add(("round", item.round))
                case ToolFinished():
                    closed.add(("call", item.call_id))


async def test_reader_who_stops_reading_holds_up_nobody(tmp_path: Path) -> None:
    (gate,), turn = gated("x" * 1000)
    async with talking(tmp_path, script=[turn, says("more")]) as talk:
        await talk.say()
        stuck = Reader(talk, run_id=None)
        await stuck.step()
        never = talk.engine.watch(THREAD)
        gate.set()
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert (await talk.ask("again")).status is RunStatus.COMPLETED
        await stuck.step()
        assert kinds(stuck.items).count("RunEnded") >= 1
        assert never is not None


@requirement("S004-6.3-protected-save")
async def test_reader_who_leaves_in_the_middle_stops_nothing(tmp_path: Path) -> None:
    gates, turn = gated("a", "b")
    async with talking(tmp_path, script=[turn]) as talk:
        await talk.say()
        async with aclosing(talk.engine.watch(THREAD, run_id="r1")) as watched:
            await anext(watched)
        for gate in gates:
            gate.set()
        run = await talk.ended("r1")
        assert run.answer is not None and run.answer.content == "ab"


@pytest.mark.parametrize("url", ["memory:", "sqlite://{}", "file://{}"])
async def test_reading_from_any_event_on_gives_the_rest_of_the_log(
    tmp_path: Path, url: str
) -> None:
    script = [calls(("Files-look", {}), ("Files-look", {})), says("ok"), says("more")]
    async with talking(url.format(tmp_path / "store"), script=script) as talk:
        await talk.ask()
        await talk.ask("again")
        log = await talk.log()
        for run_id in ("r1", "r2"):
            for after in range(len(log) + 1):
                reader = Reader(talk, after=after, run_id=run_id)
                wanted = [e for e in log if e.seq > after and e.run_id == run_id]
                assert await reader.to_the_end() == wanted
        for after in range(len(log)):
            reader = Reader(talk, after=after, run_id=None)
            while len(reader.items) < len(log) - after:
                await reader.step()
            assert reader.items == log[after:]


async def test_result_is_waited_for_as_long_as_is_said_and_no_longer() -> None:
    gates, turn = gated("Hello")
    store = TroubledStore()
    async with talking(store, script=[turn], lease_ttl=UNSWEPT) as talk:
        accepted = await talk.say()
        for moment in (0.0, 0.2):
            store.looked.clear()
            begun = monotonic()
            with pytest.raises(TimeoutError):
                await talk.engine.result(accepted.thread_id, accepted.run_id, seconds=moment)
            assert monotonic() - begun >= moment
            assert len(store.looked) <= 1
        gates[0].set()
        run = await talk.engine.result(accepted.thread_id, accepted.run_id, seconds=BOUND)
        assert run.status is RunStatus.COMPLETED
        # It has come: there is nothing to wait for.
        again = await talk.engine.result(accepted.thread_id, accepted.run_id, seconds=0.0)
        assert again.status is RunStatus.COMPLETED


async def test_result_of_a_run_that_is_driven_here_comes_without_asking_the_store() -> None:
    store = TroubledStore()
    gates, turn = gated("Hel", "lo")
    script = [[gates[0], *calls(("Files-look", {}))], turn]
    async with talking(store, script=script, lease_ttl=UNSWEPT) as talk:
        accepted = await talk.say()
        waiting = asyncio.ensure_future(talk.result(accepted))
        await idle()
        asked = len(store.looked) + len(store.read)
        for gate in gates:
            gate.set()
            await idle()
        assert (await waiting).status is RunStatus.COMPLETED
        assert len(store.looked) + len(store.read) == asked


@pytest.mark.usefixtures("readers_look")
async def test_result_of_a_run_whose_log_cannot_be_read_any_more_is_an_error() -> None:
    """Its driver may have failed at the same, wherever it is: there would be no end to wait for."""
    _, turn = gated("Hello")
    store = TroubledStore()
    async with talking(store, script=[turn], lease_ttl=1e5) as talk:
        accepted = await talk.say()
        store.damaged = {THREAD}
        with pytest.raises(StateCorrupt):
            await talk.result(accepted)


async def test_result_of_an_unknown_run_or_at_a_closing_instance_is_refused() -> None:
    _, turn = gated("Hello")
    store = MemoryStore()
    # The other one leaves alone what the first one leaves when it closes.
    setup = Setup([turn], lease_ttl=UNSWEPT)
    async with talking(store, setup) as talk, talking(store, setup, owner="b") as other:
        accepted = await talk.say()
        with pytest.raises(RunNotFound):
            await talk.engine.result(accepted.thread_id, "r9")
        for engine in (talk.engine, other.engine):
            waiting = asyncio.ensure_future(engine.result(accepted.thread_id, accepted.run_id))
            await idle()
            assert not waiting.done()
            engine.drain()
            async with asyncio.timeout(BOUND):
                with pytest.raises(ShuttingDown):
                    await waiting


async def test_reading_a_run_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says("ok")]) as talk:
        await talk.ask()
        with pytest.raises(RunNotFound):
            await Reader(talk, run_id="r9").to_the_end()


@requirement("S004-12.1-tool-output")
async def test_output_of_a_tool_is_streamed_while_it_runs(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def slow(arguments: dict[str, Any], context: ToolContext) -> AsyncIterator[Any]:
        yield ToolChunk("10% ")
        await gate.wait()
        yield ToolChunk("100%")
        yield ToolResult("finished")

    tools = FakeTools(tool("Files-look", slow))
    script = [calls(("Files-look", {})), says("ok")]
    async with talking(tmp_path, script=script, tools=tools) as talk:
        await talk.say()
        reader = Reader(talk)
        await reader.until_text("10% ", "tool_output")
        gate.set()
        items = await reader.to_the_end()
        chunks = [delta for delta in reader.deltas if delta.kind == "tool_output"]
        assert [(c.offset, c.content) for c in chunks] in (
            [(0, "10% ")],
            [(0, "10% "), (4, "100%")],
        )
        finished = next(item for item in items if isinstance(item, ToolFinished))
        assert (chunks[0].call_id, finished.result) == (finished.call_id, "finished")


async def test_reasoning_is_streamed_and_stored_as_thinking(tmp_path: Path) -> None:
    gate = asyncio.Event()
    turn: Turn = [ReasoningDelta("hm, "), ReasoningDelta("yes"), gate, *says("It is so.")]
    async with talking(tmp_path, script=[turn, says("ok")], http=True) as talk:
        await talk.say()
        reader = Reader(talk)
        await reader.until_text("hm, yes", "thinking")
        gate.set()
        items = await reader.to_the_end()
        thought = next(item for item in items if isinstance(item, Thinking))
        assert (thought.content, thought.spoken) == ("hm, yes", False)
        await talk.ask("why?")
        assert "hm, yes" not in str(talk.prompts[1])


@pytest.mark.parametrize("http", [False, True])
async def test_half_a_stream_is_void_and_asked_for_again(tmp_path: Path, http: bool) -> None:
    gate = asyncio.Event()
    half: Turn = [TextDelta("Hel"), gate, ModelInterrupted()]
    async with talking(tmp_path, script=[half, says("Bonjour", pieces=2)], http=http) as talk:
        await talk.say()
        reader = Reader(talk)
        await reader.until_text("Hel")
        gate.set()
        items = await reader.to_the_end()
        restarted = next(item for item in items if isinstance(item, ModelRestarted))
        assert (restarted.round, restarted.attempt) == (1, 2)
        after = items[items.index(restarted) :]
        assert {delta.attempt for delta in after if isinstance(delta, LiveDelta)} <= {2}
        answer = next(item for item in items if isinstance(item, Answered))
        assert answer.content == "Bonjour"


async def test_reader_of_a_whole_thread_sees_every_runs_deltas_from_their_beginning(
    tmp_path: Path,
) -> None:
    gates, first = gated("one ", "two")
    more_gates, second = gated("three ", "four")
    async with talking(tmp_path, script=[first, second]) as talk:
        await talk.say()
        reader = Reader(talk, after=0, run_id=None)
        for count, run_gates in ((1, gates), (2, more_gates)):
            if count == 2:
                await talk.say()
            for number, gate in enumerate(run_gates, 1):
                gate.set()
                while len([d for d in reader.deltas if d.run_id == f"r{count}"]) < number:
                    await reader.step()
            while not any(
                isinstance(i, RunEnded) and i.run_id == f"r{count}" for i in reader.items
            ):
                await reader.step()
        deltas = [(d.run_id, d.offset, d.content) for d in reader.deltas]
    assert deltas == [
        ("r1", 0, "one "),
        ("r1", 4, "two"),
        ("r2", 0, "three "),
        ("r2", 6, "four"),
    ]


def _has_ended(reader: Reader, run_id: str) -> bool:
    return any(isinstance(item, RunEnded) and item.run_id == run_id for item in reader.items)
