"""The SQLite store under the contract of durable stores that several processes share."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from sk_agents.persistence.sqlite_store import SqliteStore
from sk_agents.testing.store_contract import Damage, MakeStore, SharedStoreContract
from tests.requirements import requirement

OF_THREAD = "place >> 32 = (SELECT no FROM thread WHERE thread_id = ?)"


def record_of(path: Path, thread_id: str) -> bytes:
    with closing(apsw.Connection(str(path))) as database:
        ((body,),) = database.execute(f"SELECT body FROM record WHERE {OF_THREAD}", (thread_id,))
        return bytes(body)


@requirement("S000-task-concurrency", "S000-task-lifecycle", "S000-error-corrupt-state")
class TestSqliteStore(SharedStoreContract):
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "teal.sqlite"

    @pytest.fixture
    def make_store(self, path: Path) -> MakeStore:
        return lambda clock: SqliteStore(path, clock=clock)

    @pytest.fixture
    def store_url(self, path: Path) -> str:
        return f"sqlite://{path}"

    @pytest.fixture
    def damage(self, path: Path) -> Damage:
        def damage(thread_id: str) -> Callable[[], bytes]:
            damaged = bytearray(record_of(path, thread_id))
            damaged[-3] ^= 1
            with closing(apsw.Connection(str(path))) as database:
                database.execute(
                    f"UPDATE record SET body = ? WHERE {OF_THREAD}", (bytes(damaged), thread_id)
                )
            return lambda: record_of(path, thread_id)

        return damage
