"""The Redis store and its server: how it is checked, lost and found again."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sk_agents.audit.reading import server_trail
from sk_agents.audit.server_log import ServerLog
from sk_agents.engine.defaults import RandomIds
from sk_agents.engine.events import Noted
from sk_agents.engine.log.commits import Commit, Committed, Release
from sk_agents.engine.models import Durability, RunStatus
from sk_agents.engine.ports import Count, ThreadQuery
from sk_agents.engine.turns import TextDelta
from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    ConfigurationError,
    SchemaTooNew,
    StateCorrupt,
    StoreEncrypted,
    StoreError,
    StoreFull,
    StoreUnavailable,
    ThreadNotFound,
    WrongEncryptionKey,
)
from sk_agents.persistence.codec import PLAIN
from sk_agents.persistence.commit_writer import MAX_GROUP
from sk_agents.persistence.encoding import encode_head, head_checksum
from sk_agents.persistence.encryption import new_key
from sk_agents.persistence.redis import scripts
from sk_agents.persistence.redis.keys import Keys
from sk_agents.persistence.redis.server import RedisServer
from sk_agents.persistence.redis.store import RedisStore
from sk_agents.persistence.redis.tidying import Tidying
from sk_agents.persistence.store_encryption import encrypt_store, rekey_store
from sk_agents.redis_access import RedisAccess, RedisLink
from sk_agents.testing.commits import USER, append, append_owned, ask, create, start_run, thought
from sk_agents.testing.scripted_model import says
from sk_agents.testing.store_contract.case import every_event, snapshot
from tests.chaos.scale import trials
from tests.engine.kit import Script, talking
from tests.patience import seconds
from tests.requirements import requirement
from tests.stores.durable_server import requiring
from tests.stores.encrypted import CANARY, codec, contents, fill
from tests.stores.test_encrypting import ignored, write_until
from tests.valkey import ValkeyServer

BOUND = seconds(20)
KEYS = Keys("teal")
ALWAYS = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")


@pytest.fixture(scope="module")
def own_server() -> Iterator[ValkeyServer]:
    """One that may be killed, and syncs what it acknowledges."""
    with ValkeyServer(*ALWAYS) as server:
        yield server


@asynccontextmanager
async def setting(server: ValkeyServer, name: str, value: str) -> AsyncIterator[None]:
    with server.client() as client:
        before = client.config_get(name)[name]
        client.config_set(name, value)
        try:
            yield
        finally:
            client.config_set(name, before)


async def sent(store: RedisStore, commit: Commit) -> Committed:
    """Sent until its outcome is known."""
    while True:
        try:
            return await store.commit(commit)
        except StoreError:
            await asyncio.sleep(0)


async def test_durability_is_told_by_the_servers_settings(
    valkey: ValkeyServer, empty_redis: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def durability() -> Durability:
        caplog.clear()
        async with RedisStore(empty_redis) as store:
            return store.durability

    assert await durability() is Durability.D1
    assert "appendfsync is everysec" in caplog.text
    async with setting(valkey, "appendfsync", "always"):
        assert await durability() is Durability.D2
        assert caplog.text == ""
    async with setting(valkey, "appendonly", "no"):
        assert await durability() is Durability.D0
        assert "appendonly is off" in caplog.text


async def test_server_is_not_ready_while_redis_keeps_less_than_is_required(
    valkey: ValkeyServer, empty_redis: str
) -> None:
    for name, value, kept in (("appendfsync", "everysec", "D1"), ("appendonly", "no", "D0")):
        async with setting(valkey, "appendfsync", "always"):
            async with setting(valkey, name, value):
                with pytest.raises(
                    ConfigurationError, match=f"REQUIRED_DURABILITY is D2.* {kept};.*{name} is"
                ):
                    await requiring("D2", store=empty_redis).__aenter__()
            async with requiring("D2", store=empty_redis) as readiness:
                assert await readiness() == (200, "D2")
                async with setting(valkey, name, value):
                    assert await readiness() == (503, kept)
                assert await readiness() == (200, "D2")


async def test_server_that_would_drop_conversations_is_refused(
    valkey: ValkeyServer, empty_redis: str
) -> None:
    for policy in ("allkeys-lru", "volatile-ttl"):
        async with setting(valkey, "maxmemory-policy", policy):
            with pytest.raises(ConfigurationError, match=f"{policy}.*noeviction"):
                await RedisStore(empty_redis).__aenter__()


async def test_user_that_may_not_read_settings_counts_as_everysec(
    valkey: ValkeyServer, empty_redis: str, caplog: pytest.LogCaptureFixture
) -> None:
    with valkey.client() as client:
        client.acl_setuser(
            "teal", enabled=True, passwords=["+p"], keys=["teal:*"], channels=["teal:*"],
            categories=["+@all", "-@admin", "-@dangerous"], commands=["+info"],
        )  # fmt: skip
    try:
        url = f"redis://teal:p@127.0.0.1:{valkey.port}"
        async with RedisStore(url) as store:
            assert store.durability is Durability.D1
            head = (await store.commit(start_run("t", owner="o"))).thread
            await asyncio.to_thread(store.renew, "o", 60)
            await store.mark_watched(["r"])
            assert await store.count([Count("k", 1, 60)]) == [1]
            await store.retire("o")
            await store.delete("t", next_seq=head.next_seq)
            await store.ping()
        assert "cannot be read" in caplog.text
        with pytest.raises(StoreUnavailable, match="may not do this"):
            await RedisStore(f"{url}?prefix=other").__aenter__()
        with pytest.raises(StoreUnavailable, match="refuses this user"):
            await RedisStore(url.replace(":p@", ":s3cret@")).__aenter__()
    finally:
        with valkey.client() as client:
            client.acl_deluser("teal")


async def test_server_that_is_not_there_is_unavailable_without_its_password() -> None:
    with pytest.raises(StoreUnavailable) as refused:
        await RedisStore("redis://u:s3cret@127.0.0.1:1").__aenter__()
    assert "127.0.0.1" in str(refused.value)
    assert "s3cret" not in str(refused.value)


async def test_store_of_a_newer_version_is_refused_and_not_touched(
    valkey: ValkeyServer, empty_redis: str
) -> None:
    async with RedisStore(empty_redis):
        pass
    with valkey.client() as client:
        client.hset(KEYS.about, "schema", 1000)
        with pytest.raises(SchemaTooNew, match="schema 1000"):
            await RedisStore(empty_redis).__aenter__()
        assert client.hget(KEYS.about, "schema") == b"1000"


async def test_stores_of_two_prefixes_share_a_database_and_know_nothing_of_each_other(
    empty_redis: str,
) -> None:
    async with RedisStore(empty_redis) as one, RedisStore(f"{empty_redis}?prefix=b") as other:
        await one.commit(start_run("t", owner="o"))
        assert await other.all_threads() == []
        await other.commit(start_run("t", "run-2"))
        assert len(await every_event(one, "t")) == 1
        assert [head.thread_id for head in await other.orphans()] == ["t"]


async def test_commits_that_wait_together_are_one_pipeline_of_a_bounded_size(
    empty_redis: str,
) -> None:
    async with RedisStore(empty_redis) as store:
        await asyncio.gather(*(store.commit(create(f"t{n}")) for n in range(2 * MAX_GROUP)))
        counted = store.metrics()
        assert (counted["commits"], counted["commit_groups"]) == (2 * MAX_GROUP, 2)


async def test_plain_turn_is_one_command_for_each_commit(
    valkey: ValkeyServer, empty_redis: str
) -> None:
    async with RedisStore(empty_redis) as store:
        with valkey.client() as client:
            client.config_resetstat()
            head = (await store.commit(start_run("t", owner="o"))).thread
            for _ in range(5):
                head = (await store.commit(append_owned(head, thought()))).thread
            assert store.metrics()["commit_reads"] == 0
            stats = client.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 6
    assert not {"cmdstat_hmget", "cmdstat_hgetall", "cmdstat_eval"} & stats.keys()


async def test_keys_of_a_thread_lie_in_one_slot_whatever_its_id(
    valkey: ValkeyServer, empty_redis: str
) -> None:
    with valkey.client() as client:
        for name in ("t", "", "}", "{a}{b}", "\r\nFLUSHALL", "*", "half \ud800"):
            keys = (KEYS.head(name), KEYS.log(name), KEYS.entries(name))
            slots = {client.execute_command("CLUSTER KEYSLOT", key) for key in keys}
            assert len(slots) == 1
    async with RedisStore(empty_redis) as store:
        for name in ("}", "{a}{b}", "\r\nFLUSHALL", "*", "a\0b"):
            await store.commit(start_run(name, f"run {name}"))
            assert len(await every_event(store, name)) == 1
            found = await store.find("run", f"run {name}")
            assert found is not None and found.thread_id == name
        with pytest.raises(ThreadNotFound):
            await store.thread("half \ud800")
        assert len(await store.all_threads()) == 5


async def test_full_memory_refuses_commits_and_lets_reads_and_deletions_through(
    valkey: ValkeyServer, empty_redis: str
) -> None:
    async with RedisStore(empty_redis) as store:
        head = (await store.commit(start_run("t"))).thread
        async with setting(valkey, "maxmemory", "1mb"):
            with pytest.raises(StoreFull):
                await store.commit(append(head, thought()))
            with pytest.raises(StoreFull):
                await store.ping()
            assert len(await every_event(store, "t")) == 1
            await store.delete("t", next_seq=head.next_seq)
        await store.commit(start_run("t"))
        await store.ping()


async def test_deletion_that_is_noted_first_makes_room_in_a_full_memory(
    valkey: ValkeyServer, empty_redis: str
) -> None:
    async with RedisStore(empty_redis) as store, ServerLog(store, RandomIds()) as audit:
        head = (await store.commit(start_run("t"))).thread
        async with setting(valkey, "maxmemory", "1mb"):
            with pytest.raises(StoreFull):
                await audit.note(Noted(what="exporting"))
            await audit.deleting(head, who=USER, reason="asked for")
            await store.delete("t", next_seq=head.next_seq)
        [entry] = [entry async for entry in server_trail(store)]
        assert (entry.what, entry.subject) == ("deleting", "t")


async def test_damaged_and_newer_heads_are_errors_of_their_own_threads_alone(
    valkey: ValkeyServer, empty_redis: str
) -> None:
    async with RedisStore(empty_redis) as store:
        heads = [
            (await store.commit(start_run(name, f"run-{name}"))).thread
            for name in ("damaged", "newer", "whole")
        ]
    newer = encode_head(heads[1]._replace(version=99))
    with valkey.client() as client:
        client.hset(KEYS.head("damaged"), "check", 1)
        changed: Any = {"body": newer, "check": head_checksum("newer", newer)}
        client.hset(KEYS.head("newer"), mapping=changed)
    async with RedisStore(empty_redis) as store:
        results = await asyncio.gather(
            *(store.commit(append(head, thought())) for head in heads), return_exceptions=True
        )
        assert [type(result) for result in results] == [StateCorrupt, SchemaTooNew, Committed]
        assert [head.thread_id for head in await store.orphans()] == ["whole"]


async def test_server_that_forgot_the_scripts_is_told_them_again(
    valkey: ValkeyServer, empty_redis: str
) -> None:
    async with RedisStore(empty_redis) as store:
        head = (await store.commit(start_run("t", owner="o"))).thread
        with valkey.client() as client:
            for _ in range(2):
                client.script_flush()
                await asyncio.to_thread(store.renew, "o", 60)
                client.script_flush()
                head = (await store.commit(append_owned(head, thought()))).thread
                client.script_flush()
                assert await every_event(store, "t")
        assert len(await every_event(store, "t")) == 3


@pytest.mark.parametrize("is_stored", [True, False])
async def test_commit_whose_answer_was_lost_is_looked_for_and_stored_once(
    empty_redis: str, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    """Also one without events, which leaves no trace of its id."""
    async with RedisStore(empty_redis) as store:
        head = (await store.commit(start_run("t", owner="o"))).thread
        run = RedisLink.run_plain
        losses = 0

        async def losing(link: RedisLink, commands: Any) -> Any:
            nonlocal losses
            if not losses or commands[0][1] != scripts.COMMIT.digest:
                return await run(link, commands)
            losses -= 1
            if is_stored:
                await run(link, commands)
            raise ConnectionError("lost")

        monkeypatch.setattr(RedisLink, "run_plain", losing)
        losses = 1
        released = await store.commit(append_owned(head, lease=Release()))
        assert released.thread.owner is None
        losses = 1
        done = await store.commit(append(released.thread, thought()))
        assert [event.seq for event in done.events] == [2]
        losses = 0 if is_stored else 2
        last = append(done.thread, thought())
        if not is_stored:
            with pytest.raises(CommitOutcomeUnknown):
                await store.commit(last)
        assert [event.seq for event in (await store.commit(last)).events] == [3]
        assert len(await every_event(store, "t")) == 3


async def test_store_is_unavailable_while_its_server_is_away_and_recovers_by_itself(
    own_server: ValkeyServer,
) -> None:
    async with RedisStore(own_server.url()) as store:
        head = (await store.commit(start_run("away"))).thread
        await asyncio.to_thread(own_server.kill)
        async with asyncio.timeout(BOUND):
            for attempt in (
                store.thread("away"),
                store.commit(append(head, thought())),
                store.ping(),
                asyncio.to_thread(store.renew, "o", 60),
            ):
                with pytest.raises(StoreError):
                    await attempt
        own_server.start()
        async with asyncio.timeout(BOUND):
            assert await store.thread("away") == head
            await store.commit(append(head, thought()))
            await store.ping()
            await asyncio.to_thread(store.renew, "o", 60)
        assert len(await every_event(store, "away")) == 2


async def test_server_that_came_back_without_its_data_is_no_empty_store(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody is told that a conversation never was."""
    with ValkeyServer("--save", "") as server:
        async with RedisStore(server.url()) as store:
            assert store.durability is Durability.D0
            head = (await store.commit(start_run("t"))).thread
            await asyncio.to_thread(server.kill)
            server.start()
            for attempt in (
                store.thread("t"),
                store.events_after("t", 0),
                store.commit(append(head, thought())),
                store.claim("t", "o"),
                store.ping(),
            ):
                with pytest.raises(StoreUnavailable, match="lost its data"):
                    await attempt
        async with RedisStore(server.url()) as store:
            await store.commit(start_run("t"))


