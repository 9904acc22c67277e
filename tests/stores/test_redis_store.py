"""The Redis store under the contract of durable stores that several processes share."""

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
from hypothesis.stateful import run_state_machine_as_test

from sk_agents.engine.ports import Clock, Store
from sk_agents.persistence.redis.keys import Keys
from sk_agents.persistence.redis.store import RedisStore
from sk_agents.testing.store_contract import (
    Damage,
    MakeStore,
    PortableCases,
    SharedStoreContract,
)
from sk_agents.testing.store_machine import SIZE, store_machine
from tests.chaos.scale import FULL
from tests.missing import lacks
from tests.patience import seconds
from tests.requirements import requirement
from tests.valkey import ValkeyServer

KEYS = Keys("teal")


def record_of(client: redis.Redis, thread_id: str) -> tuple[bytes, dict[bytes, bytes]]:
    """The place and the fields of a thread's one record."""
    rows: Any = client.xrange(KEYS.log(thread_id))
    [(place, fields)] = rows
    return place, fields


def change_record(client: redis.Redis, thread_id: str) -> None:
    """One byte of it; a stream's records cannot be changed in place."""
    place, fields = record_of(client, thread_id)
    body = bytearray(fields[b"body"])
    body[-3] ^= 1
    client.delete(KEYS.log(thread_id))
    changed: Any = {**fields, b"body": bytes(body)}
    client.xadd(KEYS.log(thread_id), changed, id=place)


@requirement("S000-task-concurrency", "S000-task-lifecycle", "S000-error-corrupt-state")
@requirement("S000-state-redis-dynamodb")
class TestRedisStore(PortableCases, SharedStoreContract):
    if not FULL:
        # Four more processes each, which take most of their time to start.
        test_four_processes_append_to_one_thread_without_gaps = None  # type: ignore[assignment]
        test_four_processes_fill_a_counter_exactly = None  # type: ignore[assignment]

    @pytest.fixture
    def make_store(self, empty_redis: str) -> MakeStore:
        return lambda clock: RedisStore(empty_redis, clock=clock)

    @pytest.fixture
    def store_url(self, empty_redis: str) -> str:
        return empty_redis

    @pytest.fixture
    def damage(self, empty_redis: str) -> Damage:
        client = redis.Redis.from_url(empty_redis)

        def damage(thread_id: str) -> Callable[[], bytes]:
            change_record(client, thread_id)
            return lambda: record_of(client, thread_id)[1][b"body"]

        return damage


@pytest.fixture(scope="module")
def redis_itself() -> Iterator[ValkeyServer]:
    """Not Valkey: Redis, of a version that Debian has."""
    program = shutil.which("redis-server")
    if program is None:
        lacks("redis", "redis-server is not installed")
    with ValkeyServer("--appendonly", "yes", "--save", "", program=program) as server:
        yield server


if FULL:

    class TestRedisItself(TestRedisStore):
        @pytest.fixture
        def empty_redis(self, redis_itself: ValkeyServer) -> str:
            with redis_itself.client() as client:
                client.flushall()
            return redis_itself.url()


@pytest.mark.timeout(seconds(1800))
def test_store_lives_a_random_life_like_the_model_of_the_contract(empty_redis: str) -> None:
    @asynccontextmanager
    async def opened(clock: Clock) -> AsyncIterator[Store]:
        with redis.Redis.from_url(empty_redis) as client:
            client.flushall()
        async with RedisStore(empty_redis, clock=clock) as store:
            yield store

    run_state_machine_as_test(store_machine(opened), settings=SIZE)
