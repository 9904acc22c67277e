"""The interface every authorizer implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import ClassVar


class RequestAuthorizer(ABC):
    """Turns the `Authorization` header of a request into the caller's user id.

    The method may be `async`; a plain one runs in a thread. A class may take the
    server's `Settings` as its only argument.
    """

    # True for authorizers that check nothing; they serve loopback only.
    insecure: ClassVar[bool] = False
    # True for authorizers that neither wait nor block: they need no timeout.
    is_immediate: ClassVar[bool] = False

    @abstractmethod
    def authorize_request(self, auth_header: str) -> str | Awaitable[str]:
        """The unique id of the user; `auth_header` is empty when the request has none.

        Raises:
            Unauthenticated: the header does not prove who is calling. Any other exception
                counts as this one, except `Forbidden` and the errors of a store.
        """