@requirement("S000-error-corrupt-state")
@pytest.mark.timeout(seconds(900))
async def test_killed_server_loses_no_acknowledged_commit_and_doubles_none(
    own_server: ValkeyServer,
) -> None:
    """Writers send until they are told; the server is killed under them, mid-write."""
    acknowledged: list[str] = []
    is_over = asyncio.Event()

    async def write(store: RedisStore, name: str) -> None:
        head = (await sent(store, start_run(name, f"run-{name}"))).thread
        number = 0
        while not is_over.is_set():
            commit = append(head, thought(f"{name}.{number}"))
            head = (await sent(store, commit)).thread
            acknowledged.append(f"{name}.{number}")
            number += 1

    async def kill() -> None:
        for number in range(trials(full=100, small=4)):
            until = len(acknowledged) + 17 + number % 23
            for _ in iter(lambda: len(acknowledged) > until, True):  # noqa: B023
                await asyncio.sleep(0)
            own_server.kill()
            own_server.start()
        is_over.set()

    async with RedisStore(own_server.url("?prefix=killed")) as store, asyncio.timeout(seconds(600)):
        assert store.durability is Durability.D2
        await asyncio.gather(kill(), *(write(store, f"w{number}") for number in range(8)))
        stored = [
            event.model_dump()["content"]
            for number in range(8)
            for event in (await every_event(store, f"w{number}"))[1:]
        ]
        listed = await store.threads(ThreadQuery(USER, limit=100))
    assert sorted(stored) == sorted(acknowledged)
    assert {head.thread_id for head in listed.threads} == {f"w{number}" for number in range(8)}


