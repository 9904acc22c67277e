"""What a DynamoDB table may do to its store: throttle, lose answers, be made by ten at once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import botocore.session  # type: ignore[import-untyped]  # has no types
import pytest
import pytest_asyncio

from sk_agents.engine.models import RunStatus
from sk_agents.engine.ports import Count
from sk_agents.exceptions import (
    ConfigurationError,
    LeaseHeld,
    SchemaTooNew,
    StoreUnavailable,
    ThreadNotFound,
)
from sk_agents.persistence.dynamodb import table as requests
from sk_agents.persistence.dynamodb.address import TableAddress, read_address
from sk_agents.persistence.dynamodb.schema import definition
from sk_agents.persistence.dynamodb.store import DynamoStore
from sk_agents.persistence.dynamodb.table import ServiceClock
from sk_agents.testing.commits import (
    USER,
    append,
    append_owned,
    approval,
    ask,
    create,
    decide,
    run_ended,
    start_run,
    thought,
)
from sk_agents.testing.predictable import SettableClock
from sk_agents.testing.scripted_model import calls, says
from sk_agents.testing.store_contract.case import every_event
from tests.chaos.scale import FULL
from tests.dynamodb import store_url
from tests.engine.kit import Script, talking
from tests.patience import seconds
from tests.stores.refusing_proxy import RefusingProxy

RUNS = 60 if FULL else 12
# More than one transaction takes.
MANY = 150


@pytest_asyncio.fixture
async def proxy(dynalite: str) -> AsyncIterator[RefusingProxy]:
    async with RefusingProxy(dynalite) as proxy:
        yield proxy


def client_of(url: str) -> tuple[Any, str]:
    address = read_address(url)
    client = botocore.session.get_session().create_client(
        "dynamodb", region_name=address.region, endpoint_url=address.endpoint
    )
    return client, address.table


def items_in(url: str) -> list[dict[str, Any]]:
    client, table = client_of(url)
    items: list[dict[str, Any]] = client.scan(TableName=table)["Items"]
    return items


async def test_runs_end_and_no_event_is_stored_twice_though_half_of_all_requests_are_refused(
    proxy: RefusingProxy,
) -> None:
    script: Script = [calls(("Files-look", {"text": "x"})), says("done")] * RUNS
    async with talking(store_url(proxy.url), script=script) as talk:
        proxy.refuse_half(seed=7)
        names = [f"t{number}" for number in range(RUNS)]
        async with asyncio.timeout(seconds(100)):
            started = await asyncio.gather(
                *(talk.say(thread=name, run_id=f"run-of-{name}") for name in names)
            )
            runs = await asyncio.gather(*map(talk.result, started))
        assert Counter(run.status for run in runs) == {RunStatus.COMPLETED: RUNS}
        for name in names:
            log = await talk.log(name)
            assert [event.seq for event in log] == list(range(1, len(log) + 1))
            assert Counter(event.type for event in log)["answered"] == 1
            assert Counter(event.type for event in log)["run_ended"] == 1
        assert proxy.refusals > RUNS
        assert talk.store.metrics()["requests_throttled"] > RUNS


async def test_commit_whose_answer_was_lost_is_stored_once(proxy: RefusingProxy) -> None:
    losses = iter([True, False] * 20)
    async with DynamoStore(store_url(proxy.url)) as store:
        head = (await store.commit(start_run("t", owner="o"))).thread
        proxy.lost = lambda operation: operation == "TransactWriteItems" and next(losses)
        for number in range(5):
            await store.commit(append_owned(head, thought(str(number))))
        log = await every_event(store, "t")
    assert [event.seq for event in log] == [1, 2, 3, 4, 5, 6]


async def test_claim_whose_answer_was_lost_is_known_to_be_its_own(proxy: RefusingProxy) -> None:
    """A change of the head alone is no transaction: the table does not know that it was sent."""
    losses = iter([True, False])
    async with DynamoStore(store_url(proxy.url)) as store:
        await store.commit(start_run("t"))
        proxy.lost = lambda operation: operation == "PutItem" and next(losses)
        head = await store.claim("t", "o")
        assert (head.owner, head.epoch) == ("o", 1)
        assert await store.thread("t") == head


async def test_counter_whose_answer_was_lost_is_counted_once(proxy: RefusingProxy) -> None:
    losses = iter([True, False] * 10)
    async with DynamoStore(store_url(proxy.url)) as store:
        proxy.lost = lambda operation: operation == "PutItem" and next(losses)
        for number in range(1, 6):
            assert list(await store.count([Count("k", 1, 3600)])) == [number]


async def test_commit_of_more_entries_than_a_transaction_takes_has_all_of_them(
    dynamo_url: str,
) -> None:
    names = [f"a{number:03}" for number in range(MANY)]
    async with DynamoStore(dynamo_url) as store:
        await store.commit(create("t", *map(approval, names)))
        found = await store.open_entries("approval", USER, limit=1000)
        assert [entry.key for entry in found] == names
        await store.commit(decide("t", names[0]))
        assert len(await store.open_entries("approval", USER, limit=1000)) == MANY - 1
        await store.delete("t", next_seq=MANY + 2)
        assert await store.open_entries("approval", USER) == []
    left = {item["pk"]["S"] for item in await asyncio.to_thread(items_in, dynamo_url)}
    assert left <= {"schema"}


async def test_entries_that_a_lost_instance_left_out_are_written_by_another(
    proxy: RefusingProxy, dynalite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "PATIENCE_SECONDS", 0.1)
    url = store_url(proxy.url)
    names = [f"a{number:03}" for number in range(MANY)]
    commit = create("t", *map(approval, names))
    async with DynamoStore(url) as store:
        proxy.cut = lambda operation: proxy.passed["TransactWriteItems"] > 0
        with pytest.raises(Exception, match="send the same commit again|cannot be reached|answer"):
            await store.commit(commit)
    async with DynamoStore(store_url(dynalite, read_address(url).table)) as other:
        assert await other.open_entries("approval", USER) == []
        await other.orphans()
        found = await other.open_entries("approval", USER, limit=1000)
        assert [entry.key for entry in found] == names
        assert (await other.commit(commit)).thread.next_seq == MANY + 1


async def test_decision_waits_for_the_entries_that_a_lost_instance_left_out(
    proxy: RefusingProxy, dynalite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "PATIENCE_SECONDS", 0.1)
    url = store_url(proxy.url)
    async with DynamoStore(url) as store:
        proxy.cut = lambda operation: proxy.passed["TransactWriteItems"] > 0
        with pytest.raises(Exception, match="again|reached|answer"):
            await store.commit(create("t", *(approval(f"a{n}") for n in range(MANY))))
    async with DynamoStore(store_url(dynalite, read_address(url).table)) as other:
        await other.commit(decide("t", "a7"))
        assert len(await other.open_entries("approval", USER, limit=1000)) == MANY - 1


async def test_removal_that_a_lost_instance_began_is_ended_by_another(
    proxy: RefusingProxy, dynalite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "PATIENCE_SECONDS", 0.1)
    url = store_url(proxy.url)
    async with DynamoStore(url) as store:
        head = (await store.commit(start_run("t"))).thread
        head = (await store.commit(ask(head, "a"))).thread
        proxy.cut = lambda operation: proxy.passed["TransactWriteItems"] > 2
        with pytest.raises(StoreUnavailable):
            await store.delete("t", next_seq=head.next_seq)
    direct = store_url(dynalite, read_address(url).table)
    async with DynamoStore(direct) as other:
        with pytest.raises(ThreadNotFound):
            await other.thread("t")
        # Made again before the first one is gone.
        await other.commit(start_run("t", "run-2"))
        await other.orphans()
        assert await other.find("approval", "a") is None
        assert await other.find("run", "run-1") is None
        assert await other.find("run", "run-2") is not None
        assert [event.run_id for event in await every_event(other, "t")] == ["run-2"]
    items = await asyncio.to_thread(items_in, direct)
    assert not [item for item in items if item["pk"]["S"] == "unfinished"]


async def test_table_that_is_away_is_unavailable_and_works_again_by_itself(
    proxy: RefusingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "PATIENCE_SECONDS", 0.1)
    async with DynamoStore(store_url(proxy.url)) as store:
        await store.commit(start_run("t"))
        proxy.cut = lambda operation: True
        with pytest.raises(StoreUnavailable, match="answer|reached"):
            await store.thread("t")
        with pytest.raises(StoreUnavailable):
            await store.ping()
        proxy.cut = lambda operation: False
        assert (await store.thread("t")).next_seq == 2
        await store.ping()


async def test_leases_of_instances_whose_clocks_differ_by_years_last_as_long_as_they_should(
    dynamo_url: str,
) -> None:
    here = SettableClock()
    there = SettableClock(datetime(1990, 5, 5, tzinfo=UTC))
    there.advance(1e6)
    async with (
        DynamoStore(dynamo_url, clock=here) as store,
        DynamoStore(dynamo_url, clock=there) as other,
    ):
        await asyncio.to_thread(store.renew, "o", 60)
        await store.commit(start_run("t", owner="o"))
        for _ in range(3):
            assert await other.orphans() == []
            there.advance(59)
            with pytest.raises(LeaseHeld):
                await other.claim("t", "p")
            await asyncio.to_thread(store.renew, "o", 60)
        assert await other.orphans() == []
        there.advance(59)
        assert await other.orphans() == []
        there.advance(1)
        assert [head.thread_id for head in await other.orphans()] == ["t"]
        assert (await other.claim("t", "p")).owner == "p"


async def test_owner_that_gives_a_sign_while_its_thread_is_taken_keeps_it(
    proxy: RefusingProxy,
) -> None:
    """Between the look at the owner and the claim that was decided by it."""
    clock = SettableClock()
    url = store_url(proxy.url)
    async with DynamoStore(url, clock=clock) as store, DynamoStore(url, clock=clock) as other:
        await asyncio.to_thread(store.renew, "o", 60)
        await store.commit(start_run("t", owner="o"))
        assert await other.orphans() == []
        clock.advance(60)
        came, has_renewed = asyncio.Event(), False

        def is_early(operation: str) -> bool:
            if operation == "TransactWriteItems":
                came.set()
            return operation == "TransactWriteItems" and not has_renewed

        proxy.refused = is_early
        claim = asyncio.ensure_future(other.claim("t", "p"))
        async with asyncio.timeout(seconds(20)):
            await came.wait()
        await asyncio.to_thread(store.renew, "o", 60)
        has_renewed = True
        with pytest.raises(LeaseHeld):
            await claim


async def test_ten_instances_that_start_at_once_make_the_table_once(dynamo_url: str) -> None:
    stores = [DynamoStore(dynamo_url) for _ in range(10)]
    await asyncio.gather(*(store.__aenter__() for store in stores))
    try:
        await stores[0].commit(start_run("t"))
        assert (await stores[9].thread("t")).next_seq == 2
    finally:
        await asyncio.gather(*(store.__aexit__() for store in stores))


async def test_table_of_a_newer_version_is_refused_and_not_touched(dynamo_url: str) -> None:
    async with DynamoStore(dynamo_url):
        pass
    client, table = client_of(dynamo_url)
    newer = {"pk": {"S": "schema"}, "sk": {"S": "@"}, "version_number": {"N": "2"}}
    await asyncio.to_thread(client.put_item, TableName=table, Item=newer)
    with pytest.raises(SchemaTooNew):
        await DynamoStore(dynamo_url).__aenter__()
    assert items_in(dynamo_url) == [newer]


async def test_table_with_other_keys_is_refused(dynamo_url: str) -> None:
    client, table = client_of(dynamo_url)
    keys = [{"AttributeName": "id", "KeyType": "HASH"}]
    names = [{"AttributeName": "id", "AttributeType": "S"}]
    await asyncio.to_thread(
        client.create_table,
        TableName=table,
        KeySchema=keys,
        AttributeDefinitions=names,
        BillingMode="PAY_PER_REQUEST",
    )
    with pytest.raises(ConfigurationError, match="not ours"):
        await DynamoStore(dynamo_url).__aenter__()


async def test_plain_turn_is_two_transactions_and_reads_nothing(proxy: RefusingProxy) -> None:
    async with DynamoStore(store_url(proxy.url)) as store:
        head = (await store.commit(start_run("t", owner="o"))).thread
        before = proxy.passed.copy()
        await store.commit(append_owned(head, run_ended()))
        assert proxy.passed - before == {"TransactWriteItems": 1}
        before = proxy.passed.copy()
        await store.claim("t", "p")
        # The head and what its owner last said of itself are looked at.
        assert (proxy.passed - before)["TransactWriteItems"] == 1


async def test_head_alone_is_written_by_a_single_put(proxy: RefusingProxy) -> None:
    async with DynamoStore(store_url(proxy.url)) as store:
        await store.commit(start_run("t"))
        before = proxy.passed.copy()
        await store.claim("t", "o")
        assert proxy.passed - before == {"PutItem": 1}


async def test_large_records_of_many_commits_at_once_are_kept(dynamo_url: str) -> None:
    """Each is larger than an item, all together than a transaction."""
    async with DynamoStore(dynamo_url) as store:
        head = (await store.commit(start_run("t", owner="o"))).thread
        texts = [f"{number}" * 450_000 for number in range(8)]
        await asyncio.gather(*(store.commit(append_owned(head, thought(t))) for t in texts))
        log = await every_event(store, "t")
        assert sorted(event.model_dump()["content"] for event in log[1:]) == texts
        page = await store.events_after("t", 3, 1)
        assert [event.seq for event in page] == [4]
        await store.commit(append(await store.thread("t"), run_ended()))
        head = await store.thread("t")
        clear = await store.whole_thread("t")
        assert len(clear[1]) == 10
        await store.retire("o")
        await store.delete("t", next_seq=head.next_seq)
    left = {item["pk"]["S"] for item in await asyncio.to_thread(items_in, dynamo_url)}
    assert left <= {"schema"}


def test_new_table_is_billed_on_demand_unless_units_are_named() -> None:
    assert definition(TableAddress("table"))["BillingMode"] == "PAY_PER_REQUEST"
    made = definition(read_address("dynamodb://table?read_units=5&write_units=7"))
    units = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 7}
    assert made["BillingMode"] == "PROVISIONED"
    assert made["ProvisionedThroughput"] == units
    assert [index["ProvisionedThroughput"] for index in made["GlobalSecondaryIndexes"]] == [
        units,
        units,
    ]


@pytest.mark.parametrize(
    "url",
    [
        "dynamodb:",
        "dynamodb://",
        "dynamodb://no",
        "dynamodb://user:s3cret@table",
        "dynamodb://table/s3cret",
        "dynamodb://table?s3cret",
        "dynamodb://table?password=s3cret",
        "dynamodb://table?region=a&region=s3cret",
        "dynamodb://table?region=s3cret!",
        "dynamodb://table?endpoint=s3cret",
        "dynamodb://table?endpoint=http://user:s3cret@host",
        "dynamodb://table?read_units=5",
        "dynamodb://table?read_units=0&write_units=5",
        "dynamodb://table#s3cret",
    ],
)
def test_url_that_makes_no_sense_is_refused_without_its_words(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        DynamoStore(url)
    assert "dynamodb://table?region=" in str(refused.value)
    assert "s3cret" not in str(refused.value)


async def test_missing_credentials_and_region_are_named(
    monkeypatch: pytest.MonkeyPatch, dynamo_url: str
) -> None:
    with pytest.raises(ConfigurationError, match="AWS_REGION"):
        await DynamoStore("dynamodb://table").__aenter__()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreUnavailable, match="no AWS credentials"):
        await DynamoStore(dynamo_url).__aenter__()


def test_clock_of_the_service_is_known_closer_with_each_answer() -> None:
    clock, begin = ServiceClock(), datetime(2030, 1, 1, tzinfo=UTC)
    assert clock.now() is None
    for tenths in range(40):
        at = begin + timedelta(seconds=tenths / 10)
        clock.learn(format_datetime(at, usegmt=True), 100 + tenths / 10, 100.01 + tenths / 10)
    ahead = clock.ahead
    assert ahead is not None and abs(ahead - (begin.timestamp() - 100)) < 0.15
    clock.learn("no date", 0, 0)
    assert clock.ahead == ahead
