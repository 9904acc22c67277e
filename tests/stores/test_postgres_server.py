"""The PostgreSQL store and its server: how it is reached, checked, lost and found again."""

import asyncio
import logging
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from sk_agents.engine.log.commits import Commit, Committed, Release
from sk_agents.engine.models import Durability, RunStatus, Thread
from sk_agents.engine.ports import Count, ThreadQuery
from sk_agents.engine.turns import TextDelta
from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    ConfigurationError,
    InvalidInput,
    SchemaTooNew,
    StateCorrupt,
    StoreEncrypted,
    StoreError,
    StoreUnavailable,
    ThreadNotFound,
    WrongEncryptionKey,
)
from sk_agents.persistence.commit_writer import MAX_GROUP
from sk_agents.persistence.encoding import encode_head, head_checksum
from sk_agents.persistence.encryption import EncryptingCodec, new_key, read_keys
from sk_agents.persistence.postgres import connections, statements
from sk_agents.persistence.postgres.arrays import Int8Array, TextArray, register
from sk_agents.persistence.postgres.commit_writer import _columns
from sk_agents.persistence.postgres.connections import PostgresReaders
from sk_agents.persistence.postgres.store import PostgresStore
from sk_agents.postgres_access import AsyncConnection, PostgresAccess
from sk_agents.signals.postgres import PostgresMessages
from sk_agents.testing.commits import USER, append, append_owned, create, start_run, thought
from sk_agents.testing.scripted_model import says
from sk_agents.testing.store_contract.case import every_event
from tests.debian import PGBOUNCER, program
from tests.engine.kit import Script, talking
from tests.instances.tcp_proxy import TcpProxy
from tests.llm.test_http_tls import certificate
from tests.missing import lacks
from tests.patience import seconds
from tests.postgres import NOBODY, PostgresServer
from tests.stores.durable_server import requiring

BOUND = seconds(20)
DOCUMENT = Path(__file__).parents[2] / "docs" / "postgresql.md"
GRANT = DOCUMENT.read_text().partition("```sql\n")[2].partition("```")[0]


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """One that may be stopped."""
    with PostgresServer() as server:
        yield server


@asynccontextmanager
async def stopped(server: PostgresServer, *, immediately: bool = False) -> AsyncIterator[None]:
    await asyncio.to_thread(server.stop, immediately=immediately)
    try:
        yield
    finally:
        await asyncio.to_thread(server.start)


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[TcpProxy, str]]:
    """The database behind a proxy, and its URL there."""
    parts = urlsplit(url)
    async with TcpProxy(str(parts.hostname), int(parts.port or 5432)) as proxy:
        user = parts.netloc.rpartition("@")[0]
        yield proxy, parts._replace(netloc=f"{user}@127.0.0.1:{proxy.port}").geturl()


async def backends(url: str, condition: str = "true") -> list[int]:
    """The processes that serve the connections of this schema, other than the one that asks."""
    name = url.partition("application_name=")[2]
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        rows = await connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = %s"
            f" AND pid <> pg_backend_pid() AND {condition}",
            (name,),
        )
        return [pid for (pid,) in await rows.fetchall()]


async def left(url: str) -> None:
    """Until no connection of this schema is served: a process ends some time after its client."""
    async with asyncio.timeout(seconds(10)):
        while await backends(url):
            pass


def loaded(url: str) -> datetime:
    """When the server has last read its settings, as a new session sees it."""
    with psycopg.connect(url) as connection:
        [(at,)] = connection.execute("SELECT pg_conf_load_time()").fetchall()
    assert isinstance(at, datetime)
    return at


async def cut(url: str, condition: str = "true") -> int:
    """How many connections were cut."""
    found = await backends(url, condition)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for pid in found:
            await connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    return len(found)


async def test_ten_replicas_that_start_at_once_make_the_tables_once(schema: str) -> None:
    stores = [PostgresStore(schema) for _ in range(10)]
    async with asyncio.timeout(BOUND):
        await asyncio.gather(*(store.__aenter__() for store in stores))
    await stores[0].commit(start_run("t"))
    assert [(await store.thread("t")).thread_id for store in stores] == ["t"] * 10
    await asyncio.gather(*(store.__aexit__() for store in stores))


