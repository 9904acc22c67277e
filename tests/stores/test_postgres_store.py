"""The PostgreSQL store under the contract of durable stores that several processes share."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import psycopg
import pytest
from hypothesis.stateful import run_state_machine_as_test

from sk_agents.engine.ports import Clock, Store
from sk_agents.persistence.postgres.store import PostgresStore
from sk_agents.testing.store_contract import (
    Damage,
    MakeStore,
    PortableCases,
    SharedStoreContract,
)
from sk_agents.testing.store_machine import SIZE, store_machine
from tests.chaos.scale import FULL
from tests.patience import seconds
from tests.requirements import requirement

OF_THREAD = "thread_no = (SELECT no FROM teal_thread WHERE thread_id = %s)"


def record_of(url: str, thread_id: str) -> bytes:
    with psycopg.connect(url) as connection:
        query = f"SELECT body FROM teal_record WHERE {OF_THREAD}"
        [(body,)] = connection.execute(query, (thread_id,)).fetchall()
        return bytes(body)


@requirement("S000-task-concurrency", "S000-task-lifecycle", "S000-error-corrupt-state")
class TestPostgresStore(PortableCases, SharedStoreContract):
    if not FULL:
        # Four more processes each, which take most of their time to start.
        test_four_processes_append_to_one_thread_without_gaps = None  # type: ignore[assignment]
        test_four_processes_fill_a_counter_exactly = None  # type: ignore[assignment]

    @pytest.fixture
    def make_store(self, database: str) -> MakeStore:
        return lambda clock: PostgresStore(database, clock=clock)

    @pytest.fixture
    def store_url(self, database: str) -> str:
        return database

    @pytest.fixture
    def damage(self, database: str) -> Damage:
        def damage(thread_id: str) -> Callable[[], bytes]:
            damaged = bytearray(record_of(database, thread_id))
            damaged[-3] ^= 1
            with psycopg.connect(database, autocommit=True) as connection:
                update = f"UPDATE teal_record SET body = %s WHERE {OF_THREAD}"
                connection.execute(update, (bytes(damaged), thread_id))
            return lambda: record_of(database, thread_id)

        return damage


@pytest.mark.timeout(seconds(1800))
def test_store_lives_a_random_life_like_the_model_of_the_contract(
    database: str, empty_tables: Callable[[], None]
) -> None:
    @asynccontextmanager
    async def opened(clock: Clock) -> AsyncIterator[Store]:
        empty_tables()
        async with PostgresStore(database, clock=clock) as store:
            yield store

    run_state_machine_as_test(store_machine(opened), settings=SIZE)
