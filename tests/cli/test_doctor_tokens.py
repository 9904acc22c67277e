"""`teal doctor` and the issuer: what would not work, and what is wrong with a token."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sk_agents.authorization.oidc_authorizer import OidcAuthorizer
from sk_agents.cli.doctor.findings import Finding
from sk_agents.cli.doctor.token_checks import check_issuers, check_token
from sk_agents.config.settings import Settings
from tests.authorization.issuer import TestIssuer, jwk, running_issuer
from tests.cli.house import run, write_agent


@pytest.fixture
async def issuer() -> AsyncIterator[TestIssuer]:
    async with running_issuer() as issuer:
        yield issuer


def authorizer(issuer: TestIssuer, **changed: Any) -> OidcAuthorizer:
    given = {
        "oidc_issuer": f"{issuer.url}/realm",
        "oidc_audience": "teal",
        "oidc_scopes": "teal.use",
        **changed,
    }
    return OidcAuthorizer(Settings(authorizer="oidc", **given))


def token(issuer: TestIssuer, **changed: Any) -> str:
    now = int(time.time())
    claims = {"iss": f"{issuer.url}/realm", "aud": "teal", "sub": "alice", "scope": "teal.use"}
    return issuer.signed({**claims, "iat": now, "exp": now + 300, **changed})


async def found(findings: AsyncIterator[Finding]) -> list[Finding]:
    return [finding async for finding in findings]


async def test_issuer_that_serves_is_ok_with_its_keys(issuer: TestIssuer) -> None:
    first, second = await found(check_issuers(authorizer(issuer, oidc_page_client_id="page")))
    assert (first.state, second.state) == ("ok", "ok")
    assert first.detail == f"tokens of {issuer.url}/realm, 1 of 1 keys for RS256"
    assert second.detail == "the page as page"


@pytest.mark.parametrize(
    ("place", "algorithm", "more", "words"),
    [
        ("/realm/", "RS256", {}, "describes another issuer"),
        ("/realm", "ES256", {}, "0 of 1 keys for ES256"),
        ("/realm", "RS256", {"jwks_uri": "http://other.example/keys"}, "must begin with https://"),
    ],
)
async def test_configuration_that_does_not_fit_the_issuer_fails_in_words(
    issuer: TestIssuer, place: str, algorithm: str, more: dict[str, str], words: str
) -> None:
    issuer.more = more
    configured = authorizer(issuer, oidc_issuer=issuer.url + place, oidc_algorithms=algorithm)
    finding = (await found(check_issuers(configured)))[0]
    assert (finding.state, words in finding.detail) == ("fail", True), finding


async def test_everything_wrong_with_a_token_is_named_and_the_token_is_not_shown(
    issuer: TestIssuer, tmp_path: Path
) -> None:
    issuer.keys = [jwk(0)]
    wrong = token(issuer, aud="other", scope="openid", exp=int(time.time()) - 300)
    path = tmp_path / "token.txt"
    path.write_text(f"Bearer {wrong}\n")
    findings = await found(check_token(authorizer(issuer), str(path)))
    failed = [finding.detail for finding in findings if finding.state == "fail"]
    assert failed == [
        "token_expired: The token has expired.",
        "unauthenticated: The token is for another audience.",
        "insufficient_scope: The token lacks the scope teal.use.",
    ]
    assert ("claim aud", "other") in [(finding.check, finding.detail) for finding in findings]
    assert not any(part in str(findings) for part in wrong.split("."))
    path.write_text(token(issuer))
    findings = await found(check_token(authorizer(issuer), str(path)))
    assert findings[-1] == Finding("token", "ok", "accepted as alice")


@pytest.mark.parametrize(
    ("variable", "value"), [("TA_AUTHORIZER", "oidc"), ("TA_OIDC_AUDIENCE", "teal")]
)
def test_authorizer_that_cannot_be_built_is_a_finding_and_the_rest_is_checked(
    tmp_path: Path, variable: str, value: str
) -> None:
    arguments = ("doctor", str(write_agent(tmp_path)), "--store", "memory:", "--offline", "--json")
    done = run(tmp_path, *arguments, TA_PORT="0", **{variable: value})
    states = {check["check"]: check["state"] for check in json.loads(done.stdout)["checks"]}
    assert (states["callers"], states["models"]) == ("fail", "ok")


async def test_command_checks_issuer_and_models_of_a_server_that_wants_tokens(
    issuer: TestIssuer, tmp_path: Path
) -> None:
    settings = {"TA_AUTHORIZER": "oidc", "TA_OIDC_AUDIENCE": "teal", "TA_PORT": "0"}
    settings["TA_OIDC_ISSUER"] = f"{issuer.url}/realm"
    arguments = ("doctor", str(write_agent(tmp_path)), "--store", "memory:", "--json")
    done = await asyncio.to_thread(run, tmp_path, *arguments, **settings)
    states = {check["check"]: check["state"] for check in json.loads(done.stdout)["checks"]}
    place = f"issuer {issuer.url}/realm/.well-known/openid-configuration"
    assert (states[place], states["signing in"]) == ("ok", "warn")
    assert states["model scripted/talk.yaml"] == "ok"
