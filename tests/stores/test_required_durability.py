"""`TA_REQUIRED_DURABILITY`: a server does not run on a store that keeps less.

PostgreSQL and Redis, whose settings can change under a running server, are asked about it in the
tests of their servers.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sk_agents.config.settings import Settings
from sk_agents.engine.models import Durability
from sk_agents.exceptions import ConfigurationError
from sk_agents.persistence import file_systems
from sk_agents.wiring import build_stores
from tests.missing import lacks
from tests.stores.durable_server import requiring
from tests.test_serve import failing

MOUNTS = """\
22 1 {disk} / / rw,relatime - ext4 /dev/vda rw
30 22 {memory} / /run/with\\040space rw,nosuid,nodev shared:4 - tmpfs tmpfs rw,size=1024k
"""


@pytest.fixture(params=["sqlite://{}/teal.sqlite", "file://{}/chats"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url: str = request.param
    return url.format(tmp_path)


@pytest.fixture
def mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The tests' folder, on the kind of file system that the test names."""
    device = tmp_path.stat().st_dev
    here = f"{os.major(device)}:{os.minor(device)}"
    found = {"disk": "0:9999", "memory": "0:9998"} | {request.param: here}
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS.format(**found))
    monkeypatch.setattr(file_systems, "MOUNTS", table)


@pytest.mark.parametrize("mounted", ["disk"], indirect=True)
@pytest.mark.usefixtures("mounted")
async def test_store_on_a_disk_serves_where_a_lost_machine_must_lose_nothing(store: str) -> None:
    async with requiring("D2", store=store) as readiness:
        assert await readiness() == (200, "D2")


@pytest.mark.parametrize("mounted", ["memory"], indirect=True)
@pytest.mark.usefixtures("mounted")
async def test_store_in_the_machines_memory_is_refused_where_it_must_survive(store: str) -> None:
    with pytest.raises(ConfigurationError, match=r"class D1; it is on tmpfs"):
        async with requiring("D2", store=store):
            pass
    async with requiring("D1", store=store) as readiness:
        assert await readiness() == (200, "D1")


def test_system_tells_what_is_in_its_memory() -> None:
    if not Path("/dev/shm").is_dir():
        lacks("linux", "this machine has no /dev/shm")
    with TemporaryDirectory(dir="/dev/shm") as folder:
        assert file_systems.weaknesses_of(Path(folder)) == (
            "it is on tmpfs, in the machine's memory",
        )


def test_server_that_requires_more_than_its_store_keeps_ends_with_78(tmp_path: Path) -> None:
    code, told = failing(tmp_path, "--store", "memory:", TA_REQUIRED_DURABILITY="D1")
    assert code == 78
    assert told == "teal: TA_REQUIRED_DURABILITY is D1, and memory: is of class D0\n"


def test_class_that_does_not_exist_stops_the_start(tmp_path: Path) -> None:
    code, told = failing(tmp_path, "--store", "memory:", TA_REQUIRED_DURABILITY="D4")
    assert code == 78
    assert "TA_REQUIRED_DURABILITY" in told and "'D3'" in told


def test_class_of_the_operators_own_promises_nothing(tmp_path: Path) -> None:
    module = tmp_path / "own.py"
    module.write_text(
        "from sk_agents.persistence import in_memory_persistence_manager as memory\n"
        "class Mine(memory.InMemoryPersistenceManager): pass\n"
    )
    stores = build_stores(
        Settings(
            store=f"file://{tmp_path}/chats",
            persistence_module=str(module),
            persistence_class="Mine",
            required_durability="D1",
        )
    )
    assert stores.main.durability is Durability.D2
    with pytest.raises(ConfigurationError, match="TA_PERSISTENCE_CLASS is of class D0"):
        stores.check_durability()
