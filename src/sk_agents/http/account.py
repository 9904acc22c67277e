"""How to sign in to this server, and as whom a request arrives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from sk_agents.authorization.roles import EVERY_ROLE
from sk_agents.http.caller import RequestCaller, acting_caller
from sk_agents.http.operations import Operation
from sk_agents.wire.views import MeView, SignInView

_TAG = "account"


def account_operations(sign_in: Callable[[], Awaitable[SignInView]]) -> list[Operation]:
    async def how_to_sign_in() -> SignInView:
        """How to get what this server wants in `Authorization`. Everyone may ask."""
        return await sign_in()

    async def me(caller: RequestCaller) -> MeView:
        """The caller, as the server knows it."""
        principal = caller.principal
        return MeView(
            id=principal.user_id,
            name=principal.name,
            tenant=principal.tenant,
            roles=sorted(caller.roles | (principal.roles - EVERY_ROLE)),
        )

    ask = Operation(
        method="GET",
        path="/sign-in",
        endpoint=how_to_sign_in,
        summary="How to sign in",
        tag=_TAG,
        who=None,
        errors=(503,),
    )
    return [
        ask,
        replace(
            ask,
            path="/me",
            endpoint=me,
            summary="Who am I?",
            who=acting_caller,
            roles=tuple(EVERY_ROLE),
            errors=(401, 403, 422, 503),
        ),
    ]
