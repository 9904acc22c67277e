"""Tokens of any OpenID Connect issuer."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from sk_agents.app import create_app
from sk_agents.authorization import token_authorizer
from sk_agents.authorization.oidc_authorizer import OidcAuthorizer
from sk_agents.authorization.request_authorizer import Principal
from sk_agents.authorization.token_authorizer import (
    MAX_LIFETIME,
    REMEMBERED_SECONDS,
    SKEW,
    bearer_token,
)
from sk_agents.config.settings import Settings, load_settings
from sk_agents.exceptions import (
    ConfigurationError,
    InsufficientScope,
    TokenExpired,
    Unauthenticated,
)
from sk_agents.testing.scripted_model import says
from tests.authorization.issuer import TestIssuer, private_key, running_issuer
from tests.chats.serving import id_of, names, serving
from tests.chats.test_users import SEND


@pytest.fixture
async def issuer() -> AsyncIterator[TestIssuer]:
    async with running_issuer() as issuer:
        yield issuer


def settings(issuer: TestIssuer, **changed: Any) -> Settings:
    given = {"oidc_issuer": f"{issuer.url}/realm", "oidc_audience": "teal", **changed}
    return Settings(authorizer="oidc", store="memory:", **given)


def token(issuer: TestIssuer, **changed: Any) -> str:
    now = int(time.time())
    claims = {
        "iss": f"{issuer.url}/realm",
        "aud": "teal",
        "sub": "alice-1",
        "scope": "openid teal.use",
        "email": "alice@example.com",
        "groups": ["finance"],
        "iat": now,
        "exp": now + 300,
        **changed,
    }
    return issuer.signed({name: value for name, value in claims.items() if value is not None})


async def ask(issuer: TestIssuer, sent: str, **changed: Any) -> Principal:
    return await OidcAuthorizer(settings(issuer, **changed)).authorize_request(f"Bearer {sent}")


async def test_user_is_the_chosen_claim(issuer: TestIssuer) -> None:
    by_subject = await ask(issuer, token(issuer))
    assert (by_subject.user_id, by_subject.name) == ("alice-1", "alice@example.com")
    assert by_subject.groups == {"finance"}
    by_mail = await ask(issuer, token(issuer), oidc_user_claim="email")
    assert by_mail.user_id == "alice@example.com"
    in_roles = await ask(issuer, token(issuer, roles=["x"]), oidc_groups_claim="roles")
    assert in_roles.groups == {"x"}


async def test_group_or_role_whose_name_has_spaces_is_one(issuer: TestIssuer) -> None:
    """Some issuers write a list of one as a text."""
    found = await ask(issuer, token(issuer, groups="Former finance", roles="no approver"))
    assert found.groups == {"Former finance"} and found.roles == {"no approver"}
    none = await ask(issuer, token(issuer, groups="", roles=[1, None, ""]))
    assert none.groups == frozenset() and none.roles == frozenset()


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": "other"},
        {"aud": ["other"]},
        {"iss": "https://issuer.example.com"},
        {"sub": None},
        {"email": None},
        {"token_use": "id"},
        {"typ": "ID"},
        {"nonce": "n"},
        {"at_hash": "h"},
    ],
)
async def test_token_that_is_not_for_this_server_is_refused(
    issuer: TestIssuer, changed: dict[str, Any]
) -> None:
    with pytest.raises(Unauthenticated):
        await ask(issuer, token(issuer, **changed), oidc_user_claim="email")


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic a.b.c", "Bearer a b"])
@pytest.mark.parametrize("end", ["", "\t", "\n", " "])
def test_header_that_is_no_bearer_token_is_refused(header: str, end: str) -> None:
    for sent in (header + end, f"Bearer a.b.c{end or ' '}"):
        with pytest.raises(Unauthenticated):
            bearer_token(sent)
    assert bearer_token("bEARER a.b.c") == "a.b.c"


async def test_one_of_several_audiences_is_enough(issuer: TestIssuer) -> None:
    await ask(issuer, token(issuer, aud=["account", "teal"]))


async def test_every_listed_scope_is_needed(issuer: TestIssuer) -> None:
    await ask(issuer, token(issuer), oidc_scopes="openid,teal.use")
    with pytest.raises(InsufficientScope) as refusal:
        await ask(issuer, token(issuer), oidc_scopes="openid,teal.admin")
    assert refusal.value.scope == "teal.admin"
    await ask(issuer, token(issuer, scope=None, scp=["teal.use"]), oidc_scopes="teal.use")


async def test_algorithm_counts_only_if_it_is_listed(issuer: TestIssuer) -> None:
    curve = ec.generate_private_key(ec.SECP256R1())
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(curve.public_key()))
    issuer.keys.append({**public, "kid": "curve"})
    claims = jwt.decode(token(issuer), options={"verify_signature": False})
    sent = jwt.encode(claims, curve, "ES256", headers={"kid": "curve"})
    with pytest.raises(Unauthenticated):
        await ask(issuer, sent)
    assert (await ask(issuer, sent, oidc_algorithms="RS256,ES256")).user_id == "alice-1"
    mixed = jwt.encode(claims, curve, "ES256", headers={"kid": "key-0"})
    with pytest.raises(Unauthenticated, match="a key of another kind"):
        await ask(issuer, mixed, oidc_algorithms="RS256,ES256")


def test_algorithms_with_a_shared_secret_cannot_be_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TA_OIDC_ALGORITHMS", "RS256,HS256")
    with pytest.raises(ConfigurationError, match="TA_OIDC_ALGORITHMS"):
        load_settings()


async def test_longest_token_is_taken_and_one_letter_more_is_not(
    issuer: TestIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = token(issuer)
    monkeypatch.setattr(token_authorizer, "MAX_TOKEN_BYTES", len(sent))
    assert (await ask(issuer, sent)).user_id == "alice-1"
    monkeypatch.setattr(token_authorizer, "MAX_TOKEN_BYTES", len(sent) - 1)
    with pytest.raises(Unauthenticated):
        await ask(issuer, sent)


async def test_examined_token_has_a_caller_or_all_that_is_objected(issuer: TestIssuer) -> None:
    authorizer = OidcAuthorizer(settings(issuer, oidc_scopes="teal.use"))
    good = await authorizer.examine(token(issuer))
    assert good.objections == []
    assert good.principal is not None and good.principal.user_id == "alice-1"
    wrong = await authorizer.examine(token(issuer, aud="other", scope="openid"))
    assert [type(one) for one in wrong.objections] == [Unauthenticated, InsufficientScope]
    assert (wrong.principal, wrong.claims["sub"]) == (None, "alice-1")


async def test_examined_token_without_the_name_of_its_key_is_objected(issuer: TestIssuer) -> None:
    claims = jwt.decode(token(issuer), options={"verify_signature": False})
    nameless = jwt.encode(claims, private_key(0), "RS256")
    found = await OidcAuthorizer(settings(issuer)).examine(nameless)
    assert ["header is not accepted" in str(one) for one in found.objections] == [True]


async def test_examined_token_whose_subject_is_a_number_is_for_no_other_audience(
    issuer: TestIssuer,
) -> None:
    claims = jwt.decode(token(issuer), options={"verify_signature": False})
    claims_text = json.dumps({**claims, "sub": 5}).encode()
    sent = jwt.PyJWS().encode(claims_text, private_key(0), "RS256", headers={"kid": "key-0"})
    found = await OidcAuthorizer(settings(issuer)).examine(sent)
    said = [str(one) for one in found.objections]
    assert any("subject is not a text" in one for one in said)
    assert not any("another audience" in one for one in said)


@pytest.mark.parametrize(
    ("lives", "ends"), [(3600, 3600), (10 * MAX_LIFETIME, MAX_LIFETIME)], ids=["its", "the longest"]
)
async def test_token_is_taken_from_a_minute_before_its_time_to_a_minute_after_it(
    issuer: TestIssuer, lives: int, ends: int
) -> None:
    """By the server's clock, with which its own library does not compare."""
    begins = int(time.time())
    sent = f"Bearer {token(issuer, iat=begins, exp=begins + lives)}"

    async def ask_at(now: float) -> None:
        await OidcAuthorizer(settings(issuer), now=lambda: now).authorize_request(sent)

    await ask_at(begins - SKEW)
    await ask_at(begins + ends + SKEW)
    with pytest.raises(Unauthenticated, match="issued in the future"):
        await ask_at(begins - SKEW - 1)
    with pytest.raises(TokenExpired):
        await ask_at(begins + ends + SKEW + 1)


