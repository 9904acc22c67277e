"""Handoffs, agents as tools, guardrails, types and functions of SDK agents, run by our engine.

The model is a script behind a real socket; the SDK's objects are stand-ins with its fields.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from sk_agents.agent_assembly import Clients, build_agents
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.engine.commands import SteerRun
from sk_agents.engine.defaults import SystemClock
from sk_agents.engine.engine import Engine
from sk_agents.engine.events import ModelRestarted
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import RunStatus, Usage
from sk_agents.engine.ports import Store
from sk_agents.engine.reading.live import LiveDelta
from sk_agents.exceptions import ConfigurationError
from sk_agents.llm.model_clients import ModelClients
from sk_agents.persistence.store_factory import open_store
from sk_agents.signals.local import LocalSignals
from sk_agents.testing import ScriptedModel, ScriptedModelServer, SequentialIds
from sk_agents.testing.scripted_model import Turn, calls, says
from sk_agents.tools.agents_sdk.team import Team
from sk_agents.tools.declarations import tool
from sk_agents.tools.mcp.servers import McpServers
from sk_agents.tools.openapi.clients import RemoteClients
from tests.engine.kit import THREAD, USER, Setup, Talk
from tests.requirements import requirement
from tests.tools import sdk_shapes
from tests.tools.sdk_shapes import (
    Agent,
    Guardrail,
    ModelSettings,
    a_tool,
    an_agent,
    as_tool,
    handoff,
    stdio,
)

NAME = "openai/from-the-sdk"
Talking = Callable[..., Any]


class City(BaseModel):
    name: str
    people: int = 0


@asynccontextmanager
async def served(
    folder: Path, script: Sequence[Turn], store: Store | None = None, **file: Any
) -> AsyncIterator[Talk]:
    """The agent in `sdk_shapes.agent`, served as its file says."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ScriptedModelServer(script))
        block = {
            "name": "default",
            "openai_agent": f"{sdk_shapes.__name__}:agent",
            "base_url": server.base_url,
            **file,
        }
        document = {
            "apiVersion": "tealagents/v1alpha1",
            "name": "a",
            "version": 0.1,
            "spec": {"agent": block},
        }
        path = folder / "config.yaml"
        path.write_text(json.dumps(document))
        models = await stack.enter_async_context(ModelClients())
        clients = Clients(models, RemoteClients(), McpServers())
        agents = build_agents(load_agent_files([path]), Settings(), clients)
        if store is None:
            store = await stack.enter_async_context(open_store("memory:"))
        engine = await stack.enter_async_context(
            Engine(
                store,
                {"a": agents["a"].agent},
                signals=LocalSignals(),
                clock=SystemClock(),
                ids=SequentialIds(int(server.base_url.split(":")[2].split("/")[0]) << 24),
                owner=server.base_url,
            )
        )
        talk = Talk(engine, store, Setup(), ScriptedModel(()))
        talk.server = server
        yield talk


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    return lambda found: monkeypatch.setattr(sdk_shapes, "agent", found, raising=False)


def member(name: str, **fields: Any) -> Agent:
    return Agent(name, **{"instructions": f"You are {name}.", "model": NAME, **fields})


def requests(talk: Talk) -> list[dict[str, Any]]:
    assert talk.server is not None
    return talk.server.requests


def offered(request: dict[str, Any]) -> list[str]:
    return [entry["function"]["name"] for entry in request.get("tools", [])]


def system(request: dict[str, Any]) -> str:
    first = request["messages"][0]
    assert first["role"] == "system"
    return str(first["content"])


def answer(run: Run) -> str:
    assert run.answer is not None, run.failure
    return run.answer.content


def failure(run: Run) -> tuple[str, str]:
    assert run.failure is not None and run.status is RunStatus.FAILED
    return run.failure.code, run.failure.message


def reading(name: str, **fields: Any) -> Any:
    return tool(effect="read_only")(a_tool(name, **fields))  # type: ignore[type-var]  # no function


