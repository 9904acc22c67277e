"""The stores that keep what they are told, each in a folder of its own."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from sk_agents.engine.ports import Store
from sk_agents.persistence.store_factory import open_store
from tests import dynamodb
from tests.dynamodb import aws_environment, dynalite_server, moto_server

DURABLE = {"sqlite": "teal.sqlite", "file": "store"}


@pytest.fixture(params=DURABLE)
def durable_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store, once for each kind."""
    return f"{request.param}://{tmp_path / DURABLE[request.param]}"


@pytest.fixture
def reopened(durable_url: str) -> Callable[[], Store]:
    """Another handle on the store of `durable_url`, to be entered."""
    return lambda: open_store(durable_url)


@pytest.fixture(scope="session")
def tables(postgres: str) -> Iterator[tuple[psycopg.Connection, str]]:
    """A schema for the whole session, and its URL."""
    name = f"stores_{uuid.uuid4().hex}"
    url = f"{postgres}?options=-csearch_path%3D{name}&application_name={name}"
    with psycopg.connect(url, autocommit=True, application_name="fixture") as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        yield connection, url


@pytest.fixture
def empty_tables(tables: tuple[psycopg.Connection, str]) -> Callable[[], None]:
    """Empties the tables, which is sooner done than to make them again."""
    connection, _ = tables

    def empty() -> None:
        names = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
            " AND relkind = 'r' AND relname <> 'teal_schema'"
        ).fetchall()
        for (name,) in names:
            connection.execute(f"DELETE FROM {name}")

    return empty


@pytest.fixture
def database(tables: tuple[psycopg.Connection, str], empty_tables: Callable[[], None]) -> str:
    """The URL of an empty PostgreSQL store."""
    empty_tables()
    return tables[1]


@pytest.fixture(scope="session")
def dynalite() -> Iterator[str]:
    """The address of the faster DynamoDB."""
    with aws_environment(), dynalite_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """The address of the other one."""
    with aws_environment(), moto_server() as endpoint:
        yield endpoint


@pytest.fixture
def dynamo_url(dynalite: str) -> str:
    """The URL of a DynamoDB store whose table is not there yet."""
    return dynamodb.store_url(dynalite)
