"""Settings shared by all tests."""

import gc
import logging
import os
import signal
import sys
import uuid
from collections.abc import Generator, Iterator

import psycopg
import pytest
from hypothesis import settings

from tests.authorities import trust_one
from tests.coverage_files import remove_unfinished
from tests.debian import announcement
from tests.forked_python import use_forks
from tests.memory import use_memory
from tests.patience import TEST_SECONDS, VARIABLE, seconds
from tests.postgres import shared_server
from tests.valkey import ValkeyServer

# A busy machine must not turn a correct property into a failure.
settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")

# It comes with the tool for bills of materials, not with the package. `jsonschema` would import it,
# and it makes a parser for a second.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # as if it were not there

# Those whose level is set by a command: `configure_logs`, `teal doctor`, `teal migrate-check`.
LOGGERS = ("", "sk_agents", "uvicorn")

use_memory()
use_forks()
trust_one()

# Plugins of libraries, whose import takes half of the time of a pytest that a test starts.
os.environ["PYTEST_ADDOPTS"] = "-p no:schemathesis -p no:valkey"

# Modules and tests stay to the end: looking for garbage among them is a third of what collecting
# the tests takes.
gc.disable()

# A shell starts what runs in its background deaf to interrupts, and programs inherit that: those
# that the tests interrupt would not hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Where bounds are stretched, a whole test's is too.
if os.environ.get(VARIABLE):
    os.environ.setdefault("PYTEST_TIMEOUT", str(seconds(TEST_SECONDS)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that are given more time come first: none of them is to run alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


def pytest_collection_finish() -> None:
    """From here on only what tests make is looked through for garbage."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Innermost: the measurements of all workers are put together as soon as this returns."""
    result = yield
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    if session.config.pluginmanager.hasplugin("_cov") and not is_worker:
        remove_unfinished(session.config.rootpath)
    return result


def pytest_report_header() -> str | None:
    return announcement()


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """How a test, or a command that it runs in this process, wants logs ends with it."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    levels = [(logger, logger.level) for logger in map(logging.getLogger, LOGGERS)]
    yield
    root.handlers[:] = handlers
    for logger, level in levels:
        if logger.level != level:
            logger.setLevel(level)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the session's PostgreSQL, for its superuser."""
    folder = tmp_path_factory.getbasetemp()
    # Each worker has its folder in that of the session.
    with shared_server(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as url:
        yield url


@pytest.fixture
def schema(postgres: str) -> Iterator[str]:
    """The URL of an empty schema: as good as a database, and made in no time. Its connections are
    known to the server by the name of the schema.
    """
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        yield f"{postgres}?options=-csearch_path%3D{name}&application_name={name}"
        connection.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    """This process's Valkey, which keeps an append-only file."""
    with ValkeyServer("--appendonly", "yes", "--save", "") as server:
        yield server


@pytest.fixture
def empty_redis(valkey: ValkeyServer) -> str:
    """The URL of a server that holds nothing."""
    with valkey.client() as client:
        client.flushall()
    return valkey.url()