async def test_runs_go_on_after_a_crash_of_the_server(own_server: ValkeyServer) -> None:
    """In the middle of their answers."""
    go_on = asyncio.Event()
    names = [f"runs-{number}" for number in range(20)]
    script: Script = [[TextDelta("half "), go_on, *says("and whole")]] * len(names)
    async with talking(own_server.url("?prefix=runs"), script=script) as talk:
        started = [
            await talk.say(thread=name, run_id=f"run-of-{name}", user_id="ada") for name in names
        ]
        await asyncio.to_thread(own_server.kill)
        go_on.set()
        own_server.start()
        runs = await asyncio.gather(*map(talk.result, started))
        assert {run.status for run in runs} == {RunStatus.COMPLETED}
        for name in names:
            log = await talk.log(name)
            assert [event.type for event in log] == ["run_started", "answered", "run_ended"]


async def test_conversations_expire_only_where_it_is_asked_for(
    valkey: ValkeyServer, empty_redis: str
) -> None:
    url = f"{empty_redis}?ttl=1000"
    async with RedisStore(f"{empty_redis}?prefix=kept") as store:
        await store.commit(start_run("t"))
    async with RedisStore(url) as store:
        head = (await store.commit(start_run("t", owner="o"))).thread
        await store.commit(ask(head, "a"))
        await store.commit(start_run("other", "run-2"))
        with valkey.client() as client:
            kept = {key for key in client.keys() if client.ttl(key) == -1}
            assert not [key for key in client.keys("kept:*") if key not in kept]
            for key in (KEYS.head("t"), KEYS.log("t"), KEYS.entries("t")):
                assert 900 < client.ttl(key) <= 1000
                client.expire(key, 0)
        with pytest.raises(ThreadNotFound):
            await store.thread("t")
        assert await store.find("run", "run-1") is None
        assert await store.open_entries("approval", USER) == []
        page = await store.threads(ThreadQuery(USER))
        assert [thread.thread_id for thread in page.threads] == ["other"]
        await tidied(url)
        assert list(await store.all_threads()) == ["other"]
        with valkey.client() as client:
            assert [key for key in client.keys("teal:{e:*") if b"run-1" in key] == []


