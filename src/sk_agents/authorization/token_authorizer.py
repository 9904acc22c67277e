"""Access tokens (RFC 9068 and its relatives): signed by an issuer, checked here.

The algorithms are the operator's list, never the token's word. What a token says about where its
key is (`jku`, `x5u`, `jwk`) is not read.
"""

from __future__ import annotations

import hashlib
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
from jwt.exceptions import ExpiredSignatureError, PyJWTError

from sk_agents.authorization.issuer import Issuer
from sk_agents.authorization.request_authorizer import Principal, RequestAuthorizer
from sk_agents.exceptions import (
    AuthorizerUnavailable,
    Forbidden,
    InsufficientScope,
    TealError,
    TokenExpired,
    Unauthenticated,
)
from sk_agents.wire.views import SignInView

SKEW = 60
MAX_TOKEN_BYTES = 12 * 1024
MAX_KEY_ID_LENGTH = 256
# However long a token says it lives.
MAX_LIFETIME = 30 * 3600
REMEMBERED_SECONDS = 300.0
MAX_REMEMBERED = 10_000
_REQUIRED = ["exp", "iat", "iss", "aud", "sub"]
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
# A token that carries one of these was made for a client to read, not for an API.
_ID_TOKEN_CLAIMS = ("nonce", "at_hash", "c_hash", "s_hash")
# What signing in asks for beside the scopes of this server: who it is, and to stay signed in.
IDENTITY_SCOPES = ("openid", "profile", "offline_access")

Claims = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Examination:
    """What a token says, which nothing proves if there are objections; `principal` is the caller
    if there are none."""

    header: Mapping[str, Any]
    claims: Claims
    objections: Sequence[TealError]
    principal: Principal | None


