"""Any OpenID Connect issuer: Keycloak, Auth0, Okta, Google and others."""

from __future__ import annotations

import time
from collections.abc import Callable

from sk_agents.authorization.issuer import Issuer, check_url
from sk_agents.authorization.request_authorizer import Principal
from sk_agents.authorization.token_authorizer import (
    IDENTITY_SCOPES,
    Claims,
    TokenAuthorizer,
    names,
    require_scopes,
    sign_in_at,
    text_claim,
    words,
)
from sk_agents.config.settings import Settings
from sk_agents.exceptions import ConfigurationError, Unauthenticated
from sk_agents.outbound.network import configured_network
from sk_agents.wire.views import SignInView

WELL_KNOWN = "/.well-known/openid-configuration"


class OidcAuthorizer(TokenAuthorizer):
    """A caller is what `TA_OIDC_USER_CLAIM` says: `sub` unless the operator knows a better one."""

    def __init__(self, settings: Settings, *, now: Callable[[], float] = time.time) -> None:
        super().__init__(settings.oidc_algorithms, now=now)
        if not settings.oidc_issuer or not settings.oidc_audience:
            raise ConfigurationError("TA_OIDC_ISSUER and TA_OIDC_AUDIENCE must be set")
        check_url(settings.oidc_issuer, "TA_OIDC_ISSUER")
        self._name = settings.oidc_issuer
        self._issuer = Issuer(
            self._name.rstrip("/") + WELL_KNOWN,
            expected=self._name,
            network=configured_network(settings),
        )
        self._audiences = frozenset(settings.oidc_audience)
        self._scopes = settings.oidc_scopes or ()
        self._user_claim = settings.oidc_user_claim
        self._groups_claim = settings.oidc_groups_claim
        self._settings = settings

    async def ping(self) -> None:
        await self._issuer.ping()

    def issuers(self) -> list[Issuer]:
        return [self._issuer]

    def addresses(self) -> list[str]:
        return [self._issuer.url]

    async def sign_in(self) -> SignInView:
        settings = self._settings
        return await sign_in_at(
            self._issuer,
            page_client_id=settings.oidc_page_client_id,
            cli_client_id=settings.oidc_cli_client_id,
            scopes=settings.oidc_sign_in_scopes or (*IDENTITY_SCOPES, *self._scopes),
            parameters=settings.oidc_sign_in_parameters,
        )

    def issuer_of(self, claims: Claims) -> Issuer:
        if claims.get("iss") != self._name:
            raise Unauthenticated("The token's issuer is another one.")
        return self._issuer

    def accepts_audience(self, audience: object) -> bool:
        named = audience if isinstance(audience, list) else [audience]
        return any(isinstance(one, str) and one in self._audiences for one in named)

    def principal_of(self, claims: Claims) -> Principal:
        if claims.get("token_use") == "id":
            raise Unauthenticated("This is an ID token; send an access token.")
        user_id = claims.get(self._user_claim)
        if not isinstance(user_id, str) or not user_id:
            raise Unauthenticated(f"The token has no usable claim {self._user_claim}.")
        scopes = words(claims.get("scope", claims.get("scp")))
        require_scopes(self._scopes, scopes)
        return Principal(
            user_id=user_id,
            name=text_claim(claims, "name", "preferred_username", "email"),
            tenant=self._name,
            groups=names(claims.get(self._groups_claim)),
            roles=names(claims.get("roles")),
            scopes=scopes,
        )
