"""Which persistence class is built, and how a wrong one is refused."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sk_agents.config.settings import Settings, load_settings
from sk_agents.exceptions import (
    ClassUnusable,
    ConfigurationError,
    ModuleBroken,
    ModuleMissing,
)
from sk_agents.persistence.in_memory_persistence_manager import InMemoryPersistenceManager
from sk_agents.persistence.persistence_factory import PersistenceFactory
from sk_agents.persistence.task_persistence_manager import TaskPersistenceManager
from tests.patience import seconds
from tests.requirements import requirement

USERS_MODULE = """
from sk_agents.persistence.task_persistence_manager import TaskPersistenceManager

class Mine(TaskPersistenceManager):
    def create(self, task): ...
    def load(self, task_id): ...
    def update(self, task): ...
    def delete(self, task_id): ...

class WithSettings(Mine):
    def __init__(self, app_config):
        self.app_config = app_config

class WithSettingsByName(Mine):
    def __init__(self, *, settings=None):
        self.app_config = settings

class Broken(Mine):
    def __init__(self):
        raise OSError("no database")

class Unrelated: ...

class Partial(TaskPersistenceManager): ...
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    file = tmp_path / "mine.py"
    file.write_text(USERS_MODULE)
    file.chmod(0o600)
    return str(file)


def factory(module: str, name: str) -> PersistenceFactory:
    return PersistenceFactory(Settings(persistence_module=module, persistence_class=name))


@requirement("S001-persistence-factory")
@pytest.mark.parametrize("prefix", ["TA", "TEAL"])
def test_factory_builds_the_class_that_the_environment_names(
    prefix: str, module: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(f"{prefix}_PERSISTENCE_MODULE", module)
    monkeypatch.setenv(f"{prefix}_PERSISTENCE_CLASS", "Mine")
    built = PersistenceFactory(load_settings()).get_persistence_manager()
    assert type(built).__name__ == "Mine"


@requirement("S001-persistence-factory")
def test_class_that_asks_for_the_settings_gets_them(module: str) -> None:
    settings = Settings(persistence_module=module, persistence_class="WithSettingsByName")
    built = PersistenceFactory(settings).get_persistence_manager()
    assert getattr(built, "app_config", None) is settings


@requirement("S001-persistence-factory")
def test_class_that_asks_for_app_config_can_ask_it_both_ways(module: str) -> None:
    settings = Settings(persistence_module=module, persistence_class="WithSettings", port=8123)
    app_config = vars(PersistenceFactory(settings).get_persistence_manager())["app_config"]
    assert app_config.get("TA_REDIS_SSL") == "true"
    assert app_config.get("TA_NO_SUCH") is None
    assert app_config.port == 8123


@requirement("S001-persistence-factory")
def test_threads_asking_at_once_get_one_manager() -> None:
    asked = factory(InMemoryPersistenceManager.__module__, "InMemoryPersistenceManager")
    barrier = threading.Barrier(8)

    def get(_: int) -> TaskPersistenceManager:
        barrier.wait(timeout=seconds(10))
        return asked.get_persistence_manager()

    with ThreadPoolExecutor(8) as pool:
        managers = list(pool.map(get, range(8)))
    assert len({id(manager) for manager in managers}) == 1
    assert isinstance(managers[0], InMemoryPersistenceManager)


def test_process_has_one_factory() -> None:
    assert PersistenceFactory.get_instance() is PersistenceFactory.get_instance()


def test_factory_builds_the_in_memory_manager_when_nothing_is_named() -> None:
    assert isinstance(
        PersistenceFactory(Settings()).get_persistence_manager(), InMemoryPersistenceManager
    )


@requirement("S001-persistence-factory-errors")
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("Missing", ClassUnusable),
        ("Unrelated", ClassUnusable),
        ("Partial", ClassUnusable),
        ("Broken", ClassUnusable),
    ],
)
def test_unusable_class_is_a_clear_error(
    module: str, name: str, error: type[ConfigurationError]
) -> None:
    with pytest.raises(error, match=rf"TA_PERSISTENCE_CLASS.*{name}"):
        factory(module, name).get_persistence_manager()


@requirement("S001-persistence-factory-errors")
def test_missing_and_broken_module_are_two_errors(tmp_path: Path) -> None:
    with pytest.raises(ModuleMissing, match=r"TA_PERSISTENCE_MODULE.*no_such_module"):
        factory("no_such_module", "Mine").get_persistence_manager()
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0")
    with pytest.raises(ModuleBroken, match=r"TA_PERSISTENCE_MODULE.*ZeroDivisionError"):
        factory(str(broken), "Mine").get_persistence_manager()
