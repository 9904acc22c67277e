"""The options that several commands share. Loads nothing heavy: `--help` reads this module."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from sk_agents.cli.exits import Exit

if TYPE_CHECKING:
    from sk_agents.client import TealClient

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
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]


@dataclass(frozen=True, slots=True)
class Target:
    """Which server, and as whom."""

    server: str
    token: str | None = field(default=None, repr=False)
    user: str | None = None

    def run(self, work: Callable[[TealClient], Awaitable[Exit]]) -> NoReturn:
        """Do `work` with a client of the server, and leave with the exit code it returns."""
        # The client and rich take most of a start; --help does without them.
        from sk_agents.cli.reaching import reach  # noqa: PLC0415

        raise typer.Exit(reach(self, work))


def on_server(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes a `target`, with the options that say which server that is."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name != "target"]
    parameters = [*own, *_TARGET]

    @wraps(command)
    def with_target(server: str, token: str | None, user: str | None, **given: Any) -> None:
        command(target=Target(server, token, user), **given)

    with_target.__signature__ = signature.replace(  # type: ignore[attr-defined]  # read by typer
        parameters=[each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
    )
    with_target.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_target


_TARGET = tuple(
    Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
    for name, default, kind in (
        ("server", DEFAULT_SERVER, Server),
        ("token", None, Token),
        ("user", None, User),
    )
)