class RefusedAccess(PostgresAccess):
    """Counts how often the database gave no connection."""

    refused = 0

    async def connect(self) -> AsyncConnection:
        try:
            return await super().connect()
        except StoreUnavailable:
            self.refused += 1
            raise


async def test_reads_share_the_connections_that_a_full_database_has_given(postgres: str) -> None:
    role = f"few_{uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'few' CONNECTION LIMIT 1".encode())
    access = RefusedAccess(f"postgresql://{role}:few@{postgres.rpartition('@')[2]}")
    readers = PostgresReaders(access)
    is_held, may_end = asyncio.Event(), asyncio.Event()

    async def hold(_: AsyncConnection) -> None:
        is_held.set()
        await may_end.wait()

    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        group.create_task(readers.run(hold))
        await is_held.wait()
        reads = [group.create_task(readers.fetch("SELECT 1")) for _ in range(3)]
        for _ in iter(lambda: access.refused, len(reads)):
            await asyncio.sleep(0)
        may_end.set()
    assert [read.result() for read in reads] == [[(1,)]] * 3
    await readers.close()


async def test_database_of_a_newer_version_is_refused_and_not_touched(schema: str) -> None:
    async with PostgresStore(schema):
        pass
    with psycopg.connect(schema, autocommit=True) as connection:
        connection.execute("UPDATE teal_schema SET version = 1000")
        with pytest.raises(SchemaTooNew, match="schema 1000"):
            await PostgresStore(schema).__aenter__()
        assert connection.execute("SELECT version FROM teal_schema").fetchall() == [(1000,)]
    await left(schema)


