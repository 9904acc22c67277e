"""Banners are skipped, and what is wrong with a server is said in words."""

import logging
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.outbound.private_authority import PrivateAuthority
from tests.tools.calls import result
from tests.tools.mcp_servers.running import friendly_http, held_port, hostile, running, until

GO = "mcp_hostile-go"


async def reason_of(folder: Path, entry: dict[str, Any]) -> str:
    async with running(folder, entry, connect_seconds=20) as at:
        await until(lambda: at.status["reason"] is not None)
        return str(at.status["reason"])


async def test_server_that_prints_a_banner_comes_up_and_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with running(tmp_path, hostile(tmp_path, "banner")) as at:
            assert at.status["status"] == "up"
            assert (await result(at.box, GO)).content == "went"
    lines = [record.line for record in caplog.records if "no message" in record.message]  # type: ignore[attr-defined]  # extra
    assert lines == ["Welcome to the server!", '{"level": "info"}', "[1, 2]"]


@pytest.mark.parametrize("mode", ["noise", "garbage"])
async def test_lines_that_are_no_messages_during_a_call_are_skipped_with_few_warnings(
    tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with running(tmp_path, hostile(tmp_path, mode)) as at:
            for _ in range(2):
                assert (await result(at.box, GO)).content == "went"
            assert at.notes.count("called") == 2
    assert sum("no message" in record.message for record in caplog.records) <= 3


async def test_program_that_ends_is_described_by_its_exit_code_and_last_words(
    tmp_path: Path,
) -> None:
    entry = hostile(tmp_path, "broken", env={"TOKEN": "s3cret-value"})
    reason = await reason_of(tmp_path, entry)
    assert reason == "the program ended with exit code 4; it wrote: loading / KeyError: 'TOKEN=***'"


async def test_missing_program_is_named(tmp_path: Path) -> None:
    entry = {"name": "none", "command": "no-such-program-here"}
    assert await reason_of(tmp_path, entry) == "no such program"


async def test_status_of_a_refusal_over_http_is_said(tmp_path: Path) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=401)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        for transport in ("http", "sse"):
            entry = {"name": "shut", "transport": transport, "url": url}
            hint = "if users are to sign in there, set oauth: true"
            assert await reason_of(tmp_path, entry) == f"it answers 401 Unauthorized; {hint}"
    finally:
        await runner.cleanup()


async def test_refused_connection_and_unknown_authority_are_said(tmp_path: Path) -> None:
    with held_port() as port:
        entry = {"name": "away", "transport": "http", "url": f"http://127.0.0.1:{port}/mcp"}
        assert "nothing listens there" in await reason_of(tmp_path, entry)
    authority = PrivateAuthority(tmp_path)
    runner = web.AppRunner(web.Application())
    await runner.setup()
    try:
        tls = authority.server_side("127.0.0.1")
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        url = f"https://127.0.0.1:{runner.addresses[0][1]}/mcp"
        entry = {"name": "unknown", "transport": "http", "url": url}
        assert "SSL_CERT_FILE" in await reason_of(tmp_path, entry)
    finally:
        await runner.cleanup()


async def test_server_that_speaks_the_older_way_over_http_is_used(tmp_path: Path) -> None:
    async with friendly_http(tmp_path, way="sse") as entry, running(tmp_path, entry) as at:
        assert at.status["status"] == "up"
        assert (await result(at.box, "mcp_friendly-echo", {"text": "hi"})).content == "hi"