async def tidied(url: str) -> None:
    server = RedisServer(RedisAccess(url))
    await server.open(PLAIN)
    try:
        await Tidying(server, PLAIN).tidy()
    finally:
        await server.close()


async def test_listings_that_were_lost_are_made_again_from_the_threads(
    valkey: ValkeyServer, empty_redis: str
) -> None:
    async with RedisStore(empty_redis) as store:
        head = (await store.commit(start_run("t", owner="o"))).thread
        await store.commit(ask(head, "a", park=True))
        await store.commit(start_run("u", "run-2"))
        before = await snapshot(store, "t", "u")
        found = [await store.find("run", "run-2"), await store.find("approval", "a")]
        with valkey.client() as client:
            for pattern in (
                "teal:{u:*",
                "teal:{e:*",
                "teal:{due}*",
                "teal:{threads}",
                "teal:{runn*",
            ):
                client.delete(*client.keys(pattern) or ["none"])
        assert await store.find("run", "run-2") is None
        await tidied(empty_redis)
        assert await snapshot(store, "t", "u") == before
        assert [await store.find("run", "run-2"), await store.find("approval", "a")] == found


@requirement("S004-10.2-encryption")
async def test_server_sees_no_plain_text_and_a_wrong_key_is_refused(
    valkey: ValkeyServer, empty_redis: str
) -> None:
    async with RedisStore(empty_redis, codec=codec(key := new_key())) as store:
        await fill(store, 4)
        before = await contents(store, 4)
    with valkey.client() as client:
        dumped = [repr(client.hgetall(key)) for key in client.keys("*:head")]
        dumped += [repr(client.xrange(key)) for key in client.keys("*:log")]
    assert len(dumped) == 8
    assert CANARY not in "".join(dumped)
    with pytest.raises(WrongEncryptionKey):
        await RedisStore(empty_redis, codec=codec()).__aenter__()
    with pytest.raises(StoreEncrypted):
        await RedisStore(empty_redis).__aenter__()
    async with RedisStore(empty_redis, codec=codec(key)) as store:
        assert await contents(store, 4) == before
    with pytest.raises(ConfigurationError, match="Copy its conversations"):
        encrypt_store(empty_redis, codec(key), ignored)


@requirement("S004-10.2-encryption")
async def test_keys_change_under_load_without_an_error_and_the_old_one_can_go(
    empty_redis: str,
) -> None:
    old, new = new_key(), new_key()
    async with RedisStore(empty_redis, codec=codec(old)) as store:
        await fill(store, 6)
        before = await contents(store, 6)
    stop = asyncio.Event()
    async with RedisStore(empty_redis, codec=codec(new, old)) as store, asyncio.timeout(BOUND):
        # Known to the writer before their keys are wrapped again.
        assert await contents(store, 6) == before
        writer = asyncio.create_task(write_until(store, "a", stop))
        outcome = await asyncio.to_thread(rekey_store, empty_redis, codec(new, old), ignored)
        stop.set()
        assert await writer
        assert outcome.changed >= 6 and not outcome.damaged
    async with RedisStore(empty_redis, codec=codec(new)) as store:
        assert await contents(store, 6) == before
