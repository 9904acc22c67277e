"""A user signs in at an MCP server: a call waits for it, and goes on by itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from sk_agents.exceptions import ConfigurationError
from sk_agents.persistence.encryption import new_key
from sk_agents.testing.scripted_model import calls, says
from tests.chats.serving import TIMEOUT, Served, first, serving
from tests.tools.mcp_servers.running import friendly_http

SIGN_IN = calls(("mcp_guarded-sign_in", {}))
WHOSE = calls(("mcp_guarded-whose", {}))
ALLOW = {"rules": [{"tool": "mcp_guarded-whose", "then": "allow"}]}


@asynccontextmanager
async def guarded(
    folder: Path, script: list[Any], **settings: Any
) -> AsyncIterator[tuple[Served, httpx.AsyncClient]]:
    """A server whose agent uses the guarded one, and the user's browser."""
    settings.setdefault("encryption_keys", new_key())
    async with friendly_http(folder, program="guarded", name="guarded", oauth=True) as entry:
        agent = {"mcp_servers": [entry], "approvals": ALLOW}
        async with serving(folder, script, agent=agent, **settings) as served:
            async with httpx.AsyncClient(timeout=TIMEOUT) as browser:
                yield served, browser


async def begun(served: Served) -> str:
    answer = await served.client.post("/sign-ins", json={"server": "guarded"})
    assert answer.status_code == 201, answer.text
    link: str = answer.json()["url"]
    return link


async def confirmed(browser: httpx.AsyncClient, link: str) -> str:
    """Where the user's browser is sent back to in the end."""
    page = await browser.get(link)
    assert page.status_code == 200 and "Sign in to guarded" in page.text
    sent = await browser.post(link)
    back = await browser.get(sent.headers["location"])
    assert back.status_code == 302
    return back.headers["location"]


async def signed_in(served: Served, browser: httpx.AsyncClient) -> None:
    done = await browser.get(
        await confirmed(browser, await begun(served)),
        # As a browser that comes from another site.
        headers={
            "Sec-Fetch-Site": "cross-site",
            "Sec-Fetch-Mode": "navigate",
            "Sec-Fetch-Dest": "document",
        },
    )
    assert "You are signed in to guarded" in done.text


def stored(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in folder.glob("chats.sqlite*") if p.is_file())


def notes(folder: Path) -> list[str]:
    return (folder / "notes").read_text().splitlines()


async def test_call_waits_for_the_sign_in_and_goes_on_by_itself(tmp_path: Path) -> None:
    script = [SIGN_IN, WHOSE, says("Yours.")]
    async with guarded(tmp_path, script) as (served, browser):
        tools = (await served.get("/agents"))["agents"][0]["tools"]
        assert "mcp_guarded-sign_in" in {tool["name"] for tool in tools}
        listed = await served.get("/sign-ins")
        assert listed == {"sign_ins": [{"server": "guarded", "signed_in": False}]}
        async with served.stream(
            "POST", "/chats/c/interactions", json={"user_message": "Whose?"}
        ) as frames:
            seen = []
            async for frame in frames:
                seen.append(frame)
                if frame.name == "approval_required":
                    assert (frame.data["kind"], frame.data["sign_in"]) == ("auth", "guarded")
                    await signed_in(served, browser)
        assert first(seen, "answer")["content"] == "Yours."
        results = [frame.data["tool_output"] for frame in seen if frame.name == "tool_result"]
        assert "mcp_guarded-whose" in results[0] and results[1].startswith("visitor: ")
        assert notes(tmp_path) == [
            "registered",
            f"resource {await _url(served)}",
            "called",
        ]
        token = results[1].partition(": ")[2]
        assert token.encode() not in stored(tmp_path)


async def _url(served: Served) -> str:
    """The address of the MCP server, which is the resource that its tokens are for."""
    (address,) = served.app.state.parts.clients.mcp.addresses()
    return str(address[1])


async def test_token_is_renewed_once_however_many_calls_need_it(tmp_path: Path) -> None:
    many = calls(*[("mcp_guarded-whose", {})] * 5)
    async with guarded(tmp_path, [SIGN_IN, says("ok"), many, says("done")]) as (served, browser):
        await _signed_in_by_a_call(served, browser)
        async with httpx.AsyncClient() as tamperer:
            await tamperer.get((await _url(served)).replace("/mcp", "/test/expire"))
        seen = await served.say("All of them")
        results = [frame.data["tool_output"] for frame in seen if frame.name == "tool_result"]
        assert len(results) == 5 and all(one.startswith("visitor: ") for one in results)
        assert notes(tmp_path).count("refreshed") == 1


async def _signed_in_by_a_call(served: Served, browser: httpx.AsyncClient) -> None:
    async with served.stream(
        "POST", "/chats/c/interactions", json={"user_message": "Sign me in"}
    ) as frames:
        async for frame in frames:
            if frame.name == "approval_required":
                await signed_in(served, browser)


