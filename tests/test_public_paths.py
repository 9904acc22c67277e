"""The public project's own modules in the settings: ours where they are not there."""

import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sk_agents.authorization.authorizer_factory import AuthorizerFactory
from sk_agents.authorization.dummy_authorizer import DummyAuthorizer
from sk_agents.config.public_paths import own_module
from sk_agents.config.settings import Settings, load_settings
from sk_agents.config.store_url import store_url
from sk_agents.exceptions import LoadError
from tests.patience import seconds
from tests.test_serve import AGENT, failing, serving

AUTHORIZER = "src/sk_agents/authorization/dummy_authorizer.py"
# As its example of an environment has them.
PUBLIC = {
    "TA_AUTHORIZER_MODULE": AUTHORIZER,
    "TA_AUTHORIZER_CLASS": "DummyAuthorizer",
    "TA_PERSISTENCE_MODULE": "persistence/in_memory_persistence_manager.py",
    "TA_PERSISTENCE_CLASS": "InMemoryPersistenceManager",
    "TA_PLUGIN_CATALOG_MODULE": "src/sk_agents/plugin_catalog/local_plugin_catalog.py",
    "TA_PLUGIN_CATALOG_CLASS": "FileBasedPluginCatalog",
    "TA_PLUGIN_CATALOG_FILE": "catalog.json",
    "TA_STATE_MANAGEMENT": "in-memory",
}


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    for name in map(str.upper, Settings.model_fields):
        monkeypatch.delenv(f"TA_{name}", raising=False)
        monkeypatch.delenv(f"TEAL_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


@pytest.mark.parametrize(
    "module",
    [
        AUTHORIZER,
        f"./{AUTHORIZER}",
        f"src/sk-agents/{AUTHORIZER}",
        "sk_agents/authorization/dummy_authorizer.py",
        "authorization/dummy_authorizer.py",
        "checkout.sk_agents.authorization.dummy_authorizer",
        "authorization.dummy_authorizer",
    ],
)
def test_public_authorizer_that_is_not_here_is_ours_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, module: str
) -> None:
    monkeypatch.setenv("TA_AUTHORIZER_MODULE", module)
    monkeypatch.setenv("TA_AUTHORIZER_CLASS", "DummyAuthorizer")
    with caplog.at_level(logging.WARNING):
        settings = load_settings()
    assert isinstance(AuthorizerFactory(settings).get_authorizer(), DummyAuthorizer)
    [line] = caplog.messages
    assert line == (
        f"TA_AUTHORIZER_MODULE: there is no '{module}' here; "
        "sk_agents.authorization.dummy_authorizer is used"
    )


@pytest.mark.parametrize(
    "module",
    [
        "persistence/in_memory_persistence_manager.py",
        "src/sk_agents/persistence/in_memory_persistence_manager.py",
        "sk_agents.persistence.in_memory_persistence_manager",
    ],
)
def test_public_persistence_is_the_store_that_forgets(
    monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setenv("TA_PERSISTENCE_MODULE", module)
    monkeypatch.setenv("TA_PERSISTENCE_CLASS", "InMemoryPersistenceManager")
    assert store_url(load_settings()) == "memory:"


def test_file_that_is_there_is_used(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    path = elsewhere / AUTHORIZER
    path.parent.mkdir(parents=True)
    path.write_text(
        "from sk_agents.authorization.request_authorizer import RequestAuthorizer\n"
        "class DummyAuthorizer(RequestAuthorizer):\n"
        "    async def authorize_request(self, auth_header):\n"
        "        return 'theirs'\n"
    )
    monkeypatch.setenv("TA_AUTHORIZER_MODULE", AUTHORIZER)
    monkeypatch.setenv("TA_AUTHORIZER_CLASS", "DummyAuthorizer")
    authorizer = AuthorizerFactory(load_settings()).get_authorizer()
    assert not isinstance(authorizer, DummyAuthorizer)


@pytest.mark.parametrize(
    "module",
    [
        "src/sk_agents/authorization/entra_authorizer.py",
        "src/sk_agents/persistence/custom/example_redis_persistence.py",
        "src/sk_agents/chat_completion/custom/example_custom_chat_completion_factory.py",
        "my/authorizer.py",
        "dummy_authorizer.py",
        f"/{AUTHORIZER}",
        "sk_agents.authorization.dummy_authorizer",
        "",
    ],
)
def test_every_other_module_is_left_as_it_is(module: str) -> None:
    assert own_module(module) is None


def test_catalog_is_found_under_its_former_name() -> None:
    former = "sk_agents.plugincatalog.local_plugin_catalog"
    assert own_module(former) == "sk_agents.plugin_catalog.local_plugin_catalog"


def test_other_class_of_a_public_module_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TA_AUTHORIZER_MODULE", AUTHORIZER)
    monkeypatch.setenv("TA_AUTHORIZER_CLASS", "TokenAuthorizer")
    with pytest.raises(LoadError, match="has no class 'TokenAuthorizer'"):
        AuthorizerFactory(load_settings()).get_authorizer()


def test_server_starts_with_the_public_projects_own_environment(elsewhere: Path) -> None:
    (elsewhere / "agents").mkdir()
    (elsewhere / "agents" / "config.yaml").write_text(AGENT.format(name="Helper"))
    (elsewhere / "catalog.json").write_text('{"plugins": []}')
    (elsewhere / ".env").write_text("".join(f"{name}={PUBLIC[name]}\n" for name in PUBLIC))
    with serving(elsewhere) as (process, _, address):
        body = {"items": [{"content_type": "text", "content": "hello"}]}
        reply = httpx.post(f"{address}/Helper/0.1", json=body, timeout=seconds(20)).json()
        assert reply["status"] == "Completed"
        process.terminate()
        _, said = process.communicate(timeout=seconds(20))
    assert said.count(f"there is no '{AUTHORIZER}' here") == 1


def test_authorizer_that_checks_tokens_is_never_replaced(elsewhere: Path) -> None:
    (elsewhere / "agent.yaml").write_text(AGENT.format(name="Helper"))
    named = {
        "TA_AUTHORIZER_MODULE": "src/sk_agents/authorization/entra_authorizer.py",
        "TA_AUTHORIZER_CLASS": "EntraAuthorizer",
    }
    code, said = failing(elsewhere, "agent.yaml", "--store", "memory:", **named)
    assert code == 78
    assert "TA_AUTHORIZER_MODULE" in said and "entra_authorizer.py" in said
