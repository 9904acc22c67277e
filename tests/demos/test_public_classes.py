"""Classes written to the public project's contracts, as its users have them, and their `.env`."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import httpx
import pytest

from sk_agents.app import create_app
from sk_agents.authorization.authorizer_factory import AuthorizerFactory
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.foreign_variables import check_foreign_variables, foreign_variables
from sk_agents.config.public_names import AppConfig
from sk_agents.config.settings import load_settings
from sk_agents.exceptions import (
    ConfigurationError,
    PersistenceCreateError,
    PersistenceDeleteError,
    PersistenceUpdateError,
    PluginCatalogDefinitionException,
    PluginFileReadException,
)
from sk_agents.persistence.in_memory_persistence_manager import InMemoryPersistenceManager
from sk_agents.persistence.persistence_factory import PersistenceFactory
from sk_agents.plugin_catalog.local_plugin_catalog import FileBasedPluginCatalog
from sk_agents.plugin_catalog.plugin_catalog_factory import PluginCatalogFactory
from sk_agents.ska_types import ContentType, MultiModalItem
from tests.demos.served import DEMOS, ROOT, environment, serving
from tests.task_builders import item, task

CLASSES = """
from ska_utils import AppConfig, Config, strtobool

from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.configs import TA_API_KEY, TA_OAUTH_BASE_URL, TA_REDIS_HOST, TA_REDIS_SSL
from sk_agents.exceptions import (
    AuthenticationException,
    PersistenceCreateError,
    PersistenceDeleteError,
    PersistenceLoadError,
    PersistenceUpdateError,
)
from sk_agents.persistence.task_persistence_manager import TaskPersistenceManager
from sk_agents.tealagents.models import AgentTask

TA_GREETING = Config(env_name="TA_GREETING", is_required=False, default_value="hello")
AppConfig.add_configs([TA_GREETING])
KEPT = {}


class Tasks(TaskPersistenceManager):
    def __init__(self, app_config: AppConfig = None):
        self.app_config = app_config or AppConfig()
        self.host = self.app_config.get(TA_REDIS_HOST.env_name) or "localhost"
        self.ssl = strtobool(self.app_config.get(TA_REDIS_SSL.env_name))
        self.greeting = self.app_config.get(TA_GREETING.env_name)
        KEPT["config"] = [self.host, self.ssl, self.greeting, AppConfig().get("TA_GREETING")]

    async def create(self, task: AgentTask) -> None:
        if task.task_id in KEPT:
            raise PersistenceCreateError(message=f"Task '{task.task_id}' exists.")
        KEPT[task.task_id] = task.model_dump_json()

    async def load(self, task_id: str) -> AgentTask | None:
        if KEPT.get("broken"):
            raise PersistenceLoadError(message="the password is canary")
        text = KEPT.get(task_id)
        return AgentTask.model_validate_json(text) if text is not None else None

    async def update(self, task: AgentTask) -> None:
        if task.task_id not in KEPT:
            raise PersistenceUpdateError(message=f"Task '{task.task_id}' does not exist.")
        KEPT[task.task_id] = task.model_dump_json()

    async def delete(self, task_id: str) -> None:
        if KEPT.pop(task_id, None) is None:
            raise PersistenceDeleteError(message=f"Task '{task_id}' does not exist.")


class Authorizer(RequestAuthorizer):
    def __init__(self, app_config: AppConfig):
        self.key = app_config.get(TA_API_KEY.env_name)

    async def authorize_request(self, auth_header: str) -> str:
        if auth_header != f"Bearer {self.key}":
            raise AuthenticationException(message="who are you?")
        return "ada"
