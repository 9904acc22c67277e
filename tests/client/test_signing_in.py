"""Signing in at issuers that err, wait or lie."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import jwt
import pytest
from aiohttp import web

from sk_agents.client import SignInFailed, signing_in
from sk_agents.client.signing_in import DevicePrompt, sign_in_by_browser, sign_in_by_device
from sk_agents.client.stored_sign_in import SignInFile, StoredSignIn
from sk_agents.wire.views import SignInView

SERVER = "https://teal.example"
Answer = dict[str, Any]


@asynccontextmanager
async def issuing(answers: list[Answer], **changed: Any) -> AsyncIterator[SignInView]:
    """An issuer that gives these answers one after the other, each with its status."""

    async def serve(request: web.Request) -> web.Response:
        answer = dict(answers.pop(0))
        return web.json_response(answer, status=answer.pop("status", 200))

    app = web.Application()
    app.router.add_post("/{path}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        url = f"http://{host}:{port}"
        given: dict[str, Any] = {
            "method": "oidc",
            "issuer": url,
            "cli_client_id": "cli",
            "scopes": ["openid"],
            "authorization_endpoint": f"{url}/auth",
            "token_endpoint": f"{url}/token",
            "device_authorization_endpoint": f"{url}/device",
            **changed,
        }
        yield SignInView(**given)
    finally:
        await runner.cleanup()


@pytest.fixture(autouse=True)
def home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(signing_in, "SLOWER_SECONDS", 0.0)


def identity(how: SignInView, **claims: Any) -> str:
    claims = {"iss": how.issuer, "aud": "cli", "exp": time.time() + 60, **claims}
    return jwt.encode(claims, "a secret of the tests, long enough", "HS256")


async def by_browser(
    how: SignInView, come_back: Callable[[dict[str, str]], dict[str, str]]
) -> StoredSignIn:
    """`come_back` turns what the page was asked into what it sends the browser back with."""
    tasks = []

    async def open_browser(address: str) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        back = f"{asked['redirect_uri']}?{urlencode(come_back(asked))}"

        async def visit() -> None:
            async with httpx.AsyncClient() as browser:
                await browser.get(back.replace("/signed-in", "/favicon.ico"))
                await browser.get(back)

        tasks.append(asyncio.ensure_future(visit()))

    try:
        return await sign_in_by_browser(SignInFile(SERVER), how, open_browser)
    finally:
        await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"nonce": "other"}, "not for this sign-in"),
        ({"aud": "other"}, "not for this sign-in"),
        ({"iss": "http://other"}, "not for this sign-in"),
        ({"exp": 1}, "no usable ID token"),
        ({}, ""),
    ],
)
async def test_identity_must_be_meant_for_this_attempt(changed: Answer, words: str) -> None:
    answers: list[Answer] = []
    async with issuing(answers) as how:

        def come_back(asked: dict[str, str]) -> dict[str, str]:
            assert asked["code_challenge_method"] == "S256"
            token = identity(how, **{"nonce": asked["nonce"], **changed})
            answers.append({"access_token": "a", "id_token": token, "expires_in": "60"})
            return {"code": "c", "state": asked["state"], "iss": how.issuer or ""}

        if words:
            with pytest.raises(SignInFailed, match=words):
                await by_browser(how, come_back)
        else:
            assert (await by_browser(how, come_back)).access_token == "a"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"error": "access_denied"}, "access_denied"),
        ({"code": "c", "iss": "http://other"}, "another issuer"),
    ],
)
async def test_refusal_and_another_issuer_are_named(changed: dict[str, str], words: str) -> None:
    async with issuing([]) as how:
        with pytest.raises(SignInFailed, match=words):
            await by_browser(how, lambda asked: {"state": asked["state"], **changed})


BEGUN: Answer = {
    "device_code": "d",
    "user_code": "ABCD",
    "verification_uri": "https://issuer.example/device",
    "expires_in": 60,
    "interval": 0.01,
}


async def test_device_is_asked_for_until_the_user_has_agreed() -> None:
    shown: list[DevicePrompt] = []
    answers: list[Answer] = [
        BEGUN,
        {"status": 400, "error": "authorization_pending"},
        {"status": 503},
        {"status": 400, "error": "slow_down"},
        {"access_token": "a", "refresh_token": "r", "expires_in": 60},
    ]
    async with issuing(answers) as how:
        found = await sign_in_by_device(SignInFile(SERVER), how, shown.append)
    assert (found.access_token, found.refresh_token) == ("a", "r")
    assert shown == [DevicePrompt("https://issuer.example/device", "ABCD", None)]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([BEGUN, {"status": 400, "error": "access_denied"}], "access_denied"),
        ([BEGUN, {"status": 400, "error": "expired_token"}], "expired_token"),
        ([{**BEGUN, "expires_in": 0}], "expired before it was used"),
        ([{"user_code": "ABCD"}], "no usable device code"),
        ([BEGUN, {"token_type": "Bearer"}], "no access token"),
    ],
)
async def test_device_that_gets_no_token_says_why(answers: list[Answer], words: str) -> None:
    async with issuing(list(answers)) as how:
        with pytest.raises(SignInFailed, match=words):
            await sign_in_by_device(SignInFile(SERVER), how, lambda prompt: None)


@pytest.mark.parametrize("place", ["http://issuer.example/token", "file:///etc/passwd"])
async def test_token_is_asked_for_nowhere_unsafe(place: str) -> None:
    async with issuing([BEGUN], token_endpoint=place) as how:
        with pytest.raises(SignInFailed, match="not safe"):
            await sign_in_by_device(SignInFile(SERVER), how, lambda prompt: None)


def test_each_server_has_one_file_however_its_address_is_written() -> None:
    same = {SignInFile(url).path for url in (SERVER, f"{SERVER}/", "HTTPS://Teal.Example:443")}
    assert len(same) == 1
    others = ("http://teal.example", "https://teal.example:8443", "https://teal.example/a")
    assert len({SignInFile(url).path for url in others} | same) == 4


def test_file_is_used_for_its_own_server_alone_and_damage_is_named() -> None:
    file = SignInFile(SERVER)
    file.write(StoredSignIn(server="https://other.example:443", access_token="secret"))
    assert file.read() is None
    assert "secret" not in repr(StoredSignIn(server=SERVER, access_token="secret"))
    file.path.write_text("{")
    with pytest.raises(SignInFailed, match="damaged: sign in again"):
        file.read()
