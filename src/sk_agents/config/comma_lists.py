"""Settings that hold several names in one variable, with commas between them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

_NAME = r"(?:[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])"
_HOST = re.compile(rf"\*|{_NAME}")
_ORIGIN = re.compile(rf"https?://{_NAME}(?::[0-9]{{1,5}})?")


def split(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(part for part in (part.strip() for part in value.split(",")) if part)


def _host(value: str) -> str:
    if not _HOST.fullmatch(value.lower()):
        raise ValueError("must be names without ports, or *")
    return value.lower()


def _origin(value: str) -> str:
    # There is no `*`: it would let every page on the web in.
    if not _ORIGIN.fullmatch(value.lower()):
        raise ValueError("must be like https://name or https://name:port")
    return value.lower()


HostNames = Annotated[
    tuple[Annotated[str, AfterValidator(_host)], ...] | None, NoDecode, BeforeValidator(split)
]
Origins = Annotated[
    tuple[Annotated[str, AfterValidator(_origin)], ...] | None, NoDecode, BeforeValidator(split)
]
Names = Annotated[tuple[str, ...] | None, NoDecode, BeforeValidator(split)]
