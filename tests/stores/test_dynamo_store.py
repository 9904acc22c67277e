"""The DynamoDB store under the contract of durable stores that several processes share."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import botocore.session  # type: ignore[import-untyped]  # has no types
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from sk_agents.engine.ports import Clock, Store
from sk_agents.persistence.dynamodb.address import read_address
from sk_agents.persistence.dynamodb.store import DynamoStore
from sk_agents.testing.store_contract import (
    Damage,
    MakeStore,
    PortableCases,
    SharedStoreContract,
)
from sk_agents.testing.store_contract.commits import CommitCases
from sk_agents.testing.store_contract.durable import DurableCases, SharedCases
from sk_agents.testing.store_contract.leases import LeaseCases
from sk_agents.testing.store_machine import SIZE, store_machine
from tests.chaos.scale import FULL
from tests.dynamodb import store_url
from tests.patience import seconds
from tests.requirements import requirement


class _Decided(PortableCases, SharedCases, DurableCases, CommitCases, LeaseCases):
    """What conditions, transactions and leases decide. `make chaos` runs the whole contract."""

    # Four more processes each, or many requests.
    test_four_processes_append_to_one_thread_without_gaps = None  # type: ignore[assignment]
    test_four_processes_decide_each_approval_once = None  # type: ignore[assignment]
    test_four_processes_fill_a_counter_exactly = None  # type: ignore[assignment]
    test_commits_to_many_threads_are_all_stored = None  # type: ignore[assignment]
    test_stale_owner_never_commits = None  # type: ignore[assignment]
    test_reader_of_a_thread_that_another_handle_deletes_finds_it_whole_or_not_at_all = None  # type: ignore[assignment]


class _Whole(PortableCases, SharedStoreContract):
    """All of it."""


def items_of(url: str, thread_id: str) -> tuple[Any, str, list[dict[str, Any]]]:
    """A client, the table, and the items of a thread's log."""
    address = read_address(url)
    client = botocore.session.get_session().create_client(
        "dynamodb", region_name=address.region, endpoint_url=address.endpoint
    )
    found = client.query(
        TableName=address.table,
        KeyConditionExpression="pk = :pk AND begins_with(sk, :r)",
        ExpressionAttributeValues={":pk": {"S": f"t#{thread_id}"}, ":r": {"S": "r#"}},
    )
    return client, address.table, found["Items"]


def damaging(url: str) -> Damage:
    def read(thread_id: str) -> bytes:
        _, _, [record] = items_of(url, thread_id)
        body: bytes = record["body"]["B"]
        return body

    def damage(thread_id: str) -> Callable[[], bytes]:
        client, table, [record] = items_of(url, thread_id)
        damaged = bytearray(record["body"]["B"])
        damaged[-3] ^= 1
        record["body"]["B"] = bytes(damaged)
        client.put_item(TableName=table, Item=record)
        return lambda: read(thread_id)

    return damage


CONTRACT: type = _Whole if FULL else _Decided
ON_MOTO: type = _Whole if FULL else PortableCases


@requirement("S000-state-redis-dynamodb")
class TestDynamoStore(CONTRACT):  # type: ignore[misc]  # one of two, by the run's size
    @pytest.fixture
    def make_store(self, dynamo_url: str) -> MakeStore:
        return lambda clock: DynamoStore(dynamo_url, clock=clock)

    @pytest.fixture
    def store_url(self, dynamo_url: str) -> str:
        return dynamo_url

    @pytest.fixture
    def damage(self, dynamo_url: str) -> Damage:
        return damaging(dynamo_url)


class TestDynamoStoreOnMoto(ON_MOTO):  # type: ignore[misc]  # one of two, by the run's size
    """Its conditions and transactions are its own."""

    # It takes minutes for as many requests as four processes send.
    test_four_processes_append_to_one_thread_without_gaps = None
    test_four_processes_decide_each_approval_once = None
    test_four_processes_fill_a_counter_exactly = None

    @pytest.fixture
    def url(self, moto: str) -> str:
        return store_url(moto)

    @pytest.fixture
    def make_store(self, url: str) -> MakeStore:
        return lambda clock: DynamoStore(url, clock=clock)

    @pytest.fixture
    def store_url(self, url: str) -> str:
        return url

    @pytest.fixture
    def damage(self, url: str) -> Damage:
        return damaging(url)


@pytest.mark.timeout(seconds(1800))
def test_store_lives_a_random_life_like_the_model_of_the_contract(dynalite: str) -> None:
    @asynccontextmanager
    async def opened(clock: Clock) -> AsyncIterator[Store]:
        async with DynamoStore(store_url(dynalite), clock=clock) as store:
            yield store

    # Each step looks at everything, which is some fifty requests here.
    size = SIZE if FULL else settings(SIZE, max_examples=4)
    run_state_machine_as_test(store_machine(opened), settings=size)
