"""What a stateless agent file may say, and what stops start-up and how it says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sk_agents.exceptions import ConfigurationError
from sk_agents.testing.scripted_model import says
from tests.surfaces.sk_server import (
    AGENT,
    CHAT,
    HELLO,
    SEQUENTIAL,
    TYPES,
    P,
    build_app,
    serving,
    write_agent,
)


def local(config: str) -> str:
    return config.replace("MODEL_URL", "http://127.0.0.1:1/v1")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (CHAT.replace("input_type: BaseInput\n", ""), "input_type is missing"),
        (CHAT.replace("input_type: BaseInput\n", "input_type: [x]\n"), "input_type must be"),
        (CHAT.replace("BaseInput", "Nothing"), "input_type: module "),
        (CHAT.replace("BaseInput", "BaseEmbeddedImage"), "input_type has no chat_history"),
        (SEQUENTIAL.replace("agent: editor", "agent: nobody"), "spec.tasks[0].agent 'nobody'"),
        (SEQUENTIAL.replace("name: editor", "name: writer", 1), "spec.agents[1].name 'writer'"),
        (SEQUENTIAL.replace("task_no: 2", "task_no: two"), "spec.tasks[0].task_no"),
        (SEQUENTIAL.replace("{{ _draft }}", "{{ _draft"), "spec.tasks[0].instructions is not a"),
        (SEQUENTIAL[: SEQUENTIAL.index("  tasks:")], "spec.tasks must be a list"),
        (SEQUENTIAL.replace("version: 0.1", "version: 0.1\noutput_type: X"), "output_type: "),
    ],
)
def test_unusable_file_stops_start_up_naming_file_and_field(
    tmp_path: Path, config: str, said: str
) -> None:
    path = write_agent(tmp_path, local(config))
    with pytest.raises(ConfigurationError) as caught:
        build_app(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_types_without_a_module_to_find_them_in_stop_start_up(tmp_path: Path) -> None:
    path = write_agent(tmp_path, local(SEQUENTIAL))
    (tmp_path / "custom_types.py").unlink()
    with pytest.raises(ConfigurationError, match=r"'Place' is none of BaseInput, .*TA_TYPES"):
        build_app(path)


async def test_types_may_lie_in_a_module_that_the_environment_names(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    module = elsewhere / "my_types.py"
    module.write_text(TYPES.replace("children", "nobody"))
    module.chmod(0o600)
    settings: dict[str, Any] = {"types_module": str(module)}
    script = [says("Long."), says("Short.")]
    async with serving(tmp_path / "agent", SEQUENTIAL, script, **settings) as server:
        await server.client.post(P, json={"place": {"name": "Oslo"}})
        assert server.prompt(0)[-1] == ("user", "Write about Oslo for nobody.")


def test_named_transformer_that_cannot_be_used_stops_start_up(tmp_path: Path) -> None:
    config = SEQUENTIAL.replace("version: 0.1", "version: 0.1\noutput_type: Summary")
    path = write_agent(tmp_path, local(config))
    with pytest.raises(ConfigurationError, match="TA_STRUCTURED_OUTPUT_TRANSFORMER_MODEL: "):
        build_app(path, structured_output_transformer_model="nobody/knows")


async def test_several_files_are_served_side_by_side(tmp_path: Path) -> None:
    other = write_agent(tmp_path / "other", local(AGENT.replace("name: Helper", "name: Looker")))
    one = write_agent(tmp_path / "one", local(CHAT))
    paths = build_app(one, other).openapi()["paths"]
    assert {P, f"{P}/sse", "/Looker/0.1", "/Looker/0.1/sse"} <= set(paths)


async def test_history_of_a_custom_type_must_hold_messages(tmp_path: Path) -> None:
    types = """
from typing import Any

from pydantic import BaseModel


class Loose(BaseModel):
    chat_history: Any = None
    next: "Loose | None" = None
"""
    config = CHAT.replace("BaseInput", "Loose")
    files = {"custom_types": types}
    async with serving(tmp_path, config, [says("Hi!")], files=files) as server:
        for history in ("Hello?", ["Hello?"], [{"role": "system", "content": "Hello?"}]):
            reply = await server.client.post(P, json={"chat_history": history})
            assert (reply.status_code, reply.json()["code"]) == (422, "invalid_input")
        assert (await server.client.post(P, json=HELLO)).json()["output_raw"] == "Hi!"
        document = (await server.client.get(f"{P}/openapi.json")).json()
        assert "$defs" not in str(document)


def test_types_that_mean_nothing_in_v2_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = AGENT.replace("version: 0.1", "version: 0.1\ninput_type: BaseInput")
    build_app(write_agent(tmp_path, local(config)))
    assert "input_type is ignored in skagents/v2alpha1" in caplog.text


def test_output_type_of_a_chat_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = CHAT.replace("version: 0.1", "version: 0.1\noutput_type: Summary")
    build_app(write_agent(tmp_path, local(config)))
    assert "output_type is ignored" in caplog.text


async def test_custom_type_with_a_history_can_be_chatted_with(tmp_path: Path) -> None:
    config = CHAT.replace("BaseInput", "Place")
    async with serving(tmp_path, config, [says("Hi!")]) as server:
        body = {**HELLO, "place": {"name": "Oslo"}}
        assert (await server.client.post(P, json=body)).json()["output_raw"] == "Hi!"
