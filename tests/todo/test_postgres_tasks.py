"""What only PostgreSQL can do to a todo list: be away, be shared, be somebody else's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    ConfigurationError,
    StoreBusy,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from tests.instances.tcp_proxy import TcpProxy
from tests.patience import seconds
from tests.postgres import PostgresServer
from todo_server.__main__ import main
from todo_server.postgres_tasks import PostgresTasks

OPERATIONS: dict[str, Callable[[PostgresTasks], Awaitable[object]]] = {
    "add": lambda store: store.add("ada", "b", "", None),
    "list": lambda store: store.list("ada", "all", 9),
    "complete": lambda store: store.complete("ada", 1),
    "update": lambda store: store.update("ada", 1, title="c"),
    "delete": lambda store: store.delete("ada", 1),
}
# A change that is cut off at the very moment of its commit.
DIES_AT_COMMIT = """
CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER dies AFTER INSERT ON todo_task
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die();
"""


def with_option(url: str, name: str, value: str) -> str:
    return url.replace("options=", f"options=-c{name}%3D{value}%20")


def cut_off(schema: str) -> int:
    """Drop whoever is connected by this URL; how many there were."""
    with psycopg.connect(schema, application_name="other", autocommit=True) as connection:
        rows = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = current_schema()"
        ).fetchall()
    assert all(gone for (gone,) in rows)
    return len(rows)


@contextmanager
def holding(schema: str, statement: str) -> Iterator[None]:
    """Somebody else's transaction, open meanwhile."""
    with psycopg.connect(schema) as connection:
        connection.execute(statement)
        yield


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_connection_dropped_between_calls_goes_unnoticed(schema: str, operation: str) -> None:
    async with PostgresTasks(schema) as store:
        await store.add("ada", "a", "", None)
        assert cut_off(schema) == 1
        await OPERATIONS[operation](store)
        assert cut_off(schema) == 1
        assert len(await store.list("ada", "all", 9)) == {"add": 2, "delete": 0}.get(operation, 1)


async def test_call_says_that_the_database_is_away_and_works_when_it_is_back() -> None:
    with PostgresServer() as server:
        async with PostgresTasks(server.url()) as store:
            await away_and_back(server, store)


async def away_and_back(server: PostgresServer, store: PostgresTasks) -> None:
    await store.add("ada", "a", "", None)
    server.stop(immediately=True)
    for operation in OPERATIONS.values():
        with pytest.raises(StoreUnavailable, match="cannot be reached now"):
            await operation(store)
    with pytest.raises(StoreUnavailable, match="Connection refused"):
        await PostgresTasks(server.url()).__aenter__()
    server.start()
    assert [task.title for task in await store.list("ada", "all", 9)] == ["a"]
    assert (await store.add("ada", "b", "", None)).id == 2


async def test_change_whose_commit_is_cut_off_is_neither_claimed_nor_denied(schema: str) -> None:
    async with PostgresTasks(schema) as store:
        with psycopg.connect(schema) as connection:
            connection.execute(DIES_AT_COMMIT)
        with pytest.raises(CommitOutcomeUnknown, match="whether the change was made"):
            await store.add("ada", "a", "", None)
        assert await store.list("ada", "all", 9) == []


async def test_database_that_hangs_holds_up_its_own_callers_for_a_bounded_time_and_no_one_else(
    schema: str,
) -> None:
    place = conninfo_to_dict(schema)
    host, port = str(place["host"]), int(str(place["port"]))
    async with TcpProxy(host, port) as proxy:
        url = schema.replace(f":{port}/", f":{proxy.port}/")
        async with PostgresTasks(url, operation_seconds=0.3) as store:
            await store.add("ada", "a", "", None)
            proxy.black_hole()
            calls = [asyncio.create_task(store.add("ada", "b", "", None)) for _ in range(6)]
            async with PostgresTasks(schema) as other:
                # The loop goes on, also where more calls hang than there are connections.
                assert len(await other.list("ada", "all", 9)) == 1
            async with asyncio.timeout(seconds(30)):
                ends = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(end) for end in ends} <= {StoreBusy, CommitOutcomeUnknown}
            proxy.heal()
            async with asyncio.timeout(seconds(30)):
                assert [task.title for task in await store.list("ada", "all", 9)] == ["a"]


async def test_change_that_waits_too_long_is_given_up(schema: str) -> None:
    hurried = with_option(schema, "lock_timeout", "50ms")
    async with PostgresTasks(hurried) as store:
        await store.add("ada", "a", "", None)
        with (
            holding(schema, "SELECT FROM todo_task FOR UPDATE"),
            pytest.raises(StoreBusy, match="nothing was changed"),
        ):
            await store.complete("ada", 1)
        assert (await store.complete("ada", 1)).completed_at is not None


