"""What can go wrong for a client of a server.

    ClientError
    ├── TealServerError        the server answered, and refused
    │   └── CursorLost         the event to go on from is not in the chat
    ├── ServerUnreachable      no answer, or one that was cut off, for longer than is waited
    └── ProtocolError          the answer is not what a server of this kind sends

A tree of its own: these are about another process. Raised inside a server, such an error must not
be taken for one of the server's own and be given its status code.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

# Another try, a moment later, may well be answered differently.
PASSING = frozenset({429, 502, 503, 504})


class ClientError(Exception):
    """The request was not served. `is_passing`: the same request may succeed a moment later."""

    is_passing = False
    retry_after: float | None = None


class TealServerError(ClientError):
    """The server refused. `code` is stable, `detail` is for people and names the fields that are
    not valid, if any.

    `problem` is the whole body of the answer; `correlation_id` finds the request in the server's
    logs.
    """

    def __init__(
        self, status: int, problem: Mapping[str, Any], *, retry_after: float | None = None
    ) -> None:
        self.status = status
        self.problem = dict(problem)
        self.code = str(problem.get("code") or f"http_{status}")
        self.detail = _with_fields(str(problem.get("detail") or _phrase(status)), problem)
        self.correlation_id: str | None = problem.get("correlation_id")
        self.retry_after = retry_after
        self.is_passing = status in PASSING
        super().__init__(f"{status} {self.code}: {self.detail}")


class CursorLost(TealServerError):
    """The event to go on from is not in the chat, so what followed it is unknown.

    A backup of the server was restored, or the chat was deleted and made again. Read its
    `history` and go on from there.
    """

    CODES = frozenset({"cursor_ahead", "cursor_expired"})


def server_error(
    status: int, problem: Mapping[str, Any], *, retry_after: float | None = None
) -> TealServerError:
    """The error that a server's refusal is."""
    kind = CursorLost if problem.get("code") in CursorLost.CODES else TealServerError
    return kind(status, problem, retry_after=retry_after)


class ServerUnreachable(ClientError):
    """The server cannot be reached, or went away in the middle of its answer.

    `was_sent` is False if the request certainly did not arrive.
    """

    def __init__(self, message: str, *, was_sent: bool = True, is_passing: bool = True) -> None:
        super().__init__(message)
        self.was_sent = was_sent
        self.is_passing = is_passing


class SignInFailed(ClientError):
    """The issuer gave no token, or takes the stored sign-in no more: the user must sign in."""


class ProtocolError(ClientError):
    """What was received makes no sense: is this the address of a Teal server?"""


def _with_fields(detail: str, problem: Mapping[str, Any]) -> str:
    wrong = problem.get("errors")
    if not isinstance(wrong, list):
        return detail
    fields = [
        f"{'.'.join(str(part) for part in entry['loc'] if part != 'body')}: {entry.get('msg')}"
        for entry in wrong
        if isinstance(entry, Mapping) and isinstance(entry.get("loc"), list)
    ]
    return f"{detail.rstrip('.')}: {'; '.join(fields)}" if fields else detail


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"
