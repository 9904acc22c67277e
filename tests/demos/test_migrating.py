"""What docs/migrating.md says and no other test shows."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from sk_agents import ska_types
from sk_agents.app import create_app
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings, variable
from tests.demos.served import DEMOS, ROOT, serving

PAGE = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
TASK, SESSION, REQUEST = (f"3f0c9d3e-0000-4000-8000-00000000000{number}" for number in (1, 2, 3))
# A task as the public project's own model writes it, with a call that waits.
PUBLIC_TASK = f"""{{
  "session_id": "{SESSION}", "task_id": "{TASK}", "user_id": "dummyuser",
  "created_at": "2026-01-01T00:00:00", "last_updated": "2026-01-01T00:00:00", "status": "Paused",
  "items": [{{
    "request_id": "{REQUEST}", "task_id": "{TASK}", "role": "user",
    "item": {{"content_type": "text", "content": "hello"}}, "updated": "2026-01-01T00:00:00",
    "pending_tool_calls": [{{"id": "1", "content_type": "function_call"}}],
    "chat_history": {{"messages": []}}
  }}]
}}"""
PERSISTENCE = f"""
from sk_agents.persistence.task_persistence_manager import TaskPersistenceManager
from sk_agents.tealagents.models import AgentTask

KEPT = {{"{TASK}": '''{PUBLIC_TASK}'''}}


class Mine(TaskPersistenceManager):
    async def create(self, task):
        KEPT[task.task_id] = task.model_dump_json()

    async def load(self, task_id):
        return AgentTask.model_validate_json(KEPT[task_id]) if task_id in KEPT else None

    async def update(self, task):
        KEPT[task.task_id] = task.model_dump_json()

    async def delete(self, task_id):
        del KEPT[task_id]
"""


def named(heading: str) -> set[str]:
    """The variables under a heading of the page; of a table its first column."""
    section = PAGE.partition(f"\n### {heading}\n")[2]
    assert section, heading
    text = re.split(r"^##", section, maxsplit=1, flags=re.MULTILINE)[0]
    cells = re.findall(r"^\| ([^|]*) \|", text, flags=re.MULTILINE) or [text]
    return set(re.findall(r"`(TA_\w+)`", "\n".join(cells)))


def test_variables_said_to_be_read_are_settings_and_the_ignored_ones_are_none() -> None:
    settings = set(map(variable, Settings.model_fields))
    read = named("Variables that are honoured")
    ignored = named("Variables that are ignored")
    assert len(read) > 20 and read <= settings
    assert len(ignored) > 10 and not ignored & settings


def test_names_of_the_shared_types_are_there_or_missing_as_the_page_says() -> None:
    (row,) = re.findall(r"^\| `sk_agents\.ska_types` \| (.*) \|$", PAGE, flags=re.MULTILINE)
    there, _, missing = row.partition("Not there:")
    for name in re.findall(r"`([A-Z]\w+)`", there):
        assert hasattr(ska_types, name), name
    for name in re.findall(r"`([A-Z]\w+)`", missing):
        assert not hasattr(ska_types, name), name


@pytest.mark.parametrize(
    "values",
    [
        {"TA_AUTHORIZER_MODULE": "sk_agents.authorization.dummy_authorizer"}
        | {"TA_AUTHORIZER_CLASS": "DummyAuthorizer"},
        {"TA_PLUGIN_CATALOG_MODULE": "src/sk_agents/plugin_catalog/local_plugin_catalog.py"}
        | {"TA_PLUGIN_CATALOG_CLASS": "FileBasedPluginCatalog"}
        | {"TA_PLUGIN_CATALOG_FILE": str(DEMOS / "11_hitl" / "catalog.json")},
        dict.fromkeys(("TA_A2A_ENABLED", "TA_STATE_MANAGEMENT", "TA_SCOPES"), "true"),
    ],
)
def test_environment_of_the_public_project_is_taken(tmp_path: Path, values: dict[str, str]) -> None:
    demo = str(DEMOS / "11_hitl")
    with serving(tmp_path, demo, folder=tmp_path, **values) as address:
        assert httpx.get(f"{address}/health/ready").status_code == 200


async def test_paused_task_of_the_public_project_is_read_and_takes_a_next_message(
    tmp_path: Path,
) -> None:
    module = tmp_path / "mine.py"
    module.write_text(PERSISTENCE)
    module.chmod(0o600)
    settings = Settings(store="memory:", persistence_module=str(module), persistence_class="Mine")
    app = create_app(settings, load_agent_files([DEMOS / "11_hitl"]))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):
        task = (await client.get(f"/RecordsAgent/0.1/tasks/{TASK}")).json()
        assert (task["status"], len(task["items"])) == ("Paused", 1)
        body = {"task_id": TASK, "items": [{"content_type": "text", "content": "Still there?"}]}
        reply = (await client.post("/RecordsAgent/0.1", json=body)).json()
    assert (reply["status"], reply["session_id"]) == ("Completed", SESSION)


@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [
        ("/ChatBot/0.1", "application/json", 200),
        ("/ChatBot/0.1/", "application/json", 404),
        ("/ChatBot/0.1", "text/plain", 415),
    ],
)
async def test_path_and_kind_of_a_body_must_be_exact(path: str, kind: str, status: int) -> None:
    app = create_app(Settings(store="memory:"), load_agent_files([DEMOS / "09_chat_simple"]))
    body = b'{"chat_history": [{"role": "user", "content": "hello"}]}'
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):
        response = await client.post(path, content=body, headers={"Content-Type": kind})
    assert response.status_code == status
