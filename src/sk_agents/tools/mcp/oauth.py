"""OAuth 2.1 for MCP servers over HTTP: users sign in at the server's authorization server.

The MCP library finds that server (RFC 9728, RFC 8414), registers this one as its client (a client
metadata document, or RFC 7591) and makes the address to open, with the resource that the token is
for (RFC 8707). The rest is done here, since a sign-in may begin at one instance, end at another and
last for months: the code's verifier and the tokens are kept in `SignInRecords`.

Where a server sends us for its metadata and its tokens is not the operator's choice: such addresses
must be https and public, unless they are the server's own, `auth_server`'s, or on this machine as
the server is.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit
from weakref import WeakValueDictionary

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_scope_from_www_auth,
    issuers_match,
    union_scopes,
)
from mcp.client.streamable_http import MCP_SESSION_ID
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from sk_agents import __version__
from sk_agents.exceptions import InvalidInput, ToolError, UpstreamFailed
from sk_agents.outbound.network import Network
from sk_agents.outbound.problems import connection_problem
from sk_agents.tools.mcp.checked_transport import LOOPBACK, CheckedTransport
from sk_agents.tools.mcp.config import McpServer, ServerSpec
from sk_agents.tools.mcp.sign_ins import KeptSignIn, PendingSignIn, SignInRecords, sign_in_id

# How long a user may take to sign in, and how many sign-ins may be open at once.
PENDING_SECONDS = 600.0
MOST_PENDING = 4
# A token that is about to expire is renewed before it is sent.
EARLY_SECONDS = 30.0
BEGIN_SECONDS = 30.0
CLIENT_NAME = "Teal Agents"
CALLBACK = "/sign-ins/callback"
CLIENT_DOCUMENT = "/sign-ins/client.json"
_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "teal-agents", "version": __version__},
    },
}
_LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


def client_document(base_url: str) -> dict[str, Any]:
    """What authorization servers read of us, where they take a client's address as its id."""
    return {
        "client_id": base_url + CLIENT_DOCUMENT,
        "client_name": CLIENT_NAME,
        "redirect_uris": [base_url + CALLBACK],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }


