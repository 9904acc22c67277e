"""Who the client says it is."""

import asyncio
from pathlib import Path

import pytest

from sk_agents.client import SyncTeal, TealClient, TealServerError
from sk_agents.testing.scripted_model import calls, says
from tests.chats.proven import ProvenAuthorizer
from tests.chats.serving import serving
from tests.client.loopback import PLAIN, Loopback, connected


async def test_users_of_a_development_server_have_chats_and_approvals_of_their_own(
    tmp_path: Path,
) -> None:
    script = [calls(("Mail-send", {"to": "bob"})), says("Sent."), says("Hello, Grace.")]
    async with (
        serving(tmp_path, script) as served,
        TealClient(served.url, user="ada") as ada,
        TealClient(served.url, user="grace") as grace,
        TealClient(served.url) as nobody,
    ):
        waiting = await ada.chat("c").ask("Write to Bob")
        assert [asked.call_id for asked in waiting.approvals]
        assert [asked.chat_id async for asked in ada.approvals()] == ["c"]
        for other in (grace, nobody):
            assert [asked async for asked in other.approvals()] == []
            assert [chat async for chat in other.chats()] == []
        await ada.chat("c").approve(waiting.approvals[0])
        assert (await ada.chat("c").wait(waiting)).text == "Sent."
        assert (await grace.chat("c").ask("Hello")).text == "Hello, Grace."
        assert len((await ada.chat("c").history()).interactions) == 1


async def test_sync_client_says_who_it_is_too(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("Hello, Ada.")]) as served:

        def talk() -> tuple[str, list[str], list[str]]:
            with SyncTeal(served.url, user="ada") as ada, SyncTeal(served.url) as nobody:
                text = ada.chat("c").ask("Hello").text
                return text, [one.id for one in ada.chats()], [one.id for one in nobody.chats()]

        assert await asyncio.to_thread(talk) == ("Hello, Ada.", ["c"], [])


async def test_name_that_is_not_the_tokens_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, [says("x")], authorizer=ProvenAuthorizer()) as served:
        async with TealClient(served.url, token="ada", user="ada") as ada:
            await ada.chat("c").ask("Hello")
        async with TealClient(served.url, token="ada", user="grace") as grace:
            with pytest.raises(TealServerError) as refusal:
                await grace.chat("c").history()
    assert refusal.value.status == 403


async def test_resumed_stream_is_the_same_users(tmp_path: Path) -> None:
    server = Loopback(cuts=[sum(len(frame) for _, frame in PLAIN[:2])])
    async with connected(server, user="ada & co") as teal:
        await teal.chat("c").ask("hello")
    assert [seen.query["user_id"] for seen in server.seen] == ["ada & co"] * 2
