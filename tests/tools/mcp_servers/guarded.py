"""An MCP server at which users sign in, with the MCP library's own authorization server: a program.

Everyone who comes is `visitor`. Its first line of output is its port. `/test/expire` makes the
access tokens that are out now worthless, `/test/revoke` the refresh tokens, too.
"""

import os
import secrets
import socket
import sys
import time
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

FOLDER = Path(sys.argv[1])
listener = socket.create_server(("127.0.0.1", int(os.environ.get("PORT", "0"))))
URL = f"http://127.0.0.1:{listener.getsockname()[1]}"

# As a URL without a path is written there.
ISSUER = f"{URL}/"


def note(text: str) -> None:
    with (FOLDER / "notes").open("a") as file:
        file.write(f"{text}\n")


class Authority:
    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.refreshes: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        note("registered")
        self.clients[client_info.client_id] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        note(f"resource {params.resource}")
        code = AuthorizationCode(
            code=secrets.token_urlsafe(20),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=True,
            resource=params.resource,
            subject="visitor",
        )
        self.codes[code.code] = code
        return construct_redirect_uri(
            str(params.redirect_uri), code=code.code, state=params.state, iss=ISSUER
        )

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issued(client, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refreshes.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        # Each is good for one use.
        del self.refreshes[refresh_token.token]
        note("refreshed")
        return self._issued(client, scopes, refresh_token.resource)

    def _issued(
        self, client: OAuthClientInformationFull, scopes: list[str], resource: str | None
    ) -> OAuthToken:
        token, refresh = secrets.token_urlsafe(20), secrets.token_urlsafe(20)
        self.tokens[token] = AccessToken(
            token=token,
            client_id=client.client_id,
            scopes=scopes,
            resource=resource,
            subject="visitor",
        )
        self.refreshes[refresh] = RefreshToken(
            token=refresh, client_id=client.client_id, scopes=scopes, resource=resource
        )
        return OAuthToken(
            access_token=token,
            refresh_token=refresh,
            expires_in=3600,
            scope=" ".join(scopes),
        )

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.pop(token.token, None)


authority = Authority()
server: MCPServer[Any] = MCPServer(
    "guarded",
    log_level="ERROR",
    auth_server_provider=authority,  # type: ignore[arg-type]  # without what no client here uses
    auth=AuthSettings(
        issuer_url=AnyHttpUrl(ISSUER),
        resource_server_url=AnyHttpUrl(f"{URL}/mcp"),
        required_scopes=["notes"],
        validate_token_resource=True,
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=["notes"], default_scopes=["notes"]
        ),
    ),
)


@server.tool()
async def whose() -> str:
    """Whose notes these are."""
    token = get_access_token()
    note("called")
    return f"{token.subject}: {token.token}" if token is not None else "of nobody"


@server.resource("note://first")
def first_note() -> str:
    """What was noted first."""
    return "buy milk"


@server.custom_route("/test/{what}", methods=["GET"])  # type: ignore[untyped-decorator]  # so it is
async def tamper(request: Request) -> Response:
    authority.tokens.clear()
    if request.path_params["what"] == "revoke":
        authority.refreshes.clear()
    return JSONResponse({})


if __name__ == "__main__":
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    app = server.streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
