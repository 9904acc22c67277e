"""Wake-ups and messages between instances over one PostgreSQL; each is a member of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from sk_agents.engine.ports import Signals
from sk_agents.exceptions import ConfigurationError
from sk_agents.signals import messages as shared
from sk_agents.signals import postgres as module
from sk_agents.signals.messages import MessagePeers, Messages, MessageSignals
from sk_agents.signals.postgres import PostgresMessages
from sk_agents.signals.signals_factory import check_signals, open_exchange
from tests.signals.message_cases import BOUND, MakeMessages, MessageCases, heard, members


@asynccontextmanager
async def opened(url: str, count: int) -> AsyncIterator[list[Messages]]:
    async with members(lambda: PostgresMessages(url, probe_seconds=0.1), count) as each:
        yield each


class TestPostgresMessages(MessageCases):
    @pytest.fixture
    def make_messages(self, postgres: str) -> MakeMessages:
        return lambda: PostgresMessages(postgres, probe_seconds=0.1)


async def test_connection_that_is_cut_is_made_again(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "RETRY_SECONDS", (0.05, 0.1))
    name = "teal_cut"
    async with opened(f"{postgres}?application_name={name}", 2) as each:
        here, there = [MessageSignals(messages) for messages in each]
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
    monkeypatch.setattr(shared, "PROBE_WAIT", 0.1)
    monkeypatch.setattr(module, "NOTIFY", "SELECT %s::text[], %s::text[]")
    async with opened(postgres, 1) as (messages,):
        assert not messages.is_heard
        signals = MessageSignals(messages)
        async with signals.subscribe("t") as near:
            signals.notify("t")
            assert await near.wait(BOUND)
        async with asyncio.timeout(BOUND):
            for _ in iter(lambda: "within a second" in caplog.text, True):
                await asyncio.sleep(0)
    assert "TA_SIGNALS" in caplog.text


async def test_database_that_is_away_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with opened("postgresql://nobody:s3cret@127.0.0.1:1/none", 1) as (messages,):
        signals = MessageSignals(messages)
        signals.notify("t")
        assert not messages.is_heard
    assert "s3cret" not in caplog.text


async def test_url_of_the_store_opens_its_exchange(postgres: str) -> None:
    async with open_exchange(postgres) as (signals, peers):
        assert isinstance(signals, MessageSignals)
        assert isinstance(peers, MessagePeers)
    async with open_exchange("local:") as (local, none):
        port: Signals = local
        assert not isinstance(port, MessageSignals)
        assert none is None


@pytest.mark.parametrize("url", ["s3cret", "amqp://s3cret@host", "", "postgres"])
def test_signals_of_an_unknown_kind_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="TA_SIGNALS") as refused:
        check_signals(url)
    assert "s3cret" not in str(refused.value)
