"""The answer to what is no request: the bytes of a whole response, made without the application."""

from __future__ import annotations

import json
from http import HTTPStatus
from secrets import token_hex

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

# As the front puts them on every response.
COMMON_HEADERS = b"x-content-type-options: nosniff\r\ncache-control: no-store\r\n"


def raw_problem(status: HTTPStatus) -> bytes:
    """After it the connection is closed."""
    body = json.dumps(
        {
            "type": "about:blank",
            "title": status.phrase,
            "status": status,
            "detail": "The request was not read.",
            "code": status.phrase.lower().replace(" ", "_"),
            "correlation_id": token_hex(16),
        }
    ).encode()
    later = b"retry-after: 1\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else b""
    head = (
        b"%bcontent-type: application/problem+json\r\ncontent-length: %d\r\n%b%b"
        b"connection: close\r\n\r\n" % (STATUS_LINE[status], len(body), COMMON_HEADERS, later)
    )
    return head + body