class OAuth:
    """The users of one server."""

    def __init__(self, spec: ServerSpec, records: SignInRecords, network: Network) -> None:
        self.spec = spec
        self.records = records
        self._network = network
        self._refreshing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def is_signed_in(self, user_id: str) -> bool:
        return (await self.records.sign_in(user_id, self.spec.identity)).is_signed_in

    async def begin(self, user_id: str, base_url: str) -> str:
        """Find out where the user signs in; what `pending` and `complete` know the attempt by.

        Raises:
            UpstreamFailed: the server, or the one it names, does not do as it should.
        """
        server = self.spec.server
        found = await self._found(base_url)
        known = await self.records.sign_in(user_id, self.spec.identity)
        nonce, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
        sign_in = sign_in_id(user_id, self.spec.identity)
        state = f"{sign_in}.{nonce}"
        parts = urlsplit(found.url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        query |= {"state": state, "code_challenge": challenge.decode().rstrip("=")}
        scope = " ".join(server.scopes) or query.get("scope")
        scope = union_scopes(scope, known.wanted_scope)
        if scope:
            query["scope"] = scope
        if server.canonical_uri is not None:
            query["resource"] = server.canonical_uri
        pending = PendingSignIn(
            url=urlunsplit(parts._replace(query=urlencode(query))),
            verifier=verifier,
            redirect_uri=query["redirect_uri"],
            token_endpoint=found.token_endpoint,
            issuer=found.issuer,
            names_issuer=found.names_issuer,
            resource=query.get("resource"),
            scope=scope,
            client=found.client.model_dump_json(exclude_none=True),
            expires_at=time.time() + PENDING_SECONDS,
        )

        def begun(before: KeptSignIn) -> KeptSignIn:
            kept = _open(before.pending)
            while len(kept) >= MOST_PENDING:
                del kept[next(iter(kept))]
            return before.model_copy(update={"pending": {**kept, nonce: pending}})

        await self.records.change(user_id, self.spec.identity, begun)
        return state

    async def confirm(self, user_id: str, nonce: str) -> tuple[str, str]:
        """The address to send the user's browser to, and the secret that it must come back with.

        Raises:
            InvalidInput: there is no such attempt any more.
        """
        browser = secrets.token_urlsafe(24)

        def confirmed(before: KeptSignIn) -> KeptSignIn:
            pending = _pending(before, nonce).model_copy(update={"browser": browser})
            return before.model_copy(update={"pending": {**before.pending, nonce: pending}})

        after = await self.records.change(user_id, self.spec.identity, confirmed)
        return after.pending[nonce].url, browser

    async def complete(
        self, user_id: str, nonce: str, *, code: str, issuer: str | None, browser: str | None
    ) -> None:
        """Turn the code into tokens, and keep them.

        Raises:
            InvalidInput: there is no such attempt, or not in this browser, or from elsewhere.
            UpstreamFailed: the authorization server does not take the code.
        """
        before = await self.records.sign_in(user_id, self.spec.identity)
        pending = _pending(before, nonce)
        if pending.browser is None or not secrets.compare_digest(pending.browser, browser or ""):
            raise InvalidInput("This sign-in was begun in another browser.")
        if issuer != pending.issuer and (issuer is not None or pending.names_issuer):
            raise InvalidInput("This answer does not come from where you were sent to sign in.")
        data = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": pending.redirect_uri,
            "code_verifier": pending.verifier,
        }
        token = await self._token(pending.token_endpoint, pending.client, pending.resource, data)

        def done(before: KeptSignIn) -> KeptSignIn:
            rest = {name: one for name, one in before.pending.items() if name != nonce}
            return _with_token(before, token, pending.scope).model_copy(
                update={
                    "token_endpoint": pending.token_endpoint,
                    "resource": pending.resource,
                    "client": pending.client,
                    "wanted_scope": None,
                    "pending": rest,
                }
            )

        await self.records.change(user_id, self.spec.identity, done)

    async def token(self, user_id: str) -> str | None:
        """One that is good now, as far as is known; `None` if the user must sign in."""
        known = await self.records.sign_in(user_id, self.spec.identity)
        late = known.expires_at is not None and time.time() > known.expires_at - EARLY_SECONDS
        if known.access_token is None or not late:
            return known.access_token
        return await self.renewed(user_id, known.access_token)

    async def renewed(self, user_id: str, refused: str) -> str | None:
        """Another token than this one; `None` if the user must sign in. One process at a time: a
        second use of a refresh token may end the sign-in."""
        lock = self._refreshing.setdefault(user_id, asyncio.Lock())
        async with lock, self.records.lock(user_id, self.spec.identity):
            known = await self.records.sign_in(user_id, self.spec.identity)
            if known.access_token != refused:
                return known.access_token
            token = None
            if known.refresh_token is not None:
                data = {"grant_type": "refresh_token", "refresh_token": known.refresh_token}
                # Of a server that cannot be reached now nothing is forgotten.
                with suppress(_Refused):
                    token = await self._token(
                        known.token_endpoint, known.client, known.resource, data
                    )

            def renewed(before: KeptSignIn) -> KeptSignIn:
                if token is None:
                    return _signed_out(before)
                return _with_token(before, token, before.scope)

            return (await self.records.change(user_id, self.spec.identity, renewed)).access_token

    async def widen(self, user_id: str, scope: str | None) -> None:
        """The server wants more than was granted: the user signs in again, for more."""

        def widened(before: KeptSignIn) -> KeptSignIn:
            wanted = union_scopes(before.scope, union_scopes(before.wanted_scope, scope))
            return _signed_out(before).model_copy(update={"wanted_scope": wanted})

        await self.records.change(user_id, self.spec.identity, widened)

    async def sign_out(self, user_id: str) -> None:
        await self.records.forget(user_id, self.spec.identity)

    async def _found(self, base_url: str) -> _Found:
        server = self.spec.server
        assert server.url is not None
        opened: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def redirected(url: str) -> None:
            opened.set_result(url)

        async def answered() -> AuthorizationCodeResult:
            # The user comes back in another request, perhaps to another instance.
            never: asyncio.Future[AuthorizationCodeResult]
            never = asyncio.get_running_loop().create_future()
            return await never

        is_web = urlsplit(base_url).hostname not in LOOPBACK
        provider = OAuthClientProvider(
            server.url,
            OAuthClientMetadata(
                redirect_uris=[AnyUrl(base_url + CALLBACK)],
                client_name=CLIENT_NAME,
                application_type="web" if is_web else "native",
                token_endpoint_auth_method="none",
            ),
            _Registration(self.spec, self.records, base_url + CALLBACK),
            redirected,
            answered,
            client_metadata_url=base_url + CLIENT_DOCUMENT
            if base_url.startswith("https:")
            else None,
            validate_resource_url=_accept_any if server.canonical_uri is not None else None,
        )
        flow = asyncio.create_task(self._asked(provider))
        try:
            async with asyncio.timeout(BEGIN_SECONDS):
                await asyncio.wait({flow, opened}, return_when=asyncio.FIRST_COMPLETED)
            if not opened.done():
                raise UpstreamFailed(await flow)
        except TimeoutError:
            raise UpstreamFailed("It does not answer in time where one signs in.") from None
        except (OAuthFlowError, OAuthRegistrationError, ToolError, ValidationError) as error:
            raise UpstreamFailed(f"One cannot sign in there: {str(error)[:300]}") from error
        except httpx2.HTTPError as error:
            raise UpstreamFailed(
                f"One cannot sign in there: {connection_problem(error)}"
            ) from error
        finally:
            flow.cancel()
            opened.cancel()
            await asyncio.gather(flow, return_exceptions=True)
        return _Found(opened.result(), provider, server)

    async def _asked(self, provider: OAuthClientProvider) -> str:
        """Sends what needs a sign-in; why none was asked for, if it returns."""
        server = self.spec.server
        assert server.url is not None
        headers = {**server.headers, "Accept": "application/json, text/event-stream"}
        # Some servers let everyone in as far as the first request.
        bodies = [None] if server.transport == "sse" else [_HELLO, _LIST]
        async with await self._client() as client:
            for body in bodies:
                method = "GET" if body is None else "POST"
                request = client.build_request(method, server.url, json=body, headers=headers)
                response = await client.send(request, auth=provider, stream=True)
                await response.aclose()
                if MCP_SESSION_ID in response.headers:
                    headers[MCP_SESSION_ID] = response.headers[MCP_SESSION_ID]
        return f"The server does not ask for a sign-in: it answers {response.status_code}."

    async def _client(self) -> httpx2.AsyncClient:
        context = await self._network.anonymous().loaded_context(verify=self.spec.server.verify_ssl)
        return httpx2.AsyncClient(
            headers={"Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(self.spec.server.timeout),
            transport=CheckedTransport(self.spec.server, self._network, context),
        )

    async def _token(
        self, endpoint: str, client_json: str, resource: str | None, data: dict[str, str]
    ) -> OAuthToken:
        """Raises `_Refused`: not for this; UpstreamFailed: it is away, or makes no sense."""
        client = OAuthClientInformationFull.model_validate_json(client_json)
        headers = {"Accept": "application/json"}
        data = {**data, "client_id": client.client_id}
        if resource is not None:
            data["resource"] = resource
        method = client.token_endpoint_auth_method
        if client.client_secret is not None and method != "none":
            if method == "client_secret_post":
                data["client_secret"] = client.client_secret
            else:
                pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
                encoded = base64.b64encode(pair.encode()).decode()
                headers["Authorization"] = f"Basic {encoded}"
        try:
            async with await self._client() as http:
                response = await http.post(endpoint, data=data, headers=headers)
        except (httpx2.HTTPError, ToolError) as error:
            raise UpstreamFailed(
                f"The place to sign in cannot be reached: {connection_problem(error)}"
            ) from error
        if response.status_code in (400, 401, 403):
            raise _Refused("The place to sign in does not take this any more.")
        try:
            if response.status_code != 200:
                raise ValueError
            return OAuthToken.model_validate_json(response.content)
        except ValueError:
            raise UpstreamFailed(
                f"The place to sign in answers {response.status_code} without a token."
            ) from None


class UserAuth(httpx2.Auth):
    """The requests of one user to the server. `is_refused` once the user must sign in again."""

    def __init__(self, oauth: OAuth, user_id: str) -> None:
        self._oauth = oauth
        self._user_id = user_id
        self._token: str | None = None
        self.is_refused = False

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        token = self._token = self._token or await self._oauth.token(self._user_id)
        if token is None:
            self.is_refused = True
        else:
            request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401 and token is not None:
            token = self._token = await self._oauth.renewed(self._user_id, token)
            if token is None:
                self.is_refused = True
                return
            request.headers["Authorization"] = f"Bearer {token}"
            response = yield request
        wants_more = extract_field_from_www_auth(response, "error") == "insufficient_scope"
        if response.status_code == 403 and wants_more:
            await self._oauth.widen(self._user_id, extract_scope_from_www_auth(response))
            self.is_refused = True


class _Refused(UpstreamFailed):
    """The authorization server refused."""


class _Found:
    """Where a user signs in, and all that is needed to turn the code into a token."""

    def __init__(self, url: str, provider: OAuthClientProvider, server: McpServer) -> None:
        context = provider.context
        metadata, client = context.oauth_metadata, context.client_info
        if metadata is None or client is None:
            raise UpstreamFailed("The place to sign in does not describe itself (RFC 8414).")
        if "S256" not in (metadata.code_challenge_methods_supported or []):
            raise UpstreamFailed("The place to sign in does not know PKCE.")
        self.url = url
        self.client = client
        self.issuer = str(metadata.issuer)
        self.token_endpoint = str(metadata.token_endpoint)
        self.names_issuer = metadata.authorization_response_iss_parameter_supported is True
        wanted = server.auth_server
        if wanted is not None and not issuers_match(wanted, self.issuer):
            raise UpstreamFailed(
                f"The server sends users to {self.issuer[:200]}, auth_server names another place."
            )
        parts = urlsplit(url)
        if parts.scheme != "https" and parts.hostname not in LOOPBACK:
            raise UpstreamFailed("The place to sign in is not reached over https.")


class _Registration:
    """This server as a client of the authorization server: as the operator says, or as registered
    before. Implements the library's `TokenStorage`, without tokens."""

    def __init__(self, spec: ServerSpec, records: SignInRecords, redirect_uri: str) -> None:
        self._spec = spec
        self._records = records
        self._redirect_uri = redirect_uri
        self._name = f"client\0{spec.identity}\0{redirect_uri}"

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        raise NotImplementedError

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        server = self._spec.server
        if server.oauth_client_id is not None:
            secret = server.oauth_client_secret
            return OAuthClientInformationFull(
                client_id=server.oauth_client_id,
                client_secret=secret,
                redirect_uris=[AnyUrl(self._redirect_uri)],
                token_endpoint_auth_method="none" if secret is None else "client_secret_basic",
            )
        kept = await self._records.text(self._name)
        if kept is None:
            return None
        try:
            client = OAuthClientInformationFull.model_validate_json(kept)
        except ValidationError:
            return None
        ends = client.client_secret_expires_at
        return None if ends and ends < time.time() else client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self._records.set_text(self._name, client_info.model_dump_json(exclude_none=True))


async def _accept_any(server_url: str, resource: str | None) -> None:
    """The operator has said which resource it is."""


def _open(pending: dict[str, PendingSignIn]) -> dict[str, PendingSignIn]:
    now = time.time()
    return {nonce: one for nonce, one in pending.items() if one.expires_at > now}


def _pending(known: KeptSignIn, nonce: str) -> PendingSignIn:
    found = _open(known.pending).get(nonce)
    if found is None:
        raise InvalidInput("This sign-in is over: begin it again.")
    return found


def _with_token(before: KeptSignIn, token: OAuthToken, scope: str | None) -> KeptSignIn:
    expires = time.time() + token.expires_in if token.expires_in is not None else None
    return before.model_copy(
        update={
            "access_token": token.access_token,
            # A server that does not change it does not repeat it either.
            "refresh_token": token.refresh_token or before.refresh_token,
            "expires_at": expires,
            "scope": token.scope or scope,
        }
    )


def _signed_out(before: KeptSignIn) -> KeptSignIn:
    return before.model_copy(
        update={"access_token": None, "refresh_token": None, "expires_at": None}
    )
