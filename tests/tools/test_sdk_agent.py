"""An agent of the OpenAI Agents SDK, known by its fields, as one of ours."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from sk_agents.agent_assembly import Clients, ServedAgent, build_agents
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.engine.models import Effect
from sk_agents.exceptions import ConfigurationError, ToolError
from sk_agents.llm.model_clients import ModelClients
from sk_agents.tools.agents_sdk.loading import NEEDED, filled_block, load_team
from sk_agents.tools.declarations import tool
from sk_agents.tools.mcp.servers import McpServers
from sk_agents.tools.openapi.clients import RemoteClients
from sk_agents.tools.toolbox import AgentToolbox
from tests.tools import sdk_shapes
from tests.tools.calls import call, result
from tests.tools.sdk_shapes import Agent, ModelSettings, a_tool, an_agent, stdio

FIELD = "spec.agent"
REFERENCE = f"{sdk_shapes.__name__}:agent"


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts an object where an agent file's `openai_agent` names it."""
    return lambda found: monkeypatch.setattr(sdk_shapes, "agent", found, raising=False)


def filled(tmp_path: Path, **given: Any) -> dict[str, Any]:
    block = {"name": "default", "openai_agent": REFERENCE, **given}
    return dict(filled_block(tmp_path / "config.yaml", FIELD, block))


def tools_of(tmp_path: Path) -> AgentToolbox:
    team = load_team(REFERENCE, path=tmp_path / "config.yaml", field=FIELD)
    assert team is not None
    return AgentToolbox(team.tools)


def served(folder: Path, **agent: Any) -> ServedAgent:
    document = {
        "apiVersion": "tealagents/v1alpha1",
        "name": "Helper",
        "version": 0.1,
        "spec": {"agent": {"name": "default", **agent}},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(document))
    clients = Clients(ModelClients(), RemoteClients(), McpServers())
    return build_agents(load_agent_files([folder / "config.yaml"]), Settings(), clients)["Helper"]


def test_words_settings_and_tools_are_taken_over(tmp_path: Path, offer: Any) -> None:
    settings = ModelSettings(
        temperature=0.0, max_tokens=50, reasoning=SimpleNamespace(effort="low")
    )
    offer(an_agent(model_settings=settings, tools=[a_tool(), a_tool("off", is_enabled=False)]))
    agent = served(tmp_path, openai_agent=REFERENCE).agent
    assert (agent.system_prompt, agent.temperature, agent.max_tokens) == ("You help.", 0.0, 50)
    assert agent.reasoning_effort == "low"
    assert [spec.name for spec in agent.toolbox.specs()] == ["look"]
    [spec] = agent.toolbox.specs()
    assert (spec.effect, spec.timeout) == (Effect.AT_MOST_ONCE, 60.0)
    assert agent.policy.verdict(call("look", {"what": "x", "most": 3}), spec) == "ask"


def test_what_the_file_says_itself_goes_first(tmp_path: Path, offer: Any) -> None:
    settings = ModelSettings(temperature=1.0, reasoning=SimpleNamespace(effort="low"))
    offer(an_agent(instructions=lambda context, agent: "", model=object(), model_settings=settings))
    own = {"model": "scripted/echo", "system_prompt": "Mine.", "temperature": 0.5}
    block = filled(tmp_path, **own)
    assert {name: block[name] for name in own} == own
    # It was meant for the other model.
    assert "reasoning_effort" not in block


def test_an_agent_in_a_file_beside_the_agent_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from tests.tools.sdk_shapes import an_agent\nagent = an_agent()\n")
    path.chmod(0o600)
    assert served(tmp_path, openai_agent="mine.py:agent").model == "scripted/echo"


