"""The doctor's look at who may call: is the issuer as the settings need it, and what of a token?"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

from sk_agents.authorization.issuer import Issuer
from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.authorization.token_authorizer import SKEW, TokenAuthorizer
from sk_agents.cli.doctor.findings import Finding
from sk_agents.exceptions import AuthorizerUnavailable
from sk_agents.wire.views import SignInView

STDIN = "-"
# Half of what is granted to clocks that differ.
LARGE_GAP = SKEW / 2
SIGN_IN = "signing in"


async def check_issuers(authorizer: RequestAuthorizer) -> AsyncIterator[Finding]:
    if not isinstance(authorizer, TokenAuthorizer):
        return
    is_reachable = True
    for issuer in authorizer.issuers():
        finding = await _check_issuer(authorizer, issuer)
        is_reachable = is_reachable and finding.state != "fail"
        yield finding
    if is_reachable:
        try:
            yield _check_sign_in(await authorizer.sign_in())
        except AuthorizerUnavailable as error:
            yield Finding(SIGN_IN, "fail", str(error))


async def _check_issuer(authorizer: TokenAuthorizer, issuer: Issuer) -> Finding:
    check = f"issuer {issuer.url}"
    try:
        await issuer.read()
        name = await issuer.name()
    except AuthorizerUnavailable as error:
        hint = "is the address right, as the issuer writes it, and can this machine reach it?"
        return Finding(check, "fail", str(error), hint)
    accepted = ", ".join(authorizer.algorithms)
    usable = authorizer.usable_keys(issuer)
    detail = f"tokens of {name}, {usable} of {len(issuer.key_types())} keys for {accepted}"
    if usable == 0:
        return Finding(check, "fail", detail, "no token of this issuer could be accepted")
    gap = issuer.clock_gap
    if gap is None or abs(gap) < LARGE_GAP:
        return Finding(check, "ok", detail)
    detail = f"{detail}; its clock and ours are {abs(gap):.0f} s apart"
    hint = f"set this machine's clock: {SKEW} s are granted"
    return Finding(check, "fail" if abs(gap) > SKEW else "warn", detail, hint)


def _check_sign_in(how: SignInView) -> Finding:
    if how.method != "oidc":
        hint = "TA_ENTRA_PAGE_CLIENT_ID or TA_OIDC_PAGE_CLIENT_ID lets the page do it"
        return Finding(SIGN_IN, "warn", "the page asks for a token", hint)
    ways = {"the page": how.page_client_id, "teal login": how.cli_client_id}
    detail = ", ".join(f"{way} as {client}" for way, client in ways.items() if client)
    if how.authorization_endpoint is None or how.token_endpoint is None:
        return Finding(SIGN_IN, "fail", f"{detail}: the issuer names no place for it")
    if how.cli_client_id is not None and how.device_authorization_endpoint is None:
        return Finding(SIGN_IN, "ok", f"{detail}; by browser alone, there are no device codes")
    return Finding(SIGN_IN, "ok", detail)


async def check_token(authorizer: RequestAuthorizer, source: str) -> AsyncIterator[Finding]:
    """What a token says, and what would be refused about it. The token itself is never shown."""
    if not isinstance(authorizer, TokenAuthorizer):
        hint = "set TA_AUTHORIZER to entra or oidc"
        yield Finding("token", "fail", f"{type(authorizer).__name__} reads no tokens", hint)
        return
    try:
        text = _text(source)
    except (OSError, UnicodeDecodeError) as error:
        yield Finding("token", "fail", f"{source} cannot be read: {error}")
        return
    found = await authorizer.examine(text.strip().removeprefix("Bearer "))
    for name, value in {**found.header, **found.claims}.items():
        yield Finding(f"claim {name}", "ok", str(value))
    for objection in found.objections:
        yield Finding("token", "fail", f"{objection.code}: {objection}")
    if found.principal is not None:
        name = f", {found.principal.name}" if found.principal.name else ""
        yield Finding("token", "ok", f"accepted as {found.principal.user_id}{name}")


def _text(source: str) -> str:
    return sys.stdin.read() if source == STDIN else Path(source).read_text(encoding="utf-8")
