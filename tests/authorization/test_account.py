"""How to sign in, and as whom: what every authorizer says of itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from sk_agents.app import create_app
from sk_agents.config.settings import Settings, load_settings
from sk_agents.exceptions import ConfigurationError
from sk_agents.http.page import BUILT, INDEX
from tests.authorization.issuer import CLIENT, OTHER_TENANT, TENANT, TestIssuer, running_issuer
from tests.missing import lacks

ENTRA = {"authorizer": "entra", "entra_tenant_id": TENANT, "entra_client_id": CLIENT}


@pytest.fixture
async def issuer() -> AsyncIterator[TestIssuer]:
    async with running_issuer() as issuer:
        yield issuer


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(store="memory:", **settings))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        yield client


async def asked(path: str = "/sign-in", **settings: Any) -> Any:
    async with served(**settings) as client:
        return (await client.get(path)).json()


async def test_development_server_needs_nothing_and_says_who_everyone_is() -> None:
    assert (await asked())["method"] == "none"
    every = ["approver", "operator", "user"]
    me: dict[str, Any] = {"id": "dummyuser", "name": None, "tenant": None, "roles": every}
    assert await asked("/me") == me
    assert await asked("/me?user_id=ada") == {**me, "id": "ada"}


async def test_keys_want_a_key_and_tokens_a_token_unless_a_client_is_known(
    issuer: TestIssuer,
) -> None:
    assert (await asked(authorizer="keys"))["method"] == "key"
    assert (await asked(**ENTRA, entra_authority=issuer.url))["method"] == "token"


async def test_entra_is_asked_for_the_scope_under_the_servers_own_name(issuer: TestIssuer) -> None:
    known = {**ENTRA, "entra_authority": issuer.url, "entra_page_client_id": "spa"}
    found = await asked(**known, entra_cli_client_id="native")
    assert (found["method"], found["issuer"]) == ("oidc", issuer.name())
    assert (found["page_client_id"], found["cli_client_id"]) == ("spa", "native")
    assert found["token_endpoint"] == f"{issuer.url}/{TENANT}/v2.0/token"
    scope = f"api://{CLIENT}/access_as_user"
    assert found["scopes"] == ["openid", "profile", "offline_access", scope]
    known["entra_audience"] = "api://teal.example"
    assert (await asked(**known))["scopes"][-1] == "api://teal.example/access_as_user"


async def test_people_of_several_tenants_choose_theirs_at_the_issuer(issuer: TestIssuer) -> None:
    several = {**ENTRA, "entra_tenant_id": f"{TENANT},{OTHER_TENANT}"}
    found = await asked(**several, entra_authority=issuer.url, entra_page_client_id="spa")
    assert found["authorization_endpoint"] == f"{issuer.url}/organizations/v2.0/authorize"


async def test_me_is_the_person_and_never_the_token(issuer: TestIssuer) -> None:
    token = issuer.token(roles=["Teal.Approver"])
    async with served(**ENTRA, entra_authority=issuer.url) as client:
        answer = await client.get("/me", headers={"Authorization": f"Bearer {token}"})
        stranger = await client.get("/me")
    assert answer.json() == {
        "id": f"{TENANT}:{issuer.claims()['oid']}",
        "name": "Alice Example",
        "tenant": TENANT,
        "roles": ["Teal.Approver", "user"],
    }
    assert stranger.status_code == 401


@pytest.fixture
def built() -> None:
    if not (BUILT / INDEX).is_file():
        lacks("page", "the page is not built: make page")


async def test_page_may_talk_to_the_issuer_and_to_nothing_else(
    issuer: TestIssuer, built: None
) -> None:
    async with served(**ENTRA, entra_authority=issuer.url, entra_page_client_id="spa") as client:
        policy = (await client.get("/")).headers["Content-Security-Policy"]
    assert f"connect-src 'self' {issuer.url};" in policy
    assert policy.count("http") == 1


async def test_issuer_that_is_away_is_503_and_the_page_is_served_without_it(
    issuer: TestIssuer,
) -> None:
    issuer.is_down = True
    async with served(**ENTRA, entra_authority=issuer.url, entra_page_client_id="spa") as client:
        assert (await client.get("/sign-in")).status_code == 503
        page = await client.get("/")
    assert (page.status_code, "http" in page.headers["Content-Security-Policy"]) == (200, False)


@pytest.mark.parametrize("address", ["http://issuer.example/token", "javascript:alert(1)", ""])
async def test_endpoint_that_is_not_https_is_not_passed_on(
    issuer: TestIssuer, address: str
) -> None:
    issuer.more = {"token_endpoint": address}
    found = await asked(**ENTRA, entra_authority=issuer.url, entra_page_client_id="spa")
    assert found["token_endpoint"] is None


def test_parameters_of_requests_to_the_issuer_are_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TA_OIDC_SIGN_IN_PARAMETERS", "audience=https://teal?a=b, display=page")
    assert load_settings().oidc_sign_in_parameters == {
        "audience": "https://teal?a=b",
        "display": "page",
    }
    monkeypatch.setenv("TA_OIDC_SIGN_IN_PARAMETERS", "audience")
    with pytest.raises(ConfigurationError, match="TA_OIDC_SIGN_IN_PARAMETERS: must be like"):
        load_settings()