async def test_verified_token_is_remembered_until_it_expires(issuer: TestIssuer) -> None:
    now = time.time()
    authorizer = OidcAuthorizer(settings(issuer), now=lambda: now)
    sent = f"Bearer {token(issuer)}"
    first = await authorizer.authorize_request(sent)
    issuer.keys, issuer.is_down = [], True
    assert await authorizer.authorize_request(sent) is first
    now += REMEMBERED_SECONDS - 1
    assert await authorizer.authorize_request(sent) is first
    now += 62
    with pytest.raises(Unauthenticated):
        await authorizer.authorize_request(sent)


async def test_no_more_tokens_are_remembered_than_the_bound(
    issuer: TestIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_authorizer, "MAX_REMEMBERED", 1)
    authorizer = OidcAuthorizer(settings(issuer))
    one, other = (f"Bearer {token(issuer, sub=name)}" for name in ("alice", "bob"))
    first = await authorizer.authorize_request(one)
    assert await authorizer.authorize_request(one) is first
    second = await authorizer.authorize_request(other)
    assert await authorizer.authorize_request(other) is second
    assert await authorizer.authorize_request(one) is not first


async def test_server_is_ready_once_the_issuer_was_reached(issuer: TestIssuer) -> None:
    issuer.is_down = True
    app = create_app(settings(issuer))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        before = await client.get("/health/ready")
        refused = await client.get("/chats", headers={"Authorization": f"Bearer {token(issuer)}"})
        assert before.json().keys() == {"status", "timestamp"}
    assert (before.status_code, refused.status_code) == (503, 503)
    assert "Retry-After" in refused.headers


