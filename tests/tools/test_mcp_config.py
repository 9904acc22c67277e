"""What may stand in `mcp_servers`, and what stops start-up."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sk_agents.exceptions import ConfigurationError
from sk_agents.ska_types import BasePlugin
from sk_agents.tools import kernel_function
from sk_agents.tools.mcp.config import McpServer, read_mcp_servers
from sk_agents.tools.mcp.pins import pins_path
from sk_agents.tools.mcp.servers import McpServers
from sk_agents.tools.plugins import plugin_tools
from sk_agents.tools.toolbox import AgentToolbox
from sk_agents.worker_threads import WorkerThreads

STDIO = {"name": "todo", "command": "python"}
HTTP = {"name": "todo", "transport": "http", "url": "https://example.com/mcp"}


def read(*entries: dict[str, Any], **environ: str) -> Any:
    return read_mcp_servers(
        entries,
        path=Path("/a/config.yaml"),
        field_name="spec.agent.mcp_servers",
        environ=environ,
        keeps_tokens=True,
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"command": "x"}, r"\[0\].name"),
        ({"name": "a b", "command": "x"}, "name"),
        ({"name": "x"}, "command is missing"),
        ({"name": "x", "transport": "http"}, "url is missing"),
        ({**STDIO, "trsut_level": "trusted"}, "trsut_level: is not known here"),
        ({**STDIO, "trust_level": "very"}, "trust_level"),
        ({**STDIO, "url": "https://x"}, "url cannot be used with transport stdio"),
        ({**STDIO, "headers": {"A": "b"}}, "headers cannot be used"),
        ({**HTTP, "env": {"A": "b"}}, "env cannot be used with transport http"),
        ({**HTTP, "url": "file:///etc/passwd"}, "http or https"),
        ({**STDIO, "oauth": True}, "oauth cannot be used with transport stdio"),
        ({**HTTP, "oauth": False, "scopes": ["a"]}, "oauth is false"),
        ({**HTTP, "oauth": True, "headers": {"authorization": "x"}}, "exclude each other"),
        ({**HTTP, "url": "https://me:secret@example.com"}, "without credentials"),
        ({**HTTP, "headers": {"A b": "c"}}, "no header can have"),
        ({**HTTP, "user_id_header": "A: b"}, "no header can have"),
        ({**STDIO, "command": "python -m server; rm -rf /"}, "arguments go into args"),
        ({**STDIO, "request_timeout": 0}, "request_timeout"),
        ({**STDIO, "user_id_source": "env"}, "needs user_id_env_var"),
        (
            {**STDIO, "tool_governance_overrides": {"x": {"requries_hitl": True}}},
            "tool_governance_overrides.x.requries_hitl: is not known here",
        ),
        (
            {**STDIO, "tool_governance_overrides": {"x": {"requires_hitl": "no"}}},
            "requires_hitl",
        ),
        ({**STDIO, "env": {"A": "${NOT_SET}"}}, "NOT_SET is not set"),
    ],
)
def test_entry_that_cannot_be_used_stops_start_up(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        read(entry)
    assert "/a/config.yaml: spec.agent.mcp_servers[0]" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_two_servers_whose_tools_would_have_the_same_names_stop_start_up() -> None:
    with pytest.raises(ConfigurationError, match="'a.b' is too like 'a-b'"):
        read({"name": "a-b", "command": "x"}, {"name": "a.b", "command": "x"})


def test_secrets_come_from_the_environment_and_are_not_shown() -> None:
    (spec,) = read({**HTTP, "headers": {"Authorization": "Bearer ${KEY}"}}, KEY="sesame")
    assert spec.server.headers == {"Authorization": "Bearer sesame"}
    assert "sesame" not in repr(spec)


def test_header_with_a_line_break_stops_start_up() -> None:
    with pytest.raises(ConfigurationError, match="no header text"):
        read({**HTTP, "headers": {"A": "x${KEY}y"}}, KEY="a\nb")


def test_every_field_of_the_contract_is_known(caplog: pytest.LogCaptureFixture) -> None:
    (spec,) = read(
        {
            **HTTP,
            "headers": {},
            "timeout": 10,
            "sse_read_timeout": 20,
            "verify_ssl": False,
            "trust_level": "sandboxed",
            "request_timeout": 5,
            "auth_server": "https://auth.example.com",
            "scopes": ["read"],
            "oauth_client_id": "id",
            "oauth_client_secret": "x",
            "canonical_uri": "https://example.com",
            "protocol_version": "2025-06-18",
            "user_id_header": "X-User",
            "user_id_source": "env",
            "user_id_env_var": "ME",
        },
        ME="ada",
    )
    assert spec.fixed_user == "ada"
    assert not spec.server.is_trusted
    assert (spec.server.signs_in, spec.server.oauth_client_secret) == (True, "x")
    assert caplog.records == []


@pytest.mark.parametrize(
    ("version", "mode"),
    [(None, "auto"), ("2025-06-18", "legacy"), ("2026-07-28", "2026-07-28")],
)
def test_protocol_is_agreed_on_unless_it_is_named(version: str | None, mode: str) -> None:
    assert McpServer.model_validate({**STDIO, "protocol_version": version}).mode == mode


def test_unknown_protocol_version_stops_start_up() -> None:
    with pytest.raises(ConfigurationError, match="protocol_version: must be one of"):
        read({**STDIO, "protocol_version": "1999-01-01"})


class mcp_todo(BasePlugin):
    @kernel_function
    def add_task(self) -> str:
        return "mine"


def test_plugin_named_like_a_server_stops_start_up(tmp_path: Path) -> None:
    source = McpServers().source([STDIO], agent_file=tmp_path / "c.yaml", field="mcp_servers")
    plugins = plugin_tools(mcp_todo, threads=WorkerThreads(), origin="here")
    with pytest.raises(ConfigurationError, match="named like one of an MCP server"):
        AgentToolbox(plugins, source)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///var/teal/teal.sqlite", "/var/teal/teal.sqlite.mcp_pins.json"),
        ("file:///var/teal", "/var/teal/mcp_pins.json"),
        ("memory:", None),
    ],
)
def test_pins_lie_beside_the_store(url: str, path: str | None) -> None:
    assert pins_path(url) == (Path(path) if path else None)


def test_nothing_of_the_library_is_imported_for_no_server() -> None:
    code = (
        "import sys, asyncio\n"
        "from sk_agents.tools.mcp.servers import McpServers\n"
        "async def main():\n"
        "    async with McpServers() as servers: assert not servers.is_used\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('mcp', 'mcp_types')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