def test_a_setting_that_is_not_passed_on_is_reported(
    tmp_path: Path, offer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    offer(an_agent(model_settings=ModelSettings(top_p=0.5, verbosity="low")))
    with caplog.at_level(logging.WARNING):
        assert filled(tmp_path)["top_p"] == 0.5
    assert "model_settings have no effect here: verbosity" in caplog.text


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("mine.py", "must be <module or file>:<name>"),
        ("mine.py:", "must be <module or file>:<name>"),
        ("mine.py:agent", "there is no file"),
        ("no_such_module:agent", "there is no module 'no_such_module'"),
        (f"{sdk_shapes.__name__}:nobody", "has no 'nobody'"),
        (f"{sdk_shapes.__name__}:told", "is no Agent of the OpenAI Agents SDK"),
        (f"{sdk_shapes.__name__}:Agent", "is no Agent of the OpenAI Agents SDK"),
    ],
)
def test_an_agent_that_is_not_there_stops_start_up(
    tmp_path: Path, reference: str, said: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        served(tmp_path, openai_agent=reference)
    assert f"{tmp_path / 'config.yaml'}: spec.agent.openai_agent: " in str(caught.value)
    assert said in str(caught.value)


def test_a_file_that_needs_the_sdk_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from agents import Agent\n")
    (tmp_path / "mine.py").chmod(0o600)
    with pytest.raises(ConfigurationError) as caught:
        served(tmp_path, openai_agent="mine.py:agent")
    assert NEEDED in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": None}, "it names no model; write model beside it"),
        ({"model": ModelSettings()}, "its model is a ModelSettings, which only the SDK can call"),
        ({"handoffs": [1]}, "handoffs: a int is no agent of the SDK"),
        ({"handoffs": [Agent("Other", prompt=1)]}, "agent 'Other': prompt is not supported here"),
        ({"handoffs": [Agent("A"), Agent("a")]}, "tool 'transfer_to_a' is also defined by"),
        ({"input_guardrails": [1]}, "input_guardrails: a int is no guardrail of the SDK"),
        ({"output_type": type("Odd", (), {})}, "output_type has no JSON schema"),
        ({"prompt": 1}, "prompt is not supported here"),
        ({"hooks": sdk_shapes.ModelHooks()}, "hooks: on_llm_end is not called here"),
        ({"tool_use_behavior": len}, "a tool_use_behavior that is a function is not called here"),
        ({"model_settings": ModelSettings(tool_choice={})}, "model_settings.tool_choice is a dict"),
        ({"model_settings": ModelSettings(temperature=9.0)}, "spec.agent.temperature"),
        ({"tools": [sdk_shapes.WebSearchTool()]}, "a WebSearchTool does not run here"),
        ({"tools": [a_tool(_is_agent_tool=True)]}, "tool 'look': its agent cannot be found"),
        (
            {"tools": [a_tool(_is_agent_tool=True, _agent_instance=Agent("Other"))]},
            "tool 'look': how it runs its agent cannot be read",
        ),
        ({"tools": [a_tool("has space")]}, "cannot be a tool's name"),
        ({"tools": [a_tool(params_json_schema={"type": "array"})]}, "its schema is unusable"),
        ({"tools": [a_tool(), a_tool()]}, "is also defined by"),
        ({"mcp_servers": [stdio("a", "b", tool_filter=len)]}, "a tool_filter that is a function"),
        ({"mcp_servers": [sdk_shapes.HostedServer("a")]}, "a HostedServer cannot be used here"),
        (
            {"mcp_servers": [sdk_shapes.MCPServerStreamableHttp("a", {"url": "b", "auth": 1})]},
            "auth is not supported here",
        ),
    ],
)
def test_what_an_agent_asks_for_and_is_not_done_stops_start_up(
    tmp_path: Path, offer: Any, fields: dict[str, Any], said: str
) -> None:
    offer(an_agent(**fields))
    with pytest.raises(ConfigurationError) as caught:
        served(tmp_path, openai_agent=REFERENCE)
    assert str(tmp_path / "config.yaml") in str(caught.value)
    assert said in str(caught.value)


def test_output_type_text_is_what_an_answer_is_anyway(tmp_path: Path, offer: Any) -> None:
    offer(an_agent(output_type=str))
    assert filled(tmp_path)["model"] == "scripted/echo"


