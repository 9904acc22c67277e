from collections.abc import Iterator

import pytest

from tests.cli.house import Served, serving, write_agent


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests of a process: each uses chats of its own."""
    folder = tmp_path_factory.mktemp("served")
    config = write_agent(folder)
    with serving(folder, str(config), "--store", "memory:") as server:
        yield server
