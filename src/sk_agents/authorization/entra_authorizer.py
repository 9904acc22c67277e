"""Microsoft Entra ID: access tokens of version 1 and 2 for one or several tenants."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
from sk_agents.exceptions import (
    AuthorizerUnavailable,
    ConfigurationError,
    Forbidden,
    InsufficientScope,
    Unauthenticated,
)
from sk_agents.outbound.network import configured_network
from sk_agents.wire.views import SignInView

ALGORITHMS = ("RS256",)
_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# The place of a tenant's discovery document, by the version of the tokens it describes.
_CONFIGURATION = {
    "1.0": "{authority}/{tenant}/.well-known/openid-configuration",
    "2.0": "{authority}/{tenant}/v2.0/.well-known/openid-configuration",
}


class EntraAuthorizer(TokenAuthorizer):
    """A person is `tid:oid`. A program, which has no user, needs one of `TA_ENTRA_ROLES`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(ALGORITHMS)
        client_id = settings.entra_client_id
        if not settings.entra_tenant_id or not client_id:
            raise ConfigurationError("TA_ENTRA_TENANT_ID and TA_ENTRA_CLIENT_ID must be set")
        check_url(settings.entra_authority, "TA_ENTRA_AUTHORITY")
        self._audiences = settings.entra_audience or (client_id, f"api://{client_id}")
        self._scopes = settings.entra_scopes or ()
        self._roles = frozenset(settings.entra_roles or ())
        self._clients = settings.entra_allowed_clients
        authority = settings.entra_authority.rstrip("/")
        tenants = [_tenant(value) for value in settings.entra_tenant_id]
        network = configured_network(settings)
        self._issuers: dict[tuple[str, str], Issuer] = {
            (tenant, version): Issuer(
                place.format(authority=authority, tenant=tenant), network=network
            )
            for tenant in tenants
            for version, place in _CONFIGURATION.items()
            if version in settings.entra_token_versions
        }
        # People of several directories choose theirs when they sign in.
        home = tenants[0] if len(tenants) == 1 else "organizations"
        place = _CONFIGURATION["2.0"].format(authority=authority, tenant=home)
        self._sign_in_issuer = self._issuers.get((home, "2.0")) or Issuer(place, network=network)
        self._settings = settings

    async def ping(self) -> None:
        reasons = []
        for issuer in self._issuers.values():
            try:
                await issuer.ping()
            except AuthorizerUnavailable as error:
                reasons.append(error)
        if reasons:
            raise reasons[0]

    def issuers(self) -> list[Issuer]:
        return list(self._issuers.values())

    def addresses(self) -> list[str]:
        return [issuer.url for issuer in self._issuers.values()]

    async def sign_in(self) -> SignInView:
        # A scope is asked for under the registration's URI, and is in the token without it.
        uri = next((name for name in self._audiences if "://" in name), None)
        prefix = uri or f"api://{self._settings.entra_client_id}"
        known = await sign_in_at(
            self._sign_in_issuer,
            page_client_id=self._settings.entra_page_client_id,
            cli_client_id=self._settings.entra_cli_client_id,
            scopes=(*IDENTITY_SCOPES, *(f"{prefix}/{scope}" for scope in self._scopes)),
        )
        # The portal takes no address of 127.0.0.1.
        return known.model_copy(update={"loopback_host": "localhost"})

    def issuer_of(self, claims: Claims) -> Issuer:
        tenant, version = claims.get("tid"), claims.get("ver")
        if not isinstance(tenant, str) or not isinstance(version, str):
            raise Unauthenticated("The token names no tenant or version.")
        try:
            return self._issuers[tenant, version]
        except KeyError:
            raise Unauthenticated("The token's tenant or version is not accepted.") from None

    def accepts_audience(self, audience: object) -> bool:
        # A list would make this server one of several that may use the token.
        return isinstance(audience, str) and audience in self._audiences

    def principal_of(self, claims: Claims) -> Principal:
        client = text_claim(claims, "azp", "appid")
        tenant, person = text_claim(claims, "tid"), text_claim(claims, "oid")
        if client is None:
            raise Unauthenticated("This is not an access token: it names no client.")
        if person is None or not _GUID.fullmatch(person.lower()):
            raise Unauthenticated("The token names no user.")
        if self._clients is not None and client not in self._clients:
            raise Forbidden("This client may not use the server.")
        scopes, roles = words(claims.get("scp")), names(claims.get("roles"))
        if _is_program(claims):
            if roles.isdisjoint(self._roles):
                needed = " ".join(sorted(self._roles))
                raise InsufficientScope("Programs need a role that this token lacks.", scope=needed)
        else:
            require_scopes(self._scopes, scopes)
        return Principal(
            user_id=f"{tenant}:{person}",
            name=text_claim(claims, "name", "preferred_username", "upn", "app_displayname"),
            tenant=tenant,
            groups=names(claims.get("groups")),
            roles=roles,
            scopes=scopes,
        )


def _is_program(claims: Mapping[str, object]) -> bool:
    return claims.get("idtyp") == "app" or "scp" not in claims


def _tenant(value: str) -> str:
    if not _GUID.fullmatch(value.lower()):
        raise ConfigurationError(
            "TA_ENTRA_TENANT_ID must be the directory's id, such as "
            "aaaabbbb-0000-cccc-1111-dddd2222eeee; names and 'common' are not accepted"
        )
    return value.lower()
