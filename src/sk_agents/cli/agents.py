"""`teal agents`: whom a server lets you talk to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sk_agents.cli.exits import Exit
from sk_agents.cli.options import DEFAULT_SERVER, Json, Server, Target, Token, User

if TYPE_CHECKING:
    from sk_agents.client import TealClient

EXITS = "Exit codes: 0 done, 1 refused, 2 bad usage, 69 no server."

app = typer.Typer(
    name="agents",
    no_args_is_help=True,
    rich_markup_mode=None,
    help=f"""See a server's agents.

    \b
    Examples:
      teal agents list

    \b
    {EXITS}""",
)


@app.callback()
def agents() -> None:
    """Makes `list` a command of its own: more may come."""


@app.command("list", epilog=EXITS)
def list_agents(
    as_json: Json = False,
    server: Server = DEFAULT_SERVER,
    token: Token = None,
    user: User = None,
) -> None:
    """The agents a chat can be held with, the default one first.

    \b
    Examples:
      teal agents list
      teal agents list --json
    """
    # The client and rich take most of a start; --help does without them.
    from sk_agents.cli.reaching import reach  # noqa: PLC0415
    from sk_agents.cli.reading import list_agents  # noqa: PLC0415

    async def work(client: TealClient) -> Exit:
        return await list_agents(client, as_json=as_json)

    raise typer.Exit(reach(Target(server, token, user), work))
