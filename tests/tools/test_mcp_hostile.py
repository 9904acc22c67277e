"""MCP servers that misbehave: what they do reaches the call it was made in, and nothing else."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sk_agents.engine.models import Effect
from sk_agents.exceptions import ToolError
from tests.tools.calls import call, result
from tests.tools.mcp_servers.running import friendly, hostile, running, until

GO = "mcp_hostile-go"
RESETS = ["dies", "huge"]


@pytest.mark.parametrize("mode", RESETS)
async def test_call_that_breaks_the_connection_fails_and_the_next_one_works_on_a_new_one(
    tmp_path: Path, mode: str
) -> None:
    async with running(tmp_path, hostile(tmp_path, mode)) as at:
        for _ in range(2):
            await until(lambda: at.status["status"] == "up")
            with pytest.raises(ToolError, match="lost while the tool ran"):
                await result(at.box, GO)
        assert at.notes.count("called") == 2
        await until(lambda: at.status["status"] == "up")


async def test_second_answer_to_one_call_is_dropped(tmp_path: Path) -> None:
    async with running(tmp_path, hostile(tmp_path, "twice")) as at:
        told = [(await result(at.box, GO)).content for _ in range(3)]
    assert told == ["went"] * 3


async def test_answer_that_is_no_result_is_an_error(tmp_path: Path) -> None:
    async with running(tmp_path, hostile(tmp_path, "misfit")) as at:
        with pytest.raises(ToolError, match="does not make sense"):
            await result(at.box, GO)


async def test_error_with_the_code_of_a_lost_connection_is_an_answer(tmp_path: Path) -> None:
    async with running(tmp_path, hostile(tmp_path, "error")) as at:
        for _ in range(2):
            with pytest.raises(ToolError, match="The server refused the call: the disk is full"):
                await result(at.box, GO)
        assert at.status["status"] == "up"
        assert at.notes.count("called") == 2


@pytest.mark.parametrize("mode", ["silent", "deaf"])
async def test_server_that_never_answers_is_down_and_others_work(tmp_path: Path, mode: str) -> None:
    servers = hostile(tmp_path, mode), friendly(tmp_path)
    async with running(tmp_path, *servers, connect_seconds=4) as at:
        await until(lambda: "mcp_friendly-echo" in at.names)
        assert {one["server"]: one["status"] for one in at.servers.statuses()} == {
            "hostile": "down",
            "friendly": "up",
        }
        assert (await result(at.box, "mcp_friendly-echo", {"text": "hi"})).content == "hi"


async def test_call_that_is_never_answered_ends_at_its_limit_while_others_go_on(
    tmp_path: Path,
) -> None:
    entry = hostile(tmp_path, "mute", request_timeout=1, trust_level="trusted")
    async with running(tmp_path, entry, friendly(tmp_path)) as at:
        stuck = asyncio.ensure_future(result(at.box, GO))
        await until(lambda: "called" in at.notes)
        assert (await result(at.box, "mcp_friendly-echo", {"text": "hi"})).content == "hi"
        with pytest.raises(ToolError, match="did not answer within"):
            await stuck


async def test_server_with_ten_thousand_tools_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, hostile(tmp_path, "many")) as at:
        assert at.names == []
        assert (at.status["status"], at.status["reason"]) == ("refused", "more than 512 tools")


async def test_list_without_an_end_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, hostile(tmp_path, "endless")) as at:
        assert at.status["status"] == "refused"
        assert at.notes.count("listed") <= 32


async def test_tools_with_schemas_that_are_traps_are_left_out(tmp_path: Path) -> None:
    async with running(tmp_path, hostile(tmp_path, "schemas")) as at:
        assert at.names == [GO, "mcp_hostile-ask"]
        assert (await result(at.box, GO)).content == "went"


async def test_list_that_breaks_the_protocol_is_refused_naming_the_place(tmp_path: Path) -> None:
    async with running(tmp_path, hostile(tmp_path, "invalid")) as at:
        assert at.status["status"] == "refused"
        place = "tools.0.inputSchema.type: Input should be 'object'"
        assert at.status["reason"] == f"a list that breaks the protocol: {place}"


async def test_names_are_cleaned_and_never_the_same(tmp_path: Path) -> None:
    async with running(tmp_path, hostile(tmp_path, "names")) as at:
        names = at.names
    assert len(set(names)) == 5
    assert "mcp_hostile-a_b" in names
    assert all(len(name) <= 64 and name.startswith("mcp_hostile-") for name in names)


async def test_read_only_hint_of_a_server_that_is_not_trusted_is_not_believed(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, hostile(tmp_path, "liar")) as at:
        (spec,) = at.box.specs()
        assert spec.effect is Effect.AT_MOST_ONCE


async def test_changed_definition_is_withheld_and_no_call_reaches_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, hostile(tmp_path, "changing")) as at:
        assert (await result(at.box, GO)).content == "went"
        checked = call(GO)
        tool = at.box.spec(GO)
        (tmp_path / "change").touch()
        # The model still has the old list; the server has said nothing.
        with pytest.raises(ToolError, match="tool_definition_changed"):
            await result(at.box, checked.name)
        assert at.notes.count("called") == 1
        assert at.names == [] and "tool_definition_changed" in caplog.messages
        await at.servers.repin("hostile", "go")
        assert (await result(at.box, GO)).content == "went"
        assert at.box.spec(GO) != tool


async def test_withheld_definition_stays_withheld_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, hostile(tmp_path, "changing")) as at:
        assert at.names == [GO]
    (tmp_path / "change").touch()
    for _ in range(2):
        async with running(tmp_path, hostile(tmp_path, "changing")) as at:
            assert at.names == []
            assert at.status["withheld"] == 1
    # As an operator does it, from another process.
    at.servers.pins.repin("hostile")
    async with running(tmp_path, hostile(tmp_path, "changing")) as at:
        assert at.names == [GO]


async def test_agreement_given_by_another_process_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "change").touch()
    async with running(tmp_path, hostile(tmp_path, "changing")) as at:
        (tmp_path / "change").unlink()
        with pytest.raises(ToolError, match="tool_definition_changed"):
            await result(at.box, GO)
        type(at.servers.pins)(at.servers.pins.path).repin("hostile", "go")
        await until(lambda: at.names == [GO])


async def test_tool_that_came_later_is_withheld_unless_the_server_is_trusted(
    tmp_path: Path,
) -> None:
    for trust, expected in (("untrusted", [GO]), ("trusted", [GO, "mcp_hostile-more"])):
        folder = tmp_path / trust
        folder.mkdir()
        async with running(folder, hostile(folder, "growing", trust_level=trust)):
            pass
        (folder / "change").touch()
        async with running(folder, hostile(folder, "growing", trust_level=trust)) as at:
            assert at.names == expected


async def test_flood_of_changes_is_one_change(tmp_path: Path) -> None:
    entry = hostile(tmp_path, "flood", trust_level="trusted")
    async with running(tmp_path, entry) as at:
        assert (await result(at.box, GO)).content == "went"
        await until(lambda: at.notes.count("listed") >= 2)
        assert (await result(at.box, GO)).content == "went"
        assert at.notes.count("listed") < 10


async def test_sampling_and_roots_are_refused_and_the_call_goes_on(tmp_path: Path) -> None:
    async with running(
        tmp_path, hostile(tmp_path, "sampling", trust_level="trusted", sampling="off")
    ) as at:
        assert (await result(at.box, GO)).content == "went"
    assert "sampling: Sampling not supported" in at.notes
    assert "roots: List roots not supported" in at.notes


async def test_process_is_gone_when_the_server_is_left(tmp_path: Path) -> None:
    async with running(tmp_path, friendly(tmp_path)) as at:
        pid = json.loads((await result(at.box, "mcp_friendly-whoami")).content)["pid"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


Handler = Callable[[web.Request], Any]


@asynccontextmanager
async def over_http(answer: Handler) -> AsyncIterator[dict[str, Any]]:
    """An entry for a server that answers calls with `answer` and the rest as it should."""

    async def handle(request: web.Request) -> web.StreamResponse:
        message = await request.json() if request.method == "POST" else {}
        method, id = message.get("method"), message.get("id")
        match method:
            case "initialize":
                found: Any = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "h", "version": "1"},
                }
            case "tools/list":
                schema = {"type": "object", "properties": {}}
                found = {"tools": [{"name": "go", "inputSchema": schema}]}
            case "tools/call":
                response: web.StreamResponse = await answer(request)
                return response
            case _ if id is not None:
                error = {"code": -32601, "message": "no"}
                return web.json_response({"jsonrpc": "2.0", "id": id, "error": error})
            case _:
                return web.Response(status=202 if request.method == "POST" else 405)
        return web.json_response({"jsonrpc": "2.0", "id": id, "result": found})

    app = web.Application()
    app.router.add_route("*", "/mcp", handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        yield {"name": "hostile", "transport": "http", "url": url}
    finally:
        await runner.cleanup()


async def test_endless_json_over_http_is_cut(tmp_path: Path) -> None:
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while sent < 1024:
            await response.write(b" " * 1024 * 1024)
            sent += 1
        return response

    async with over_http(answer) as entry, running(tmp_path, entry) as at:
        with pytest.raises(ToolError):
            await result(at.box, GO)
        assert sent < 64
        await until(lambda: at.status["status"] == "up")


async def test_endless_events_over_http_end_at_the_call_s_limit(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        note = {"jsonrpc": "2.0", "method": "notifications/message"}
        note["params"] = {"level": "info", "data": "x"}  # type: ignore[assignment]
        while True:
            await response.write(b"event: message\ndata: " + json.dumps(note).encode() + b"\n\n")
            await asyncio.sleep(0.01)

    async with over_http(answer) as entry:
        limited = {**entry, "request_timeout": 1, "trust_level": "trusted"}
        async with running(tmp_path, limited) as at:
            with pytest.raises(ToolError, match="did not answer within"):
                await result(at.box, GO)


async def test_event_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"event: message\ndata: ")
        for _ in range(64):
            await response.write(b"x" * 1024 * 1024)
        return response

    async with over_http(answer) as entry, running(tmp_path, entry) as at:
        with pytest.raises(ToolError):
            await result(at.box, GO)


async def test_place_to_sign_in_that_a_401_names_is_not_visited(tmp_path: Path) -> None:
    visits: list[str] = []

    async def visited(request: web.Request) -> web.Response:
        visits.append(request.path)
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", visited)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    place = f"http://127.0.0.1:{runner.addresses[0][1]}/metadata"

    async def answer(request: web.Request) -> web.StreamResponse:
        challenge = f'Bearer resource_metadata="{place}"'
        return web.Response(status=401, headers={"WWW-Authenticate": challenge})

    async with over_http(answer) as entry, running(tmp_path, entry) as at:
        with pytest.raises(ToolError, match="refused the call"):
            await result(at.box, GO)
    await runner.cleanup()
    assert visits == []
