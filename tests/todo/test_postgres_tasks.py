"""What only PostgreSQL can do to a todo list: be away, be shared, be somebody else's."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    ConfigurationError,
    StoreBusy,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from tests.patience import seconds
from tests.postgres import PostgresServer
from todo_server.__main__ import main
from todo_server.postgres_tasks import PostgresTasks

OPERATIONS: dict[str, Callable[[PostgresTasks], object]] = {
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
def test_connection_dropped_between_calls_goes_unnoticed(schema: str, operation: str) -> None:
    with PostgresTasks(schema) as store:
        store.add("ada", "a", "", None)
        assert cut_off(schema) == 1
        OPERATIONS[operation](store)
        assert cut_off(schema) == 1
        assert len(store.list("ada", "all", 9)) == {"add": 2, "delete": 0}.get(operation, 1)


def test_call_says_that_the_database_is_away_and_works_when_it_is_back() -> None:
    with PostgresServer() as server, PostgresTasks(server.url()) as store:
        store.add("ada", "a", "", None)
        server.stop(immediately=True)
        for operation in OPERATIONS.values():
            with pytest.raises(StoreUnavailable, match="cannot be reached now"):
                operation(store)
        with pytest.raises(StoreUnavailable, match="Connection refused"):
            PostgresTasks(server.url()).__enter__()
        server.start()
        assert [task.title for task in store.list("ada", "all", 9)] == ["a"]
        assert store.add("ada", "b", "", None).id == 2


def test_change_whose_commit_is_cut_off_is_neither_claimed_nor_denied(schema: str) -> None:
    with PostgresTasks(schema) as store:
        with psycopg.connect(schema) as connection:
            connection.execute(DIES_AT_COMMIT)
        with pytest.raises(CommitOutcomeUnknown, match="whether the change was made"):
            store.add("ada", "a", "", None)
        assert store.list("ada", "all", 9) == []


def test_change_that_waits_too_long_is_given_up(schema: str) -> None:
    hurried = with_option(schema, "lock_timeout", "50ms")
    with PostgresTasks(hurried) as store:
        store.add("ada", "a", "", None)
        with (
            holding(schema, "SELECT FROM todo_task FOR UPDATE"),
            pytest.raises(StoreBusy, match="nothing was changed"),
        ):
            store.complete("ada", 1)
        assert store.complete("ada", 1).completed_at is not None


def test_database_that_cannot_be_written_still_shows_its_tasks(schema: str) -> None:
    with PostgresTasks(schema) as store:
        added = store.add("ada", "a", "", None)
    with PostgresTasks(with_option(schema, "default_transaction_read_only", "on")) as store:
        with pytest.raises(StoreReadOnly):
            store.delete("ada", 1)
        assert store.list("ada", "all", 9) == [added]


def test_stricter_default_of_the_database_makes_no_change_fail(schema: str) -> None:
    strict = with_option(schema, "default_transaction_isolation", "serializable")

    def write(_: int) -> list[int]:
        with PostgresTasks(strict) as store:
            return [store.add("ada", "a", "", None).id for _ in range(10)]

    with ThreadPoolExecutor(4) as threads:
        numbers = [id for ids in threads.map(write, range(4)) for id in ids]
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


def test_user_who_may_not_make_tables_uses_those_that_are_there(schema: str, clerk: str) -> None:
    with pytest.raises(ConfigurationError, match="permission denied"):
        PostgresTasks(clerk).__enter__()
    name = clerk.partition("//")[2].partition(":")[0]
    with PostgresTasks(schema) as owner, psycopg.connect(schema, autocommit=True) as connection:
        owner.add("ada", "a", "", None)
        connection.execute(f"GRANT SELECT ON todo_schema, todo_task, todo_last_id TO {name}")
        with PostgresTasks(clerk) as store:
            assert len(store.list("ada", "all", 9)) == 1
            with pytest.raises(StoreError, match="refused; nothing was changed"):
                store.delete("ada", 1)
            connection.execute(f"GRANT DELETE ON todo_task TO {name}")
            store.delete("ada", 1)


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
def test_tables_of_somebody_else_are_not_touched(schema: str, statement: str, message: str) -> None:
    def columns() -> list[tuple[str, ...]]:
        return connection.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = current_schema() ORDER BY 1, 2"
        ).fetchall()

    with psycopg.connect(schema, autocommit=True) as connection:
        connection.execute(statement)
        before = columns()
        with pytest.raises(ConfigurationError, match=message):
            PostgresTasks(schema).__enter__()
        assert columns() == before


def test_database_that_cannot_hold_every_text_is_refused(postgres: str) -> None:
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING LATIN1")
        try:
            with pytest.raises(ConfigurationError, match="UTF8, not LATIN1"):
                PostgresTasks(f"{postgres.rpartition('/')[0]}/{name}").__enter__()
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
