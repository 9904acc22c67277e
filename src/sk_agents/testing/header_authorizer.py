"""An authorizer for tests with several users."""

from __future__ import annotations

from typing import ClassVar

from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.exceptions import Unauthenticated


class HeaderAuthorizer(RequestAuthorizer):
    """The header is the user: `Authorization: alice` or `Authorization: Bearer alice`."""

    insecure: ClassVar[bool] = True

    async def authorize_request(self, auth_header: str) -> str:
        scheme, _, rest = auth_header.strip().partition(" ")
        user = rest.strip() if scheme.lower() == "bearer" else auth_header.strip()
        if not user:
            raise Unauthenticated
        return user