async def test_revoked_sign_in_is_asked_for_again(tmp_path: Path) -> None:
    script = [SIGN_IN, says("ok"), WHOSE, WHOSE, says("done")]
    async with guarded(tmp_path, script) as (served, browser):
        await _signed_in_by_a_call(served, browser)
        async with httpx.AsyncClient() as tamperer:
            await tamperer.get((await _url(served)).replace("/mcp", "/test/revoke"))
        seen = await served.say_until("approval_required", "Whose?")
        told = first(seen, "tool_result")["tool_output"]
        assert "not signed in to 'guarded'. Nothing was run." in told
        assert notes(tmp_path).count("called") == 0


async def test_sign_in_outlives_the_server_and_ends_with_signing_out(tmp_path: Path) -> None:
    key = new_key()
    async with friendly_http(tmp_path, program="guarded", name="guarded", oauth=True) as entry:
        agent = {"mcp_servers": [entry], "approvals": ALLOW}
        options: dict[str, Any] = {"agent": agent, "encryption_keys": key}
        async with httpx.AsyncClient(timeout=TIMEOUT) as browser:
            async with serving(tmp_path, [SIGN_IN, says("ok")], **options) as served:
                await _signed_in_by_a_call(served, browser)
            async with serving(tmp_path, [WHOSE, says("Yours.")], **options) as served:
                seen = await served.say("Whose?")
                assert first(seen, "tool_result")["tool_output"].startswith("visitor: ")
                assert (await served.get("/sign-ins"))["sign_ins"][0]["signed_in"]
                read = {"server": "guarded", "uri": "note://first"}
                answer = await served.client.post("/resources/read", json=read)
                assert answer.json()["items"][0]["content"] == "buy milk"
                gone = await served.client.delete("/sign-ins/guarded")
                assert gone.status_code == 204
                assert not (await served.get("/sign-ins"))["sign_ins"][0]["signed_in"]


async def test_sign_in_counts_only_in_the_browser_that_confirmed_it(tmp_path: Path) -> None:
    async with guarded(tmp_path, []) as (served, browser):
        back = await confirmed(browser, await begun(served))
        async with httpx.AsyncClient(timeout=TIMEOUT) as other:
            refused = await other.get(back)
            assert refused.status_code == 404 and "another browser" in refused.text
        forged = await browser.get(back.replace("iss=", "iss=x"))
        assert forged.status_code == 404 and "does not come from" in forged.text
        assert (await browser.get(back)).status_code == 200
        again = await browser.get(back)
        assert again.status_code == 404 and "is over" in again.text


@pytest.mark.parametrize("state", ["", "x", "a.b", "00000000-0000-0000-0000-000000000000.x"])
async def test_sign_in_that_nobody_began_leads_nowhere(tmp_path: Path, state: str) -> None:
    async with serving(tmp_path) as served:
        for path in ("open", "callback"):
            params = {"state": state, "code": "x"}
            answer = await served.client.get(f"/sign-ins/{path}", params=params)
            assert answer.status_code == 404 and "is over" in answer.text
        assert (await served.client.post("/sign-ins", json={"server": "x"})).status_code == 422


async def test_tokens_without_encryption_keys_are_refused_at_the_start(tmp_path: Path) -> None:
    entry = {"name": "x", "transport": "http", "url": "http://127.0.0.1:9/mcp", "oauth": True}
    with pytest.raises(ConfigurationError, match="TA_ENCRYPTION_KEYS"):
        async with asyncio.timeout(TIMEOUT), serving(tmp_path, agent={"mcp_servers": [entry]}):
            pass


@asynccontextmanager
async def older_authority(metadata: dict[str, Any] | None) -> AsyncIterator[str]:
    """A server that wants a sign-in, as in the revision of 2025-03-26; it describes itself so."""

    async def answer(request: web.Request) -> web.Response:
        base = f"http://{request.host}"
        if request.path == "/mcp":
            return web.Response(status=401)
        if request.path == "/.well-known/oauth-authorization-server" and metadata is not None:
            places = {
                "issuer": base,
                "authorization_endpoint": f"{base}/authorize",
                "token_endpoint": f"{base}/token",
                "registration_endpoint": f"{base}/register",
                "response_types_supported": ["code"],
            }
            return web.json_response(places | metadata)
        if request.path == "/register":
            client = await request.json()
            return web.json_response({**client, "client_id": "c"}, status=201)
        return web.Response(status=404)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("metadata", "why"), [(None, "does not describe itself"), ({}, "does not know PKCE")]
)
async def test_place_to_sign_in_that_does_not_say_that_it_knows_pkce_is_refused(
    tmp_path: Path, metadata: dict[str, Any] | None, why: str
) -> None:
    async with older_authority(metadata) as url:
        entry = {"name": "older", "transport": "http", "url": url, "oauth": True}
        agent = {"mcp_servers": [entry]}
        async with serving(tmp_path, agent=agent, encryption_keys=new_key()) as served:
            answer = await served.client.post("/sign-ins", json={"server": "older"})
            assert answer.status_code == 502 and why in answer.text
