"""Who is calling, by a list of tokens. `TOKENS` is `token=user` pairs with commas between them."""

import os
from hmac import compare_digest

from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.exceptions import Unauthenticated


class TokenList(RequestAuthorizer):
    def __init__(self) -> None:
        pairs = [pair.partition("=") for pair in os.environ["TOKENS"].split(",")]
        self._users = {f"Bearer {token}": user for token, _, user in pairs}

    async def authorize_request(self, auth_header: str) -> str:
        for known, user in self._users.items():
            if compare_digest(known.encode(), auth_header.encode()):
                return user
        raise Unauthenticated
