"""Who is calling and in which roles, what is theirs, and where one without proof may serve."""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import logging
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import field, replace
from functools import lru_cache
from typing import Annotated, cast

from fastapi import Depends
from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from sk_agents.authorization.request_authorizer import Principal, RequestAuthorizer
from sk_agents.authorization.roles import EVERY_ROLE, Role, RoleMap, memberships
from sk_agents.engine.defaults import NoAudit
from sk_agents.engine.events import Noted
from sk_agents.engine.ports import Audit
from sk_agents.engine.values import dataclass
from sk_agents.exceptions import (
    AuthorizerUnavailable,
    ConfigurationError,
    Forbidden,
    InvalidInput,
    MalformedRequest,
    MissingRole,
    NotFound,
    NotOwner,
    TealError,
    Unauthenticated,
)
from sk_agents.worker_threads import WorkerThreads

logger = logging.getLogger(__name__)

AUTHORIZER_SLOTS = 32
DEFAULT_TIMEOUT = 10.0
MAX_HEADER_BYTES = 16 * 1024
MAX_USER_ID_LENGTH = 256
# The name that RFC 6750 gives to a token in an address.
TOKEN_PARAMETER = "access_token"
# Control characters and lone surrogates can be neither logged nor stored safely.
FORBIDDEN_CATEGORIES = {"Cc", "Cs"}


_CALLER = "sk_agents.caller"
USERS: tuple[Role, ...] = ("user",)
# A user decides about their own calls.
DECIDERS: tuple[Role, ...] = ("user", "approver")


@dataclass(frozen=True, slots=True)
class Caller:
    """A verified user and the header that proved it, kept for the plugins of this request."""

    principal: Principal
    authorization: str | None = field(default=None, repr=False)
    roles: frozenset[Role] = frozenset({"user"})

    @property
    def user_id(self) -> str:
        return self.principal.user_id

    @property
    def name(self) -> str | None:
        """What people call this user; to be shown, never compared."""
        if self.principal.name is None:
            return None
        shown = "".join(filter(str.isprintable, self.principal.name))
        return shown[:MAX_USER_ID_LENGTH].strip() or None

    @property
    def memberships(self) -> frozenset[str]:
        """The keys of all audiences of approvals that this user belongs to now."""
        return memberships(self.principal, self.roles)


# Finds out who calls; `current_caller` and `acting_caller` do.
Identify = Callable[[HTTPConnection], Awaitable[Caller]]


