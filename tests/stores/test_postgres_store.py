"""The PostgreSQL store under the contract of durable stores that several processes share."""

from collections.abc import Callable

import psycopg
import pytest

from sk_agents.persistence.postgres.store import PostgresStore
from sk_agents.testing.store_contract import Damage, MakeStore, SharedStoreContract
from tests.requirements import requirement

OF_THREAD = "thread_no = (SELECT no FROM teal_thread WHERE thread_id = %s)"


def record_of(url: str, thread_id: str) -> bytes:
    with psycopg.connect(url) as database:
        query = f"SELECT body FROM teal_record WHERE {OF_THREAD}"
        [(body,)] = database.execute(query, (thread_id,)).fetchall()
        return bytes(body)


@requirement("S000-task-concurrency", "S000-task-lifecycle", "S000-error-corrupt-state")
class TestPostgresStore(SharedStoreContract):
    @pytest.fixture
    def make_store(self, schema: str) -> MakeStore:
        return lambda clock: PostgresStore(schema, clock=clock)

    @pytest.fixture
    def store_url(self, schema: str) -> str:
        return schema

    @pytest.fixture
    def damage(self, schema: str) -> Damage:
        def damage(thread_id: str) -> Callable[[], bytes]:
            damaged = bytearray(record_of(schema, thread_id))
            damaged[-3] ^= 1
            with psycopg.connect(schema, autocommit=True) as database:
                update = f"UPDATE teal_record SET body = %s WHERE {OF_THREAD}"
                database.execute(update, (bytes(damaged), thread_id))
            return lambda: record_of(schema, thread_id)

        return damage
