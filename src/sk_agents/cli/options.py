"""What several commands share: options, exit codes, and which server they talk to.

Loads nothing heavy, because `--help` reads it. For the same reason commands import the client, rich
and the server inside their functions: those take most of a start.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import wraps
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from sk_agents.config.amounts import read_span

if TYPE_CHECKING:
    from sk_agents.client import TealClient

DEFAULT_SERVER = "http://127.0.0.1:8000"
EXITS = "Exit codes: 0 done, 1 refused or not found, 2 bad usage, 69 no server."
UNBOUNDED = 10_000
_AGO = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Limit = Annotated[int, typer.Option(min=1, help="Show at most this many.")]
StoreUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="Where conversations are kept. [TA_STORE]")
]
Server = Annotated[
    str, typer.Option("--server", metavar="URL", envvar="TA_SERVER", help="The server's address.")
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar=["TA_TOKEN", "TEAL_KEY"],
        show_default=False,
        help="Bearer token or access key, instead of the sign-in that `teal login` has stored. The "
        "variables are safer: process lists show options.",
    ),
]
User = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="NAME",
        help="Your user name, for a development server that checks no tokens.",
    ),
]


def moment(text: str) -> datetime:
    """A day, a time with its zone, or so long ago."""
    if ago := _AGO.fullmatch(text):
        return datetime.now(UTC) - timedelta(hours=int(ago[1]) * _HOURS[ago[2]])
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("must be like 2026-11-01, 2026-11-01T08:00:00Z or 7d") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def span(text: str) -> int:
    """The seconds of an option such as `90d`."""
    try:
        return read_span(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


class Exit(IntEnum):
    """69 to 78 as in sysexits.h, 130 as a shell says it after Ctrl-C."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    WAITING = 3
    UNAVAILABLE = 69
    STORE_BROKEN = 74
    TRY_AGAIN = 75
    NOT_PERMITTED = 77
    BAD_CONFIGURATION = 78
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """Which server, and as which user."""

    server: str
    token: str | None = field(default=None, repr=False)
    user: str | None = None

    def run(self, work: Callable[[TealClient], Awaitable[Exit | None]]) -> NoReturn:
        """Do `work` with a client of the server; leave with the exit code it returns, or 0."""
        from sk_agents.cli.server_connection import run_with_client  # noqa: PLC0415

        raise typer.Exit(run_with_client(self, work))


def server_command(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes an `access`, with the options that say which server that is."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name != "access"]
    parameters = [*own, *_ACCESS]

    @wraps(command)
    def with_access(server: str, token: str | None, user: str | None, **given: Any) -> None:
        command(access=ServerAccess(server, token, user), **given)

    with_access.__signature__ = signature.replace(  # type: ignore[attr-defined]  # read by typer
        parameters=[each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
    )
    with_access.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_access


_ACCESS = tuple(
    Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
    for name, default, kind in (
        ("server", DEFAULT_SERVER, Server),
        ("token", None, Token),
        ("user", None, User),
    )
)


class CommandList(TyperGroup):
    """Shows the whole sentence about each command, on as many lines as it takes."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [
            (name, command.get_short_help_str(UNBOUNDED))
            for name, command in commands.items()
            if command is not None
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def command_group(name: str, summary: str, *examples: str, exits: str = EXITS) -> typer.Typer:
    lines = "\n".join(f"  {example}" for example in examples)
    return typer.Typer(
        name=name,
        cls=CommandList,
        no_args_is_help=True,
        rich_markup_mode=None,
        help=f"{summary}\n\n\b\nExamples:\n{lines}\n\n\b\n{exits}",
    )