class CallerCheck:
    """Asks the authorizer, within bounds."""

    def __init__(
        self,
        authorizer: RequestAuthorizer,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        allow_insecure: bool = False,
        roles: RoleMap | None = None,
        open_monitoring: bool = False,
    ) -> None:
        self.authorizer = authorizer
        self.open_monitoring = open_monitoring or authorizer.insecure
        # Counts the callers that were refused, once the server is open.
        self.audit: Audit = NoAudit()
        self._roles = roles or RoleMap()
        self._timeout = timeout
        self._loopback_only = authorizer.insecure and not allow_insecure
        self._threads = WorkerThreads(AUTHORIZER_SLOTS)
        self._is_async = inspect.iscoroutinefunction(authorizer.authorize_request)
        self._is_immediate = authorizer.is_immediate and _is_of_its_class(authorizer)

    async def identify(
        self,
        headers: Iterable[tuple[bytes, bytes]],
        *,
        server_host: str | None = None,
    ) -> Caller:
        """The caller of a request with these raw headers, received at `server_host`.

        Raises:
            Unauthenticated: two headers, a header too long, or the authorizer refuses it.
            AuthorizerUnavailable: the authorizer did not answer in time, or the file with the roles
                cannot be used.
        """
        if self._loopback_only and _is_public_address(server_host):
            # Another server program than ours may have bound the address unchecked.
            logger.error("insecure authorizer on a public address: request refused")
            raise Unauthenticated
        header = _authorization(headers)
        if self._is_immediate:
            answer: object = self.authorizer.authorize_request(header or "")
            if self._is_async:
                answer = await cast("Awaitable[object]", answer)
        else:
            answer = await self._ask(header or "")
        principal = answer if isinstance(answer, Principal) else Principal(cast(str, answer))
        if isinstance(principal.user_id, str) and _is_usable(principal.user_id):
            return Caller(principal, header, self._roles_of(principal))
        logger.error(
            "authorizer returned an unusable user id",
            extra={"authorizer": type(self.authorizer).__qualname__},
        )
        raise Unauthenticated

    def _roles_of(self, principal: Principal) -> frozenset[Role]:
        # Where every caller is believed to be anyone, roles would keep none of them out.
        if self.authorizer.insecure:
            return EVERY_ROLE
        try:
            return self._roles.roles_of(principal)
        except ConfigurationError as error:
            raise AuthorizerUnavailable(str(error)) from error

    async def _ask(self, header: str) -> object:
        bound = asyncio.timeout(self._timeout)
        try:
            async with bound:
                return await self._call(header)
        except TealError:
            raise
        except (Exception, SystemExit) as error:
            # The authorizer is the operator's own. Its message may quote the token.
            name = type(self.authorizer).__qualname__
            if bound.expired():
                logger.error("authorizer timed out", extra={"authorizer": name})
                raise AuthorizerUnavailable from None
            logger.warning(
                "authorizer failed", extra={"authorizer": name, "error": type(error).__name__}
            )
            raise Unauthenticated from None

    async def _call(self, header: str) -> object:
        method = self.authorizer.authorize_request
        if self._is_async:
            return await cast("Awaitable[object]", method(header))
        answer = await self._threads.run(lambda: method(header))
        return await answer if inspect.isawaitable(answer) else answer


async def current_caller(connection: HTTPConnection) -> Caller:
    """The verified caller of this request.

    Raises:
        MalformedRequest: a token is in the address, where proxies, logs and browsers keep it.
    """
    if connection.scope["query_string"] and TOKEN_PARAMETER in connection.query_params:
        raise MalformedRequest(
            f"Send the token as Authorization: Bearer; {TOKEN_PARAMETER} in an address is kept by "
            "proxies, logs and browsers. Take a token that was sent so for lost."
        )
    check: CallerCheck = connection.app.state.caller_check
    server = connection.scope.get("server")
    try:
        return await check.identify(
            connection.scope["headers"], server_host=server[0] if server else None
        )
    except Unauthenticated as refusal:
        if "authorization" in connection.headers:
            check.audit.count(_refused(connection, refusal))
        raise


async def acting_caller(connection: HTTPConnection, named: str | None = None) -> Caller:
    """The caller, who may name another user while callers prove nothing.

    `named` is what the request calls its user, in its body or as `user_id` in its query.

    Raises:
        Forbidden: the verified user is another one.
        InvalidInput: this cannot be a user's id.
    """
    caller = await current_caller(connection)
    if named is None and connection.scope["query_string"]:
        named = connection.query_params.get("user_id")
    if named is None or named == caller.user_id:
        return caller
    if not connection.app.state.caller_check.authorizer.insecure:
        raise Forbidden("The user_id is not the caller's.")
    if not _is_usable(named):
        raise InvalidInput("This cannot be a user_id.")
    return replace(caller, principal=replace(caller.principal, user_id=named))


def _refused(connection: HTTPConnection, refusal: Unauthenticated) -> Noted:
    """No token and no name: neither is proved."""
    client = connection.client
    return Noted(
        what="sign_in_failed",
        subject=client.host if client is not None else None,
        outcome=refusal.code,
        details={"reason": str(refusal)},
    )


def caller_of(scope: Scope) -> Caller:
    """Who was identified before the endpoint of this request was reached."""
    caller: Caller = scope[_CALLER]
    return caller


async def identify_caller(
    scope: Scope, identify: Identify, roles: Collection[Role] = USERS
) -> None:
    """Find out who calls, for `caller_of`.

    Raises:
        MissingRole: the caller has none of the roles. And what `identify` raises.
    """
    caller = await identify(HTTPConnection(scope))
    require_role(caller, roles)
    scope[_CALLER] = caller


