"""The contract of stores with encryption on: a part of it in `make test`, all in `make chaos`."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from sk_agents.persistence.encryption import EncryptingCodec, new_key, read_keys
from sk_agents.persistence.file.store import FileStore
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.testing.store_contract import Damage, MakeStore, SharedStoreContract
from sk_agents.testing.store_contract.contents import ContentCases
from sk_agents.testing.store_contract.durable import DurableCases
from tests.chaos.scale import FULL
from tests.requirements import requirement
from tests.stores.test_sqlite_store import OF_THREAD, record_of


class _Part(DurableCases, ContentCases):
    """What is kept comes back as it was, also after a restart, and damage is found."""


CONTRACT: type = SharedStoreContract if FULL else _Part


@pytest.fixture
def codec(monkeypatch: pytest.MonkeyPatch) -> EncryptingCodec:
    """Its key is in the environment, too: that of the contract's other processes."""
    key = new_key()
    monkeypatch.setenv("TA_ENCRYPTION_KEYS", key)
    return EncryptingCodec(read_keys(key, "a test"))


@requirement("S004-10.2-encryption")
class TestEncryptedSqliteStore(CONTRACT):  # type: ignore[misc]  # one of two, by the run's size
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "teal.sqlite"

    @pytest.fixture
    def make_store(self, path: Path, codec: EncryptingCodec) -> MakeStore:
        return lambda clock: SqliteStore(path, clock=clock, codec=codec)

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


@requirement("S004-10.2-encryption")
class TestEncryptedFileStore(CONTRACT):  # type: ignore[misc]  # one of two, by the run's size
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path / "store"

    @pytest.fixture
    def make_store(self, root: Path, codec: EncryptingCodec) -> MakeStore:
        return lambda clock: FileStore(root, clock=clock, codec=codec)

    @pytest.fixture
    def store_url(self, root: Path) -> str:
        return f"file://{root}"

    @pytest.fixture
    def damage(self, root: Path) -> Damage:
        def damage(thread_id: str) -> Callable[[], bytes]:
            (key,) = (
                path for path in root.rglob("key.json") if f'"{thread_id}"' in path.read_text()
            )
            log = key.with_name("log.jsonl")
            damaged = bytearray(log.read_bytes())
            damaged[len(damaged) // 2] ^= 1
            log.write_bytes(damaged)
            return log.read_bytes

        return damage
