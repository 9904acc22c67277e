"""The interface every authorizer implements, and what it says of a caller."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import ClassVar

from sk_agents.engine.values import dataclass
from sk_agents.wire.views import SignInView


@dataclass(frozen=True, slots=True)
class Principal:
    """A verified caller. `user_id` alone decides what belongs to it; the rest describes it."""

    user_id: str
    name: str | None = None
    tenant: str | None = None
    groups: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()


class RequestAuthorizer(ABC):
    """Turns the `Authorization` header of a request into the caller's user id.

    The method may be `async`; a plain one runs in a thread. A class may take the
    server's `Settings` as its only argument.
    """

    # True for authorizers that check nothing; they serve loopback only.
    insecure: ClassVar[bool] = False
    # True for authorizers that neither wait nor block: they need no timeout. It is said of the
    # method of the same class, not of one that a derived class has in its place.
    is_immediate: ClassVar[bool] = False

    @abstractmethod
    def authorize_request(
        self, auth_header: str
    ) -> str | Principal | Awaitable[str] | Awaitable[Principal]:
        """The unique id of the user, or a `Principal`; `auth_header` is empty without a header.

        Raises:
            Unauthenticated: the header does not prove who is calling. Any other exception
                counts as this one, except `Forbidden`, `AuthorizerUnavailable` and the errors of
                a store.
        """

    async def ping(self) -> None:  # noqa: B027  # most authorizers depend on nothing
        """Return if callers can be verified now.

        Raises:
            AuthorizerUnavailable: they cannot; the server is not ready.
        """

    def addresses(self) -> Sequence[str]:
        """The URLs that callers are verified with, for `teal doctor` to try."""
        return ()

    def credentials(self) -> Mapping[str, str]:
        """What callers prove themselves with, if this server keeps it: what each is, by an id that
        is no secret. The audit notes each change.

        Raises:
            ConfigurationError: it cannot be read now.
        """
        return {}

    async def sign_in(self) -> SignInView:
        """How people get what they have to send; `GET /sign-in` answers it to everyone.

        Raises:
            AuthorizerUnavailable: that cannot be said now.
        """
        return SignInView(method="token")
