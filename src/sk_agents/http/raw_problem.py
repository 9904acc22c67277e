"""The answer to what is no request: the bytes of a whole response, made without the application."""

from __future__ import annotations

import json
from http import HTTPStatus
from secrets import token_hex

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from sk_agents.http.response_headers import DEFAULTS


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
    common = b"".join(b"%b: %b\r\n" % default for default in DEFAULTS)
    return (
        b"%bcontent-type: application/problem+json\r\ncontent-length: %d\r\n"
        b"%b%bconnection: close\r\n\r\n%b" % (STATUS_LINE[status], len(body), common, later, body)
    )
