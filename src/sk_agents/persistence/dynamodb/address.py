"""Where a table is: `dynamodb://table?region=...&endpoint=...`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from sk_agents.exceptions import ConfigurationError

FORM = "dynamodb://table?region=eu-central-1"
OPTIONS = ("region", "endpoint", "read_units", "write_units")

_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_REGION = re.compile(r"[a-z0-9-]{1,64}")
_ENDPOINT = re.compile(r"https?://[^\s@/?#]+/?")
_UNITS = re.compile(r"[1-9][0-9]{0,9}")


@dataclass(frozen=True, slots=True)
class TableAddress:
    """Without a `region` or an `endpoint` it is the one that AWS's own settings name.

    `units` are what a new table is provisioned with, for reads and for writes; without them it is
    billed on demand.
    """

    table: str
    region: str | None = None
    endpoint: str | None = None
    units: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"dynamodb://{self.table}"


def read_address(url: str) -> TableAddress:
    """Raises ConfigurationError: the URL makes no sense. Its message repeats nothing of it."""
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _refusal() from None
    options = dict(given)
    if not _TABLE.fullmatch(parts.netloc) or parts.path.strip("/") or parts.fragment:
        raise _refusal()
    if len(options) < len(given) or not set(options) <= set(OPTIONS):
        raise _refusal()
    region, endpoint = options.get("region"), options.get("endpoint")
    if region is not None and not _REGION.fullmatch(region):
        raise _refusal()
    if endpoint is not None and not _ENDPOINT.fullmatch(endpoint):
        raise _refusal()
    return TableAddress(parts.netloc, region, endpoint, _units(options))


def _units(options: dict[str, str]) -> tuple[int, int] | None:
    named = [options[name] for name in ("read_units", "write_units") if name in options]
    if not named:
        return None
    if len(named) < 2 or not all(map(_UNITS.fullmatch, named)):
        raise _refusal()
    return int(named[0]), int(named[1])


def _refusal() -> ConfigurationError:
    return ConfigurationError(
        f"the URL of a DynamoDB table is {FORM}: a name of 3 to 255 letters, digits, _, . and -,"
        f" and any of the options {', '.join(OPTIONS)}, each once; an endpoint is http(s)://host:port,"
        " both numbers of units are given or none"
    )