@requirement("S003-1.5-agents-sdk")
async def test_handoff_gives_the_conversation_to_another_agent_with_its_own_words_and_tools(
    tmp_path: Path, offer: Any
) -> None:
    booking = member(
        "Booking", tools=[reading("seats")], model_settings=ModelSettings(max_tokens=9)
    )
    triage = member("Triage", tools=[reading("faq")], handoffs=[booking])
    booking.handoffs.append(triage)
    offer(triage)
    script = [
        calls(("transfer_to_booking", {})),
        calls(("seats", {"what": "x"})),
        says("Seat 12 is yours."),
        says("Still me."),
    ]
    async with served(tmp_path, script) as talk:
        assert answer(await talk.ask("A seat, please")) == "Seat 12 is yours."
        assert answer(await talk.ask("Thanks")) == "Still me."
        first, second, third, fourth = requests(talk)
    assert (system(first), offered(first)) == ("You are Triage.", ["faq", "transfer_to_booking"])
    for request in (second, third, fourth):
        assert system(request) == "You are Booking."
        assert offered(request) == ["seats", "transfer_to_triage"]
        assert request["max_tokens"] == 9
    assert "max_tokens" not in first
    assert json.loads(second["messages"][-1]["content"]) == {"assistant": "Booking"}


async def test_who_speaks_is_read_from_the_log_after_a_restart(tmp_path: Path, offer: Any) -> None:
    other = member("Other", tools=[a_tool("act")])
    offer(member("First", handoffs=[other]))
    async with open_store(f"sqlite://{tmp_path / 'teal.sqlite'}") as store:
        script = [calls(("transfer_to_other", {})), calls(("act", {"what": "x"}))]
        async with served(tmp_path, script, store) as talk:
            # The tool of the other agent asks, as every tool does that may change something.
            assert (await talk.ask()).status is RunStatus.WAITING
            (approval,) = await talk.approvals("r1")
            await talk.parked()
        async with served(tmp_path, [says("Done.")], store) as talk:
            await talk.decide(approval)
            assert answer(await talk.ended("r1")) == "Done."
            assert system(requests(talk)[0]) == "You are Other."


async def test_a_tool_of_an_agent_that_does_not_speak_is_not_run(
    tmp_path: Path, offer: Any
) -> None:
    offer(member("First", handoffs=[member("Other", tools=[reading("look")])]))
    async with served(tmp_path, [calls(("look", {"what": "x"})), says("No.")]) as talk:
        await talk.ask()
        assert await talk.results("r1") == ["The tool 'look' is not offered now."]


async def test_only_one_of_several_handoffs_of_a_round_takes_place(
    tmp_path: Path, offer: Any
) -> None:
    offer(member("First", handoffs=[member("A"), member("B")]))
    script = [calls(("transfer_to_a", {}), ("transfer_to_b", {})), says("Hello.")]
    async with served(tmp_path, script) as talk:
        await talk.ask()
        assert system(requests(talk)[1]) == "You are A."
        _, refused = await talk.results("r1")
        assert refused == "Another call of this round has done that already."


async def test_a_handoff_that_calls_a_function_asks_first_and_gives_it_its_arguments(
    tmp_path: Path, offer: Any
) -> None:
    noted: list[Any] = []
    schema = {"type": "object", "properties": {"why": {"type": "string"}}, "required": ["why"]}
    to_other = handoff(
        member("Other"),
        lambda context, arguments: noted.append((context.context.user_id, arguments)),
        schema,
        tool_name="escalate",
    )
    offer(member("First", handoffs=[to_other, handoff(member("Free"))]))
    script = [calls(("escalate", {"why": "angry"})), says("Hello.")]
    async with served(tmp_path, script) as talk:
        assert (await talk.ask()).status is RunStatus.WAITING
        assert noted == []
        await talk.decide(*await talk.approvals("r1"))
        assert answer(await talk.ended("r1")) == "Hello."
        assert system(requests(talk)[1]) == "You are Other."
    assert noted == [("ada", '{"why": "angry"}')]