async def test_stream_outlives_its_token_and_all_else_needs_a_fresh_one(
    issuer: TestIssuer, tmp_path: Path
) -> None:
    """T31 of the table of tokens."""
    now = time.time()
    authorizer = OidcAuthorizer(settings(issuer), now=lambda: now)
    async with serving(tmp_path, [SEND, says("done")], authorizer=authorizer) as served:

        def bearer() -> dict[str, str]:
            return {"Authorization": f"Bearer {token(issuer, exp=int(now) + 300)}"}

        old = bearer()
        start = {"json": {"user_message": "hello"}, "headers": old}
        async with served.stream("POST", "/chats/c/interactions", **start) as frames:
            seen = [await anext(frames)]
            while seen[-1].name != "approval_required":
                seen.append(await anext(frames))
            now += 1200
            place = f"/chats/c/interactions/{id_of(seen)}"
            decision = {**seen[-1].data, "approved": True}
            decision = {name: decision[name] for name in ("approval_id", "digest", "approved")}
            for method, path, body in (
                ("GET", f"{place}/events", None),
                ("POST", f"{place}/approve", decision),
                ("POST", f"{place}/cancel", None),
            ):
                late = await served.client.request(method, path, json=body, headers=old)
                assert (late.status_code, late.json()["code"]) == (401, "token_expired"), path
            fresh = await served.client.post(f"{place}/approve", json=decision, headers=bearer())
            assert fresh.status_code == 200
            names = [frame.name async for frame in frames]
        assert names[-1] == "interaction_complete"


async def test_chats_own_stream_ends_before_a_turn_that_begins_after_its_token(
    issuer: TestIssuer, tmp_path: Path
) -> None:
    now = time.time()
    authorizer = OidcAuthorizer(settings(issuer), now=lambda: now)
    script = [says("one"), says("two"), says("three")]
    async with serving(tmp_path, script, authorizer=authorizer) as served:

        def bearer() -> dict[str, str]:
            return {"Authorization": f"Bearer {token(issuer, exp=int(now) + 300)}"}

        old = bearer()
        await served.say("first", headers=old)
        async with served.stream("GET", "/chats/c/events?after=0", headers=old) as frames:
            seen = [await anext(frames)]
            while seen[-1].name != "interaction_complete":
                seen.append(await anext(frames))
            await served.say("second", headers=bearer())
            while names(seen).count("interaction_complete") < 2:
                seen.append(await anext(frames))
            now += 1200
            await served.say("third", headers=bearer())
            rest = [frame async for frame in frames]
        assert [frame.name for frame in rest] == ["stream_end"]
        assert rest[0].data == {"reason": "token_expired", "resume_url": "/chats/c/events"}
