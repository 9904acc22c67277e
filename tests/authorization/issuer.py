"""A token issuer on loopback: discovery, keys that can be rotated, and tokens signed with them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

TENANT = "aaaabbbb-0000-cccc-1111-dddd2222eeee"
OTHER_TENANT = "bbbbaaaa-0000-cccc-1111-dddd2222eeee"
CLIENT = "11112222-bbbb-3333-cccc-4444dddd5555"
APP = "99998888-bbbb-3333-cccc-4444dddd5555"
PERSON = "00001111-aaaa-2222-bbbb-3333cccc4444"


@cache
def private_key(number: int) -> rsa.RSAPrivateKey:
    """Made once a process: a key of 2048 bits takes a while."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_pem(number: int) -> bytes:
    public = private_key(number).public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def jwk(number: int, **members: Any) -> dict[str, Any]:
    document: dict[str, Any] = RSAAlgorithm.to_jwk(private_key(number).public_key(), as_dict=True)
    return {**document, "kid": f"key-{number}", "use": "sig", "alg": "RS256", **members}


@dataclass
class TestIssuer:
    """`keys` is what it publishes; `fetches` counts how often it was asked for them; `more` are
    members of its discovery document."""

    __test__ = False

    url: str = ""
    keys: list[dict[str, Any]] = field(default_factory=lambda: [jwk(0)])
    fetches: int = 0
    is_down: bool = False
    asked: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def name(self, version: str = "2.0", tenant: str = TENANT) -> str:
        return f"{self.url}/{tenant}/v2.0" if version == "2.0" else f"{self.url}/sts/{tenant}/"

    def claims(self, version: str = "2.0", **changed: Any) -> dict[str, Any]:
        """Of a good Entra ID token; a claim of `None` is left out."""
        now = int(time.time())
        claims = {
            "iss": self.name(version),
            "aud": CLIENT if version == "2.0" else f"api://{CLIENT}",
            "sub": "pairwise",
            "tid": TENANT,
            "oid": PERSON,
            "ver": version,
            "azp" if version == "2.0" else "appid": APP,
            "scp": "access_as_user other",
            "name": "Alice Example",
            "iat": now,
            "nbf": now,
            "exp": now + 3600,
            **changed,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, *, key: int = 0, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        version = claims.pop("version", "2.0")
        return self.signed(self.claims(version, **claims), key=key, headers=headers)

    def signed(
        self, claims: dict[str, Any], *, key: int = 0, headers: dict[str, Any] | None = None
    ) -> str:
        all_headers = {"kid": f"key-{key}", **(headers or {})}
        return jwt.encode(claims, private_key(key), "RS256", headers=all_headers)

    async def serve(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if self.is_down:
            raise web.HTTPServiceUnavailable
        if request.path.endswith("/keys"):
            self.fetches += 1
            return web.json_response({"keys": self.keys})
        if not request.path.endswith("/.well-known/openid-configuration"):
            raise web.HTTPNotFound
        place = request.path.removesuffix("/.well-known/openid-configuration")
        tenant = place.strip("/").split("/")[0]
        if tenant == "realm":
            name = f"{self.url}/realm"
        else:
            name = self.name("2.0" if place.endswith("/v2.0") else "1.0", tenant)
        places = {
            "jwks_uri": "keys",
            "authorization_endpoint": "authorize",
            "token_endpoint": "token",
        }
        described = {field: f"{self.url}{place}/{end}" for field, end in places.items()}
        return web.json_response({"issuer": name, **described, **self.more})


@asynccontextmanager
async def running_issuer() -> AsyncIterator[TestIssuer]:
    issuer = TestIssuer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", issuer.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        issuer.url = f"http://{host}:{port}"
        yield issuer
    finally:
        await runner.cleanup()