async def test_database_that_cannot_be_written_still_shows_its_tasks(schema: str) -> None:
    async with PostgresTasks(schema) as store:
        added = await store.add("ada", "a", "", None)
    async with PostgresTasks(with_option(schema, "default_transaction_read_only", "on")) as store:
        with pytest.raises(StoreReadOnly):
            await store.delete("ada", 1)
        assert await store.list("ada", "all", 9) == [added]


async def test_stricter_default_of_the_database_makes_no_change_fail(schema: str) -> None:
    strict = with_option(schema, "default_transaction_isolation", "serializable")

    async def write() -> list[int]:
        async with PostgresTasks(strict) as store:
            return [(await store.add("ada", "a", "", None)).id for _ in range(10)]

    numbers = [id for ids in await asyncio.gather(*(write() for _ in range(4))) for id in ids]
    assert sorted(numbers) == list(range(1, 41))


@pytest.fixture
def clerk(schema: str) -> Iterator[str]:
    """The URL for somebody who may use the schema, but make nothing in it."""
    name, password = f"clerk_{uuid.uuid4().hex}", "sesame"
    with psycopg.connect(schema, autocommit=True) as connection:
        found = connection.execute("SELECT current_schema()").fetchone()
        assert found is not None
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        connection.execute(f"GRANT USAGE ON SCHEMA {found[0]} TO {name}")
        yield f"postgresql://{name}:{password}@{schema.rpartition('@')[2]}"
        connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_user_who_may_not_make_tables_uses_those_that_are_there(
    schema: str, clerk: str
) -> None:
    with pytest.raises(ConfigurationError, match="permission denied"):
        await PostgresTasks(clerk).__aenter__()
    name = clerk.partition("//")[2].partition(":")[0]
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(PostgresTasks(schema))
        connection = stack.enter_context(psycopg.connect(schema, autocommit=True))
        await owner.add("ada", "a", "", None)
        connection.execute(f"GRANT SELECT ON todo_schema, todo_task, todo_last_id TO {name}")
        async with PostgresTasks(clerk) as store:
            assert len(await store.list("ada", "all", 9)) == 1
            with pytest.raises(StoreError, match="refused; nothing was changed"):
                await store.delete("ada", 1)
            connection.execute(f"GRANT DELETE ON todo_task TO {name}")
            await store.delete("ada", 1)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE todo_task (precious text)", "already exists"),
        ("CREATE TABLE todo_schema (precious text)", "version"),
        ("CREATE TABLE todo_schema (version text)", "not a todo list's"),
        ("CREATE TABLE todo_schema (version integer)", "not a todo list's"),
        ("CREATE TABLE todo_schema AS SELECT 2 AS version", "newer version"),
    ],
)
async def test_tables_of_somebody_else_are_not_touched(
    schema: str, statement: str, message: str
) -> None:
    def columns() -> list[tuple[str, ...]]:
        return connection.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = current_schema() ORDER BY 1, 2"
        ).fetchall()

    with psycopg.connect(schema, autocommit=True) as connection:
        connection.execute(statement)
        before = columns()
        with pytest.raises(ConfigurationError, match=message):
            await PostgresTasks(schema).__aenter__()
        assert columns() == before


async def test_database_that_cannot_hold_every_text_is_refused(postgres: str) -> None:
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING LATIN1")
        try:
            with pytest.raises(ConfigurationError, match="UTF8, not LATIN1"):
                await PostgresTasks(f"{postgres.rpartition('/')[0]}/{name}").__aenter__()
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def started_without_the_driver(url: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from todo_server.__main__ import main; sys.exit(main())"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"TODO_STORE": url},
        cwd=Path(__file__).parents[2] / "demos" / "todo",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds(60),
    )


def test_program_without_the_driver_names_the_extra_to_install() -> None:
    ended = started_without_the_driver("postgresql://me:secret@127.0.0.1/x")
    assert ended.returncode == 78
    assert "pip install 'teal-agents[postgres]'" in ended.stderr
    assert "secret" not in ended.stderr


def test_tasks_in_a_file_need_no_driver(tmp_path: Path) -> None:
    ended = started_without_the_driver(f"sqlite://{tmp_path}/todo.sqlite")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_program_that_is_refused_says_why_and_not_its_password(
    postgres: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = postgres.rpartition("@")[2]
    assert main([], {"TODO_STORE": f"postgresql://postgres:notright@{place}"}) == 78
    said = capsys.readouterr().err
    assert "password authentication failed" in said and "notright" not in said
