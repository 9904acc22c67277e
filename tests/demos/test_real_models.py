"""The demos on a model behind HTTP: one line of the agent file is another, as their READMEs say."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from sk_agents.app import create_app
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import load_settings
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.demos.served import DEMOS
from tests.demos.wikipedia import wikipedia
from tests.patience import seconds
from tests.requirements import requirement

SCRIPTED = "model: scripted/script/talk.yaml"
MODEL = "gpt-4o-mini"
KEY = "k-of-the-demo"
HELLO = {"chat_history": [{"role": "user", "content": "How warm is it in Rome?"}]}


@dataclass(frozen=True, slots=True)
class Demo:
    client: httpx.AsyncClient
    model: ScriptedModelServer

    async def ask(self, path: str, body: Any, **headers: str) -> Any:
        response = await self.client.post(path, json=body, headers=headers)
        assert response.status_code == 200, response.text
        return response.json()

    def messages(self, number: int = -1) -> list[tuple[str, Any]]:
        sent = self.model.requests[number]["messages"]
        return [(message["role"], message["content"]) for message in sent]

    def tools(self) -> dict[str, Any]:
        offered = self.model.requests[0].get("tools", [])
        return {tool["function"]["name"]: tool["function"] for tool in offered}


@asynccontextmanager
async def served(folder: Path, name: str, script: Sequence[Turn]) -> AsyncIterator[Demo]:
    """The demo with the model's line changed and the key in `.env` beside it."""
    demo = folder / name
    shutil.copytree(DEMOS / name, demo)
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(ScriptedModelServer(script))
        for path in demo.glob("*.yaml"):
            path.write_text(path.read_text().replace(SCRIPTED, f"model: {MODEL}"))
        (demo / ".env").write_text(f"OPENAI_BASE_URL={model.base_url}\nOPENAI_API_KEY={KEY}\n")
        settings = load_settings([demo], store="memory:")
        app = create_app(settings, load_agent_files([demo]))
        await stack.enter_async_context(app.router.lifespan_context(app))
        transport = httpx.ASGITransport(app)
        client = httpx.AsyncClient(transport=transport, base_url="http://test", timeout=seconds(20))
        yield Demo(await stack.enter_async_context(client), model)


@pytest.mark.parametrize(
    "path",
    sorted(DEMOS.glob("[0-9Z]*/**/config.yaml")),
    ids=lambda path: path.relative_to(DEMOS).parts[0],
)
def test_line_that_the_readmes_say_to_change_is_there(path: Path) -> None:
    assert SCRIPTED in path.read_text()


async def test_first_demo_sends_its_prompt_with_the_key_to_the_model(tmp_path: Path) -> None:
    async with served(tmp_path, "01_getting_started", [says("Hello!")]) as demo:
        reply = await demo.ask("/GettingStarted/0.1", HELLO)
    assert reply["output_raw"] == "Hello!"
    assert demo.model.requests[0]["model"] == MODEL
    assert demo.model.headers[0]["Authorization"] == f"Bearer {KEY}"
    (_, system), *rest = demo.messages()
    assert system == "You are a helpful assistant. Answer in a sentence or two.\n"
    assert rest == [
        ("user", "How warm is it in Rome?"),
        ("user", "Answer the last message of the user."),
    ]


async def test_own_output_type_is_demanded_of_the_model_and_made_of_its_answer(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, "02_input_output", [says('{"result": 12}')]) as demo:
        reply = await demo.ask("/AdderAgent/0.1", {"number_1": 5, "number_2": 7})
    assert reply["output_pydantic"] == {"result": 12}
    assert "What is 5 plus 7?" in demo.messages()[-1][1]
    assert demo.model.requests[0]["response_format"]["type"] == "json_schema"


@requirement("S001-v1-unchanged")
async def test_plugin_of_the_third_demo_is_called_with_what_the_model_says(tmp_path: Path) -> None:
    place = {"latitude": 41.89, "longitude": 12.48, "timezone": "Europe/Rome"}
    script = [
        calls(("WeatherPlugin-get_lat_lng_for_location", {"location": "Rome"})),
        calls(("WeatherPlugin-get_temperature", place)),
        says("Between 6.5 and 17.5 degrees."),
    ]
    async with served(tmp_path, "03_plugins", script) as demo:
        reply = await demo.ask("/WeatherBot/0.1", HELLO)
    assert reply["output_raw"] == "Between 6.5 and 17.5 degrees."
    assert reply["extra_data"] == {"items": [{"key": "station", "value": "Rome"}]}
    assert json.loads(demo.messages(1)[-1][1]) == place
    assert json.loads(demo.messages(2)[-1][1]) == {"low": 6.5, "high": 17.5}
    assert [*demo.tools()] == [
        "WeatherPlugin-get_lat_lng_for_location",
        "WeatherPlugin-get_temperature",
    ]


async def test_second_task_gets_what_the_first_has_answered(tmp_path: Path) -> None:
    async with served(tmp_path, "07_task_output", [says("12"), says('{"result": 34}')]) as demo:
        body = {"number_1": 5, "number_2": 7, "number_3": 2}
        reply = await demo.ask("/MathAgent/0.1", body)
    assert reply["output_pydantic"] == {"result": 34}
    assert demo.messages(0)[-1] == ("user", "What is 5 plus 7?")
    assert demo.messages(1)[-1][1].startswith("What is 12 times 2, plus 10?")
    assert demo.messages(1)[0] == ("system", "You are good at mental arithmetic.\n")


