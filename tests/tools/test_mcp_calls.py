"""Tools of a real MCP server: what it is told, what is believed, and that it is reached again."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.models import Effect
from sk_agents.engine.turns import Question, ToolContext
from sk_agents.exceptions import ToolError
from sk_agents.tools.builtin.workspace import Workspaces
from tests.forked_python import PYTHON
from tests.patience import seconds
from tests.tools.calls import CONTEXT, result
from tests.tools.mcp_servers.running import (
    at_port,
    friendly,
    friendly_http,
    held_port,
    running,
    until,
)

OLD = {"protocol_version": "2025-11-25"}


async def test_server_that_ends_in_a_call_is_reached_again(tmp_path: Path) -> None:
    async with running(tmp_path, friendly(tmp_path)) as at:
        with pytest.raises(ToolError, match="Whether it took effect is not known"):
            await result(at.box, "mcp_friendly-die")
        assert "mcp_friendly-echo" in at.names
        await until(lambda: at.status["status"] == "up")
        assert (await result(at.box, "mcp_friendly-echo", {"text": "back"})).content == "back"


async def test_http_server_that_was_restarted_is_reached_again(tmp_path: Path) -> None:
    with held_port() as port:
        async with friendly_http(tmp_path, port) as entry, running(tmp_path, entry) as at:
            with pytest.raises(ToolError, match="lost while the tool ran"):
                await result(at.box, "mcp_friendly-die")
            async with friendly_http(tmp_path, port):
                await until(lambda: at.status["status"] == "up")
                assert (await result(at.box, "mcp_friendly-echo", {"text": "x"})).content == "x"


async def test_server_that_is_down_at_start_is_reported_and_its_tools_come_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with held_port() as port:
        async with running(tmp_path, at_port(port)) as at:
            assert at.names == [] and at.status["status"] == "down"
            async with friendly_http(tmp_path, port):
                await until(lambda: at.status["status"] == "up")
                assert "mcp_friendly-echo" in at.names
                assert caplog.messages.count("mcp server is down") == 1


async def test_connection_that_breaks_while_the_server_leaves_does_not_hold_it_back(
    tmp_path: Path,
) -> None:
    with held_port() as port:
        for steps in range(0, 120, 3):
            async with (
                asyncio.timeout(seconds(20)),
                running(tmp_path, at_port(port), start_seconds=0),
            ):
                # Leaves at another moment of the attempt each time.
                for _ in range(steps):
                    await asyncio.sleep(0)


async def test_program_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    async with running(tmp_path, {"name": "x", "command": "no-such-program-here"}) as at:
        assert (at.status["status"], at.status["reason"]) == ("down", "no such program")


async def test_hints_of_a_server_that_is_not_trusted_lower_no_gate(tmp_path: Path) -> None:
    async with running(tmp_path, friendly(tmp_path)) as at:
        effects = {spec.effect for spec in at.box.specs() if "-list_resource" not in spec.name}
        assert effects == {Effect.AT_MOST_ONCE}
        assert at.box.requires_approval("mcp_friendly-echo") is None
        assert at.box.requires_approval("mcp_friendly-wipe") is True


async def test_hints_of_a_trusted_server_are_believed(tmp_path: Path) -> None:
    async with running(tmp_path, friendly(tmp_path, trust_level="trusted")) as at:
        effects = {spec.name.partition("-")[2]: spec.effect for spec in at.box.specs()}
        assert effects["echo"] is Effect.READ_ONLY
        assert effects["add"] is Effect.IDEMPOTENT
        assert effects["wipe"] is Effect.AT_MOST_ONCE


async def test_operator_s_word_about_a_tool_goes_before_the_server_s(tmp_path: Path) -> None:
    overrides = {"wipe": {"requires_hitl": False}, "echo": {"requires_hitl": True, "cost": "high"}}
    entry = friendly(tmp_path, trust_level="trusted", tool_governance_overrides=overrides)
    async with running(tmp_path, entry) as at:
        assert at.box.requires_approval("mcp_friendly-wipe") is False
        assert at.box.requires_approval("mcp_friendly-echo") is True


async def test_server_is_told_who_calls_only_if_the_operator_says_so(tmp_path: Path) -> None:
    async with running(tmp_path, friendly(tmp_path)) as at:
        told = json.loads((await result(at.box, "mcp_friendly-whoami")).content)
        assert (told["user"], told["key"]) == (None, "k1")
    async with running(tmp_path, friendly(tmp_path, user_id_source="auth")) as at:
        told = json.loads((await result(at.box, "mcp_friendly-whoami")).content)
        assert told["user"] == "u1"


@pytest.mark.parametrize("fields", [{}, OLD])
async def test_each_call_over_http_carries_its_own_user_and_the_operator_s_headers(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    headers = {"Authorization": "Bearer sesame"}
    async with friendly_http(tmp_path, user_id_header="X-User", headers=headers, **fields) as entry:
        async with running(tmp_path, entry) as at:
            users = [replace(CONTEXT, user_id=name) for name in ("ada", "bob", "zoë")]
            told = await asyncio.gather(
                *(result(at.box, "mcp_friendly-whoami", context=user) for user in users)
            )
    found = [json.loads(one.content) for one in told]
    assert [one["header"] for one in found] == ["ada", "bob", "zo%C3%AB"]
    assert {one["token"] for one in found} == {"Bearer sesame"}


async def test_server_s_process_gets_its_own_secrets_and_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TA_API_KEY", "ours")
    monkeypatch.setenv("FRIENDLY_SECRET", "theirs")
    async with running(tmp_path, friendly(tmp_path, env={"SECRET": "${FRIENDLY_SECRET}"})) as at:
        told = json.loads((await result(at.box, "mcp_friendly-whoami")).content)
    assert (told["secret"], told["home_key"]) == ("theirs", None)


async def test_agents_that_name_the_same_server_share_one_process(tmp_path: Path) -> None:
    async with running(tmp_path) as at:
        pass
    servers = at.servers
    path = tmp_path / "config.yaml"
    one, two = (
        servers.source([friendly(tmp_path)], agent_file=path, field="mcp_servers") for _ in "12"
    )
    async with servers:
        assert len(servers.statuses()) == 1
        assert list(one.tools()) == list(two.tools()) != []


async def test_question_that_could_be_anybody_s_is_put_to_nobody(tmp_path: Path) -> None:
    asked: list[Question] = []

    async def ask(question: Question) -> str:
        asked.append(question)
        return "Ada"

    async with running(tmp_path, friendly(tmp_path, **OLD)) as at:
        other = asyncio.ensure_future(result(at.box, "mcp_friendly-hang"))
        await until(lambda: "hanging" in at.notes)
        told = await result(at.box, "mcp_friendly-greet", context=replace(CONTEXT, ask=ask))
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
    assert (told.content, asked) == ("no name: decline", [])


@pytest.mark.parametrize("fields", [{}, OLD])
async def test_each_user_answers_the_question_of_their_own_call(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    names = ("ada", "bob", "eve")
    together = asyncio.Barrier(len(names))

    def user(name: str) -> ToolContext:
        async def ask(question: Question) -> str:
            await together.wait()
            return name

        return replace(CONTEXT, user_id=name, ask=ask)

    async with friendly_http(tmp_path, **fields) as entry, running(tmp_path, entry) as at:
        async with asyncio.timeout(seconds(20)):
            told = await asyncio.gather(
                *(result(at.box, "mcp_friendly-greet", context=user(name)) for name in names)
            )
    assert [one.content for one in told] == [f"hello {name}" for name in names]


async def test_call_that_takes_too_long_is_cancelled_at_the_server(tmp_path: Path) -> None:
    entry = friendly(tmp_path, trust_level="trusted", request_timeout=0.5)
    async with running(tmp_path, entry) as at:
        with pytest.raises(ToolError, match="did not answer within"):
            await result(at.box, "mcp_friendly-hang")
        await until(lambda: "given up" in at.notes)


async def test_program_works_in_the_workspace_of_the_user_who_calls(tmp_path: Path) -> None:
    spaces = Workspaces(tmp_path / "spaces", "user")
    async with running(tmp_path, friendly(tmp_path, **OLD), workspaces=spaces) as at:
        ada, bob = [
            (await result(at.box, "mcp_friendly-where", context=replace(CONTEXT, user_id=name)))
            for name in ("ada", "bob")
        ]
    own = spaces.folder(replace(CONTEXT, user_id="ada"))
    assert own.as_uri() in ada.content
    assert own.as_uri() not in bob.content


@pytest.mark.parametrize("fields", [{"roots": False}, {}])
async def test_program_is_told_of_no_folder_without_a_workspace_or_consent(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    spaces = Workspaces(tmp_path / "spaces", "everyone") if fields else None
    entry = friendly(tmp_path, **OLD, **fields)
    async with running(tmp_path, entry, workspaces=spaces) as at:
        assert "refused" in (await result(at.box, "mcp_friendly-where")).content


async def test_page_that_a_server_wants_opened_is_shown_and_never_opened(tmp_path: Path) -> None:
    asked: list[Question] = []

    async def ask(question: Question) -> str:
        asked.append(question)
        return question.choices[0]

    context, page = replace(CONTEXT, ask=ask), "https://sign.example.com/contract?id=1"
    async with running(tmp_path, friendly(tmp_path, **OLD)) as at:
        done = await result(at.box, "mcp_friendly-visit", {"url": page}, context)
        plain = {"url": "http://sign.example.com/"}
        refused = await result(at.box, "mcp_friendly-visit", plain, context)
    assert (done.content, refused.content) == ("accept", "decline")
    (question,) = asked
    assert "at sign.example.com: Sign the contract." in question.text and page in question.text


async def test_program_that_downloads_the_server_first_gets_its_time_and_is_shown(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "network")
    program, rest = tmp_path / "npx", friendly(tmp_path)
    program.write_text(
        f"#!/bin/sh\necho 'fetching 3 of 9' >&2\ncat {tmp_path}/network\nexec {PYTHON} \"$@\"\n"
    )
    program.chmod(0o700)
    entry = {**rest, "command": str(program)}
    # A tenth of a second is less than any program needs.
    async with running(tmp_path, entry, start_seconds=0, connect_seconds=0.1) as at:
        await until(lambda: "npx says: fetching 3 of 9" in (at.status["reason"] or ""))
        assert at.status["status"] == "connecting"
        await asyncio.to_thread((tmp_path / "network").write_text, "")
        await until(lambda: at.status["status"] == "up")
        assert (await result(at.box, "mcp_friendly-echo", {"text": "x"})).content == "x"