"""
# Names that user code takes from modules of the public project.
NAMES = {
    "sk_agents.ska_types": "BaseHandler ContentType IntermediateTaskResponse BaseConfig "
    "InvokeResponse PartialResponse BasePlugin ModelType TokenUsage",
    "sk_agents.exceptions": "AgentsException InvalidConfigException InvalidInputException "
    "AgentInvokeException PluginCatalogDefinitionException PluginFileReadException",
    "sk_agents.tealagents.models": "AgentTask AgentTaskItem UserMessage TealAgentsResponse "
    "TealAgentsPartialResponse HitlResponse RejectedToolResponse StateResponse ResumeRequest",
    "sk_agents.tealagents.v1alpha1.agent": "Agent TealAgentsV1Alpha1Handler",
    "sk_agents.tealagents.v1alpha1.handler": "TealAgentsV1Alpha1Handler",
    "sk_agents.plugin_catalog.plugin_catalog": "PluginCatalog",
    "sk_agents.plugin_catalog.models": "Plugin PluginTool PluginCatalogDefinition Governance",
    "sk_agents.extra_data_collector": "ExtraDataCollector ExtraData",
    "sk_agents.hitl.approval_manager": "ApprovalManager",
    "sk_agents.plugin_catalog.plugin_catalog_factory": "PluginCatalogFactory",
    "ska_utils": "AppConfig Config Singleton strtobool",
    "ska_utils.app_config": "AppConfig Config",
    "ska_utils.singleton": "Singleton",
    "ska_utils.strtobool": "strtobool",
}


@pytest.fixture
def classes(tmp_path: Path) -> str:
    path = tmp_path / "classes.py"
    path.write_text(CLASSES)
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize(("module", "names"), NAMES.items())
def test_names_that_user_code_imports_are_there(module: str, names: str) -> None:
    found = import_module(module)
    assert [name for name in names.split() if not hasattr(found, name)] == []


def test_function_of_the_name_of_its_module_stays_one() -> None:
    import_module("ska_utils.strtobool")
    assert import_module("ska_utils").strtobool("yes") is True


@pytest.mark.parametrize("kind", ["image", ContentType.IMAGE])
def test_kind_of_an_item_is_a_member_of_the_enumeration(kind: str) -> None:
    item = MultiModalItem.model_validate({"content_type": kind, "content": "x"})
    assert item.content_type is ContentType.IMAGE
    assert item.content_type.value == "image"
    assert json.loads(item.model_dump_json()) == {"content_type": "image", "content": "x"}
    assert MultiModalItem(content="x").content_type is ContentType.TEXT


def test_time_of_a_task_has_the_name_of_the_public_project_too() -> None:
    made = task()
    made.last_updated = made.created_at
    assert made.last_updated == made.last_updated_at == made.created_at


async def test_manager_in_memory_raises_what_the_contract_names() -> None:
    manager = InMemoryPersistenceManager()
    await manager.create(task("t", items=[item("hello", request_id="r")]))
    with pytest.raises(PersistenceCreateError, match="'t' already exists"):
        await manager.create(task("t"))
    found = await manager.load_by_request_id("r")
    assert found is not None and found.task_id == "t"
    found.items.append(item("more", request_id="later"))
    await manager.update(found)
    assert await manager.load_by_request_id("later") == found
    await manager.delete("t")
    assert await manager.load_by_request_id("r") is None
    with pytest.raises(PersistenceUpdateError, match="'t' does not exist"):
        await manager.update(task("t"))
    with pytest.raises(PersistenceDeleteError, match="'t' does not exist"):
        await manager.delete("t")


def test_factories_take_the_configuration_of_the_public_project(
    classes: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    catalog = DEMOS / "11_hitl" / "catalog.json"
    for name, value in {
        "TA_API_KEY": "key",
        "TA_PERSISTENCE_MODULE": classes,
        "TA_PERSISTENCE_CLASS": "Tasks",
        "TA_AUTHORIZER_MODULE": classes,
        "TA_AUTHORIZER_CLASS": "Authorizer",
        "TA_PLUGIN_CATALOG_FILE": str(catalog),
    }.items():
        monkeypatch.setenv(name, value)
    manager = PersistenceFactory(AppConfig()).get_persistence_manager()
    assert type(manager).__name__ == "Tasks"
    assert vars(AuthorizerFactory(AppConfig()).get_authorizer())["key"] == "key"
    tool = (
        PluginCatalogFactory(AppConfig())
        .get_catalog()
        .get_tool("sensitive_plugin-delete_user_data")
    )
    assert tool.governance.requires_hitl is True


def test_catalog_that_cannot_be_used_raises_what_the_contract_names(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    known = {"TA_PLUGIN_CATALOG_FILE": str(path)}
    with pytest.raises(PluginFileReadException, match="No such file"):
        FileBasedPluginCatalog(known)
    for text in ("{", '{"plugins": [{"plugin_id": 1}]}'):
        path.write_text(text)
        with pytest.raises(PluginCatalogDefinitionException, match=r"catalog\.json"):
            FileBasedPluginCatalog(known)


async def test_classes_that_take_app_config_serve(
    classes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TA_REDIS_HOST", "cache.example")
    monkeypatch.setenv("TA_API_KEY", "secret-of-the-test")
    settings = load_settings(
        (),
        store="memory:",
        persistence_module=classes,
        persistence_class="Tasks",
        authorizer_module=classes,
        authorizer_class="Authorizer",
    )
    app = create_app(settings, load_agent_files([DEMOS / "11_hitl"]))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):
        body = {"items": [{"content_type": "text", "content": "Still there?"}]}
        refused = await client.post("/RecordsAgent/0.1", json=body)
        assert refused.status_code == 401
        client.headers["Authorization"] = "Bearer secret-of-the-test"
        reply = await client.post("/RecordsAgent/0.1", json=body)
        assert (reply.status_code, reply.json()["status"]) == (200, "Completed")
        task_id = reply.json()["task_id"]
        kept = vars(sys.modules[type(app.state.caller_check.authorizer).__module__])["KEPT"]
        assert kept["config"] == ["cache.example", True, "hello", "hello"]
        kept["broken"] = True
        unavailable = await client.get(f"/RecordsAgent/0.1/tasks/{task_id}")
        assert (unavailable.status_code, "canary" in unavailable.text) == (503, False)


def test_env_file_reaches_plugins_and_the_catalog_has_its_other_name(tmp_path: Path) -> None:
    """Demo 11 as the public project lays it out, with its literal variables."""
    demo, catalog = tmp_path / "demos" / "11_hitl", tmp_path / "src/sk_agents/plugin_catalog"
    demo.mkdir(parents=True)
    catalog.mkdir(parents=True)
    (catalog / "catalog.json").write_bytes((DEMOS / "11_hitl" / "catalog.json").read_bytes())
    for name in ("config.yaml", "script/talk.yaml"):
        (demo / name).parent.mkdir(exist_ok=True)
        (demo / name).write_bytes((DEMOS / "11_hitl" / name).read_bytes())
    plugins = (DEMOS / "11_hitl" / "custom_plugins.py").read_text()
    seen = tmp_path / "seen.txt"
    probe = f"\nimport os\nopen({str(seen)!r}, 'w').write(os.environ['MY_DATABASE'])\n"
    (demo / "custom_plugins.py").write_text(plugins + probe)
    (demo / "custom_plugins.py").chmod(0o600)
    (tmp_path / ".env").write_text(
        "MY_DATABASE=db.example\nTA_API_KEY=unused\n"
        "TA_SERVICE_CONFIG=demos/11_hitl/config.yaml\n"
        "TA_PLUGIN_MODULE=demos/11_hitl/custom_plugins.py\n"
        "TA_PLUGIN_CATALOG_MODULE=src/sk_agents/plugin_catalog/local_plugin_catalog.py\n"
        "TA_PLUGIN_CATALOG_CLASS=FileBasedPluginCatalog\n"
        "TA_PLUGIN_CATALOG_PATH=src/sk_agents/plugin_catalog/catalog.json\n"
    )
    with serving(tmp_path, folder=tmp_path) as address:
        assert httpx.get(f"{address}/health/ready").status_code == 200
        body = {"items": [{"content_type": "text", "content": "Delete Ada"}]}
        reply = httpx.post(f"{address}/RecordsAgent/0.1", json=body, timeout=60).json()
        assert reply["status"] == "Paused"
    assert seen.read_text() == "db.example"


def test_variables_of_the_environment_store_are_the_strongest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TA_LOG_LEVEL", "error")
    monkeypatch.setenv("TA_ENV_STORE", json.dumps({"TA_LOG_LEVEL": "debug", "TA_PORT": "8123"}))
    settings = load_settings()
    assert (settings.log_level, settings.port) == ("debug", 8123)
    assert load_settings((), port=8200).port == 8200
    monkeypatch.setenv("TA_ENV_STORE", "no json: canary")
    with pytest.raises(ConfigurationError, match="TA_ENV_STORE") as refused:
        load_settings()
    assert "canary" not in str(refused.value)


def test_variable_without_effect_is_named_once_with_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    values = {"TA_A2A_ENABLED": "true", "TA_STATE_MANAGEMENT": "redis", "TA_GITHUB": "false"}
    values |= {"TA_OTEL_TRACES_ENDPOINT": "x", "TA_LOG_LEVEL": "info", "TA_LOG_LEVLE": "info"}
    with caplog.at_level(logging.WARNING):
        check_foreign_variables(values)
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(" ")[0] for line in said] == [
        "TA_A2A_ENABLED",
        "TA_LOG_LEVLE",
        "TA_OTEL_TRACES_ENDPOINT",
        "TA_STATE_MANAGEMENT",
    ]
    assert "TA_LOG_LEVEL" in said[1] and "TA_STORE" in said[3]


def test_variable_that_decides_which_agents_are_served_stops_the_start(tmp_path: Path) -> None:
    done = subprocess.run(
        ["teal", "serve", str(DEMOS / "11_hitl"), "--port", "0"],
        cwd=ROOT,
        env=environment(tmp_path, TA_GITHUB="true", TA_STORE="memory:"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 78
    assert "TA_GITHUB" in done.stderr and "clone" in done.stderr


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("TA_ENCRYPTION_KEY", "TA_ENCRYPTION_KEYS"),
        ("TA_AUTHORISER", "TA_AUTHORIZER"),
        ("TA_BUDGET_USERS", "TA_BUDGET_USER"),
        ("TA_RETENSION", "TA_RETENTION"),
        ("TA_STROE", "TA_STORE"),
        ("TA_ENCRYPTION", "TA_ENCRYPTION_KEYS"),
        ("TA_AUTH", "TA_AUTHORIZER"),
        ("TA_AUDIT_KEY", "TA_AUDIT_KEY_FILE"),
        ("TA_RETENTION_DAYS", "TA_RETENTION"),
        ("ta_authorizer", "TA_AUTHORIZER"),
    ],
)
def test_misspelt_setting_that_protects_stops_the_start(
    wrong: str, right: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigurationError, match=f"{wrong}: .*{right} is not set"):
        check_foreign_variables({wrong: "canary"})
    # A class of the operator's may read the one, while the server reads the other.
    with caplog.at_level(logging.WARNING):
        check_foreign_variables({wrong: "x", right: "y"})
    assert [record.getMessage().partition(" ")[0] for record in caplog.records] == [wrong]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("TA_AUTHORIZER_URL", "TA_AUTHORIZER_MODULE"),
        ("TA_AUTH", "TA_AUTHORIZER_MODULE"),
        ("TA_STORE_FOLDER", "TA_STORE_MODULE"),
        ("TA_ENCRYPTION_KEY", "TA_ENCRYPTION_KEYS_FILE"),
        ("ta_da", "TA_STORE"),
    ],
)
def test_variable_of_an_own_class_beside_a_setting_that_protects_stops_no_start(
    name: str, other: str
) -> None:
    check_foreign_variables({name: "x", other: "y"})


def test_variables_of_the_commands_are_no_foreign_ones(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_foreign_variables({"TA_SERVER": "https://agents.example.org", "TA_TOKEN": "canary"})
    assert caplog.records == []


def test_sign_ins_that_are_asked_for_without_an_authorizer_stop_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ConfigurationError, match="TA_AUTH_REQUIRED: set TA_AUTHORIZER"):
        check_foreign_variables({"TA_AUTH_REQUIRED": "true"})
    check_foreign_variables({"TA_AUTH_REQUIRED": "false"})
    with caplog.at_level(logging.WARNING):
        check_foreign_variables({"TA_AUTH_REQUIRED": "true", "TA_AUTHORIZER": "oidc"})
    assert "TA_AUTH_REQUIRED" in caplog.text


def test_variables_that_the_page_says_are_ignored_are_the_ones_with_advice() -> None:
    page = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
    section = page.partition("\n### Variables that are ignored\n")[2].partition("\n## ")[0]
    for found in foreign_variables(dict.fromkeys(("TA_GITHUB", "TA_SCOPES"), "x")):
        assert f"`{found.name}`" in section
