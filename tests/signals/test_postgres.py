"""Wake-ups and messages between instances over one PostgreSQL; each is a member of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from sk_agents.engine.ports import Peers, Signals
from sk_agents.exceptions import ConfigurationError
from sk_agents.signals import postgres as module
from sk_agents.signals.postgres import PostgresMessages, PostgresPeers, PostgresSignals
from sk_agents.signals.signals_factory import check_signals, open_exchange
from tests.engine.kit import Setup, talking
from tests.engine.test_engine_streaming import Reader, gated
from tests.patience import seconds

BOUND = seconds(10)


@asynccontextmanager
async def members(url: str, count: int) -> AsyncIterator[list[PostgresMessages]]:
    async with AsyncExitStack() as stack:
        each = [PostgresMessages(url, probe_seconds=0.1) for _ in range(count)]
        for one in each:
            await stack.enter_async_context(one)
        yield each


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


async def heard(messages: PostgresMessages, *, is_heard: bool = True) -> None:
    async with asyncio.timeout(BOUND):
        for _ in iter(lambda: messages.is_heard is is_heard, True):
            await asyncio.sleep(0)


async def test_notification_wakes_subscribers_here_and_elsewhere(postgres: str) -> None:
    async with members(postgres, 2) as each:
        here, there = [PostgresSignals(messages) for messages in each]
        listened: list[str] = []
        there.listen(listened.append)
        async with here.subscribe("t") as near, there.subscribe("t") as far:
            async with there.subscribe("other") as other:
                here.notify("t")
                assert await near.wait(BOUND)
                assert await far.wait(BOUND)
                assert not await other.wait(0)
        assert listened == ["t"]


async def test_local_notification_stays_here(postgres: str) -> None:
    async with members(postgres, 2) as each:
        here, there = [PostgresSignals(messages) for messages in each]
        async with there.subscribe("t") as far, there.subscribe("u") as next_one:
            here.notify("t", local=True)
            here.notify("u")
            assert await next_one.wait(BOUND)
            assert not await far.wait(0)


async def test_thousand_notifications_of_one_moment_all_arrive_in_few_messages(
    postgres: str,
) -> None:
    async with members(postgres, 2) as each:
        here, there = [PostgresSignals(messages) for messages in each]
        names = [f"{number:018}🧭🧭🧭🧭" for number in range(1_000)]
        here.notify("x" * 10_000)  # no message is large enough for this one
        got: list[str] = []
        there.listen(got.append)
        async with there.subscribe(names[-1]) as last:
            for name in names:
                here.notify(name)
            await asyncio.sleep(0)
            assert len(each[0].queued) <= 6
            assert await last.wait(BOUND)
        assert got == names


async def test_message_reaches_the_one_it_is_for_or_all_others(postgres: str) -> None:
    async with members(postgres, 3) as each:
        a, b, c = [PostgresPeers(messages) for messages in each]
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
    postgres: str, tmp_path: Path
) -> None:
    """Before any of it is stored."""
    (first, second, end), turn = gated("Hel", "lo", "")
    async with members(postgres, 2) as each:
        signals = [PostgresSignals(messages) for messages in each]
        peers = [PostgresPeers(messages) for messages in each]
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


async def test_connection_that_is_cut_is_made_again(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", (0.05, 0.1))
    name = "teal_cut"
    async with members(f"{postgres}?application_name={name}", 2) as each:
        here, there = [PostgresSignals(messages) for messages in each]
        with psycopg.connect(postgres, autocommit=True) as connection:
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name=%s"
            assert len(connection.execute(cut, (name,)).fetchall()) >= 2
        for messages in each:
            await heard(messages, is_heard=False)
        for messages in each:
            await heard(messages)
        async with there.subscribe("t") as far:
            here.notify("t")
            assert await far.wait(BOUND)


async def test_deaf_instance_says_so_and_goes_on_without(
    postgres: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As behind a pooler, which takes LISTEN and delivers nothing."""
    monkeypatch.setattr(module, "PROBE_WAIT", 0.1)
    monkeypatch.setattr(module, "NOTIFY", "SELECT %s::text[], %s::text[]")
    async with members(postgres, 1) as (messages,):
        assert not messages.is_heard
        signals = PostgresSignals(messages)
        async with signals.subscribe("t") as near:
            signals.notify("t")
            assert await near.wait(BOUND)
        async with asyncio.timeout(BOUND):
            for _ in iter(lambda: "within a second" in caplog.text, True):
                await asyncio.sleep(0)
    assert "TA_SIGNALS" in caplog.text


async def test_database_that_is_away_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with members("postgresql://nobody:s3cret@127.0.0.1:1/none", 1) as (messages,):
        signals = PostgresSignals(messages)
        signals.notify("t")
        assert not messages.is_heard
    assert "s3cret" not in caplog.text


async def test_url_of_the_store_opens_its_exchange(postgres: str) -> None:
    async with open_exchange(postgres) as (signals, peers):
        assert isinstance(signals, PostgresSignals)
        assert isinstance(peers, PostgresPeers)
    async with open_exchange("local:") as (local, none):
        port: Signals = local
        assert not isinstance(port, PostgresSignals)
        assert none is None


@pytest.mark.parametrize("url", ["s3cret", "redis://s3cret@host", "", "postgres"])
def test_signals_of_an_unknown_kind_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="TA_SIGNALS") as refused:
        check_signals(url)
    assert "s3cret" not in str(refused.value)
