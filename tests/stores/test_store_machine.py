"""Stores live a random life next to a model of the contract."""

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sk_agents.engine.ports import Clock, Store
from sk_agents.persistence.file.store import FileStore
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.testing.store_machine import OpenStore, store_machine
from tests.patience import seconds

# Long lives and many of them, in full numbers.
pytestmark = pytest.mark.timeout(seconds(1800))


def in_a_new_folder(make: Callable[[Path, Clock], Store]) -> OpenStore:
    """A life's store lies in a folder of its own, which goes with it."""

    @asynccontextmanager
    async def opened(clock: Clock) -> AsyncIterator[Store]:
        with tempfile.TemporaryDirectory() as folder:
            async with make(Path(folder), clock) as store:
                yield store

    return opened


TestMemoryMachine = store_machine(lambda clock: MemoryStore(clock=clock)).TestCase
TestSqliteMachine = store_machine(
    in_a_new_folder(lambda folder, clock: SqliteStore(folder / "teal.sqlite", clock=clock))
).TestCase
TestFileMachine = store_machine(
    in_a_new_folder(lambda folder, clock: FileStore(folder / "store", clock=clock))
).TestCase
