"""From agent files to agents: what is built, and what stops start-up and how it says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sk_agents.agent_assembly import Clients, ServedAgent, build_agents
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.exceptions import ConfigurationError
from sk_agents.llm.model_clients import ModelClients
from sk_agents.tools.mcp.servers import McpServers
from sk_agents.tools.openapi.clients import RemoteClients

PLUGINS = """
from sk_agents.ska_types import BasePlugin
from semantic_kernel.functions.kernel_function_decorator import kernel_function


class Mail(BasePlugin):
    @kernel_function(description="Send a mail.")
    def send(self, to: str, text: str) -> str:
        return f"sent to {to}"
"""


def write_agent(folder: Path, **agent: Any) -> Path:
    document = {
        "apiVersion": "tealagents/v1alpha1",
        "kind": "Agent",
        "name": folder.name,
        "version": 0.1,
        "spec": {
            "agent": {
                "name": "default",
                "model": "scripted/echo",
                "system_prompt": "You repeat.",
                **agent,
            }
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "custom_plugins.py").write_text(PLUGINS)
    (folder / "custom_plugins.py").chmod(0o600)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


# Of this an agent with a model and without tools needs nothing: libraries, and those of our own
# modules that serve what only some agents have.
NEEDLESS = (
    "aiohttp",
    "ctypes",
    "jsonschema",
    "mcp",
    "sk_agents.appv1",
    "sk_agents.llm.anthropic_messages",
    "sk_agents.llm.kernel_chat",
    "sk_agents.llm.local",
    "sk_agents.persistence.encryption",
    "sk_agents.tools.agents_sdk",
    "sk_agents.tools.builtin.workspace",
    "sk_agents.tools.mcp.connection",
    "sk_agents.tools.openapi.tool",
)


SERVED = """
import sys
from pathlib import Path
from sk_agents.app import create_app
from sk_agents.cli import serve
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings

create_app(Settings(store="memory:"), load_agent_files([Path(sys.argv[1])]))
print([name for name in sys.argv[2:] if name in sys.modules])
"""


def built(*paths: Path, **settings: Any) -> dict[str, ServedAgent]:
    clients = Clients(ModelClients(), RemoteClients(), McpServers())
    return build_agents(load_agent_files(paths), Settings(**settings), clients)


def test_a_server_loads_nothing_that_its_agents_do_not_need(tmp_path: Path) -> None:
    agent = write_agent(tmp_path / "plain", model="openai/m", base_url="http://127.0.0.1:9")
    command = [sys.executable, "-c", SERVED, str(agent), *NEEDLESS]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_an_agent_gets_its_tools_rules_limits_and_window(tmp_path: Path) -> None:
    path = write_agent(
        tmp_path / "Helper",
        plugins=["Mail"],
        approvals={"rules": [{"tool": "Mail-*", "then": "deny"}], "expires_after": 60},
        limits={"model_rounds": 3},
        context={"window": 1000},
    )
    agent = built(path)["Helper"].agent
    assert [spec.name for spec in agent.toolbox.specs()] == ["Mail-send"]
    assert (agent.limits.model_rounds, agent.limits.approval_seconds) == (3, 60)
    assert agent.context_window.budget == 500
    assert agent.system_prompt == "You repeat."


def test_agents_of_several_files_are_found_by_their_names(tmp_path: Path) -> None:
    one, two = write_agent(tmp_path / "One"), write_agent(tmp_path / "Two")
    assert list(built(one, two)) == ["One", "Two"]


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ({"model": "nobody/knows"}, "spec.agent.model: "),
        ({"model": "anthropic/claude-x"}, "spec.agent.model: "),
        (
            {"headers": {"Authorization": "Bearer x"}},
            "Authorization: a secret does not belong here",
        ),
        ({"extra_body": {"api_key": "x"}}, "api_key: a secret does not belong here"),
        ({"headers": {"X-Key": "${NO_SUCH_VARIABLE}"}}, "NO_SUCH_VARIABLE is not set"),
        ({"client_key": "key.pem"}, "client_cert is missing"),
        ({"model": "m", "base_url": "http://h", "client_cert": "no.pem"}, "no such file"),
        ({"api": "graphql"}, "spec.agent.api"),
        ({"plugins": ["Missing"]}, "Missing"),
        ({"approvals": {"defualt": "allow"}}, "spec.agent.approvals.defualt"),
        (
            {"approvals": {"rules": [{"tool": "Male-send", "then": "deny"}]}},
            "spec.agent.approvals.rules[0].tool: no tool is called 'Male-send'",
        ),
        ({"limits": {"rounds": 3}}, "spec.agent.limits.rounds is not known here"),
        ({"context": {"windows": 3}}, "spec.agent.context.windows is not known here"),
        ({"redact": {"mode": "vault"}}, "spec.agent.redact: mode vault keeps secrets in the store"),
        ({"redact": {"mode": "vaults"}}, "spec.agent.redact"),
        ({"redact": {"tools": ["Mail-*"]}}, "spec.agent.redact"),
    ],
)
def test_a_bad_agent_stops_start_up_naming_file_and_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: dict[str, Any], said: str
) -> None:
    for name in ("ANTHROPIC_API_KEY", "TA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    path = write_agent(tmp_path / "Bad", **{"plugins": ["Mail"], **agent})
    with pytest.raises(ConfigurationError) as caught:
        built(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_with_keys_an_agent_may_have_a_vault_for_some_tools(tmp_path: Path) -> None:
    redact = {"mode": "vault", "tools": ["Mail-*"]}
    path = write_agent(tmp_path / "Good", plugins=["Mail"], redact=redact)
    (served,) = built(path, encryption_keys="x").values()
    redaction = served.agent.redaction
    assert redaction is not None and redaction.keeps_secrets
    assert redaction.opens_for("Mail-send") and not redaction.opens_for("Web-http_get")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "catalog.json"),
        ("{", "catalog.json"),
        (json.dumps({"plugins": [{"plugin_id": "x"}]}), "plugins[0]"),
    ],
)
def test_a_configured_catalog_that_cannot_be_read_stops_start_up(
    tmp_path: Path, content: str | None, said: str
) -> None:
    catalog = tmp_path / "catalog.json"
    if content is not None:
        catalog.write_text(content)
    with pytest.raises(ConfigurationError, match="catalog.json") as caught:
        built(write_agent(tmp_path / "Helper"), plugin_catalog_file=catalog)
    assert said in str(caught.value)
