"""The Redis store on several servers: a primary with its replica and sentinel, and a cluster."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import redis

from sk_agents.engine.models import RunStatus
from sk_agents.engine.turns import TextDelta
from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    LeaseLost,
    StoreReadOnly,
)
from sk_agents.persistence.redis.keys import Keys
from sk_agents.persistence.redis.store import RedisStore
from sk_agents.redis_access import RedisAccess
from sk_agents.signals.messages import MessageSignals
from sk_agents.signals.redis import RedisMessages
from sk_agents.testing.commits import append, append_owned, start_run, thought
from sk_agents.testing.scripted_model import says
from sk_agents.testing.store_contract import (
    Damage,
    MakeStore,
    PortableCases,
    SharedStoreContract,
)
from sk_agents.testing.store_contract.case import every_event
from sk_agents.testing.store_contract.durable import DurableCases
from tests.chaos.scale import FULL
from tests.engine.kit import Script, talking
from tests.patience import seconds
from tests.stores.test_redis_server import sent
from tests.stores.test_redis_store import change_record, record_of
from tests.valkey import Sentinel, ValkeyCluster, ValkeyServer

BOUND = seconds(30)
DOWN_AFTER = 0.3
KEYS = Keys("teal")
KEPT = ("--appendonly", "yes", "--save", "", "--repl-diskless-sync-delay", "0")


@pytest.fixture
def primary() -> Iterator[ValkeyServer]:
    with ValkeyServer(*KEPT) as server:
        yield server


@pytest.fixture
def replica(primary: ValkeyServer) -> Iterator[ValkeyServer]:
    settings = (
        *KEPT,
        "--replicaof",
        f"127.0.0.1 {primary.port}",
        "--repl-diskless-sync-delay",
        "0",
    )
    with ValkeyServer(*settings) as server:
        # Both have one password, so that either may follow the other.
        server.stop()
        server.password = primary.password
        server.start()
        yield server


async def test_replica_is_refused(replica: ValkeyServer) -> None:
    with pytest.raises(StoreReadOnly, match="sentinels"):
        await RedisStore(replica.url()).__aenter__()


async def test_commit_is_acknowledged_once_the_replica_has_it(
    primary: ValkeyServer, replica: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sk_agents.persistence.redis.commit_writer.REPLICA_SECONDS", 0.1)
    async with RedisStore(primary.url("?replicas=1")) as store, asyncio.timeout(BOUND):
        head = (await sent(store, start_run("t"))).thread
        with replica.client() as client:
            assert client.exists(KEYS.head("t"))
        replica.kill()
        commit = append(head, thought())
        for _ in range(2):
            with pytest.raises(CommitOutcomeUnknown, match="0 of 1 replicas"):
                await store.commit(commit)
        replica.start()
        done = await sent(store, commit)
        assert [event.seq for event in done.events] == [2]
        assert len(await every_event(store, "t")) == 2
        with replica.client() as client:
            assert client.xlen(KEYS.log("t")) == 2


@pytest.mark.chaos
@pytest.mark.timeout(seconds(300))
async def test_fail_over_in_the_middle_of_runs_loses_nothing_and_lets_no_stale_owner_write(
    primary: ValkeyServer, replica: ValkeyServer
) -> None:
    """The primary is killed; it comes back as a replica of the server that took its place."""
    go_on = asyncio.Event()
    names = [f"runs-{number}" for number in range(20)]
    script: Script = [[TextDelta("half "), go_on, *says("and whole")]] * len(names)
    with Sentinel(primary, DOWN_AFTER) as sentinel:
        await until(lambda: knows_replica(sentinel))
        url = sentinel.url("?replicas=1")
        acknowledged: dict[str, int] = {}
        is_over = asyncio.Event()

        async def write(store: RedisStore, name: str) -> None:
            head = (await sent(store, start_run(name, f"run-{name}"))).thread
            while not is_over.is_set():
                head = (await sent(store, append(head, thought()))).thread
                acknowledged[name] = head.next_seq

        # Elsewhere, for the engine would take over what nobody drives.
        apart = sentinel.url("?replicas=1&prefix=apart")
        async with talking(url, script=script) as talk, RedisStore(apart) as store:
            async with asyncio.timeout(seconds(120)):
                started = [
                    await talk.say(thread=name, run_id=f"run-of-{name}", user_id="ada")
                    for name in names
                ]
                stale = (await sent(store, start_run("stale", "run-s", owner="old"))).thread
                fresh = await store.claim("stale", "new")
                writers = [asyncio.create_task(write(store, f"w{n}")) for n in range(4)]
                await until(lambda: len(acknowledged) == 4)
                primary.kill()
                await until(lambda: sentinel.primary() == replica.port)
                primary.start()
                go_on.set()
                runs = await asyncio.gather(*map(talk.result, started))
                assert {run.status for run in runs} == {RunStatus.COMPLETED}
                is_over.set()
                await asyncio.gather(*writers)
                with pytest.raises(LeaseLost):
                    await sent(store, append_owned(stale, thought()))
                await sent(store, append_owned(fresh, thought()))
                for name in names:
                    log = await talk.log(name)
                    assert [event.type for event in log] == ["run_started", "answered", "run_ended"]
                for name, next_seq in acknowledged.items():
                    seqs = [event.seq for event in await every_event(store, name)]
                    assert seqs == list(range(1, next_seq))


def knows_replica(sentinel: Sentinel) -> bool:
    with sentinel.client() as client:
        return len(client.sentinel_slaves("main")) == 1


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND):
        while True:
            with suppress(redis.RedisError):
                if holds():
                    return
            await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ValkeyCluster]:
    with ValkeyCluster(*KEPT) as servers:
        yield servers


CONTRACT: type = SharedStoreContract if FULL else DurableCases


class TestRedisCluster(PortableCases, CONTRACT):  # type: ignore[misc]  # by the run's size
    @pytest.fixture
    def url(self, cluster: ValkeyCluster) -> str:
        cluster.empty()
        return cluster.url()

    @pytest.fixture
    def make_store(self, url: str) -> MakeStore:
        return lambda clock: RedisStore(url, clock=clock)

    @pytest.fixture
    def store_url(self, url: str) -> str:
        return url

    @pytest.fixture
    def damage(self, url: str) -> Damage:
        client = RedisAccess(url).blocking_client()

        def damage(thread_id: str) -> Callable[[], bytes]:
            change_record(client, thread_id)
            return lambda: record_of(client, thread_id)[1][b"body"]

        return damage


async def test_instances_on_a_cluster_wake_each_other(cluster: ValkeyCluster) -> None:
    async with RedisMessages(cluster.url()) as one, RedisMessages(cluster.url()) as other:
        here, there = MessageSignals(one), MessageSignals(other)
        async with there.subscribe("t") as far:
            here.notify("t")
            assert await far.wait(BOUND)
