"""`teal grants`: what you allowed for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sk_agents.cli.exits import Exit
from sk_agents.cli.options import DEFAULT_SERVER, Json, Server, Target, Token, User

if TYPE_CHECKING:
    from sk_agents.client import TealClient

EXITS = "Exit codes: 0 done, 1 refused or not found, 2 bad usage, 69 no server."

app = typer.Typer(
    name="grants",
    no_args_is_help=True,
    rich_markup_mode=None,
    help=f"""See and revoke standing approvals.

    \b
    Examples:
      teal grants list
      teal grants revoke grant_1f

    \b
    {EXITS}""",
)


@app.command("list", epilog=EXITS)
def list_grants(
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    as_json: Json = False,
    server: Server = DEFAULT_SERVER,
    token: Token = None,
    user: User = None,
) -> None:
    """The tools that you are no longer asked about.

    \b
    Examples:
      teal grants list --json
    """
    # The client and rich take most of a start; --help does without them.
    from sk_agents.cli.reaching import reach  # noqa: PLC0415
    from sk_agents.cli.reading import list_grants  # noqa: PLC0415

    async def work(client: TealClient) -> Exit:
        return await list_grants(client, limit, as_json=as_json)

    raise typer.Exit(reach(Target(server, token, user), work))


@app.command(epilog=EXITS)
def revoke(
    grant_id: Annotated[str, typer.Argument(metavar="GRANT_ID", help="The standing approval.")],
    server: Server = DEFAULT_SERVER,
    token: Token = None,
    user: User = None,
) -> None:
    """Be asked about a tool again.

    \b
    Examples:
      teal grants revoke grant_1f
    """
    # As above.
    from sk_agents.cli.reaching import reach  # noqa: PLC0415

    async def work(client: TealClient) -> Exit:
        await client.revoke(grant_id)
        return Exit.DONE

    raise typer.Exit(reach(Target(server, token, user), work))
