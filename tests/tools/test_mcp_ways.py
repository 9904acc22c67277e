"""Tools of a real MCP server, over both transports and both generations of the protocol."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from sk_agents.engine.turns import Question, ToolChunk, ToolResult
from sk_agents.exceptions import ToolError
from tests.tools.calls import CONTEXT, call, pieces, result
from tests.tools.mcp_servers.running import Running, friendly, friendly_http, running, until

# One server for all tests of a way: a process takes longer to start than all of them to run.
pytestmark = pytest.mark.asyncio(loop_scope="module")

WAYS = ["stdio new", "stdio old", "http new", "http old"]
OLD = {"protocol_version": "2025-11-25"}


@pytest_asyncio.fixture(params=WAYS, scope="module", loop_scope="module")
async def way(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Running]:
    """The friendly server, reached in one of the ways there are."""
    tmp_path = tmp_path_factory.mktemp("way")
    fields: dict[str, Any] = OLD if request.param.endswith("old") else {}
    if request.param.startswith("stdio"):
        async with running(tmp_path, friendly(tmp_path, **fields)) as at:
            yield at
    else:
        async with friendly_http(tmp_path, **fields) as entry, running(tmp_path, entry) as at:
            yield at


async def test_tools_are_offered_under_the_server_s_name_and_called(way: Running) -> None:
    assert {"mcp_friendly-echo", "mcp_friendly-add"} <= set(way.names)
    assert (
        await result(way.box, "mcp_friendly-echo", {"text": "ha", "times": 2})
    ).content == "haha"
    assert way.status["status"] == "up"


async def test_default_is_filled_in_before_anybody_is_asked(way: Running) -> None:
    assert way.box.check(call("mcp_friendly-echo", {"text": "x"})) == {"text": "x", "times": 1}


async def test_arguments_that_break_the_schema_never_reach_the_server(way: Running) -> None:
    with pytest.raises(ToolError, match="nothing was run"):
        way.box.check(call("mcp_friendly-add", {"a": "one", "b": 2}))
    with pytest.raises(ToolError, match="'c': is unknown"):
        way.box.check(call("mcp_friendly-add", {"a": 1, "b": 2, "c": 3}))


async def test_all_parts_of_a_result_become_text(way: Running) -> None:
    text = (await result(way.box, "mcp_friendly-parts")).content
    assert text.splitlines() == [
        "hello",
        "[file: application/octet-stream, 3 bytes]",
        "[resource note://1]",
        "a note",
        "[resource https://example.com/x (page)]",
    ]


async def test_pictures_sounds_and_files_are_attachments(way: Running) -> None:
    found = await result(way.box, "mcp_friendly-media")
    assert found.content.splitlines() == [
        "[picture: image/png, 46 bytes]",
        "[audio: audio/wav, 3 bytes]",
        "[resource file:///plots/a.png]",
        "[picture a.png: image/png, 46 bytes]",
    ]
    picture, sound, file = found.attachments
    assert picture.is_picture and file.is_picture and not sound.is_picture
    assert (picture.uri, file.name) == (file.uri, "a.png")
    (link,) = (await result(way.box, "mcp_friendly-parts")).attachments[1:]
    assert (link.uri, link.name, link.is_link) == ("https://example.com/x", "page", True)


async def test_structured_result_is_told_as_json(way: Running) -> None:
    text = (await result(way.box, "mcp_friendly-add", {"a": 1, "b": 2})).content
    assert json.loads(text) == {"total": 3}


async def test_tool_s_own_error_is_told_to_the_model(way: Running) -> None:
    with pytest.raises(ToolError, match="it cannot be done"):
        await result(way.box, "mcp_friendly-fail")


async def test_progress_is_streamed_before_the_result(way: Running) -> None:
    found = await pieces(way.box, call("mcp_friendly-count", {"to": 3}))
    assert found[-1] == ToolResult("counted")
    chunks = {piece.content for piece in found[:-1] if isinstance(piece, ToolChunk)}
    assert chunks == {f"counted {number} ({number}/3)\n" for number in (1, 2, 3)}


async def test_server_s_question_is_put_to_the_user_who_called(way: Running) -> None:
    asked: list[Question] = []

    async def ask(question: Question) -> str:
        asked.append(question)
        return "Ada"

    context = replace(CONTEXT, ask=ask)
    assert (await result(way.box, "mcp_friendly-greet", context=context)).content == "hello Ada"
    assert asked[0].text == "The MCP server 'friendly' asks: What is your name?"
    assert asked[0].schema is not None and "name" in asked[0].schema["properties"]


async def test_declined_question_is_told_to_the_server(way: Running) -> None:
    async def ask(question: Question) -> str:
        raise ToolError("The user declined.")

    context = replace(CONTEXT, ask=ask)
    text = (await result(way.box, "mcp_friendly-greet", context=context)).content
    assert text == "no name: decline"


async def test_question_is_declined_where_nobody_can_be_asked(way: Running) -> None:
    assert (await result(way.box, "mcp_friendly-greet")).content == "no name: decline"


async def test_call_that_is_given_up_is_cancelled_at_the_server(way: Running) -> None:
    async with aclosing(way.box.run(call("mcp_friendly-hang"), CONTEXT)) as stream:
        step = asyncio.ensure_future(anext(stream))
        await until(lambda: "hanging" in way.notes)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
    await until(lambda: "given up" in way.notes)


async def test_new_tool_is_withheld_until_the_operator_agrees(way: Running) -> None:
    await result(way.box, "mcp_friendly-learn", {"name": "dance"})
    await until(lambda: way.status["withheld"] == 1)
    assert "mcp_friendly-dance" not in way.names
    with pytest.raises(ToolError, match="tool_definition_changed"):
        way.box.check(call("mcp_friendly-dance"))
    await way.servers.repin("friendly", "dance")
    assert (await result(way.box, "mcp_friendly-dance")).content == "I can dance"


async def test_resources_are_listed_and_read_by_tools(way: Running) -> None:
    listed = (await result(way.box, "mcp_friendly-list_resources")).content
    assert "note://first (The first note, text/plain): What was noted first." in listed
    templates = (await result(way.box, "mcp_friendly-list_resource_templates")).content
    assert "note://{day}/{number} (daily_note" in templates
    read = await result(way.box, "mcp_friendly-read_resource", {"uri": "note://monday/3"})
    assert read.content == "[resource note://monday/3]\nnote 3 of monday"


async def test_resource_that_is_not_there_is_an_error_for_the_model(way: Running) -> None:
    with pytest.raises(ToolError, match="refused the call"):
        await result(way.box, "mcp_friendly-read_resource", {"uri": "nothing://here"})


async def test_new_resources_and_prompts_are_noticed(way: Running) -> None:
    before = way.status["resources"], way.status["prompts"]
    await result(way.box, "mcp_friendly-publish", {"name": "fresh"})
    await until(lambda: (way.status["resources"], way.status["prompts"]) > before)
    assert "note://fresh" in (await result(way.box, "mcp_friendly-list_resources")).content


async def test_server_s_log_messages_are_in_our_log(
    way: Running, caplog: pytest.LogCaptureFixture
) -> None:
    await result(way.box, "mcp_friendly-say", {"text": "running hot"})

    def found() -> list[Any]:
        return [record for record in caplog.records if record.message == "mcp server logs"]

    await until(lambda: bool(found()))
    (record,) = found()
    assert (record.levelname, record.server, record.line) == ("WARNING", "friendly", "running hot")