async def test_setting_that_may_lose_commits_is_named(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The tests' server does not sync."""
    async with PostgresStore(database) as store:
        assert store.durability is Durability.D1
    assert "fsync is off" in caplog.text
    assert "full_page_writes is off" in caplog.text
    assert "synchronous_commit is off" not in caplog.text
    with caplog.at_level(logging.WARNING):
        async with PostgresStore(f"{database}&options=-csynchronous_commit%3Doff"):
            pass
    assert "synchronous_commit is off" in caplog.text


async def test_server_is_not_ready_while_the_database_keeps_less_than_is_required(
    own_server: PostgresServer,
) -> None:
    url = own_server.url()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:

        async def change(setting: LiteralString) -> None:
            await connection.execute(setting)
            before = loaded(url)
            await connection.execute("SELECT pg_reload_conf()")
            deadline = time.monotonic() + BOUND
            while loaded(url) == before:
                assert time.monotonic() < deadline

        for name in ("fsync", "full_page_writes"):
            with pytest.raises(ConfigurationError, match=f"class D1;.*setting {name} is off"):
                await requiring("D2", store=url).__aenter__()
        await change("ALTER SYSTEM SET fsync = on")
        await change("ALTER SYSTEM SET full_page_writes = on")
        places: tuple[LiteralString, ...] = ("SYSTEM", "DATABASE postgres", "ROLE postgres")
        for place in places:
            await change(f"ALTER {place} SET synchronous_commit = off")
            with pytest.raises(ConfigurationError, match="setting synchronous_commit is off"):
                await requiring("D2", store=url).__aenter__()
            await change(f"ALTER {place} RESET synchronous_commit")
        async with requiring("D2", store=url) as readiness:
            assert await readiness() == (200, "D2")
            await change("ALTER SYSTEM SET synchronous_commit = off")
            assert await readiness() == (503, "D1")
            await change("ALTER SYSTEM RESET ALL")


async def test_role_that_may_not_make_tables_needs_them_made_and_the_documented_rights(
    schema: str,
) -> None:
    name = schema.partition("application_name=")[2]
    place = urlsplit(schema)
    role = f"role_of_{name}"
    own = f"postgresql://{role}:p@{place.hostname}:{place.port}/postgres?{place.query}"
    with psycopg.connect(schema, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'p'")
        connection.execute(f"GRANT USAGE ON SCHEMA {name} TO {role}")
        try:
            with pytest.raises(ConfigurationError, match="teal migrate"):
                await PostgresStore(own).__aenter__()
            async with PostgresStore(schema):
                pass
            connection.execute(GRANT.replace("TO teal;", f"TO {role};"))
            async with PostgresStore(own) as store:
                head = (await store.commit(start_run("t", owner="o"))).thread
                await asyncio.to_thread(store.renew, "o", 60)
                await store.mark_watched(["r"])
                assert await store.count([Count("k", 1, 60)]) == [1]
                await store.retire("o")
                await store.delete("t", next_seq=head.next_seq)
                await store.ping()
        finally:
            connection.execute(f"DROP OWNED BY {role}")
            connection.execute(f"DROP ROLE {role}")


async def test_password_of_a_command_is_asked_for_at_each_connection(
    database: str, tmp_path: Path
) -> None:
    place = urlsplit(database)
    asked = tmp_path / "asked"
    program = tmp_path / "password"
    program.write_text(f"#!/bin/sh\necho x >> {asked}\necho '{place.password}'\n")
    program.chmod(0o700)
    url = f"postgresql://{place.username}@{place.hostname}:{place.port}/postgres?{place.query}"
    async with PostgresStore(url, password_command=str(program)) as store:
        await store.commit(start_run("t"))
        await store.thread("t")
        store.renew("o", 60)
    assert len(asked.read_text().split()) == 3


@pytest.mark.parametrize("command", ["false", "/nowhere/s3cret", "true", "'unclosed s3cret"])
async def test_command_without_a_password_is_an_error_that_repeats_nothing(
    database: str, command: str
) -> None:
    with pytest.raises(StoreUnavailable, match="TA_POSTGRES_PASSWORD_COMMAND") as refused:
        await PostgresStore(database, password_command=command).__aenter__()
    assert "s3cret" not in str(refused.value)


async def test_database_that_is_not_there_is_unavailable_without_its_password() -> None:
    with pytest.raises(StoreUnavailable) as refused:
        await PostgresStore("postgresql://u:s3cret@127.0.0.1:1/none").__aenter__()
    assert "127.0.0.1" in str(refused.value)
    assert "s3cret" not in str(refused.value)


async def test_text_that_the_database_cannot_hold_is_refused_and_harms_no_other(
    database: str,
) -> None:
    async with PostgresStore(database) as store:
        wrong = create("zero\0", thought())
        good = [store.commit(create(f"t{number}", thought())) for number in range(5)]
        results = await asyncio.gather(*good, store.commit(wrong), return_exceptions=True)
        assert isinstance(results[-1], InvalidInput)
        assert not any(isinstance(result, BaseException) for result in results[:-1])
        for name in ("zero\0", "half \ud800"):
            with pytest.raises(ThreadNotFound):
                await store.thread(name)
            assert await store.find("run", name) is None
            assert list(await store.heads([name, "t0"])) == [await store.thread("t0")]


async def test_commits_that_wait_together_are_one_statement_of_a_bounded_size(
    database: str,
) -> None:
    async with PostgresStore(database) as store:
        await asyncio.gather(*(store.commit(create(f"t{n}")) for n in range(2 * MAX_GROUP)))
        counted = store.metrics()
        assert (counted["commits"], counted["commit_groups"]) == (2 * MAX_GROUP, 2)


async def test_damaged_and_newer_heads_are_errors_of_their_own_threads_alone(
    database: str,
) -> None:
    async with PostgresStore(database) as store:
        heads = [
            (await store.commit(start_run(name, f"run-{name}"))).thread
            for name in ("damaged", "newer", "whole")
        ]
    newer = encode_head(heads[1]._replace(version=99))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE teal_thread SET checksum = 1 WHERE thread_id = 'damaged'")
        connection.execute(
            "UPDATE teal_thread SET head = %s, checksum = %s WHERE thread_id = 'newer'",
            (newer, head_checksum("newer", newer)),
        )
    async with PostgresStore(database) as store:
        results = await asyncio.gather(
            *(store.commit(append(head, thought())) for head in heads), return_exceptions=True
        )
        assert [type(result) for result in results] == [StateCorrupt, SchemaTooNew, Committed]
        assert [head.thread_id for head in await store.orphans()] == ["whole"]


async def test_plain_turn_reads_nothing_before_it_commits(database: str) -> None:
    async with PostgresStore(database) as store:
        head = (await store.commit(start_run("t", owner="o"))).thread
        for _ in range(5):
            head = (await store.commit(append_owned(head, thought()))).thread
        assert store.metrics()["commit_reads"] == 0


async def test_commits_of_one_thread_that_wait_together_are_stored_in_one_statement(
    database: str,
) -> None:
    async with PostgresStore(database) as store:
        head = (await store.commit(start_run("t", owner="o"))).thread
        before = store.metrics()["commit_groups"]
        commits = [append_owned(head, thought(str(number))) for number in range(8)]
        done = await asyncio.gather(*map(store.commit, commits))
        assert store.metrics()["commit_groups"] == before + 1
        assert [result.events[0].seq for result in done] == list(range(2, 10))
        again = await asyncio.gather(*map(store.commit, commits))
        assert [result.events for result in again] == [result.events for result in done]
        assert len(await every_event(store, "t")) == 9


async def test_connections_that_were_cut_while_idle_are_not_noticed(database: str) -> None:
    async with PostgresStore(database) as store:
        head = (await store.commit(start_run("t", owner="o"))).thread
        await asyncio.gather(*(store.thread("t") for _ in range(3)))
        store.renew("o", 60)
        assert await cut(database) >= 4
        await store.commit(append_owned(head, thought()))
        assert len(await store.events_after("t", 0)) == 2
        await asyncio.to_thread(store.renew, "o", 60)


@pytest.mark.parametrize("lease_only", [False, True])
async def test_commit_whose_connection_is_cut_is_sent_again_and_stored_once(
    database: str, lease_only: bool
) -> None:
    async with PostgresStore(database) as store, PostgresStore(database) as other:
        head = (await store.commit(start_run("t", owner="o"))).thread
        commit = append_owned(head) if lease_only else append_owned(head, thought())
        with psycopg.connect(database) as blocker:
            blocker.execute("SELECT * FROM teal_thread FOR UPDATE")
            sent = asyncio.ensure_future(store.commit(commit))
            async with asyncio.timeout(BOUND):
                while not await cut(database, "wait_event_type = 'Lock'"):
                    continue
        async with asyncio.timeout(BOUND):
            done = await sent
        assert await other.thread("t") == done.thread
        assert len(await every_event(other, "t")) == (1 if lease_only else 2)


async def test_commit_that_was_stored_before_its_answer_was_lost_is_recognised(
    database: str,
) -> None:
    """Also one without events, which leaves no trace of its id."""
    async with proxied(database) as (proxy, url):
        async with PostgresStore(url) as store, PostgresStore(database) as other:
            head = (await store.commit(start_run("t", owner="o"))).thread

            async def unanswered(
                commit: Commit, written: bytes, until: Callable[[Thread], bool]
            ) -> Committed:
                proxy.lose_answers(to=written)
                sent = asyncio.ensure_future(store.commit(commit))
                async with asyncio.timeout(BOUND):
                    while not until(await other.thread("t")):
                        continue
                    proxy.heal()
                    return await sent

            released = await unanswered(
                append_owned(head, lease=Release()),
                b'"owner":null',
                lambda head: head.owner is None,
            )
            assert released.thread.owner is None
            done = await unanswered(
                append(released.thread, thought("unheard of")),
                b"unheard of",
                lambda head: head.next_seq == 3,
            )
            assert [event.seq for event in done.events] == [2]
            assert len(await every_event(other, "t")) == 2


async def test_commit_that_was_sent_into_a_dead_connection_can_be_sent_again(database: str) -> None:
    async with proxied(database) as (proxy, url):
        async with PostgresStore(url) as store:
            head = (await store.commit(start_run("t"))).thread
            proxy.black_hole()
            unknown = append(head, thought())
            sent = asyncio.ensure_future(store.commit(unknown))
            async with asyncio.timeout(BOUND):
                await proxy.lost.wait()
            proxy.cut()
            with pytest.raises(CommitOutcomeUnknown):
                await sent
            proxy.heal()
            assert [event.seq for event in (await store.commit(unknown)).events] == [2]
            assert len(await every_event(store, "t")) == 2


async def test_silent_database_stops_neither_renewals_nor_reads_for_long(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that takes all and answers nothing."""
    monkeypatch.setattr(connections, "RENEWAL_SECONDS", 0.1)
    monkeypatch.setattr(connections, "STATEMENT_SECONDS", 0.1)
    async with PostgresStore(database) as store:
        await store.commit(start_run("t"))
        await asyncio.to_thread(store.renew, "o", 60)
        with psycopg.connect(database) as blocker:
            blocker.execute("LOCK TABLE teal_owner, teal_thread")
            async with asyncio.timeout(BOUND):
                with pytest.raises(StoreError):
                    await asyncio.to_thread(store.renew, "o", 60)
                with pytest.raises(StoreUnavailable):
                    await store.thread("t")
        monkeypatch.undo()
        await asyncio.to_thread(store.renew, "o", 60)
        assert (await store.thread("t")).thread_id == "t"


async def test_network_that_swallows_everything_keeps_no_read_for_longer_than_its_bound(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what would cancel the statement."""
    monkeypatch.setattr(connections, "STATEMENT_SECONDS", 0.1)
    monkeypatch.setattr(connections, "CANCEL_SECONDS", 0.1)
    async with proxied(f"{database}&connect_timeout=2") as (proxy, url):
        async with PostgresStore(url) as store:
            await store.commit(start_run("t"))
            assert (await store.thread("t")).thread_id == "t"
            proxy.black_hole()
            async with asyncio.timeout(seconds(8)):
                with pytest.raises(StoreUnavailable):
                    await store.thread("t")
            proxy.heal()
            assert (await store.thread("t")).thread_id == "t"


async def test_store_is_unavailable_while_its_server_is_away_and_recovers_by_itself(
    own_server: PostgresServer,
) -> None:
    async with PostgresStore(own_server.url()) as store:
        head = (await store.commit(start_run("away"))).thread
        await store.thread("away")
        async with stopped(own_server):
            async with asyncio.timeout(BOUND):
                for attempt in (
                    store.thread("away"),
                    store.commit(append(head, thought())),
                    store.ping(),
                    asyncio.to_thread(store.renew, "o", 60),
                ):
                    with pytest.raises(StoreError):
                        await attempt
        async with asyncio.timeout(BOUND):
            assert await store.thread("away") == head
            await store.commit(append(head, thought()))
            await store.ping()
            await asyncio.to_thread(store.renew, "o", 60)
        assert len(await every_event(store, "away")) == 2


async def test_crash_of_the_server_loses_no_acknowledged_commit_and_doubles_none(
    own_server: PostgresServer,
) -> None:
    """Writers send until they are told; the server crashes twice under them."""
    acknowledged: list[str] = []
    crashes = asyncio.Event()

    async def write(store: PostgresStore, name: str) -> None:
        head = (await sent(store, start_run(name, f"run-{name}"))).thread
        for number in range(1_000_000):
            if crashes.is_set() and number > 20:
                return
            commit = append(head, thought(f"{name}.{number}"))
            head = (await sent(store, commit)).thread
            acknowledged.append(f"{name}.{number}")

    async def sent(store: PostgresStore, commit: Commit) -> Any:
        while True:
            try:
                return await store.commit(commit)
            except StoreError:
                await asyncio.sleep(0)

    async def crash() -> None:
        for limit in (50, 150):
            for _ in iter(lambda: len(acknowledged) > limit, True):  # noqa: B023
                await asyncio.sleep(0)
            async with stopped(own_server, immediately=True):
                pass
        crashes.set()

    async with PostgresStore(own_server.url()) as store, asyncio.timeout(seconds(60)):
        await asyncio.gather(crash(), *(write(store, f"w{number}") for number in range(8)))
        stored = [
            event.model_dump()["content"]
            for number in range(8)
            for event in (await every_event(store, f"w{number}"))[1:]
        ]
    assert sorted(stored) == sorted(acknowledged)


@pytest.mark.parametrize("is_back_first", [True, False])
async def test_runs_go_on_after_a_crash_of_the_database(
    own_server: PostgresServer, is_back_first: bool
) -> None:
    """In the middle of their answers; the database is back before they end, or only afterwards."""
    go_on = asyncio.Event()
    names = [f"runs-{is_back_first}-{number}" for number in range(20)]
    script: Script = [[TextDelta("half "), go_on, *says("and whole")]] * len(names)
    async with talking(own_server.url(), script=script) as talk:
        started = [
            await talk.say(thread=name, run_id=f"run-of-{name}", user_id="ada") for name in names
        ]
        async with stopped(own_server, immediately=True):
            if not is_back_first:
                go_on.set()
        go_on.set()
        runs = await asyncio.gather(*map(talk.result, started))
        assert {run.status for run in runs} == {RunStatus.COMPLETED}
        for name in names:
            log = await talk.log(name)
            assert [event.type for event in log] == ["run_started", "answered", "run_ended"]


STATEMENTS = {
    name: value
    for name, value in vars(statements).items()
    if name.isupper() and name not in ("NOW",) and not name.startswith("_")
}
VALUES: dict[str, Any] = {
    **_columns([]),
    "clock": None,
    "thread_ids": TextArray(["t"]),
    "thread_id": "t",
    "job": Int8Array([1]),
    "no": Int8Array([1]),
    "first_seq": Int8Array([1]),
    "commit_id": TextArray(["c"]),
    "takes_over": None,
    "due": 1,
    "records": 500,
    "max_bytes": 2**62,
    "user_id": "u",
    "surface": None,
    "session_id": None,
    "at": None,
    "limit": 50,
    "gone": TextArray([]),
    "kind": "run",
    "keys": TextArray(["k"]),
    "after": "",
    "now": None,
    "owner": "o",
    "ttl": 1.0,
    "seconds": 1.0,
    "run_ids": TextArray(["r"]),
    "ago": 0.0,
    "run_id": "r",
    "sums": Int8Array([1]),
    "forget_at": [1.0],
    "prefix": "a",
    "end": "b",
}


# What some statements call otherwise.
OTHER_VALUES: dict[str, dict[str, Any]] = {
    "COMMIT": _columns([]),
    "DELETE": {"no": 1, "version": 1, "takes_over": False},
    "FORGET_COUNTERS": {"now": 1.0},
    "SUMS": {"now": 1.0},
}


async def test_every_statement_finds_its_rows_by_an_index(database: str) -> None:
    async with PostgresStore(database):
        pass
    connection = await PostgresAccess(database).connect()
    register(connection)
    scans: list[str] = []
    try:
        for name, statement in STATEMENTS.items():
            values = VALUES | OTHER_VALUES.get(name, {})
            rows = await connection.execute(f"EXPLAIN {statement}", values)
            plan = "\n".join(line for (line,) in await rows.fetchall())
            # There are as many owners as instances: an index would cost each renewal more than
            # it saves.
            if plan.count("Seq Scan") > plan.count("Seq Scan on teal_owner"):
                scans.append(f"{name}:\n{plan}")
    finally:
        await connection.close()
    assert scans == []
    assert len(STATEMENTS) > 20


@pytest.fixture
def pooled(postgres: str, database: str) -> Iterator[tuple[str, Path]]:
    """The URL of the same store behind PgBouncer in transaction mode, with two sessions, and the
    certificate that it shows to those who ask for TLS."""
    pgbouncer = program(PGBOUNCER)
    if pgbouncer is None:
        lacks("pooler", "PgBouncer is not installed")
    place = urlsplit(postgres)
    name = database.partition("application_name=")[2]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    user: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        signed = certificate(Path(folder), "127.0.0.1")
        settings = Path(folder) / "pgbouncer.ini"
        settings.write_text(
            "[databases]\n"
            f"postgres = host={place.hostname} port={place.port} user={place.username}"
            f" password={place.password} connect_query='SET search_path TO {name}'\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n"
            f"client_tls_sslmode = allow\nclient_tls_key_file = {signed}\n"
            f"client_tls_cert_file = {signed}\n"
        )
        if os.geteuid() == 0:
            user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            for path in (Path(folder), signed, settings):
                os.chown(path, NOBODY, NOBODY)
        with subprocess.Popen(
            [pgbouncer, str(settings)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **user,
        ) as process:
            try:
                yield f"postgresql://any@127.0.0.1:{port}/postgres", signed
            finally:
                process.terminate()


async def opened_soon(url: str) -> PostgresStore:
    """Opened as soon as there is something that listens."""
    async with asyncio.timeout(BOUND):
        while True:
            try:
                return await PostgresStore(url).__aenter__()
            except StoreUnavailable:
                await asyncio.sleep(0)


async def test_store_works_through_a_pooler_in_transaction_mode(pooled: tuple[str, Path]) -> None:
    url, _ = pooled
    store = await opened_soon(url)
    try:
        async with asyncio.timeout(BOUND):
            heads = await asyncio.gather(
                *(store.commit(start_run(f"t{n}", f"run-{n}", owner="o")) for n in range(20))
            )
            await asyncio.to_thread(store.renew, "o", 60)
            for _ in range(5):
                heads = await asyncio.gather(
                    *(store.commit(append_owned(done.thread, thought())) for done in heads)
                )
            logs = await asyncio.gather(*(every_event(store, f"t{n}") for n in range(20)))
            assert [len(log) for log in logs] == [6] * 20
            assert await store.orphans() == []
            assert await store.count([Count("k", 2, 60, at_most=3)]) == [2]
            await store.ping()
        async with PostgresMessages(url) as messages:
            assert not messages.is_heard
    finally:
        await store.__aexit__()


async def test_certificate_is_verified_if_the_url_says_so(
    pooled: tuple[str, Path], tmp_path: Path
) -> None:
    url, signed = pooled
    await (await opened_soon(url)).__aexit__()
    verified = f"{url}?sslmode=verify-full&sslrootcert="
    async with PostgresStore(f"{verified}{signed}") as store:
        await store.commit(start_run("t"))
    other = certificate(tmp_path, "127.0.0.1")
    with pytest.raises(StoreUnavailable, match="certificate"):
        await PostgresStore(f"{verified}{other}").__aenter__()


async def test_server_without_tls_is_refused_if_the_url_asks_for_it(database: str) -> None:
    with pytest.raises(StoreUnavailable, match="SSL"):
        await PostgresStore(f"{database}&sslmode=verify-full").__aenter__()


def test_store_is_named_without_its_password() -> None:
    assert str(PostgresStore("postgresql://u:s3cret@host/db")) == "postgresql://host/db"


async def test_encrypted_store_shows_no_word_to_the_database_and_needs_its_key(
    schema: str,
) -> None:
    codec = EncryptingCodec(read_keys(new_key(), "a test"))
    async with PostgresStore(schema, codec=codec) as store:
        head = (await store.commit(start_run("t", text="a secret word"))).thread
        for number in range(3):
            head = (await store.commit(append(head, thought(f"secret {number}")))).thread
        whole = await every_event(store, "t")
    with psycopg.connect(schema) as connection:
        kept = connection.execute("SELECT head FROM teal_thread").fetchall()
        kept += connection.execute("SELECT body FROM teal_record").fetchall()
    assert len(kept) == 5
    assert not any(b"secret" in body or b"run-1" in body for (body,) in kept)
    async with PostgresStore(schema, codec=codec) as store:
        assert await every_event(store, "t") == whole
        await store.commit(append(head, thought()))
        found = await store.threads(ThreadQuery(USER, text="SECRET"))
        assert [thread.thread_id for thread in found.threads] == ["t"]
    with pytest.raises(StoreEncrypted):
        await PostgresStore(schema).__aenter__()
    other = EncryptingCodec(read_keys(new_key(), "a test"))
    with pytest.raises(WrongEncryptionKey):
        await PostgresStore(schema, codec=other).__aenter__()
