"""Wake-ups and messages between instances over one Redis or Valkey."""

import asyncio

import pytest

from sk_agents.exceptions import ConfigurationError
from sk_agents.signals import messages as shared
from sk_agents.signals.messages import MessagePeers, MessageSignals
from sk_agents.signals.redis import RedisMessages
from sk_agents.signals.signals_factory import check_signals, open_exchange
from tests.signals.message_cases import BOUND, MakeMessages, MessageCases, heard, members
from tests.valkey import ValkeyServer


class TestRedisMessages(MessageCases):
    @pytest.fixture
    def make_messages(self, empty_redis: str) -> MakeMessages:
        return lambda: RedisMessages(empty_redis, probe_seconds=0.1)


async def test_server_that_was_killed_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "RETRY_SECONDS", (0.02, 0.05))
    with ValkeyServer() as server:
        async with members(lambda: RedisMessages(server.url(), probe_seconds=0.1), 2) as each:
            here, there = [MessageSignals(messages) for messages in each]
            await asyncio.to_thread(server.kill)
            for messages in each:
                await heard(messages, is_heard=False)
            async with here.subscribe("t") as near:
                here.notify("t")
                assert await near.wait(BOUND)
            server.start()
            for messages in each:
                await heard(messages)
            async with there.subscribe("t") as far:
                here.notify("t")
                assert await far.wait(BOUND)


async def test_subscriber_that_the_server_cut_off_is_back(
    valkey: ValkeyServer,
    empty_redis: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(shared, "RETRY_SECONDS", (0.02, 0.05))
    async with members(lambda: RedisMessages(empty_redis, probe_seconds=0.1), 2) as each:
        here, there = [MessageSignals(messages) for messages in each]
        with valkey.client() as client:
            assert client.client_kill_filter(_type="pubsub") == 2
        async with asyncio.timeout(BOUND):
            for _ in iter(lambda: caplog.text.count("within a second") == 2, True):
                await asyncio.sleep(0)
        for messages in each:
            await heard(messages)
        async with there.subscribe("t") as far:
            here.notify("t")
            assert await far.wait(BOUND)


async def test_instances_of_other_databases_and_prefixes_hear_nothing(empty_redis: str) -> None:
    urls = [empty_redis, f"{empty_redis}/1", f"{empty_redis}?prefix=other", empty_redis]
    each = [RedisMessages(url) for url in urls]
    async with each[0], each[1], each[2], each[3]:
        here, second, third, there = [MessageSignals(messages) for messages in each]
        async with second.subscribe("t") as a, third.subscribe("t") as b, there.subscribe("t") as c:
            here.notify("t")
            assert await c.wait(BOUND)
            assert not await a.wait(0) and not await b.wait(0)


async def test_server_that_is_away_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with RedisMessages("redis://:s3cret@127.0.0.1:1") as messages:
        signals = MessageSignals(messages)
        async with signals.subscribe("t") as near:
            signals.notify("t")
            assert await near.wait(BOUND)
        assert not messages.is_heard
    assert "within a second" in caplog.text
    assert "s3cret" not in caplog.text


async def test_url_opens_the_exchange(empty_redis: str) -> None:
    async with open_exchange(check_signals(empty_redis)) as (signals, peers):
        assert isinstance(signals, MessageSignals)
        assert isinstance(peers, MessagePeers)


@pytest.mark.parametrize(
    "url", ["redis://s3cret:x@", "redis://h:s3cret", "redis+cluster://h/s3cret"]
)
async def test_url_that_makes_no_sense_is_refused_without_its_words(url: str) -> None:
    with pytest.raises(ConfigurationError, match="Redis") as refused:
        async with open_exchange(check_signals(url)):
            pass
    assert "s3cret" not in str(refused.value)