async def test_a_tool_gets_checked_arguments_and_its_caller(tmp_path: Path, offer: Any) -> None:
    offer(an_agent(tools=[a_tool()]))
    box = tools_of(tmp_path)
    given = await result(box, "look", {"what": "é"})
    assert given.content == 'look for u1 with {"most": 3, "what": "é"}'
    with pytest.raises(ToolError, match="most: 'many' is not of type 'integer'"):
        box.check(call("look", {"what": "x", "most": "many"}))
    with pytest.raises(ToolError, match="where.*is unknown"):
        box.check(call("look", {"what": "x", "where": "y"}))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (SimpleNamespace(type="text", text="plain"), "plain"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ({"type": "image", "image_url": "https://a.example/x"}, "[link https://a.example/x]"),
        ({"type": "image", "file_id": "f1"}, "[file f1, kept by OpenAI]"),
        ({"type": "image"}, '{"type":"image"}'),
        (["a", 1], '["a",1]'),
        ([], "[]"),
        (None, "null"),
    ],
)
async def test_texts_of_the_sdk_are_shown_as_text_and_all_else_as_json(
    tmp_path: Path, offer: Any, given: Any, text: str
) -> None:
    async def give(context: Any, arguments: str) -> Any:
        return given

    offer(an_agent(tools=[a_tool(on_invoke_tool=give)]))
    assert (await result(tools_of(tmp_path), "look", {"what": "x"})).content == text


async def test_a_tool_cannot_end_the_process(tmp_path: Path, offer: Any) -> None:
    async def leave(context: Any, arguments: str) -> Any:
        raise SystemExit(1)

    offer(an_agent(tools=[a_tool(on_invoke_tool=leave)]))
    with pytest.raises(ToolError, match="end the process"):
        await result(tools_of(tmp_path), "look", {"what": "x"})


@pytest.mark.parametrize(
    ("made", "asks"),
    [
        (a_tool(), None),
        (a_tool(needs_approval=True), True),
        (a_tool(needs_approval=lambda context, arguments, call_id: False), True),
        (tool(requires_approval=False)(a_tool()), False),  # type: ignore[type-var]  # no function
        (tool(requires_approval=False)(a_tool(needs_approval=True)), True),  # type: ignore[type-var]  # no function
    ],
)
def test_whoever_wants_to_be_asked_is_asked(
    tmp_path: Path, offer: Any, made: Any, asks: bool | None
) -> None:
    offer(an_agent(tools=[made]))
    assert tools_of(tmp_path).requires_approval("look") is asks


def test_effect_and_timeout_are_taken_from_both_declarations(tmp_path: Path, offer: Any) -> None:
    quick = tool(effect="read_only", timeout=5)(a_tool("quick"))  # type: ignore[type-var]  # no function
    offer(an_agent(tools=[quick, a_tool("slow", timeout_seconds=90.0)]))
    quick_spec, slow = tools_of(tmp_path).specs()
    assert (quick_spec.effect, quick_spec.timeout) == (Effect.READ_ONLY, 5.0)
    assert (slow.effect, slow.timeout) == (Effect.AT_MOST_ONCE, 90.0)


def test_mcp_servers_come_after_those_of_the_file(tmp_path: Path, offer: Any) -> None:
    web = sdk_shapes.MCPServerStreamableHttp(
        "the web", {"url": "http://127.0.0.1:1/mcp", "headers": {"A": "b"}, "timeout": 5}
    )
    policy = {"add": True, "list": False}
    by_tool = stdio("by tool", "one", cwd="there", _needs_approval_policy=policy)
    always = stdio("stdio: two", "two", _needs_approval_policy=True)
    offer(an_agent(mcp_servers=[web, by_tool, always]))
    own = {"name": "own", "command": "zero"}
    rule = {"tool": "mcp_own-*", "then": "allow"}
    block = filled(tmp_path, mcp_servers=[own], approvals={"rules": [rule]})
    process = {"transport": "stdio", "args": ["-q"], "env": {}}
    assert block["mcp_servers"] == [
        own,
        {
            "name": "the_web",
            "transport": "http",
            "url": "http://127.0.0.1:1/mcp",
            "headers": {"A": "b"},
        },
        {
            "name": "by_tool",
            "command": "one",
            "cwd": "there",
            "tool_governance_overrides": {"add": {"requires_hitl": True}},
            **process,
        },
        {"name": "stdio_two", "command": "two", **process},
    ]
    assert block["approvals"] == {"rules": [rule, {"tool": "mcp_stdio_two-*", "then": "ask"}]}
    served(tmp_path, openai_agent=REFERENCE)


def test_an_agent_needs_no_field_that_older_libraries_lack(tmp_path: Path, offer: Any) -> None:
    offer(Agent("Helper", model="scripted/echo"))
    assert filled(tmp_path)["system_prompt"] == ""