async def test_picture_reaches_the_model_as_an_item_and_as_a_field(tmp_path: Path) -> None:
    folder = DEMOS / "08_multi_modal"
    item = json.loads((folder / "request_payload.json").read_text())
    field = json.loads((folder / "request_payload_embedded.json").read_text())
    picture = item["chat_history"][0]["items"][1]["content"]
    assert picture == f"data:image/png;base64,{field['embedded_image']['data']}"
    async with served(tmp_path, folder.name, [says("Five."), says("No.")]) as demo:
        await demo.ask("/PictureBot/0.1", item)
        await demo.ask("/ButtonCounter/0.1", field)
    shown = {"type": "image_url", "image_url": {"url": picture}}
    assert shown in demo.messages(0)[1][1]
    assert shown in demo.messages(1)[-1][1]
    assert "Does the picture show 12 buttons?" in json.dumps(demo.messages(1)[-1][1])


async def test_chat_tells_the_model_what_is_known_about_the_user(tmp_path: Path) -> None:
    async with served(tmp_path, "09_chat_simple", [says("Hello Ada!")]) as demo:
        body = {**HELLO, "user_context": {"city": "London"}}
        reply = await demo.ask("/ChatBot/0.1", body)
    assert reply["output_raw"] == "Hello Ada!"
    assert demo.messages()[1][1].endswith("city: London")
    assert demo.messages()[-1] == ("user", "How warm is it in Rome?")


CHAT_SCRIPT = [
    calls(("WeatherPlugin-temperature", {"place": "Rome", "unit": "fahrenheit"})),
    says("63.5 F"),
]


@requirement("S001-v2-unchanged")
async def test_plugin_of_the_tenth_demo_gets_its_defaults_and_the_callers_header(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, "10_chat_plugins", CHAT_SCRIPT) as demo:
        body = {"session_id": "s", **HELLO}
        reply = await demo.ask("/WeatherChat/0.1", body, Authorization="Bearer x")
    assert (reply["session_id"], reply["output_raw"]) == ("s", "63.5 F")
    assert reply["extra_data"] == {"items": [{"key": "signed in", "value": "True"}]}
    reading = {"place": "Rome", "temperature": 63.5, "unit": "fahrenheit"}
    assert json.loads(demo.messages()[-1][1]) == reading
    parameters = demo.tools()["WeatherPlugin-temperature"]["parameters"]
    assert parameters["properties"]["unit"]["enum"] == ["celsius", "fahrenheit"]
    assert parameters["properties"]["place"]["description"] == "A city's name"


@requirement("S000-config-structure")
async def test_file_of_the_older_version_serves_as_a_stateful_agent(tmp_path: Path) -> None:
    """Only `apiVersion` is another. Its plugin says nothing of itself, so now somebody is asked."""
    older = tmp_path / "older"
    shutil.copytree(DEMOS / "10_chat_plugins", older)
    text = (older / "config.yaml").read_text().replace("skagents/v2alpha1", "tealagents/v1alpha1")
    async with ScriptedModelServer(CHAT_SCRIPT) as model:
        named = f"model: {MODEL}\n    base_url: {model.base_url}"
        (older / "config.yaml").write_text(text.replace(SCRIPTED, named))
        app = create_app(load_settings([older], store="memory:"), load_agent_files([older]))
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://t") as client,
        ):
            body = {"items": [{"content_type": "text", "content": "How warm is it in Rome?"}]}
            paused = (await client.post("/WeatherChat/0.1", json=body, timeout=seconds(20))).json()
            assert paused["status"] == "Paused"
            done = (await client.post(paused["approval_url"], timeout=seconds(20))).json()
    assert (done["status"], done["output"]) == ("Completed", "63.5 F")


async def test_gated_call_of_the_eleventh_demo_runs_once_approved(tmp_path: Path) -> None:
    script = [calls(("sensitive_plugin-delete_user_data", {"customer": 23})), says("Done.")]
    async with served(tmp_path, "11_hitl", script) as demo:
        body = {"items": [{"content_type": "text", "content": "Delete customer 23."}]}
        paused = await demo.ask("/RecordsAgent/0.1", body)
        assert paused["status"] == "Paused"
        assert len(demo.model.requests) == 1
        done = await demo.ask(paused["approval_url"], None)
    assert done["output"] == "Done."
    assert demo.messages()[-1] == ("tool", "Customer 23 is deleted.")


async def test_wikipedia_demo_tells_the_model_what_it_has_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [
        calls(("WikipediaPlugin-search", {"query": "whale"})),
        calls(("WikipediaPlugin-read", {"title": "Unicorn"})),
        calls(("WikipediaPlugin-read", {"title": "narwhal"})),
        says("A toothed whale."),
    ]
    with wikipedia() as address:
        monkeypatch.setenv("WIKIPEDIA_API_URL", address)
        async with served(tmp_path, "ZZ_wikipedia_demo", script) as demo:
            body = {"items": [{"content_type": "text", "content": "What is a narwhal?"}]}
            reply = await demo.ask("/WikipediaAgent/0.1", body)
    assert (reply["status"], reply["output"]) == ("Completed", "A toothed whale.")
    assert json.loads(demo.messages(1)[-1][1]) == [{"title": "Beluga whale", "words": 10}]
    assert "no article 'Unicorn'" in demo.messages(2)[-1][1]
    assert json.loads(demo.messages(3)[-1][1])["title"] == "Narwhal"
    assert (
        demo.tools()["WikipediaPlugin-search"]["parameters"]["properties"]["limit"]["default"] == 3
    )
