"""`teal grants`: what you allowed for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sk_agents.cli.exits import Exit
from sk_agents.cli.options import Json, Limit, Target, on_server

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
@on_server
def list_grants(target: Target, limit: Limit = 100, as_json: Json = False) -> None:
    """The tools that you are no longer asked about.

    \b
    Examples:
      teal grants list --json
    """
    # The client and rich take most of a start; --help does without them.
    from sk_agents.cli.reading import list_grants  # noqa: PLC0415

    target.run(lambda client: list_grants(client, limit, as_json=as_json))


@app.command(epilog=EXITS)
@on_server
def revoke(
    target: Target,
    grant_id: Annotated[str, typer.Argument(metavar="GRANT_ID", help="The standing approval.")],
) -> None:
    """Be asked about a tool again.

    \b
    Examples:
      teal grants revoke grant_1f
    """

    async def work(client: TealClient) -> Exit:
        await client.revoke(grant_id)
        return Exit.DONE

    target.run(work)
