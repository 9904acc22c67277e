"""What two instances say to each other about the text of a run, and when, in virtual time."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from sk_agents.engine.reading.live import LiveDelta, LiveRun
from sk_agents.engine.reading.live_relay import (
    LIFETIME_SECONDS,
    PERIOD_SECONDS,
    RENEW_SECONDS,
    UNANSWERED,
    LiveRelay,
)
from sk_agents.engine.threads.known import KnownThread, KnownThreads
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.signals.local import LocalSignals
from tests.engine.builders import log, started
from tests.engine.heads import HELD
from tests.simulation.virtual_loop import VirtualLoop

THREAD = HELD.thread_id
SOON = PERIOD_SECONDS / 10
# When a story begins: nothing was sent or asked shortly before.
BEGIN = 100.0
Sent = tuple[float, str, dict[str, Any]]


class Instance:
    """A relay and what it needs; what it sends is delivered to the others at the next step."""

    most_bytes = 4096

    def __init__(self, address: str, others: "list[Instance]") -> None:
        self.address = address
        self._others = others
        self.live: dict[str, LiveRun] = {}
        self.threads = KnownThreads(MemoryStore())
        self.signals = LocalSignals()
        self.sent: list[Sent] = []
        self.is_cut_off = False
        self.relay = LiveRelay(self, self.live, self.threads, self.signals)
        others.append(self)

    def send(self, message: bytes, *, to: str | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.sent.append((loop.time() - BEGIN, to or "all", json.loads(message)))
        for other in self._others:
            if other is not self and to in (None, other.address) and not self.is_cut_off:
                loop.call_soon(other.receiver, self.address, message)

    def receive(self, receiver: Callable[[str, bytes], None]) -> None:
        self.receiver = receiver

    def times(self, kind: str) -> list[float]:
        return [round(at, 3) for at, _, message in self.sent if message["type"] == kind]

    def text(self) -> str:
        """Of the run that is driven elsewhere, as far as it has arrived here."""
        mirror = self.relay.mirror(THREAD)
        return mirror.text() if mirror is not None else ""

    def drives(self) -> LiveRun:
        known = KnownThread(HELD)
        known.take(HELD, log(started()))
        self.threads.keep(known)
        self.live[THREAD] = LiveRun("r1")
        return self.live[THREAD]

    def reads(self) -> None:
        self.relay.joined(THREAD)
        self.relay.ask(THREAD, HELD.incarnation)


def say(live: LiveRun, text: str) -> None:
    live.add_text("answer", text)
    live.call_listeners()


def in_virtual_time(story: Callable[..., Coroutine[Any, Any, None]], count: int = 2) -> None:
    loop = VirtualLoop(Random(0))
    instances: list[Instance] = []

    async def told() -> None:
        await asyncio.sleep(BEGIN)
        for number in range(count):
            Instance(chr(ord("a") + number), instances)
        await story(*instances)

    try:
        loop.run_until_complete(told())
        assert not loop.unhandled
    finally:
        loop.close()


def test_first_text_is_sent_when_asked_and_more_is_collected_for_a_moment() -> None:
    async def story(a: Instance, b: Instance) -> None:
        live = a.drives()
        say(live, "Hel")
        b.reads()
        await asyncio.sleep(SOON)
        assert b.text() == "Hel"
        assert a.times("text") == [0.0]
        for letter in "lo, wo":
            say(live, letter)
            await asyncio.sleep(SOON)
        assert (b.text(), a.times("text")) == ("Hell", [0.0, SOON])
        await asyncio.sleep(1)
        assert (b.text(), a.times("text")) == ("Hello, wo", [0.0, SOON, SOON + PERIOD_SECONDS])
        say(live, "rld")
        await asyncio.sleep(SOON)
        assert b.text() == "Hello, world"

    in_virtual_time(story)


def test_text_that_comes_soon_after_the_last_waits_for_its_period() -> None:
    async def story(a: Instance, b: Instance) -> None:
        live = a.drives()
        b.reads()
        await asyncio.sleep(1)
        say(live, "one ")
        await asyncio.sleep(SOON)
        say(live, "two ")
        say(live, "three")
        await asyncio.sleep(PERIOD_SECONDS - 2 * SOON)
        assert b.text() == "one "
        await asyncio.sleep(2 * SOON)
        assert b.text() == "one two three"
        assert a.times("text")[-2:] == [1.0, 1.0 + PERIOD_SECONDS]

    in_virtual_time(story)


def test_readers_of_one_instance_ask_together() -> None:
    async def story(a: Instance, b: Instance) -> None:
        a.drives()
        for _ in range(3):
            b.reads()
        await asyncio.sleep(1)
        assert b.times("asked") == [0.0, PERIOD_SECONDS]

    in_virtual_time(story)


def test_instance_with_readers_asks_again_until_its_questions_stay_unanswered() -> None:
    async def story(a: Instance, b: Instance) -> None:
        a.drives()
        b.reads()
        await asyncio.sleep(2 * RENEW_SECONDS + 1)
        assert b.times("asked") == [0.0, RENEW_SECONDS, 2 * RENEW_SECONDS]
        assert {to for _, to, _ in b.sent[1:]} == {"a"}
        a.is_cut_off = True
        await asyncio.sleep(10 * RENEW_SECONDS)
        unanswered = [round((3 + n) * RENEW_SECONDS, 3) for n in range(UNANSWERED)]
        assert b.times("asked")[3:] == unanswered
        assert b.relay.mirror(THREAD) is None

    in_virtual_time(story)


def test_driver_that_is_not_asked_again_sends_no_more() -> None:
    async def story(a: Instance, b: Instance) -> None:
        live = a.drives()
        b.reads()
        await asyncio.sleep(SOON)
        b.is_cut_off = True
        await asyncio.sleep(LIFETIME_SECONDS - 1)
        say(live, "in time")
        await asyncio.sleep(SOON)
        assert b.text() == "in time"
        count = len(a.sent)
        await asyncio.sleep(1)
        say(live, ", too late")
        await asyncio.sleep(1)
        assert len(a.sent) == count

    in_virtual_time(story)


def test_driver_that_has_ended_says_so_to_those_that_read() -> None:
    async def story(a: Instance, b: Instance, c: Instance) -> None:
        live = a.drives()
        say(live, "Hel")
        b.reads()
        await asyncio.sleep(SOON)
        c.receiver("a", b'{"type":"ended","thread_id":"%s","incarnation":"x"}' % THREAD.encode())
        b.receiver("c", b'{"type":"ended","thread_id":"%s","incarnation":"x"}' % THREAD.encode())
        assert b.text() == "Hel", "it was not c that drove the run"
        say(live, "lo")
        a.live.clear()
        a.relay.ended(THREAD)
        a.relay.ended(THREAD)
        await asyncio.sleep(10 * RENEW_SECONDS)
        assert b.relay.mirror(THREAD) is None
        assert (len(a.times("ended")), len(a.times("text"))) == (1, 1)
        assert len(b.times("asked")) == 1

    in_virtual_time(story, count=3)


def test_text_that_comes_after_its_driver_has_ended_is_not_sent() -> None:
    async def story(a: Instance, b: Instance) -> None:
        live = a.drives()
        say(live, "Hel")
        b.reads()
        await asyncio.sleep(SOON)
        a.live.clear()
        a.relay.ended(THREAD)
        say(live, "lo, said by a tool that was abandoned")
        await asyncio.sleep(1)
        assert (len(a.times("text")), b.text()) == (1, "")

    in_virtual_time(story)


def test_text_of_a_thread_that_was_deleted_meanwhile_is_not_sent() -> None:
    async def story(a: Instance, b: Instance) -> None:
        live = a.drives()
        say(live, "Hel")
        b.reads()
        await asyncio.sleep(SOON)
        a.threads.forget(THREAD)
        say(live, "lo")
        await asyncio.sleep(1)
        assert (len(a.times("text")), b.text()) == (1, "Hel")
        b.reads()
        await asyncio.sleep(SOON)
        assert (len(a.times("ended")), b.text()) == (1, "")
        a.relay.ended(THREAD)

    in_virtual_time(story)


def test_instance_that_does_not_drive_the_run_says_so_to_one_that_has_text_of_it() -> None:
    async def story(a: Instance, b: Instance) -> None:
        say(a.drives(), "Hel")
        b.reads()
        await asyncio.sleep(SOON)
        assert not a.times("ended")
        a.live.clear()
        await asyncio.sleep(RENEW_SECONDS)
        assert a.times("ended") == [RENEW_SECONDS]
        assert b.relay.mirror(THREAD) is None

    in_virtual_time(story)


def test_nobody_answers_for_a_thread_that_was_deleted_and_made_again() -> None:
    async def story(a: Instance, b: Instance) -> None:
        say(a.drives(), "Hel")
        b.relay.joined(THREAD)
        b.relay.ask(THREAD, "another")
        await asyncio.sleep(1)
        assert (a.sent, b.text()) == ([], "")

    in_virtual_time(story)


def test_last_reader_that_leaves_takes_its_question_and_its_text_along() -> None:
    async def story(a: Instance, b: Instance) -> None:
        live = a.drives()
        say(live, "Hel")
        b.reads()
        b.reads()
        await asyncio.sleep(SOON / 2)
        b.relay.left(THREAD)
        assert (b.text(), b.times("left")) == ("Hel", [])
        b.relay.left(THREAD)
        b.relay.left(THREAD)
        await asyncio.sleep(10 * RENEW_SECONDS)
        assert (len(b.times("left")), b.times("asked")) == (1, [0.0])
        count = len(a.sent)
        say(live, "lo")
        await asyncio.sleep(1)
        assert len(a.sent) == count
        assert b.relay.mirror(THREAD) is None

    in_virtual_time(story)


def test_instance_asks_only_with_a_reader_and_for_runs_it_does_not_drive() -> None:
    async def story(a: Instance, b: Instance) -> None:
        b.relay.ask(THREAD, HELD.incarnation)
        a.drives()
        a.reads()
        await asyncio.sleep(1)
        assert (a.sent, b.sent) == ([], [])

    in_virtual_time(story)


def test_instance_that_takes_the_run_over_asks_no_more() -> None:
    async def story(a: Instance, b: Instance) -> None:
        say(a.drives(), "Hel")
        b.reads()
        await asyncio.sleep(SOON)
        b.drives()
        await asyncio.sleep(2 * RENEW_SECONDS)
        assert b.times("asked") == [0.0]
        assert b.relay.mirror(THREAD) is None

    in_virtual_time(story)


def test_two_instances_that_read_get_each_what_it_lacks() -> None:
    async def story(a: Instance, b: Instance, c: Instance) -> None:
        live = a.drives()
        say(live, "Hel")
        b.reads()
        await asyncio.sleep(1)
        c.reads()
        await asyncio.sleep(SOON)
        assert (b.text(), c.text()) == ("Hel", "Hel")
        assert [to for _, to, _ in a.sent] == ["b", "c"]
        say(live, "lo")
        await asyncio.sleep(1)
        assert (b.text(), c.text()) == ("Hello", "Hello")
        new = [message["streams"][0][4:] for _, _, message in a.sent[2:]]
        assert new == [[3, "lo"], [3, "lo"]]

    in_virtual_time(story, count=3)


def test_reader_is_woken_for_the_first_text_and_told_of_more() -> None:
    async def story(a: Instance, b: Instance) -> None:
        live = a.drives()
        say(live, "Hel")
        async with b.signals.subscribe(THREAD) as changes:
            b.reads()
            assert await changes.wait(SOON)
            mirror = b.relay.mirror(THREAD)
            assert mirror is not None
            told: list[list[LiveDelta]] = []
            seen: dict[Any, tuple[int, int]] = {}
            mirror.listeners.append(lambda: told.append(list(mirror.deltas_since(seen))))
            say(live, "lo")
            assert not await changes.wait(1)
        assert [[delta.content for delta in deltas] for deltas in told] == [["Hello"]]

    in_virtual_time(story)


def test_text_of_a_new_owner_replaces_that_of_the_old_one() -> None:
    text = (
        '{"type":"text","thread_id":"%s","incarnation":"%s","run_id":"r1","epoch":%d,'
        '"next_seq":%d,"streams":[["answer",1,1,null,0,"%s"]]}'
    )

    async def story(a: Instance, b: Instance) -> None:
        b.reads()
        for epoch, seq, content, shown in (
            (2, 5, "two", "two"),
            (1, 9, "old owner", "two"),
            (2, 4, "old log", "two"),
            (2, 5, "two again", "two again"),
            (3, 5, "new owner", "new owner"),
        ):
            message = text % (THREAD, HELD.incarnation, epoch, seq, content)
            b.receiver("a", message.encode())
            assert b.text() == shown
        b.receiver("a", (text % (THREAD, "another", 9, 9, "another thread")).encode())
        assert b.text() == "new owner"

    in_virtual_time(story)


@pytest.mark.parametrize("length", [1, 100, 20_000])
def test_long_text_arrives_whole_in_messages_within_the_bound(length: int) -> None:
    async def story(a: Instance, b: Instance) -> None:
        live = a.drives()
        live.add_text("thinking", "hm " * length)
        say(live, "wörd " * length)
        b.reads()
        await asyncio.sleep(1)
        assert b.text() == "wörd " * length
        sizes = [len(json.dumps(m, ensure_ascii=False).encode()) for *_, m in a.sent]
        assert max(sizes) <= a.most_bytes + 200
        assert len(b.times("asked")) == 1

    in_virtual_time(story)


def test_text_of_many_pieces_arrives_whole_after_one_question() -> None:
    pieces = ["x" * 10_000, "y" * 10_000, "z" * 20_000, "!"]

    async def story(a: Instance, b: Instance) -> None:
        live = a.drives()
        for piece in pieces:
            live.add_text("answer", piece)
        b.reads()
        await asyncio.sleep(2 * PERIOD_SECONDS)
        assert b.text() == "".join(pieces)
        assert len(b.times("asked")) == 1

    in_virtual_time(story)


def test_text_whose_streams_alone_do_not_fit_a_message_is_not_sent() -> None:
    async def story(a: Instance, b: Instance) -> None:
        live = a.drives()
        for number in range(200):
            live.add_output(f"call-{number}-of-many", "x")
        b.reads()
        await asyncio.sleep(1)
        assert a.times("text") == []
        assert b.relay.mirror(THREAD) is None

    in_virtual_time(story)


def test_text_of_a_run_that_has_ended_is_not_sent_for_the_next() -> None:
    async def story(a: Instance, b: Instance) -> None:
        live = a.drives()
        say(live, "old")
        known = a.threads.known(THREAD)
        assert known is not None
        known.state.active_run = "r2"
        b.reads()
        await asyncio.sleep(1)
        assert (a.times("text"), b.text()) == ([], "")

    in_virtual_time(story)


def test_without_peers_nothing_is_followed() -> None:
    relay = LiveRelay(None, {}, KnownThreads(MemoryStore()), LocalSignals())
    relay.joined(THREAD)
    relay.ask(THREAD, HELD.incarnation)
    relay.ended(THREAD)
    relay.left(THREAD)
    assert relay.mirror(THREAD) is None
