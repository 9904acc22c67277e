"""Users who sign in at MCP servers: begun here, done at the server's own place, ended here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sk_agents.exceptions import InvalidInput
from sk_agents.tools.mcp.servers import McpServers, McpSource, has_accounts
from sk_agents.wire.views import McpSignIn

if TYPE_CHECKING:
    from sk_agents.tools.mcp.accounts import McpAccounts

OVER = "This sign-in is over: begin it again."


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """What a user has begun: who, at which server, and the address that is next."""

    user_id: str
    server: str
    url: str


class McpSignIns:
    """An attempt is known by its `state`, which goes through the browser and cannot be guessed."""

    def __init__(self, servers: McpServers, sources: Mapping[str, McpSource]) -> None:
        self._servers = servers
        self._sources = sources
        self._records = servers.records

    async def listing(self, agent: str, user_id: str) -> list[McpSignIn]:
        """The servers of the agent at which users sign in."""
        return [
            McpSignIn(server=one.spec.server.name, signed_in=await one.oauth.is_signed_in(user_id))
            for one in self._sources[agent].connections
            if has_accounts(one)
        ]

    async def begin(self, agent: str, user_id: str, server: str, base_url: str) -> str:
        """The `state` of a new attempt.

        Raises:
            InvalidInput: users do not sign in at a server of this name.
            UpstreamFailed: the server, or the place it names, does not do as it should.
        """
        return await self._accounts(agent, server).oauth.begin(user_id, base_url)

    async def attempt(self, state: str) -> SignInAttempt:
        """Raises InvalidInput: there is none."""
        accounts, user_id, nonce = await self._found(state)
        known = await accounts.oauth.records.sign_in(user_id, accounts.spec.identity)
        if nonce not in known.pending:
            raise InvalidInput(OVER)
        return SignInAttempt(user_id, accounts.spec.server.name, known.pending[nonce].url)

    async def confirm(self, state: str) -> tuple[str, str]:
        """The user goes on: where to, and the secret that their browser must come back with.

        Raises:
            InvalidInput: there is no such attempt any more.
        """
        accounts, user_id, nonce = await self._found(state)
        return await accounts.oauth.confirm(user_id, nonce)

    async def complete(
        self, state: str, *, code: str, issuer: str | None, browser: str | None
    ) -> SignInAttempt:
        """The user is back, and signed in.

        Raises:
            InvalidInput: no such attempt, or not from this browser, or from elsewhere.
            UpstreamFailed: the code cannot be turned into tokens.
        """
        accounts, user_id, nonce = await self._found(state)
        await accounts.oauth.complete(user_id, nonce, code=code, issuer=issuer, browser=browser)
        await accounts.end(user_id)
        return SignInAttempt(user_id, accounts.spec.server.name, "")

    async def sign_out(self, agent: str, user_id: str, server: str) -> None:
        """Forget the user's tokens. Raises InvalidInput: no such server."""
        accounts = self._accounts(agent, server)
        await accounts.oauth.sign_out(user_id)
        await accounts.end(user_id)

    async def has_signed_in(self, agent: str, user_id: str, server: str) -> bool:
        """Whether calls of this agent that wait for that may go on."""
        try:
            return await self._accounts(agent, server).oauth.is_signed_in(user_id)
        except InvalidInput:
            return False

    def _accounts(self, agent: str, server: str) -> McpAccounts:
        source = self._sources.get(agent)
        found = source.connection(server) if source is not None else None
        if found is None or not has_accounts(found):
            raise InvalidInput("Users do not sign in at a server of this name.")
        return found

    async def _found(self, state: str) -> tuple[McpAccounts, str, str]:
        document_id, _, nonce = state.partition(".")
        if self._records is None or not nonce:
            raise InvalidInput(OVER)
        known = await self._records.at(document_id)
        user_id = await self._records.user_of(document_id)
        accounts = self._servers.accounts(known.server) if known is not None else None
        if accounts is None or user_id is None:
            raise InvalidInput(OVER)
        return accounts, user_id, nonce
