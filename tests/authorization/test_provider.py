"""`OidcAuthorizer` against an issuer that nobody here wrote."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterator
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from sk_agents.authorization.oidc_authorizer import OidcAuthorizer
from sk_agents.config.settings import load_settings
from sk_agents.exceptions import TokenExpired, Unauthenticated
from tests.authorization.provider import SCOPE, Provider, running_provider, signed_in

REDIRECT = "http://127.0.0.1:7/signed-in"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture
def authorizer(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> OidcAuthorizer:
    for name, value in provider.settings().items():
        monkeypatch.setenv(name, value)
    return OidcAuthorizer(load_settings())


def tokens(provider: Provider, name: str) -> dict[str, str]:
    """By the authorization code with PKCE."""
    verifier = secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    query = {
        "client_id": "cli",
        "response_type": "code",
        "redirect_uri": REDIRECT,
        "scope": f"openid offline_access {SCOPE}",
        "state": "s",
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    back = signed_in(f"{provider.url}/auth?{urlencode(query)}", name)
    [code] = parse_qs(urlsplit(back).query)["code"]
    grant = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT}
    return asked(provider, **grant, code_verifier=verifier)


def asked(provider: Provider, **form: str) -> dict[str, str]:
    answer = httpx.post(f"{provider.url}/token", data={"client_id": "cli", **form})
    assert answer.status_code == 200, answer.text
    found: dict[str, str] = answer.json()
    return found


async def test_code_refresh_and_rotated_keys(
    provider: Provider, authorizer: OidcAuthorizer
) -> None:
    await authorizer.ping()
    first = tokens(provider, "ada")
    principal = await authorizer.authorize_request(f"Bearer {first['access_token']}")
    assert (principal.user_id, principal.name) == ("ada", "Ada")
    assert principal.scopes == {SCOPE}

    provider.rotate()
    second = asked(provider, grant_type="refresh_token", refresh_token=first["refresh_token"])
    assert second["refresh_token"] != first["refresh_token"]
    again = await authorizer.authorize_request(f"Bearer {second['access_token']}")
    assert again == principal


async def test_id_token_and_expired_token_are_refused(
    provider: Provider, authorizer: OidcAuthorizer
) -> None:
    provider.set(ttl=5, behind=70)
    try:
        late = tokens(provider, "bob")
    finally:
        provider.set(ttl=3600, behind=0)
    with pytest.raises(TokenExpired):
        await authorizer.authorize_request(f"Bearer {late['access_token']}")
    with pytest.raises(Unauthenticated):
        await authorizer.authorize_request(f"Bearer {late['id_token']}")
