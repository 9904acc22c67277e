"""Places for todo lists: a file, or a database of the tests' own PostgreSQL."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.postgres import shared_server


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the session's server, for its superuser."""
    folder = tmp_path_factory.getbasetemp()
    # Each worker has its folder in that of the session.
    with shared_server(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as url:
        yield url


@pytest.fixture
def schema(postgres: str) -> Iterator[str]:
    """The URL of an empty schema: as good as a database, and made in no time. Whoever comes by it
    is known to the server by the name of the schema.
    """
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        yield f"{postgres}?options=-csearch_path%3D{name}&application_name={name}"
        connection.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a todo list may lie, one after the other."""
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/deep/todo.sqlite"
    return str(request.getfixturevalue("schema"))
