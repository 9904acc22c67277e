"""The options that several commands share. Loads nothing heavy: `--help` reads this module."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

DEFAULT_SERVER = "http://127.0.0.1:8000"

Server = Annotated[
    str, typer.Option("--server", metavar="URL", envvar="TA_SERVER", help="The server's address.")
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="TA_TOKEN",
        show_default=False,
        help="Bearer token; better in the variable, where no list of processes shows it.",
    ),
]
User = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="NAME",
        help="Who you are, for a development server that believes everybody.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@dataclass(frozen=True, slots=True)
class Target:
    """Which server, and as whom."""

    server: str
    token: str | None = field(default=None, repr=False)
    user: str | None = None
