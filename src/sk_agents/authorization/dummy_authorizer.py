"""The authorizer for development."""

from __future__ import annotations

from typing import ClassVar

from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.wire.views import SignInView


class DummyAuthorizer(RequestAuthorizer):
    """Every request is the same user."""

    insecure: ClassVar[bool] = True
    is_immediate: ClassVar[bool] = True

    def authorize_request(self, auth_header: str) -> str:
        return "dummyuser"

    async def sign_in(self) -> SignInView:
        return SignInView(method="none")
