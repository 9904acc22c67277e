"""What every answer says unless it knows better: it is what it says, and not to be kept.

Answers hold what users said. The files of the page bring rules of their own, and a stream of events
says `no-cache`, which clients and proxies know from other servers.
"""

from __future__ import annotations

from collections.abc import Iterable

Header = tuple[bytes, bytes]

DEFAULTS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)


def missing_defaults(headers: Iterable[Header]) -> list[Header]:
    """Those of the defaults that are not among these headers."""
    names = {name.lower() for name, _ in headers}
    return [default for default in DEFAULTS if default[0] not in names]