async def prove_again(connection: HTTPConnection, caller: Caller) -> None:
    """For what goes on after the request was let in: whether it would be let in now.

    Raises:
        Unauthenticated: the proof has ended, or is another's now. And what `acting_caller` raises.
        MissingRole: the caller is no user any more.
    """
    now = await acting_caller(connection)
    if now.user_id != caller.user_id:
        raise Unauthenticated
    require_role(now, USERS)


def require_role(caller: Caller, roles: Collection[Role]) -> None:
    """Raises MissingRole: the caller has none of them."""
    if caller.roles.isdisjoint(roles):
        needed = " or ".join(roles)
        raise MissingRole(f"This needs the role {needed}.", roles=list(roles))


async def may_monitor(connection: HTTPConnection) -> bool:
    """Whether the caller may see how the server is in detail: operators, or everyone if that was
    allowed. Probes without a token are not verified."""
    check: CallerCheck = connection.app.state.caller_check
    if check.open_monitoring:
        return True
    if not any(name == b"authorization" for name, _ in connection.scope["headers"]):
        return False
    try:
        return "operator" in (await current_caller(connection)).roles
    except TealError:
        return False


async def _request_caller(request: Request) -> Caller:
    return caller_of(request.scope)


# The caller, as a parameter of an endpoint.
RequestCaller = Annotated[Caller, Depends(_request_caller)]


def owned_by(caller: Caller, owner_user_id: str) -> bool:
    return caller.user_id == owner_user_id


def require_owner(
    caller: Caller,
    owner_user_id: str,
    *,
    hide_existence: bool,
    missing: type[NotFound] = NotFound,
) -> None:
    """Pass the owner only.

    Raises:
        Unauthenticated: it is another user's, and its existence may be known.
        NotFound: it is another user's, reported as `missing` so that it looks like an unknown one.
    """
    if owned_by(caller, owner_user_id):
        return
    raise missing() if hide_existence else NotOwner()


def check_bind_address(host: str, authorizer: RequestAuthorizer, allow_insecure: bool) -> None:
    """Refuse to let an authorizer that believes every caller serve the network.

    Raises:
        ConfigurationError: `host` is not loopback and `allow_insecure` is not set.
    """
    if authorizer.insecure and not allow_insecure and not is_loopback(host):
        raise ConfigurationError(
            f"TA_HOST: {type(authorizer).__name__} believes every caller and '{host}' is not "
            "a loopback address; set TA_AUTHORIZER (docs/authorization.md), or "
            "TA_ALLOW_INSECURE_AUTH=true to do it anyway"
        )


def is_loopback(host: str) -> bool:
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def _is_of_its_class(authorizer: RequestAuthorizer) -> bool:
    """Whether what a class says of its method is about this one: a class derived from it may have
    a method of its own, which may wait, block and fail."""
    classes = type(authorizer).__mro__
    says = next(one for one in classes if "is_immediate" in vars(one))
    has = next(one for one in classes if "authorize_request" in vars(one))
    return says is has


@lru_cache(maxsize=64)
def _is_public_address(host: str | None) -> bool:
    """Only for real addresses: in-process transports put any name here."""
    address = _address(host or "")
    return address is not None and not address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _authorization(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) > 1:
        raise Unauthenticated("The request carries more than one Authorization header.")
    if not values:
        return None
    if len(values[0]) > MAX_HEADER_BYTES:
        raise Unauthenticated("The Authorization header is too long.")
    return values[0].decode("latin-1")


@lru_cache(maxsize=1024)
def _is_usable(user_id: str) -> bool:
    if len(user_id) > MAX_USER_ID_LENGTH:
        return False
    categories = {unicodedata.category(char) for char in user_id}
    # Spaces alone, or characters that are not shown, are no name.
    is_seen = any(category[0] not in "CZ" for category in categories)
    return is_seen and FORBIDDEN_CATEGORIES.isdisjoint(categories)
