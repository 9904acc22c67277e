"""A run is driven at one engine and read at another: its text is seen there as it is written."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.events import Answered, RunEnded
from sk_agents.engine.models import RunStatus, Thread
from sk_agents.engine.reading import live_relay, watch
from sk_agents.engine.reading.live import LiveDelta, LiveRun, MirroredRun, StreamKey
from sk_agents.engine.turns import ReasoningDelta, TextDelta, ToolChunk, ToolResult
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.signals.local import LocalSignals
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine.fake_tools import FakeTools, tool
from tests.engine.kit import BOUND, SEND_X, Setup, Talk, talking, waiting
from tests.engine.test_engine_deltas import Page, read
from tests.engine.test_engine_streaming import Reader
from tests.engine.test_engine_streaming import gated as gated_words
from tests.engine.test_engine_troubles import idle


@dataclass(slots=True)
class Network:
    """Carries messages between instances of one event loop; `passes` says which arrive."""

    passes: Callable[[str, bytes], bool] = lambda sender, message: True
    most_bytes: int = 4096
    sent: list[tuple[str, str | None, bytes]] = field(default_factory=list)
    members: "dict[str, Member]" = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def join(self, address: str) -> "Member":
        return self.members.setdefault(address, Member(self, address))

    def of_type(self, name: str) -> list[bytes]:
        return [message for *_, message in self.sent if f'"type":"{name}"'.encode() in message]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND):
            while not holds():
                self.changed.clear()
                await self.changed.wait()


class Member:
    def __init__(self, network: Network, address: str) -> None:
        self._network = network
        self.address = address
        self._receivers: list[Callable[[str, bytes], None]] = []

    @property
    def most_bytes(self) -> int:
        return self._network.most_bytes

    def send(self, message: bytes, *, to: str | None = None) -> None:
        network = self._network
        assert len(message) <= network.most_bytes
        assert b"\0" not in message
        network.sent.append((self.address, to, message))
        network.changed.set()
        if network.passes(self.address, message):
            for member in network.members.values():
                if member is not self and to in (None, member.address):
                    asyncio.get_running_loop().call_soon(member.deliver, self.address, message)

    def receive(self, receiver: Callable[[str, bytes], None]) -> None:
        self._receivers.append(receiver)

    def deliver(self, sender: str, message: bytes) -> None:
        for receiver in self._receivers:
            receiver(sender, message)


class FarSignals(LocalSignals):
    """Reach the engines of the others, too."""

    others: "list[FarSignals]"

    def notify(self, thread_id: str, *, local: bool = False) -> None:
        super().notify(thread_id, local=local)
        for other in () if local else self.others:
            other.notified_elsewhere(thread_id)


@asynccontextmanager
async def two(
    at: Path, network: Network, *script: Turn, **fields: Any
) -> AsyncIterator[tuple[Talk, Talk]]:
    setup = Setup(script, **fields)
    here, there = FarSignals(), FarSignals()
    here.others, there.others = [there], [here]
    async with (
        talking(at, setup, signals=here, peers=network.join("a")) as a,
        talking(at, setup, owner="b", signals=there, peers=network.join("b")) as b,
    ):
        yield a, b


def gated(*words: str) -> tuple[list[asyncio.Event], Turn]:
    """A turn that says each word when its gate opens, and ends at the last gate."""
    return gated_words(*words, "")


async def test_text_is_seen_elsewhere_as_it_is_written_and_each_piece_once(tmp_path: Path) -> None:
    (first, second, end), turn = gated("Hel", "lo")
    async with two(tmp_path, Network(), turn) as (a, b):
        accepted = await a.say()
        reader = Reader(b, after=accepted.after)
        first.set()
        await reader.until_text("Hel")
        second.set()
        await reader.until_text("Hello")
        end.set()
        items = await reader.to_the_end()
        stored = [item for item in items if not isinstance(item, LiveDelta)]
        assert stored == (await a.log())[accepted.after :]
    assert "".join(delta.content for delta in reader.deltas) == "Hello"
    assert [type(item) for item in items[-2:]] == [Answered, RunEnded]
    assert isinstance(items[-3], LiveDelta)


async def test_reader_elsewhere_is_not_woken_for_text_that_its_outlet_takes(tmp_path: Path) -> None:
    (first, second, end), turn = gated("Hel", "lo")
    page = Page()
    async with two(tmp_path, Network(), turn) as (a, b):
        accepted = await a.say()
        async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
            group.create_task(read(b, page, accepted.after))
            first.set()
            await page.until(lambda: page.text == "Hel")
            second.set()
            await page.until(lambda: page.text == "Hello")
            end.set()
    assert [delta.content for delta in page.pushed][-1:] == ["lo"]


async def test_reader_that_joins_late_gets_the_text_so_far(tmp_path: Path) -> None:
    (first, second, end), turn = gated("once upon ", "a time")
    async with two(tmp_path, Network(), turn) as (a, b):
        accepted = await a.say()
        here = Reader(a, after=accepted.after)
        first.set()
        await here.until_text("once upon ")
        late = Reader(b, after=accepted.after)
        await late.until_text("once upon ")
        later = Reader(b, after=accepted.after)
        await later.until_text("once upon ")
        second.set()
        await late.until_text("once upon a time")
        end.set()
        await late.to_the_end()
        await later.to_the_end()


async def test_nothing_is_sent_when_nobody_elsewhere_reads(tmp_path: Path) -> None:
    network = Network()
    async with two(tmp_path, network, says("hello")) as (a, _):
        await a.ask()
    assert network.sent == []


async def test_driver_sends_no_more_once_the_last_reader_elsewhere_has_left(tmp_path: Path) -> None:
    (first, second), turn = gated_words("Hel", "lo")
    network = Network()
    async with two(tmp_path, network, turn) as (a, b):
        accepted = await a.say()
        reader = Reader(b, after=accepted.after)
        first.set()
        await reader.until_text("Hel")
        await reader.close()
        await network.until(lambda: bool(network.of_type("left")))
        await asyncio.sleep(0)
        before = len(network.sent)
        second.set()
        assert (await a.ended("r1")).status is RunStatus.COMPLETED
        assert len(network.sent) == before


async def test_reader_that_gets_the_text_asks_for_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_relay, "PERIOD_SECONDS", 0.0)
    monkeypatch.setattr(live_relay, "RENEW_SECONDS", BOUND)
    (first, second, end), turn = gated("Hel", "lo")
    network = Network()
    async with two(tmp_path, network, turn) as (a, b):
        first.set()
        accepted = await a.say()
        await Reader(a, after=accepted.after).until_text("Hel")
        reader = Reader(b, after=accepted.after)
        await reader.until_text("Hel")
        second.set()
        await reader.until_text("Hello")
        assert len(network.of_type("asked")) == 1
        end.set()
        await reader.to_the_end()


async def test_lost_piece_is_asked_for_again(tmp_path: Path) -> None:
    (first, second, third, end), turn = gated("one ", "two ", "three")
    network = Network()
    async with two(tmp_path, network, turn) as (a, b):
        accepted = await a.say()
        reader = Reader(b, after=accepted.after)
        first.set()
        await reader.until_text("one ")
        network.passes = lambda sender, message: b"two" not in message
        second.set()
        await network.until(lambda: b"two" in network.sent[-1][2])
        network.passes = lambda sender, message: True
        third.set()
        await reader.until_text("one two three")
        assert len(network.of_type("asked")) > 1
        end.set()
        await reader.to_the_end()


class Polled(MemoryStore):
    """Says when it was asked some times how far threads are."""

    def __init__(self) -> None:
        super().__init__()
        self.looks, self.was_polled = 0, asyncio.Event()

    async def heads(self, thread_ids: Collection[str]) -> Sequence[Thread]:
        self.looks += 1
        if self.looks == 20:
            self.was_polled.set()
        return await super().heads(thread_ids)


async def test_reader_that_hears_nothing_asks_the_others_twice_and_goes_on_looking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)
    network, store = Network(), Polled()
    async with talking(store, script=SEND_X, peers=network.join("a"), lease_ttl=1e5) as talk:
        await waiting(talk)
        await talk.parked()
        reading = asyncio.ensure_future(talk.ended("r1"))
        async with asyncio.timeout(BOUND):
            await store.was_polled.wait()
        # The second question waits until the first one's period is over.
        await network.until(lambda: len(network.of_type("asked")) >= watch.ASKS)
        reading.cancel()
        assert len(network.of_type("asked")) == watch.ASKS


async def test_when_every_message_is_lost_the_answer_comes_when_it_is_stored(
    tmp_path: Path,
) -> None:
    network = Network(passes=lambda sender, message: False)
    (gate,), turn = gated_words("Hello")
    async with two(tmp_path, network, turn) as (a, b):
        accepted = await a.say()
        reader = Reader(b, after=accepted.after)
        gate.set()
        items = await reader.to_the_end()
    assert not reader.deltas
    assert next(item.content for item in items if isinstance(item, Answered)) == "Hello"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{",
        b'{"type":"asked"}',
        b'{"type":"surprise"}',
        b'{"type":"text","thread_id":"t","incarnation":"x","run_id":"r1","epoch":9,"next_seq":9,'
        b'"streams":[["answer",1,1,null,-5,"lie"]]}',
        b'{"type":"left","thread_id":"t","incarnation":"x"}',
        b'{"type":"ended","thread_id":"t","incarnation":"x","from_the_future":1}',
    ],
)
async def test_message_that_makes_no_sense_changes_nothing(tmp_path: Path, message: bytes) -> None:
    (gate, end), turn = gated("Hello")
    network = Network()
    async with two(tmp_path, network, turn) as (a, b):
        accepted = await a.say()
        reader = Reader(b, after=accepted.after)
        network.join("b").deliver("c", message)
        network.join("a").deliver("c", message)
        gate.set()
        await reader.until_text("Hello")
        end.set()
        await reader.to_the_end()


async def test_long_text_is_sent_in_messages_within_the_bound(tmp_path: Path) -> None:
    long = "wörd \x01 " * 5000
    (gate, end), turn = gated(long)
    network = Network()
    async with two(tmp_path, network, turn) as (a, b):
        accepted = await a.say()
        reader = Reader(b, after=accepted.after)
        gate.set()
        await reader.until_text(long)
        end.set()
        await reader.to_the_end()


async def test_half_of_a_surrogate_pair_moves_no_offset(tmp_path: Path) -> None:
    (first, second, _), turn = gated("a\ud83db", "c")
    async with two(tmp_path, Network(), turn) as (a, b):
        accepted = await a.say()
        reader = Reader(b, after=accepted.after)
        first.set()
        await reader.until_text("a\ufffdb")
        second.set()
        await reader.until_text("a\ufffdbc")


async def test_reasoning_and_output_of_tools_are_seen_elsewhere(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def count(arguments: Any, context: Any) -> AsyncIterator[ToolChunk | ToolResult]:
        yield ToolChunk("one\n")
        await gate.wait()
        yield ToolChunk("two\n")
        yield ToolResult("counted")

    think = asyncio.Event()
    script: list[Turn] = [
        [ReasoningDelta("hm"), think, *calls(("Files-count", {}))],
        [TextDelta("done"), *says("")],
    ]
    tools = FakeTools(tool("Files-count", count))
    async with two(tmp_path, Network(), *script, tools=tools) as (a, b):
        accepted = await a.say()
        reader = Reader(b, after=accepted.after)
        await reader.until_text("hm", "thinking")
        think.set()
        await reader.until_text("one\n", "tool_output")
        gate.set()
        items = await reader.to_the_end()
    kinds = [type(item).__name__ for item in items]
    assert kinds.index("ToolFinished") > max(
        at
        for at, item in enumerate(items)
        if isinstance(item, LiveDelta) and item.kind == "tool_output"
    )


async def test_reader_of_a_run_that_waits_its_turn_sees_no_text_of_the_one_before_it(
    tmp_path: Path,
) -> None:
    """Neither where they are driven nor elsewhere."""
    (first, one), turn = gated("first")
    (second, two_), later = gated("second")
    async with two(tmp_path, Network(), turn, later) as (a, b):
        await a.say()
        await a.say("and then?", on_busy="enqueue")
        readers = [Reader(talk, run_id="r2") for talk in (a, b)]
        for reader in readers:
            await reader.step()
        reading = [asyncio.create_task(reader.until_text("second")) for reader in readers]
        others = [Reader(talk, run_id="r1") for talk in (a, b)]
        first.set()
        for other in others:
            await other.until_text("first")
        one.set()
        second.set()
        await asyncio.gather(*reading)
        two_.set()
        for reader in readers:
            await reader.to_the_end()
            assert {item.run_id for item in reader.items} == {"r2"}
        for other in others:
            await other.close()


async def test_reader_of_the_whole_chat_sees_the_text_of_each_run(tmp_path: Path) -> None:
    (first, one), turn = gated("first")
    (second, two_), later = gated("second")
    async with two(tmp_path, Network(), turn, later) as (a, b):
        await a.say()
        reader = Reader(b, run_id=None)
        first.set()
        await reader.until_text("first")
        one.set()
        assert (await a.ended("r1")).status is RunStatus.COMPLETED
        await a.say("and then?")
        second.set()
        await reader.until_text("second")
        two_.set()
        assert (await a.ended("r2")).status is RunStatus.COMPLETED


async def test_text_that_a_replaced_owner_goes_on_sending_is_not_shown(tmp_path: Path) -> None:
    (first, second, _), turn = gated("true", "r")
    network = Network()
    async with two(tmp_path, network, turn) as (a, b):
        accepted = await a.say()
        reader = Reader(b, after=accepted.after)
        first.set()
        await reader.until_text("true")
        text = network.of_type("text")[-1]
        network.join("b").deliver("old", text.replace(b'"epoch":1', b'"epoch":0'))
        second.set()
        await reader.until_text("truer")


async def test_driver_that_falls_silent_is_asked_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_relay, "RENEW_SECONDS", 0.01)
    (first, second), turn = gated_words("Hel", "lo")
    network = Network()
    async with two(tmp_path, network, turn) as (a, b):
        accepted = await a.say()
        reader = Reader(b, after=accepted.after)
        first.set()
        await reader.until_text("Hel")
        network.passes = lambda sender, message: sender != "a"
        asked = len(network.of_type("asked"))
        # Some of them may have been asked before, and their answers be lost already.
        await network.until(lambda: len(network.of_type("asked")) > asked)
        second.set()
        await reader.to_the_end()
        # Beside those on the timer: one or two when the reader next looked, none after that.
        assert len(network.of_type("asked")) - asked <= live_relay.UNANSWERED + 2


async def test_driver_goes_on_sending_to_those_who_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_relay, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(live_relay, "LIFETIME_SECONDS", 0.2)
    (first, second, _), turn = gated("Hel", "lo")
    network = Network()
    async with two(tmp_path, network, turn) as (a, b):
        accepted = await a.say()
        reader = Reader(b, after=accepted.after)
        first.set()
        await reader.until_text("Hel")
        before = len(network.of_type("text"))
        await network.until(lambda: len(network.of_type("text")) > before + 30)
        second.set()
        await reader.until_text("Hello")


async def test_cancel_elsewhere_is_heard_without_waiting_for_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sk_agents.engine.run.drivers.PERIOD_SECONDS", BOUND * 2)
    (first, _), turn = gated("Hel")
    async with two(tmp_path, Network(), turn) as (a, b):
        accepted = await a.say()
        first.set()
        await Reader(a, after=accepted.after).until_text("Hel")
        await b.cancel("r1")
        assert (await b.ended("r1")).status is RunStatus.CANCELLED


@pytest.mark.parametrize("reads", [True, False])
async def test_end_elsewhere_is_heard_without_waiting_for_the_next_look(
    tmp_path: Path, reads: bool
) -> None:
    """Whether all of the run is read or only its end is waited for."""
    (gate,), turn = gated_words("Hello")
    async with two(tmp_path, Network(), turn) as (a, b):
        accepted = await a.say()
        hearing = asyncio.create_task(b.ended("r1") if reads else b.result(accepted))
        await b.until(lambda state: "r1" in state.runs)
        await idle()
        gate.set()
        assert (await hearing).status is RunStatus.COMPLETED


def test_copy_shows_no_text_with_a_hole_in_it() -> None:
    key: StreamKey = ("answer", 1, 1, None)
    mirror = MirroredRun("r", "i", 1)
    assert mirror.take(3, {key: (0, "ab")})
    assert not mirror.take(3, {key: (4, "ef")})
    assert mirror.take(3, {key: (1, "bcd")})
    assert mirror.take(3, {key: (0, "abcdef")})
    assert "".join(delta.content for delta in mirror.deltas_since({})) == "abcdef"
    assert mirror.take(3, {})
    assert not mirror.lengths()


def test_place_of_a_reader_is_the_start_of_the_chunk_that_it_has_not_whole() -> None:
    live = LiveRun("r")
    live.begin(1, 1)
    for text in ("ab", "cd", "ef"):
        live.add_text("answer", text)
    key: StreamKey = ("answer", 1, 1, None)
    assert live.seen_by({key: 3}) == {key: (1, 2)}
    assert live.seen_by({key: 99}) == {key: (3, 6)}
    assert live.seen_by({}) == {key: (0, 0)}
