"""`skagents/v1`, kind Sequential: tasks one after the other, each by its agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.models import Usage
from sk_agents.exceptions import ModelRefused
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.surfaces.sk_pictures import BASE64_PNG, PNG
from tests.surfaces.sk_server import SEQUENTIAL, P, serving

OSLO = {"place": {"name": "Oslo"}}
DRAFT = "Write about Oslo for children."
TYPED = SEQUENTIAL.replace("input_type: Place", "input_type: Place\noutput_type: Summary")


async def test_tasks_run_in_the_order_of_their_numbers_each_by_its_agent(tmp_path: Path) -> None:
    script = [
        says("Oslo is long.", usage=Usage(prompt_tokens=5, completion_tokens=2)),
        says("Oslo!", usage=Usage(prompt_tokens=9, completion_tokens=1)),
    ]
    async with serving(tmp_path, SEQUENTIAL, script) as server:
        body = (await server.client.post(P, json=OSLO)).json()
        assert body["output_raw"] == "Oslo!"
        assert body["token_usage"]["total_tokens"] == 17
        assert [request["model"] for request in server.model.requests] == ["x", "y"]
        assert server.prompt(0) == [("system", "You write."), ("user", DRAFT)]
        assert server.prompt(1) == [
            ("system", "You edit."),
            ("user", DRAFT),
            ("assistant", "Oslo is long."),
            ("user", "Shorten: Oslo is long."),
        ]
        assert await server.threads() == 0


async def test_history_of_the_input_comes_before_the_first_task(tmp_path: Path) -> None:
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi."}]
    async with serving(tmp_path, SEQUENTIAL, [says("Long."), says("Short.")]) as server:
        body = {**OSLO, "chat_history": history, "reader": "sailors"}
        assert (await server.client.post(P, json=body)).json()["output_raw"] == "Short."
        assert server.prompt(0)[1:] == [
            ("user", "Hi"),
            ("assistant", "Hi."),
            ("user", "Write about Oslo for sailors."),
        ]


async def test_tools_and_extra_data_of_every_task_count_and_later_tasks_see_no_tool_calls(
    tmp_path: Path,
) -> None:
    config = SEQUENTIAL.replace("You write.", "You write.\n      plugins: [Mail]")
    script = [calls(("Mail-send", {"to": "Bob"})), says("Long."), says("Short.")]
    async with serving(tmp_path, config, script) as server:
        body = (await server.client.post(P, json=OSLO)).json()
        assert body["extra_data"] == {"items": [{"key": "sent_to", "value": "Bob"}]}
        assert [role for role, _ in server.prompt(2)] == ["system", "user", "assistant", "user"]
        assert "tools" not in server.model.requests[2]


async def test_image_of_the_input_is_shown_with_the_first_task(tmp_path: Path) -> None:
    config = SEQUENTIAL.replace("input_type: Place", "input_type: Picture")
    config = config.replace("{{ place.name }}", "this picture{{ embedded_image }}")
    image = {"embedded_image": {"format": "image/png", "data": BASE64_PNG}}
    async with serving(tmp_path, config, [says("A dot."), says("Dot.")]) as server:
        assert (await server.client.post(P, json=image)).json()["output_raw"] == "Dot."
        shown = [
            {"type": "text", "text": "Write about this picture for children."},
            {"type": "image_url", "image_url": {"url": PNG}},
        ]
        assert server.prompt(0)[-1] == ("user", shown)
        assert server.prompt(1)[1] == ("user", shown)
        assert server.prompt(1)[-1] == ("user", "Shorten: A dot.")


async def test_failing_task_ends_the_request(tmp_path: Path) -> None:
    script: list[Turn | Exception] = [says("Long."), ModelRefused(status=400)]
    async with serving(tmp_path, SEQUENTIAL, script) as server:
        reply = await server.client.post(P, json=OSLO)
        assert (reply.status_code, reply.json()["code"]) == (502, "llm_refused")
        assert await server.threads() == 0


async def test_answer_is_also_given_as_the_type_the_file_names(tmp_path: Path) -> None:
    answer = json.dumps({"title": "Oslo", "stars": 5})
    async with serving(tmp_path, TYPED, [says("Long."), says(answer)]) as server:
        body = (await server.client.post(P, json=OSLO)).json()
        assert body["output_raw"] == answer
        assert body["output_pydantic"] == {"title": "Oslo", "stars": 5}
        (_, first), (_, last) = server.prompt(0)[-1], server.prompt(1)[-1]
        assert "schema" not in first
        assert '"stars"' in last and last.startswith("Shorten: Long.")


@pytest.mark.parametrize("answer", ['```json\n{"title": "Oslo", "stars": 5}\n```'])
async def test_code_fence_around_the_answer_is_looked_through(tmp_path: Path, answer: str) -> None:
    async with serving(tmp_path, TYPED, [says("Long."), says(answer)]) as server:
        body = (await server.client.post(P, json=OSLO)).json()
        assert body["output_pydantic"] == {"title": "Oslo", "stars": 5}


def transformer(folder: Path, *texts: str) -> str:
    """A second model that says this."""
    turns = "\n".join(f"  - text: {json.dumps(text)}" for text in texts)
    (folder / "rewriter.yaml").write_text(f"turns:\n{turns}\n")
    return "scripted/rewriter.yaml"


async def test_second_model_turns_free_text_into_the_type(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "structured_output_transformer_model": transformer(
            tmp_path, '{"title": "Oslo", "stars": 4}'
        )
    }
    usage = Usage(prompt_tokens=10, completion_tokens=1)
    script = [says("Long.", usage=usage), says("Four stars for Oslo.", usage=usage)]
    async with serving(tmp_path, TYPED, script, **settings) as server:
        body = (await server.client.post(P, json=OSLO)).json()
        assert body["output_raw"] == "Four stars for Oslo."
        assert body["output_pydantic"] == {"title": "Oslo", "stars": 4}
        assert body["token_usage"]["total_tokens"] > 22


async def test_second_model_is_given_the_schema_to_answer_with(tmp_path: Path) -> None:
    """Over the wire: it is a model as any other, named by the setting, found by the environment."""
    answer = '{"title": "Oslo", "stars": 4}'
    script = [says("Long."), says("Four stars for Oslo."), says(answer)]
    async with serving(
        tmp_path,
        TYPED,
        script,
        env="OPENAI_BASE_URL=MODEL_URL\n",
        structured_output_transformer_model="rewriter",
    ) as server:
        body = (await server.client.post(P, json=OSLO)).json()
        assert body["output_pydantic"] == {"title": "Oslo", "stars": 4}
        asked = server.model.requests[2]
        assert asked["model"] == "rewriter"
        assert asked["response_format"]["json_schema"]["schema"]["title"] == "Summary"
        assert [role for role, _ in server.prompt(2)] == ["system", "user"]
        assert server.prompt(2)[-1] == ("user", "Four stars for Oslo.")


async def test_answer_that_nobody_can_make_fit_is_an_error(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "structured_output_transformer_model": transformer(tmp_path, '{"title": "Oslo"}')
    }
    script = [says("Long."), says("No stars.")]
    async with serving(tmp_path, TYPED, script, **settings) as server:
        reply = await server.client.post(P, json=OSLO)
        assert (reply.status_code, reply.json()["code"]) == (502, "output_invalid")
        assert reply.json()["detail"] == "The model's answer could not be turned into Summary."
        assert await server.threads() == 0


async def test_failing_second_model_is_said_to_have_failed(tmp_path: Path) -> None:
    (tmp_path / "rewriter.yaml").write_text("turns:\n  - fail: refused\n")
    settings: dict[str, Any] = {"structured_output_transformer_model": "scripted/rewriter.yaml"}
    script = [says("Long."), says("No stars.")]
    async with serving(tmp_path, TYPED, script, **settings) as server:
        reply = await server.client.post(P, json=OSLO)
        assert (reply.status_code, reply.json()["code"]) == (502, "llm_refused")


async def test_without_a_second_model_an_answer_that_does_not_fit_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "TA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    fit, unfit = says('{"title": "Oslo", "stars": 4}'), says("No stars.")
    async with serving(tmp_path, TYPED, [says("Long."), fit, says("Long."), unfit]) as server:
        assert (await server.client.post(P, json=OSLO)).status_code == 200
        reply = await server.client.post(P, json=OSLO)
        assert (reply.status_code, reply.json()["code"]) == (502, "output_invalid")


async def test_input_that_the_instructions_cannot_use_is_refused(tmp_path: Path) -> None:
    config = SEQUENTIAL.replace("{{ place.name }}", "{{ place.name.x.y }}")
    async with serving(tmp_path, config, []) as server:
        reply = await server.client.post(P, json=OSLO)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid_input")
        assert "instructions" in reply.json()["detail"]
        assert await server.threads() == 0


async def test_what_a_client_sends_never_becomes_a_template(tmp_path: Path) -> None:
    async with serving(tmp_path, SEQUENTIAL, [says("{{ reader }}"), says("Short.")]) as server:
        body = {"place": {"name": "{{ 7 * 7 }}{{ ''.__class__ }}"}}
        assert (await server.client.post(P, json=body)).status_code == 200
        assert server.prompt(0)[-1] == (
            "user",
            "Write about {{ 7 * 7 }}{{ ''.__class__ }} for children.",
        )
        assert server.prompt(1)[-1] == ("user", "Shorten: {{ reader }}")
