"""What is read from the inside of an agent file, and what stops start-up."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from sk_agents.config.agent_file import AgentFile, AgentSpec, read_agent_file, read_agent_specs
from sk_agents.exceptions import ConfigurationError

AGENT = {"name": "default", "model": "gpt-5", "system_prompt": "You help."}
PRICE = {"prompt": 2.5, "completion": 10}


def file_with(tmp_path: Path, spec: Any, **envelope: Any) -> AgentFile:
    path = tmp_path / "config.yaml"
    document = {
        "apiVersion": "tealagents/v1alpha1",
        "kind": "Agent",
        "name": "Helper",
        "version": 0.1,
        "spec": spec,
        **envelope,
    }
    path.write_text(yaml.safe_dump(document))
    return read_agent_file(path)


def only_spec(file: AgentFile) -> AgentSpec:
    (spec,) = read_agent_specs(file).values()
    return spec


def test_a_minimal_agent_is_read(tmp_path: Path) -> None:
    spec = only_spec(file_with(tmp_path, {"agent": AGENT}))
    assert (spec.name, spec.model, spec.system_prompt) == ("default", "gpt-5", "You help.")
    assert (spec.plugins, spec.temperature, spec.limits.model_rounds) == ((), None, None)


def test_a_temperature_of_zero_is_a_value(tmp_path: Path) -> None:
    assert only_spec(file_with(tmp_path, {"agent": {**AGENT, "temperature": 0.0}})).temperature == 0


def test_a_price_is_in_dollars_unless_it_says_otherwise(tmp_path: Path) -> None:
    price = only_spec(file_with(tmp_path, {"agent": {**AGENT, "price": PRICE}})).price
    assert price is not None
    assert (price.prompt, price.completion, price.currency) == (2.5, 10, "USD")


def test_a_key_without_a_value_counts_as_left_out(tmp_path: Path) -> None:
    assert only_spec(file_with(tmp_path, {"agent": {**AGENT, "plugins": None}})).plugins == ()


def test_unknown_keys_warn_and_are_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        only_spec(file_with(tmp_path, {"agent": {**AGENT, "colour": "teal"}}))
        only_spec(file_with(tmp_path, {"agent": {**AGENT, "plugin": ["Notes"]}}))
    assert "unknown keys are ignored: colour" in caplog.text
    assert "unknown keys are ignored: plugin (did you mean plugins?)" in caplog.text


def test_every_agent_of_a_sequence_is_read_with_its_place(tmp_path: Path) -> None:
    file = file_with(
        tmp_path,
        {"agents": [AGENT, {**AGENT, "name": "second"}]},
        apiVersion="skagents/v1",
        kind="Sequential",
        service_name="Chain",
    )
    specs = read_agent_specs(file)
    assert [(field, spec.name) for field, spec in specs.items()] == [
        ("spec.agents[0]", "default"),
        ("spec.agents[1]", "second"),
    ]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (None, "spec must be a mapping"),
        ({}, "spec.agent is missing"),
        ({"agent": []}, "spec.agent must be a mapping"),
        ({"agent": {"name": "x", "model": "m"}}, "spec.agent.system_prompt is missing"),
        ({"agent": {**AGENT, "model": ""}}, "spec.agent.model is not usable"),
        ({"agent": {**AGENT, "temperature": 9}}, "spec.agent.temperature is not usable"),
        ({"agent": {**AGENT, "on_reject": "shrug"}}, "spec.agent.on_reject is not usable"),
        ({"agent": {**AGENT, "limits": {"rounds": 3}}}, "spec.agent.limits.rounds is not known"),
        ({"agent": {**AGENT, "limits": {"run_seconds": 0}}}, "spec.agent.limits.run_seconds"),
        ({"agent": {**AGENT, "price": 5}}, "spec.agent.price is not usable"),
        ({"agent": {**AGENT, "price": {"prompt": 1}}}, "spec.agent.price.completion is missing"),
        ({"agent": {**AGENT, "price": {**PRICE, "prompt": -1}}}, "spec.agent.price.prompt is not"),
        ({"agent": {**AGENT, "price": {**PRICE, "prompt": "much"}}}, "spec.agent.price.prompt is"),
        ({"agent": {**AGENT, "price": {**PRICE, "currency": "$"}}}, "spec.agent.price.currency is"),
        ({"agent": {**AGENT, "price": {**PRICE, "cached": 1}}}, "spec.agent.price.cached is not k"),
    ],
)
def test_an_unusable_spec_names_the_file_and_the_field(
    tmp_path: Path, spec: Any, said: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_agent_specs(file_with(tmp_path, spec))
    assert str(caught.value).startswith(f"{tmp_path / 'config.yaml'}: {said}")


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"aprovals": {"default": "deny"}}, "aprovals is not known here; is approvals meant?"),
        ({"Approval": {"default": "deny"}}, "Approval is not known here; is approvals meant?"),
        ({"redacted": True}, "redacted is not known here; is redact meant?"),
        ({"limit": {"tool_calls": 3}}, "limit is not known here; is limits meant?"),
        ({"budgets": {"run": "1 USD"}}, "budgets is not known here; is budget meant?"),
        ({"approvals": None, "default": "deny"}, "default belongs into approvals"),
        ({"approvals": None, "rules": []}, "rules belongs into approvals"),
        ({"budget": None, "user": "1 USD"}, "user belongs into budget"),
        ({"redact": None, "mode": "vault"}, "mode belongs into redact"),
        ({"limits": None, "model_rounds": 2}, "model_rounds belongs into limits"),
        ({"model_rounds": 2}, "model_rounds belongs into limits"),
    ],
)
def test_block_that_protects_but_is_misspelt_or_not_indented_stops_the_start(
    tmp_path: Path, block: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_agent_specs(file_with(tmp_path, {"agent": {**AGENT, **block}}))
    assert str(caught.value).startswith(f"{tmp_path / 'config.yaml'}: spec.agent.{said}")


@pytest.mark.parametrize("name", ["approvals", "budget", "limits", "redact"])
def test_block_that_protects_where_nothing_reads_it_stops_the_start(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf": {name} is not read here; .* in spec.agent$"):
        read_agent_specs(file_with(tmp_path, {"agent": AGENT}, **{name: {"default": "deny"}}))
    with pytest.raises(ConfigurationError, match=rf": spec.{name} is not read here"):
        read_agent_specs(file_with(tmp_path, {"agent": AGENT, name: {"default": "deny"}}))


@pytest.mark.parametrize(
    "block", [{"approvals": None}, {"mode": "chat", "user": "x", "tools": ["a"], "default": 1}]
)
def test_empty_block_and_common_words_stop_no_start(tmp_path: Path, block: dict[str, Any]) -> None:
    assert only_spec(file_with(tmp_path, {"agent": {**AGENT, **block}})).approvals is None
