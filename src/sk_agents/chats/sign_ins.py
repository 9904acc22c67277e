"""Users sign in at the MCP servers of their agents, and what waited for that goes on.

Signing in ends at a route that every browser can open, so the browser must be the user's own: the
user begins it with their own credentials, confirms it on a page that says whom it is for, and that
page leaves a cookie without which the way back leads nowhere. Otherwise a person could be sent
there to sign in for another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Annotated, Any, Protocol
from urllib.parse import quote, urlsplit

from fastapi import Query
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from sk_agents.chats.context import AgentName
from sk_agents.chats.requests import ChatResources
from sk_agents.engine.calls.call import SIGN_IN
from sk_agents.engine.commands import DecideApproval
from sk_agents.engine.engine import Engine
from sk_agents.exceptions import Conflict, InvalidInput, NotFound, UpstreamFailed
from sk_agents.http.caller import RequestCaller
from sk_agents.http.page import COMMON_HEADERS
from sk_agents.wire.requests import BeginSignIn
from sk_agents.wire.views import McpSignIn, McpSignInList, SignInLink

COOKIE = "teal_sign_in"
COOKIE_SECONDS = 900
PATH = "/sign-ins"
PAGE = 100
MOST_PAGES = 100


State = Annotated[str, Query(max_length=400)]


class Attempt(Protocol):
    @property
    def user_id(self) -> str: ...

    @property
    def server(self) -> str: ...

    @property
    def url(self) -> str: ...


class SignInSource(Protocol):
    """Where users sign in; see `tools.mcp.signing_in`, which says what is raised."""

    async def listing(self, agent: str, user_id: str) -> list[McpSignIn]: ...

    async def begin(self, agent: str, user_id: str, server: str, base_url: str) -> str: ...

    async def attempt(self, state: str) -> Attempt: ...

    async def confirm(self, state: str) -> tuple[str, str]: ...

    async def complete(
        self, state: str, *, code: str, issuer: str | None, browser: str | None
    ) -> Attempt: ...

    async def sign_out(self, agent: str, user_id: str, server: str) -> None: ...

    async def has_signed_in(self, agent: str, user_id: str, server: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class SignInEndpoints:
    """`public_url` is how browsers reach this server; if it is unset, as the caller did."""

    resources: ChatResources
    source: SignInSource
    public_url: str | None
    document: Callable[[str], Mapping[str, Any]]

    async def listing(self, caller: RequestCaller, agent: AgentName = None) -> McpSignInList:
        """The MCP servers of the agent at which you sign in yourself, and whether you have."""
        name = self.resources.agent(agent)
        return McpSignInList(sign_ins=await self.source.listing(name, caller.user_id))

    async def begin(self, request: Request, caller: RequestCaller, body: BeginSignIn) -> SignInLink:
        """Begin to sign in. Open the address in your browser; what waits for it goes on then."""
        base, agent = self._base(request), self.resources.agent(body.agent)
        state = await self.source.begin(agent, caller.user_id, body.server, base)
        return SignInLink(url=f"{base}{PATH}/open?state={quote(state)}")

    async def sign_out(
        self, caller: RequestCaller, server: str, agent: AgentName = None
    ) -> Response:
        """Sign out: the tokens that this server has for you are forgotten."""
        await self.source.sign_out(self.resources.agent(agent), caller.user_id, server)
        return Response(status_code=204)

    async def open(self, state: State = "") -> Response:
        """The page that says whom the sign-in is for."""
        try:
            attempt = await self.source.attempt(state)
        except InvalidInput as problem:
            return _refusal(problem)
        place = urlsplit(attempt.url)
        text = (
            f"<h1>Sign in to {escape(attempt.server)}</h1>"
            f"<p>You will be sent to <b>{escape(place.hostname or '')}</b>. The agents of this "
            f"server can then use {escape(attempt.server)} in your name, for the user "
            f"<b>{escape(attempt.user_id)}</b>.</p><p>Go on only if that is you, and if you have "
            f'asked for it.</p><form method="post"><button>Go on</button></form>'
        )
        # Browsers hold redirects of a form against this rule, too.
        return _page(text, form=f"'self' {place.scheme}://{place.netloc}")

    async def confirm(self, request: Request, state: State = "") -> Response:
        try:
            url, browser = await self.source.confirm(state)
        except InvalidInput as problem:
            return _refusal(problem)
        answer = RedirectResponse(url, 303, headers=_headers("'none'"))
        answer.set_cookie(
            COOKIE,
            browser,
            max_age=COOKIE_SECONDS,
            path=PATH,
            httponly=True,
            samesite="lax",
            secure=self._base(request).startswith("https:"),
        )
        return answer

    async def callback(
        self,
        request: Request,
        state: State = "",
        code: Annotated[str | None, Query(max_length=4096)] = None,
        iss: Annotated[str | None, Query(max_length=2048)] = None,
        error: Annotated[str | None, Query(max_length=200)] = None,
    ) -> Response:
        """Where the browser comes back to."""
        if code is None:
            return _refusal(error or "The place to sign in says nothing.")
        try:
            done = await self.source.complete(
                state, code=code, issuer=iss, browser=request.cookies.get(COOKIE)
            )
        except (InvalidInput, UpstreamFailed) as problem:
            return _refusal(problem)
        engines = request.app.state.engines
        for engine in {engines.main, engines.tasks}:
            await self._resume(engine, done)
        answer = _page(
            f"<h1>You are signed in to {escape(done.server)}</h1>"
            "<p>What waited for it goes on. You can close this page.</p>"
        )
        answer.delete_cookie(COOKIE, path=PATH)
        return answer

    async def client(self, request: Request) -> Response:
        """What authorization servers read of this server, where its address is its client id."""
        return JSONResponse(dict(self.document(self._base(request))))

    async def _resume(self, engine: Engine, done: Attempt) -> None:
        """Everything of this user that waits for this sign-in, in whichever chat."""
        after: str | None = None
        for _ in range(MOST_PAGES):
            page = await engine.catalog.inbox(done.user_id, after=after, limit=PAGE)
            for asked in page.items:
                request = asked.approval.request
                if request.kind != "auth" or request.shown.get(SIGN_IN) != done.server:
                    continue
                agent = asked.run.agent or asked.thread.agent or self.resources.agent(None)
                if await self.source.has_signed_in(agent, done.user_id, done.server):
                    try:
                        await engine.decide(
                            DecideApproval(request.approval_id, done.user_id, approved=True)
                        )
                    except (Conflict, NotFound):
                        # The user or the clock was faster.
                        continue
            after = page.after
            if after is None:
                return

    def _base(self, request: Request) -> str:
        return self.public_url or str(request.base_url).rstrip("/")


def _page(text: str, status: int = 200, *, form: str = "'none'") -> HTMLResponse:
    document = (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Sign in</title>"
        '<meta name=viewport content="width=device-width">' + text
    )
    return HTMLResponse(document, status, headers=_headers(form))


def _refusal(problem: object) -> HTMLResponse:
    return _page(f"<h1>You are not signed in</h1><p>{escape(str(problem))}</p>", 404)


def _headers(form: str) -> dict[str, str]:
    policy = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action "
    return {
        **COMMON_HEADERS,
        # With none at all a browser sends no origin with the form either.
        "Referrer-Policy": "same-origin",
        "Content-Security-Policy": policy + form,
        "Cache-Control": "no-store",
    }