class TokenAuthorizer(RequestAuthorizer):
    """Verifies a bearer token and remembers it by its hash for a few minutes at most."""

    def __init__(self, algorithms: Sequence[str], *, now: Callable[[], float] = time.time) -> None:
        self._algorithms = list(algorithms)
        self._now = now
        self._remembered: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()

    async def authorize_request(self, auth_header: str) -> Principal:
        token = bearer_token(auth_header)
        digest = hashlib.sha256(token.encode()).digest()
        known = self._remembered.get(digest)
        if known is not None and self._now() < known[1]:
            return known[0]
        claims = await self.claims_of(token)
        principal = self.principal_of(claims)
        end = min(_end_of(claims) + SKEW, self._now() + REMEMBERED_SECONDS)
        self._remembered[digest] = (principal, end)
        while len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)
        return principal

    async def claims_of(self, token: str) -> Claims:
        """What a token says, once it is known that its issuer says it.

        Raises:
            Unauthenticated: it is not a token of the issuer for this server.
            TokenExpired: it was one.
            AuthorizerUnavailable: the issuer's keys cannot be had.
        """
        header, unproven = _parsed(token)
        algorithm, key_id = self._signed_with(header)
        issuer = self.issuer_of(unproven)
        key = await issuer.key(key_id)
        if _KEY_TYPES.get(algorithm[:2]) != key.key_type:
            raise Unauthenticated("The token is signed with a key of another kind.")
        try:
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                issuer=await issuer.name(),
                leeway=SKEW,
                options={"require": _REQUIRED, "verify_aud": False},
            )
        except ExpiredSignatureError:
            raise TokenExpired from None
        except (PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise Unauthenticated(f"The token is not valid: {_reason(error)}.") from None
        self._check(claims)
        return claims

    async def examine(self, token: str) -> Examination:
        """All that would be refused about a token, where a request learns of the first alone."""
        try:
            header, claims = _parsed(token)
        except Unauthenticated as error:
            return Examination({}, {}, [error], None)
        refusals: list[TealError] = []
        try:
            claims = await self.claims_of(token)
        except (Unauthenticated, AuthorizerUnavailable) as error:
            refusals.append(error)
        checks: tuple[Callable[[], object], ...] = (
            lambda: self._signed_with(header),
            lambda: self.issuer_of(claims),
            lambda: self._check(claims),
            lambda: self.principal_of(claims),
        )
        for check in checks:
            try:
                check()
            except (Unauthenticated, Forbidden) as error:
                refusals.append(error)
            except (KeyError, TypeError):
                # A claim is missing or of another type: that is the first refusal.
                continue
        objections = list({str(refusal): refusal for refusal in refusals}.values())
        principal = None if objections else self.principal_of(claims)
        return Examination(header, claims, objections, principal)

    @abstractmethod
    def issuers(self) -> Sequence[Issuer]:
        """Those whose tokens may be accepted."""

    @property
    def algorithms(self) -> Sequence[str]:
        return self._algorithms

    def usable_keys(self, issuer: Issuer) -> int:
        """How many of its keys can sign with an algorithm that is accepted."""
        types = {_KEY_TYPES.get(algorithm[:2]) for algorithm in self._algorithms}
        return sum(kind in types for kind in issuer.key_types())

    @abstractmethod
    def issuer_of(self, claims: Claims) -> Issuer:
        """The issuer that may have signed a token with these claims, which nothing proves yet.

        Raises:
            Unauthenticated: none that this server trusts.
        """

    @abstractmethod
    def principal_of(self, claims: Claims) -> Principal:
        """The caller.

        Raises:
            Unauthenticated: the claims are not those of an access token for this server.
            InsufficientScope: they do not allow to use it.
        """

    @abstractmethod
    def accepts_audience(self, audience: object) -> bool:
        """Whether a token for `audience` is for this server."""

    def _signed_with(self, header: Mapping[str, Any]) -> tuple[str, str]:
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._algorithms:
            raise Unauthenticated("The token's algorithm is not accepted.")
        if (
            not isinstance(key_id, str)
            or not 0 < len(key_id) <= MAX_KEY_ID_LENGTH
            or "crit" in header
        ):
            raise Unauthenticated("The token's header is not accepted.")
        return algorithm, key_id

    def _check(self, claims: Claims) -> None:
        now = self._now()
        if not isinstance(claims["sub"], str):
            raise Unauthenticated("The token's subject is not a text.")
        if not self.accepts_audience(claims["aud"]):
            raise Unauthenticated("The token is for another audience.")
        if claims["iat"] > now + SKEW:
            raise Unauthenticated("The token was issued in the future.")
        if now > _end_of(claims) + SKEW:
            raise TokenExpired
        if any(claim in claims for claim in _ID_TOKEN_CLAIMS) or claims.get("typ") == "ID":
            raise Unauthenticated("This is an ID token; send an access token.")


async def sign_in_at(
    issuer: Issuer,
    *,
    page_client_id: str | None,
    cli_client_id: str | None,
    scopes: Sequence[str],
    parameters: Mapping[str, str] | None = None,
) -> SignInView:
    """How people sign in at `issuer`; a token must be brought along if no client is known to it.

    Raises:
        AuthorizerUnavailable: the issuer cannot be reached.
    """
    if page_client_id is None and cli_client_id is None:
        return SignInView(method="token")
    return SignInView(
        method="oidc",
        issuer=await issuer.name(),
        page_client_id=page_client_id,
        cli_client_id=cli_client_id,
        scopes=list(dict.fromkeys(scopes)),
        parameters=dict(parameters or {}),
        authorization_endpoint=await issuer.address("authorization_endpoint"),
        token_endpoint=await issuer.address("token_endpoint"),
        device_authorization_endpoint=await issuer.address("device_authorization_endpoint"),
        revocation_endpoint=await issuer.address("revocation_endpoint"),
        end_session_endpoint=await issuer.address("end_session_endpoint"),
    )


def bearer_token(auth_header: str) -> str:
    """Raises Unauthenticated: the header has no bearer token."""
    scheme, _, token = auth_header.partition(" ")
    if scheme.lower() != "bearer" or not token or token != token.strip() or " " in token:
        raise Unauthenticated
    return token


def words(claim: object) -> frozenset[str]:
    """The members of a claim that is a list, or a text with spaces between them, as scopes are."""
    return frozenset(claim.split()) if isinstance(claim, str) else names(claim)


def names(claim: object) -> frozenset[str]:
    """The members of a claim that is a list, or a text if there is but one: groups and roles, whose
    names may have spaces in them. A member of `Former finance` is none of `finance`."""
    given = claim if isinstance(claim, list) else [claim]
    return frozenset(name for name in given if isinstance(name, str) and name)


def require_scopes(needed: Sequence[str], granted: frozenset[str]) -> None:
    """Raises InsufficientScope: naming those that are missing."""
    missing = [scope for scope in needed if scope not in granted]
    if missing:
        names = " ".join(missing)
        raise InsufficientScope(f"The token lacks the scope {names}.", scope=names)


def text_claim(claims: Claims, *names: str) -> str | None:
    """The first of these claims that is a text."""
    return next((claims[name] for name in names if isinstance(claims.get(name), str)), None)


def _parsed(token: str) -> tuple[Mapping[str, Any], Claims]:
    """Header and claims, which nothing proves yet."""
    if len(token) > MAX_TOKEN_BYTES or token.count(".") != 2:
        raise Unauthenticated("The token is not a signed token.")
    try:
        parts = jwt.decode_complete(token, options={"verify_signature": False})
    except (PyJWTError, ValueError, RecursionError) as error:
        raise Unauthenticated("The token cannot be read.") from error
    return parts["header"], parts["payload"]


def _end_of(claims: Claims) -> float:
    return float(min(claims["exp"], claims["iat"] + MAX_LIFETIME))


def _reason(error: Exception) -> str:
    """In words that a client can act on and that quote nothing of the token."""
    name = type(error).__name__.removesuffix("Error")
    known = {
        "InvalidSignature": "its signature is wrong",
        "InvalidIssuer": "its issuer is another one",
        "ImmatureSignature": "it is not valid yet",
        "MissingRequiredClaim": f"the claim {getattr(error, 'claim', '')} is missing",
        "InvalidIssuedAt": "its time of issue is not a number",
    }
    return known.get(name, "it cannot be read")
