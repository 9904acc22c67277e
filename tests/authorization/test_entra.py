"""Tokens of Entra ID: every kind of bad one is refused before anything of the request is done."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from sk_agents.app import create_app
from sk_agents.authorization.authorizer_factory import AuthorizerFactory
from sk_agents.authorization.entra_authorizer import EntraAuthorizer
from sk_agents.authorization.request_authorizer import Principal
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.exceptions import ConfigurationError, Forbidden, Unauthenticated
from tests.authorization.issuer import (
    APP,
    CLIENT,
    OTHER_TENANT,
    PERSON,
    TENANT,
    TestIssuer,
    jwk,
    private_key,
    public_pem,
    running_issuer,
)
from tests.chats.serving import write_agent
from tests.requirements import requirement

NOW = int(time.time())
YEAR = 365 * 86400


def settings(issuer: TestIssuer, **changed: Any) -> Settings:
    given = {
        "authorizer": "entra",
        "entra_tenant_id": TENANT,
        "entra_client_id": CLIENT,
        "entra_authority": issuer.url,
        "store": "memory:",
        **changed,
    }
    return Settings(**given)


def authorizer(issuer: TestIssuer, **changed: Any) -> EntraAuthorizer:
    built = AuthorizerFactory(settings(issuer, **changed)).get_authorizer()
    assert isinstance(built, EntraAuthorizer)
    return built


@pytest.fixture
async def issuer() -> AsyncIterator[TestIssuer]:
    async with running_issuer() as issuer:
        yield issuer


@requirement("S000-auth-entra-oid")
async def test_person_is_tenant_and_object_id_with_name_and_scopes(issuer: TestIssuer) -> None:
    for version in ("1.0", "2.0"):
        token = issuer.token(version=version, groups=["g1"], roles=["Teal.Approver"])
        assert await authorizer(issuer).authorize_request(f"Bearer {token}") == Principal(
            user_id=f"{TENANT}:{PERSON}",
            name="Alice Example",
            tenant=TENANT,
            groups=frozenset({"g1"}),
            roles=frozenset({"Teal.Approver"}),
            scopes=frozenset({"access_as_user", "other"}),
        )


async def test_same_object_id_in_another_tenant_is_another_user(issuer: TestIssuer) -> None:
    both = authorizer(issuer, entra_tenant_id=f"{TENANT},{OTHER_TENANT}")
    other = issuer.token(tid=OTHER_TENANT, iss=issuer.name(tenant=OTHER_TENANT))
    first = await both.authorize_request(f"Bearer {issuer.token()}")
    second = await both.authorize_request(f"Bearer {other}")
    assert (first.user_id, second.user_id) == (f"{TENANT}:{PERSON}", f"{OTHER_TENANT}:{PERSON}")


def changed_payload(token: str) -> str:
    head, payload, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    claims["oid"] = OTHER_TENANT
    text = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"{head}.{text}.{signature}"


def unsigned(issuer: TestIssuer) -> str:
    return jwt.encode(issuer.claims(), "", "none", headers={"kid": "key-0"})


def confused(issuer: TestIssuer) -> str:
    """HS256 with the public key's text as its secret, which the library refuses to make."""

    def part(document: dict[str, Any]) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=")

    signed = part({"alg": "HS256", "kid": "key-0"}) + b"." + part(issuer.claims())
    mac = hmac.new(public_pem(0), signed, hashlib.sha256).digest()
    return (signed + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


def deep(issuer: TestIssuer) -> str:
    payload = base64.urlsafe_b64encode(b'{"a":' + b"[" * 8000).rstrip(b"=").decode()
    return f"{issuer.token().split('.')[0]}.{payload}.AAAA"


Make = Callable[[TestIssuer], str]
REFUSED: dict[str, Make] = {
    "T2 basic": lambda i: "Basic YWxpY2U6c2VjcmV0",
    "T2 two spaces": lambda i: f"bearer  {i.token()}",
    "T2 no token": lambda i: "Bearer ",
    "T2 two tokens": lambda i: f"Bearer {i.token()} {i.token()}",
    "T3 random": lambda i: "Bearer aGk.aGk.aGk",
    "T3 two parts": lambda i: "Bearer aGk.aGk",
    "T3 five parts": lambda i: "Bearer a.b.c.d.e",
    "T3 long": lambda i: f"Bearer {'a' * 13_000}.b.c",
    "T3 deep": lambda i: f"Bearer {deep(i)}",
    "T4 none": lambda i: f"Bearer {unsigned(i)}",
    "T5 confusion": lambda i: f"Bearer {confused(i)}",
    "T6 for encryption": lambda i: f"Bearer {i.token(key=1)}",
    "T7 jku": lambda i: f"Bearer {i.token(key=2, headers={'jku': f'{i.url}/evil/keys'})}",
    "T7 x5u": lambda i: f"Bearer {i.token(key=2, headers={'x5u': f'{i.url}/evil/x5u'})}",
    "T7 jwk": lambda i: f"Bearer {i.token(key=2, headers={'jwk': jwk(2)})}",
    "T8 no kid": lambda i: f"Bearer {jwt.encode(i.claims(), private_key(0), 'RS256')}",
    "T8 crit": lambda i: f"Bearer {i.token(headers={'crit': ['exp']})}",
    "T9 unknown kid": lambda i: f"Bearer {i.token(headers={'kid': 'other'})}",
    "T10 payload": lambda i: f"Bearer {changed_payload(i.token())}",
    "T10 cut": lambda i: f"Bearer {i.token()[:-40]}",
    "T10 empty": lambda i: f"Bearer {i.token().rpartition('.')[0]}.",
    "T11 expired": lambda i: f"Bearer {i.token(exp=NOW - 120)}",
    "T13 no exp": lambda i: f"Bearer {i.token(exp=None)}",
    "T14 nbf": lambda i: f"Bearer {i.token(nbf=NOW + 3600)}",
    "T15 iat": lambda i: f"Bearer {i.token(iat=NOW + 3600)}",
    "T15 old": lambda i: f"Bearer {i.token(iat=NOW - 4 * 86400, exp=NOW + 10 * YEAR)}",
    "T15 no iat": lambda i: f"Bearer {i.token(iat=None)}",
    "T17 other API": lambda i: f"Bearer {i.token(aud='https://graph.microsoft.com')}",
    "T17 other case": lambda i: f"Bearer {i.token(aud=CLIENT.upper())}",
    "T18 list": lambda i: f"Bearer {i.token(aud=[CLIENT, 'other'])}",
    "T19 version": lambda i: f"Bearer {i.token(ver='3.0')}",
    "T19 v1 issuer": lambda i: f"Bearer {i.token(iss=i.name('1.0'))}",
    "T21 look-alike": lambda i: f"Bearer {i.token(iss=i.name().replace('127.0.0.1', '127.0.0.2'))}",
    "T21 slash": lambda i: f"Bearer {i.token(iss=i.name() + '/')}",
    "T21 case": lambda i: f"Bearer {i.token(iss=i.name().upper())}",
    "T22 tid": lambda i: f"Bearer {i.token(tid=OTHER_TENANT)}",
    "T22 no GUID": lambda i: f"Bearer {i.token(tid='common')}",
    "T22 no tid": lambda i: f"Bearer {i.token(tid=None)}",
    "T23 other tenant's key": lambda i: f"Bearer {i.token(key=3)}",
    "T24 no oid": lambda i: f"Bearer {i.token(oid=None)}",
    "T24 oid": lambda i: f"Bearer {i.token(oid='alice')}",
    "T24 no sub": lambda i: f"Bearer {i.token(sub=None)}",
    "T29 ID token": lambda i: f"Bearer {i.token(azp=None, scp=None, nonce='n')}",
    "T29 without client": lambda i: f"Bearer {i.token(azp=None)}",
}
FORBIDDEN: dict[str, Make] = {
    "T26 neither": lambda i: i.token(scp=None),
    "T26 other scope": lambda i: i.token(scp="User.Read"),
    "T26 program without a role": lambda i: i.token(scp=None, idtyp="app", roles=["Other"]),
    "T27 longer scope": lambda i: i.token(scp="access_as_user.admin"),
    "T30 client": lambda i: i.token(azp=OTHER_TENANT),
}


@asynccontextmanager
async def served(issuer: TestIssuer, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    path = write_agent(folder, "http://127.0.0.1:1/v1")
    configured = settings(issuer, entra_allowed_clients=APP, entra_roles="Teal.Run")
    app = create_app(configured, load_agent_files([path]))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        yield client


def good(issuer: TestIssuer) -> dict[str, str]:
    return {"Authorization": f"Bearer {issuer.token()}"}


@pytest.fixture
def published(issuer: TestIssuer) -> TestIssuer:
    curve = ec.generate_private_key(ec.SECP256R1()).public_key()
    elliptic = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(curve))
    issuer.keys = [
        jwk(0, issuer=f"{issuer.url}/{{tenantid}}/v2.0"),
        jwk(1, use="enc"),
        jwk(3, issuer=issuer.name(tenant=OTHER_TENANT)),
        {**elliptic, "kid": "key-4", "use": "sig"},
        {"kid": "broken", "kty": "RSA"},
    ]
    return issuer


@pytest.mark.parametrize("row", REFUSED)
async def test_bad_token_is_401_with_a_reason_and_nothing_is_fetched_for_it(
    published: TestIssuer, tmp_path: Path, row: str
) -> None:
    async with served(published, tmp_path) as client:
        header = REFUSED[row](published)
        answer = await client.post("/chats", headers={"Authorization": header})
        kept = await client.get("/chats", headers=good(published))
    assert (answer.status_code, kept.json()["chats"]) == (401, [])
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert header not in answer.text
    assert not [path for path in published.asked if "evil" in path]


@requirement("S000-auth-entra-scopes")
@pytest.mark.parametrize("row", FORBIDDEN)
async def test_good_token_without_the_right_is_403(
    published: TestIssuer, tmp_path: Path, row: str
) -> None:
    async with served(published, tmp_path) as client:
        header = f"Bearer {FORBIDDEN[row](published)}"
        answer = await client.post("/chats", headers={"Authorization": header})
        kept = await client.get("/chats", headers=good(published))
    assert (answer.status_code, kept.json()["chats"]) == (403, [])


async def test_missing_scope_and_expiry_are_named(published: TestIssuer, tmp_path: Path) -> None:
    async with served(published, tmp_path) as client:

        async def ask(token: str) -> httpx.Response:
            return await client.get("/chats", headers={"Authorization": f"Bearer {token}"})

        lacking = await ask(published.token(scp="User.Read"))
        expired = await ask(published.token(exp=NOW - 120))
        none = await client.get("/chats")
        two = [("Authorization", f"Bearer {published.token()}")] * 2
        twice = await client.get("/chats", headers=two)
        right = await ask(published.token())
    assert 'error="insufficient_scope"' in lacking.headers["WWW-Authenticate"]
    assert 'scope="access_as_user"' in lacking.headers["WWW-Authenticate"]
    assert expired.json()["code"] == "token_expired"
    assert 'error="invalid_token"' in expired.headers["WWW-Authenticate"]
    assert (none.status_code, none.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert (right.status_code, twice.status_code) == (200, 401)


async def test_program_with_a_role_is_let_in(issuer: TestIssuer) -> None:
    token = issuer.token(scp=None, idtyp="app", roles=["Teal.Run"], name=None)
    program = await authorizer(issuer, entra_roles="Teal.Run").authorize_request(f"Bearer {token}")
    assert (program.user_id, program.roles) == (f"{TENANT}:{PERSON}", frozenset({"Teal.Run"}))
    with pytest.raises(Forbidden):
        await authorizer(issuer).authorize_request(f"Bearer {token}")


@pytest.mark.parametrize(("allowed", "refused"), [("1.0", "2.0"), ("2.0", "1.0")])
async def test_versions_can_be_narrowed(issuer: TestIssuer, allowed: str, refused: str) -> None:
    one = authorizer(issuer, entra_token_versions=allowed)
    await one.authorize_request(f"Bearer {issuer.token(version=allowed)}")
    with pytest.raises(Unauthenticated):
        await one.authorize_request(f"Bearer {issuer.token(version=refused)}")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"entra_tenant_id": "common"}, "TA_ENTRA_TENANT_ID"),
        ({"entra_tenant_id": None}, "TA_ENTRA_TENANT_ID"),
        ({"entra_client_id": None}, "TA_ENTRA_CLIENT_ID"),
        ({"entra_authority": "http://login.example.com"}, "TA_ENTRA_AUTHORITY"),
    ],
)
def test_unusable_configuration_is_named_at_start(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        authorizer(TestIssuer(url="http://127.0.0.1:1"), **changed)
