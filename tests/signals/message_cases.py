"""What is promised of messages between instances, whatever server they go through."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from sk_agents.engine.ports import Peers
from sk_agents.signals.messages import MessagePeers, Messages, MessageSignals
from tests.engine.kit import Setup, talking
from tests.engine.test_engine_streaming import Reader, gated
from tests.patience import seconds

BOUND = seconds(10)

MakeMessages = Callable[[], Messages]


@asynccontextmanager
async def members(make: MakeMessages, count: int) -> AsyncIterator[list[Messages]]:
    """Instances, each a member of its own."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(make()) for _ in range(count)]


class Inbox:
    def __init__(self, peers: Peers) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self._changed = asyncio.Event()
        peers.receive(self._take)

    def _take(self, sender: str, message: bytes) -> None:
        self.messages.append((sender, message))
        self._changed.set()

    async def until(self, count: int) -> list[tuple[str, bytes]]:
        async with asyncio.timeout(BOUND):
            while len(self.messages) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.messages


async def heard(messages: Messages, *, is_heard: bool = True) -> None:
    async with asyncio.timeout(BOUND):
        for _ in iter(lambda: messages.is_heard is is_heard, True):
            await asyncio.sleep(0)


class MessageCases:
    """The fixture `make_messages` opens another member each time."""

    async def test_notification_wakes_subscribers_here_and_elsewhere(
        self, make_messages: MakeMessages
    ) -> None:
        async with members(make_messages, 2) as each:
            here, there = [MessageSignals(messages) for messages in each]
            listened: list[str] = []
            there.listen(listened.append)
            async with here.subscribe("t") as near, there.subscribe("t") as far:
                async with there.subscribe("other") as other:
                    here.notify("t")
                    assert await near.wait(BOUND)
                    assert await far.wait(BOUND)
                    assert not await other.wait(0)
            assert listened == ["t"]

    async def test_local_notification_stays_here(self, make_messages: MakeMessages) -> None:
        async with members(make_messages, 2) as each:
            here, there = [MessageSignals(messages) for messages in each]
            async with there.subscribe("t") as far, there.subscribe("u") as next_one:
                here.notify("t", local=True)
                here.notify("u")
                assert await next_one.wait(BOUND)
                assert not await far.wait(0)

    async def test_thousand_notifications_of_one_moment_all_arrive_in_few_messages(
        self, make_messages: MakeMessages
    ) -> None:
        async with members(make_messages, 2) as each:
            here, there = [MessageSignals(messages) for messages in each]
            names = [f"{number:018}🧭🧭🧭🧭" for number in range(1_000)]
            here.notify("x" * 100_000)  # no message is large enough for this one
            got: list[str] = []
            there.listen(got.append)
            messages: list[str] = []
            each[1].receive(MessageSignals.KIND, lambda _, text: messages.append(text))
            async with there.subscribe(names[-1]) as last:
                for name in names:
                    here.notify(name)
                assert await last.wait(BOUND)
            assert got == names
            assert len(messages) <= 6

    async def test_notifications_until_the_next_sending_share_a_message(
        self, make_messages: MakeMessages
    ) -> None:
        """Also of several steps of the event loop; a thread that changes twice is in it once."""
        async with members(make_messages, 2) as each:
            here, there = [MessageSignals(messages) for messages in each]
            messages: list[str] = []
            each[1].receive(MessageSignals.KIND, lambda _, text: messages.append(text))
            async with there.subscribe("first") as first, there.subscribe("last") as last:
                here.notify("first")
                assert await first.wait(BOUND)
                for number in range(10):
                    here.notify(f"t{number}")
                    here.notify("twice")
                    await asyncio.sleep(0)
                here.notify("last")
                assert await last.wait(BOUND)
            told = "\n".join(messages).split("\n")
            assert set(told) == {"first", "last", "twice", *(f"t{n}" for n in range(10))}
            assert told.count("twice") <= len(messages) < 10

    async def test_thread_whose_id_fits_into_no_message_keeps_nothing_else_from_being_sent(
        self, make_messages: MakeMessages
    ) -> None:
        async with members(make_messages, 2) as each:
            here, there = [MessageSignals(messages) for messages in each]
            async with there.subscribe("t") as far:
                here.notify("x" * 100_000)
                for _ in range(10):
                    await asyncio.sleep(0)
                here.notify("t")
                assert await far.wait(BOUND)

    async def test_message_reaches_the_one_it_is_for_or_all_others(
        self, make_messages: MakeMessages
    ) -> None:
        async with members(make_messages, 3) as each:
            a, b, c = [MessagePeers(messages) for messages in each]
            inboxes = [Inbox(peers) for peers in (a, b, c)]
            a.send("für b".encode(), to=b.address)
            a.send(b"to all")
            whole = ("x" * (b.most_bytes - 3)).encode() + "é".encode()
            a.send(whole, to=b.address)
            assert await inboxes[1].until(3) == [
                (a.address, "für b".encode()),
                (a.address, b"to all"),
                (a.address, whole),
            ]
            assert await inboxes[2].until(1) == [(a.address, b"to all")]
            assert inboxes[0].messages == []

    async def test_text_of_a_run_is_seen_at_another_instance_as_it_is_written(
        self, make_messages: MakeMessages, tmp_path: Path
    ) -> None:
        """Before any of it is stored."""
        (first, second, end), turn = gated("Hel", "lo", "")
        async with members(make_messages, 2) as each:
            signals = [MessageSignals(messages) for messages in each]
            peers = [MessagePeers(messages) for messages in each]
            setup = Setup([turn])
            async with (
                talking(tmp_path, setup, signals=signals[0], peers=peers[0]) as a,
                talking(tmp_path, setup, owner="b", signals=signals[1], peers=peers[1]) as b,
            ):
                accepted = await a.say()
                reader = Reader(b, after=accepted.after)
                first.set()
                await reader.until_text("Hel")
                second.set()
                await reader.until_text("Hello")
                end.set()
                await reader.to_the_end()
        assert "".join(delta.content for delta in reader.deltas) == "Hello"