async def test_an_input_filter_decides_what_the_next_agent_sees(tmp_path: Path, offer: Any) -> None:
    def without_tools(data: Any) -> Any:
        kept = tuple(item for item in data.input_history if "role" in item)
        return SimpleNamespace(input_history=kept, pre_handoff_items=(), new_items=())

    other = handoff(member("Other", tools=[reading("seats")]), input_filter=without_tools)
    offer(member("First", tools=[reading("look")], handoffs=[other]))
    script = [
        calls(("look", {"what": "secret"})),
        calls(("transfer_to_other", {})),
        calls(("seats", {"what": "new"})),
        says("Hello."),
    ]
    async with served(tmp_path, script) as talk:
        await talk.ask("Hi")
        _, _, third, fourth = requests(talk)
    assert [message["role"] for message in third["messages"]] == ["system", "user"]
    roles = [message["role"] for message in fourth["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]
    assert "secret" not in json.dumps(fourth["messages"])


async def test_instructions_that_are_a_function_are_asked_before_each_round(
    tmp_path: Path, offer: Any
) -> None:
    rounds: list[str] = []

    async def told(context: Any, agent: Any) -> str:
        rounds.append(agent.name)
        return f"{agent.name} helps {context.context.user_id}, round {len(rounds)}."

    offer(an_agent(instructions=told, model=NAME, tools=[reading("look")]))
    async with served(tmp_path, [calls(("look", {"what": "x"})), says("Yes.")]) as talk:
        assert answer(await talk.ask()) == "Yes."
        assert [system(request) for request in requests(talk)] == [
            "Helper helps ada, round 1.",
            "Helper helps ada, round 2.",
        ]


async def test_instructions_that_fail_end_the_run_without_their_words(
    tmp_path: Path, offer: Any
) -> None:
    def broken(context: Any, agent: Any) -> str:
        raise RuntimeError("a secret")

    offer(an_agent(instructions=broken, model=NAME))
    async with served(tmp_path, []) as talk:
        code, message = failure(await talk.ask())
    assert code == "agent_failed"
    assert message == "instructions of agent 'Helper' failed with RuntimeError."


async def test_an_answer_must_be_of_the_output_type_and_is_asked_for_twice(
    tmp_path: Path, offer: Any
) -> None:
    used = Usage(prompt_tokens=10, completion_tokens=5)
    script = [
        says("Bern is nice.", usage=used),
        says('{"name": "Bern", "people": 1}', usage=used),
        says("no"),
        says('{"people": 1}'),
    ]
    offer(an_agent(model=NAME, output_type=City))
    async with served(tmp_path, script) as talk:
        run = await talk.ask()
        assert City.model_validate_json(answer(run)) == City(name="Bern", people=1)
        assert run.usage.total_tokens == 30
        restarted = [one for one in await talk.log() if isinstance(one, ModelRestarted)]
        assert [one.reason for one in restarted] == ["output_invalid"]
        code, message = failure(await talk.ask())
        format_of = requests(talk)[0]["response_format"]["json_schema"]
    assert (code, "is no City" in message) == ("output_invalid", True)
    assert format_of["strict"] is True
    assert format_of["schema"]["required"] == ["name", "people"]


async def test_an_output_type_that_is_no_object_is_wrapped_into_one(
    tmp_path: Path, offer: Any
) -> None:
    offer(an_agent(model=NAME, output_type=list[City]))
    script = [says('{"response": [{"name": "Bern", "people": 1}]}')]
    async with served(tmp_path, script) as talk:
        assert json.loads(answer(await talk.ask()))["response"][0]["name"] == "Bern"
        schema = requests(talk)[0]["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["response"] and "City" in schema["$defs"]


def verdict(found: object) -> Callable[..., Any]:
    async def guard(*given: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return SimpleNamespace(tripwire_triggered=found, output_info=given)

    return guard


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (True, "guardrail_tripped"),
        (None, "guardrail_tripped"),
        (ValueError("a secret"), "agent_failed"),
    ],
)
async def test_an_input_guardrail_stops_the_run_before_the_model_is_asked(
    tmp_path: Path, offer: Any, found: object, code: str
) -> None:
    passing = Guardrail(verdict(False), "harmless")
    offer(an_agent(model=NAME, input_guardrails=[passing, Guardrail(verdict(found), "homework")]))
    async with served(tmp_path, []) as talk:
        failed, message = failure(await talk.ask("Solve 2x = 4"))
        assert requests(talk) == []
    assert failed == code
    assert "The input guardrail 'homework'" in message and "secret" not in message


async def test_an_input_guardrail_sees_what_the_user_said_once_a_turn(
    tmp_path: Path, offer: Any
) -> None:
    seen: list[Any] = []

    def guard(context: Any, agent: Any, said: Any) -> Any:
        seen.append((agent.name, said, context.context.user_id))
        return SimpleNamespace(tripwire_triggered=False)

    offer(an_agent(model=NAME, input_guardrails=[Guardrail(guard)], tools=[reading("look")]))
    async with served(tmp_path, [calls(("look", {"what": "x"})), says("Yes.")]) as talk:
        assert answer(await talk.ask("Hi")) == "Yes."
    assert seen == [("Helper", "Hi", "ada")]


async def test_an_input_guardrail_sees_what_is_said_to_a_run_at_work(
    tmp_path: Path, offer: Any
) -> None:
    def guard(context: Any, agent: Any, said: Any) -> Any:
        return SimpleNamespace(tripwire_triggered="homework" in said)

    guarded = {"input_guardrails": [Guardrail(guard, "homework")]}
    offer(an_agent(model=NAME, tools=[a_tool("look")], **guarded))
    async with served(tmp_path, [calls(("look", {"what": "x"})), says("never")]) as talk:
        accepted = await talk.say("Hi")
        await talk.parked()
        (approval_id,) = await talk.approvals(accepted.run_id)
        await talk.engine.steer(SteerRun(THREAD, USER, accepted.run_id, "Do my homework"))
        await talk.decide(approval_id, approved=True)
        failed, message = failure(await talk.result(accepted))
        assert len(requests(talk)) == 1
    assert failed == "guardrail_tripped" and "'homework'" in message


async def test_an_answer_that_an_output_guardrail_stops_is_never_shown(
    tmp_path: Path, offer: Any
) -> None:
    values: list[Any] = []

    def guard(context: Any, agent: Any, value: City) -> Any:
        values.append(value)
        return SimpleNamespace(tripwire_triggered=value.people > 5)

    offer(an_agent(model=NAME, output_type=City, output_guardrails=[Guardrail(guard)]))
    script = [says('{"name": "Bern", "people": 1}', pieces=3), says('{"name": "X", "people": 9}')]
    async with served(tmp_path, script) as talk:
        accepted = await talk.say()
        shown = await talk.items(accepted)
        assert not [item for item in shown if isinstance(item, LiveDelta)]
        assert "Bern" in answer(await talk.result(accepted))
        assert failure(await talk.ask()) == (
            "guardrail_tripped",
            "The output guardrail 'guard' stopped the run.",
        )
        assert '"people": 9' not in str(await talk.log())
    assert values == [City(name="Bern", people=1), City(name="X", people=9)]


def behaves(kind: str, seen: list[Any]) -> Guardrail:
    def guard(data: Any) -> Any:
        seen.append((data.context.tool_arguments, getattr(data, "output", None)))
        return SimpleNamespace(behavior={"type": kind, "message": "Not this."})

    return Guardrail(guard, "watch")


@pytest.mark.parametrize("field", ["tool_input_guardrails", "tool_output_guardrails"])
async def test_a_tool_s_guardrail_puts_its_words_in_the_result_s_place(
    tmp_path: Path, offer: Any, field: str
) -> None:
    seen: list[Any] = []
    guarded = reading("look", **{field: [behaves("allow", seen), behaves("reject_content", seen)]})
    offer(an_agent(model=NAME, tools=[guarded]))
    async with served(tmp_path, [calls(("look", {"what": "x"})), says("Yes.")]) as talk:
        await talk.ask()
        assert await talk.results("r1") == ["Not this."]
    assert len(seen) == 2
    assert (seen[0][1] is None) is (field == "tool_input_guardrails")


@pytest.mark.parametrize("kind", ["raise_exception", "something new"])
async def test_a_tool_s_guardrail_may_end_the_run(tmp_path: Path, offer: Any, kind: str) -> None:
    offer(an_agent(model=NAME, tools=[reading("look", tool_output_guardrails=[behaves(kind, [])])]))
    async with served(tmp_path, [calls(("look", {"what": "x"}))]) as talk:
        code, message = failure(await talk.ask())
    assert code == "guardrail_tripped"
    assert message == "The guardrail 'watch' of tool 'look' stopped the run."


async def test_tool_choice_holds_until_a_tool_was_called(tmp_path: Path, offer: Any) -> None:
    settings = ModelSettings(tool_choice="look", parallel_tool_calls=False)
    offer(an_agent(model=NAME, model_settings=settings, tools=[reading("look")]))
    both = calls(("look", {"what": "x"}), ("look", {"what": "y"}))
    async with served(tmp_path, [both, says("Yes.")]) as talk:
        await talk.ask()
        first, second = requests(talk)
        _, refused = await talk.results("r1")
    assert first["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert first["parallel_tool_calls"] is False
    assert "tool_choice" not in second
    assert refused is not None and refused.startswith("One call at a time.")


@pytest.mark.parametrize(
    "behavior", ["stop_on_first_tool", {"stop_at_tool_names": ["other", "look"]}]
)
async def test_a_tool_s_result_is_the_answer_where_the_agent_says_so(
    tmp_path: Path, offer: Any, behavior: Any
) -> None:
    offer(an_agent(model=NAME, tools=[reading("look")], tool_use_behavior=behavior))
    async with served(tmp_path, [calls(("look", {"what": "x"}))]) as talk:
        assert answer(await talk.ask()).startswith("look for ada with")
        assert len(requests(talk)) == 1


async def test_a_tool_is_offered_while_its_function_says_so(tmp_path: Path, offer: Any) -> None:
    switches = [reading("on", is_enabled=lambda context, agent: context.context.user_id == "ada")]
    switches.append(reading("off", is_enabled=lambda context, agent: agent.name != "Helper"))
    offer(an_agent(model=NAME, tools=switches))
    async with served(tmp_path, [says("Yes.")]) as talk:
        await talk.ask()
        assert offered(requests(talk)[0]) == ["on"]


def test_filters_of_an_mcp_server_s_tools_are_kept(tmp_path: Path, offer: Any) -> None:
    blocking = stdio("files", "x", tool_filter={"blocked_tool_names": ["rm"]})
    team = sdk_team(an_agent(mcp_servers=[blocking]))
    assert team.needs_direction
    passes = team.first.servers["mcp_files-"].lets_pass
    assert (passes("ls"), passes("rm")) == (True, False)


def sdk_team(agent: Any) -> Any:
    return Team(agent, "x: ")


async def test_an_agent_as_a_tool_has_a_conversation_of_its_own(tmp_path: Path, offer: Any) -> None:
    poet = member("Poet", tools=[reading("rhymes")], output_type=City)
    offer(member("Boss", tools=[as_tool(poet, "ask_poet")]))
    used = Usage(prompt_tokens=10, completion_tokens=5)
    script = [
        calls(("ask_poet", {"input": "A town"}), usage=used),
        calls(("rhymes", {"what": "x"}), usage=used),
        says("no", usage=used),
        says('{"name": "Bern", "people": 2}', usage=used),
        says("It is Bern.", usage=used),
    ]
    async with served(tmp_path, script) as talk:
        # Its tools only read, so the call needs no approval.
        run = await talk.ask("Which town?")
        assert answer(run) == "It is Bern."
        boss, nested, again, _, last = requests(talk)
        assert run.usage.total_tokens == 75
    assert offered(boss) == ["ask_poet"]
    assert (system(nested), offered(nested)) == ("You are Poet.", ["rhymes"])
    assert nested["messages"][1:] == [{"role": "user", "content": "A town"}]
    assert again["messages"][-1]["content"].startswith("rhymes for ada")
    assert last["messages"][-1]["content"] == '{"name": "Bern", "people": 2}'


@pytest.mark.parametrize(("said", "result"), [("allow", "act for ada"), ("refuse", "not allow")])
async def test_a_gated_tool_of_an_agent_in_a_tool_is_put_to_the_user(
    tmp_path: Path, offer: Any, said: str, result: str
) -> None:
    doer = member("Doer", tools=[a_tool("act")])
    offer(member("Boss", tools=[as_tool(doer, "ask_doer")]))
    script = [
        calls(("ask_doer", {"input": "Do it"})),
        calls(("act", {"what": "x"})),
        says("Did it."),
        says("Done."),
    ]
    async with served(tmp_path, script) as talk:
        # What its tools may do is not known to be harmless: the whole call asks, too.
        assert (await talk.ask()).status is RunStatus.WAITING
        (outer,) = await talk.approvals("r1")
        await talk.decide(outer)
        state = await talk.until(
            lambda state: (
                outer not in [one.request.approval_id for one in state.run("r1").pending_approvals]
                and bool(state.run("r1").pending_approvals)
            )
        )
        (asked,) = state.run("r1").pending_approvals
        assert asked.request.kind == "question"
        assert 'call act with {"most": 3, "what": "x"}' in str(asked.request)
        await talk.decide(asked.request.approval_id, answer=said)
        assert answer(await talk.ended("r1")) == "Done."
        assert result in requests(talk)[2]["messages"][-1]["content"]


async def test_a_nested_call_that_others_must_approve_is_refused(
    tmp_path: Path, offer: Any
) -> None:
    doer = member("Doer", tools=[a_tool("act")])
    offer(member("Boss", tools=[as_tool(doer, "ask_doer")]))
    rules = [
        {"tool": "ask_doer", "then": "allow"},
        {"tool": "act", "then": "ask", "approvers": {"users": ["lead"]}},
    ]
    script = [
        calls(("ask_doer", {"input": "Do it"})),
        calls(("act", {"what": "x"})),
        says("I may not."),
        says("Done."),
    ]
    async with served(tmp_path, script, approvals={"rules": rules}) as talk:
        assert answer(await talk.ask()) == "Done."
        told = requests(talk)[2]["messages"][-1]["content"]
    assert told == "act needs an approval that cannot be asked for inside of a tool."


async def test_an_agent_in_a_tool_that_does_not_end_is_stopped(tmp_path: Path, offer: Any) -> None:
    looker = member("Looker", tools=[reading("look")])
    offer(member("Boss", tools=[as_tool(looker, "ask", max_turns=2)]))
    look = calls(("look", {"what": "x"}))
    async with served(tmp_path, [calls(("ask", {"input": "x"})), look, look, says("No.")]) as talk:
        await talk.ask()
        assert await talk.results("r1") == ["The agent did not come to an end within 2 rounds."]


@pytest.mark.parametrize(
    ("tools", "file", "said"),
    [
        (
            [as_tool(member("Poet"), "ask", custom_output_extractor=len)],
            {},
            "tool 'ask': custom_output_extractor is not supported here",
        ),
        ([as_tool(member("Poet"), "ask")], {"redact": True}, "redact does not reach the agents"),
        (
            [as_tool(member("Poet", model="openai/dear"), "ask")],
            {"price": {"prompt": 1, "completion": 1, "currency": "EUR"}},
            "its model openai/dear may have another price",
        ),
        (
            [as_tool(member("Poet", model=object()), "ask")],
            {},
            "agent 'Poet': its model is a object, which only the SDK can call",
        ),
    ],
)
async def test_what_an_agent_in_a_tool_cannot_have_stops_start_up(
    tmp_path: Path, offer: Any, tools: list[Any], file: dict[str, Any], said: str
) -> None:
    offer(member("Boss", tools=tools))
    with pytest.raises(ConfigurationError) as caught:
        async with served(tmp_path, [], **file):
            pass
    assert said in str(caught.value)


class Hooks:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    async def on_start(self, context: Any, agent: Any) -> None:
        self.told.append(("start", agent.name))

    async def on_end(self, context: Any, agent: Any, output: Any) -> None:
        self.told.append(("end", agent.name, output))

    async def on_handoff(self, context: Any, agent: Any, source: Any) -> None:
        self.told.append(("handoff", agent.name, source.name))

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.told.append(("tool", agent.name, tool.name))

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.told.append(("result", agent.name, result[:4]))


async def test_hooks_are_told_who_begins_what_is_done_and_how_it_ends(
    tmp_path: Path, offer: Any
) -> None:
    hooks = Hooks()
    other = member("Other", hooks=hooks, tools=[reading("look")])
    offer(member("First", hooks=hooks, handoffs=[handoff(other)]))
    script = [
        calls(("transfer_to_other", {})),
        calls(("look", {"what": "x"})),
        says("Hello."),
    ]
    async with served(tmp_path, script) as talk:
        assert answer(await talk.ask()) == "Hello."
    assert hooks.told == [
        ("start", "First"),
        ("handoff", "Other", "First"),
        ("start", "Other"),
        ("tool", "Other", "look"),
        ("result", "Other", "look"),
        ("end", "Other", "Hello."),
    ]


async def test_two_agents_may_hand_over_to_a_third_by_the_same_tool(
    tmp_path: Path, offer: Any
) -> None:
    third = member("Third")
    second = member("Second", handoffs=[handoff(third)])
    offer(member("First", handoffs=[second, handoff(third)]))
    script = [calls(("transfer_to_second", {})), calls(("transfer_to_third", {})), says("Hi.")]
    async with served(tmp_path, script) as talk:
        assert answer(await talk.ask()) == "Hi."
        assert system(requests(talk)[2]) == "You are Third."


class Cart:
    """What an author's functions expect as their context."""

    def __init__(self, context: Any) -> None:
        self.owner = context.user_id
        self.things: list[str] = []


async def put(context: Any, arguments: str) -> str:
    context.context.things.append(json.loads(arguments)["what"])
    return f"{len(context.context.things)} for {context.context.owner}"


async def test_functions_get_the_context_that_the_file_names_one_for_each_thread(
    tmp_path: Path, offer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_shapes, "Cart", Cart, raising=False)
    offer(
        an_agent(
            instructions=lambda context, agent: f"In the cart: {context.context.things}.",
            model=NAME,
            tools=[reading("put", on_invoke_tool=put)],
        )
    )
    script = [calls(("put", {"what": "milk"})), says("Done."), says("Still."), says("Empty.")]
    async with served(tmp_path, script, openai_context=f"{sdk_shapes.__name__}:Cart") as talk:
        await talk.ask()
        assert await talk.results("r1") == ["1 for ada"]
        await talk.ask()
        await talk.ask(thread="another")
        told = [system(request) for request in requests(talk)]
    milk = "In the cart: ['milk']."
    assert told == ["In the cart: [].", milk, milk, "In the cart: []."]


@pytest.mark.parametrize(
    ("name", "said"),
    [("NAME", "is no function and no class"), ("nobody", "has no 'nobody'")],
)
async def test_a_context_that_cannot_be_made_stops_start_up(
    tmp_path: Path, offer: Any, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.setattr(sdk_shapes, "NAME", "x", raising=False)
    offer(an_agent(model=NAME))
    with pytest.raises(ConfigurationError) as caught:
        async with served(tmp_path, [], openai_context=f"{sdk_shapes.__name__}:{name}"):
            pass
    assert "spec.agent.openai_context: " in str(caught.value) and said in str(caught.value)


async def test_each_agent_has_its_own_model_unless_the_file_names_one(
    tmp_path: Path, offer: Any
) -> None:
    settings = ModelSettings(top_p=0.5, temperature=0.25)
    other = member("Other", model="openai/other", model_settings=settings)
    offer(member("First", handoffs=[other]))
    script = [calls(("transfer_to_other", {})), says("Hello.")]
    async with served(tmp_path, script) as talk:
        await talk.ask()
        first, second = requests(talk)
    assert (first["model"], second["model"]) == ("from-the-sdk", "other")
    assert (second["top_p"], second["temperature"]) == (0.5, 0.25)
    assert "top_p" not in first
    async with served(tmp_path, script, model="openai/mine") as talk:
        await talk.ask()
        assert [request["model"] for request in requests(talk)] == ["mine", "mine"]
