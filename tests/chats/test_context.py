"""Prompts and resources of MCP servers, put into messages through the chats API."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sk_agents.testing.scripted_model import says
from tests.chats.serving import Served, serving
from tests.tools.mcp_servers.running import friendly

# One server for all tests: its MCP server takes longer to start than they to run.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("context")
    absent = {"name": "absent", "command": "no-such-program-here", "request_timeout": 0.1}
    agent = {"mcp_servers": [friendly(folder), absent]}
    async with serving(folder, [says("Looks good.")], agent=agent) as at:
        yield at


async def fill(served: Served, **body: Any) -> tuple[int, Any]:
    wanted = {"server": "friendly", "name": "review", **body}
    answer = await served.client.post("/prompts/fill", json=wanted)
    return answer.status_code, answer.json()


async def read(served: Served, uri: str, server: str = "friendly") -> tuple[int, Any]:
    answer = await served.client.post("/resources/read", json={"server": server, "uri": uri})
    return answer.status_code, answer.json()


async def test_prompts_are_listed_with_their_arguments_and_the_servers_that_are_away(
    served: Served,
) -> None:
    listed = await served.get("/prompts", params={"agent": "helper"})
    review = next(one for one in listed["prompts"] if one["name"] == "review")
    assert (review["server"], review["title"]) == ("friendly", "Review some code")
    needed = {one["name"]: one["required"] for one in review["arguments"]}
    assert needed == {"code": True, "tone": False}
    assert listed["unavailable"] == [{"server": "absent", "reason": "no such program"}]


async def test_filled_prompt_is_a_message_that_can_be_sent(served: Served) -> None:
    status, filled = await fill(served, arguments={"code": "x = 1"})
    assert status == 200
    assert filled == {"user_message": "Review this in a kind way:\nx = 1", "items": []}
    await served.say(filled["user_message"], body={"items": filled["items"]})
    assert served.model.requests[-1]["messages"][-1]["content"] == filled["user_message"]


async def test_prompt_with_several_roles_says_who_speaks(served: Served) -> None:
    _, filled = await fill(served, name="talk")
    assert filled["user_message"] == "User: Hello!\n\nAssistant: Hi, what is it?\n\nUser: Nothing."


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ({}, 422, "also needs: code"),
        ({"arguments": {"code": "x", "color": "red"}}, 422, "no argument color"),
        ({"name": "nothing"}, 404, "no prompt of this name"),
        ({"server": "nobody"}, 422, "no MCP server of this name"),
        ({"server": "absent"}, 502, "cannot be reached"),
        ({"agent": "nobody"}, 422, "no agent of this name"),
        ({"surplus": 1}, 422, ""),
    ],
)
async def test_prompt_that_cannot_be_filled_in_is_refused_with_the_reason(
    served: Served, body: dict[str, Any], status: int, why: str
) -> None:
    found, problem = await fill(served, **body)
    assert found == status and why in problem["detail"]


async def test_resources_and_templates_are_listed(served: Served) -> None:
    listed = await served.get("/resources")
    note = next(one for one in listed["resources"] if one["uri"] == "note://first")
    assert (note["server"], note["title"], note["mime_type"]) == (
        "friendly",
        "The first note",
        "text/plain",
    )
    assert [one["uri_template"] for one in listed["templates"]] == ["note://{day}/{number}"]


async def test_resource_is_read_as_items_of_a_message(served: Served) -> None:
    status, text = await read(served, "note://monday/3")
    item = {"content_type": "text", "content": "note 3 of monday", "name": "note://monday/3"}
    assert (status, text["items"]) == (200, [item])
    _, picture = await read(served, "picture://dot")
    assert picture["items"][0]["content"].startswith("data:image/png;base64,")
    await served.say("What is it?", body={"items": [*text["items"], *picture["items"]]})
    told = str(served.model.requests[-1]["messages"][-1]["content"])
    assert "note 3 of monday" in told and "data:image/png" in told


@pytest.mark.parametrize(
    ("uri", "server", "status"),
    [("nothing://here", "friendly", 422), ("note://first", "absent", 502), ("x", "nobody", 422)],
)
async def test_resource_that_cannot_be_read_is_refused(
    served: Served, uri: str, server: str, status: int
) -> None:
    assert (await read(served, uri, server))[0] == status
