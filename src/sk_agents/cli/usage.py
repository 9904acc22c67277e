"""`teal usage`: what models have used."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from sk_agents.cli.options import Json, ServerAccess, server_command

USAGE_EXITS = "Exit codes: 0 done, 1 refused, 2 bad usage, 69 no server."


@server_command
def usage(
    access: ServerAccess,
    since: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"],
            metavar="YYYY-MM-DD",
            help="The first day. Default: 30 days ago.",
        ),
    ] = None,
    all_users: Annotated[
        bool, typer.Option("--all", help="Of all users, not only yours: for operators.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what models have used: tokens and money a day, agent and model.

    \b
    Examples:
      teal usage
      teal usage --since 2026-11-01 --json
      teal usage --all
    """
    from sk_agents.cli.server_records import list_usage  # noqa: PLC0415

    day = since.date() if since is not None else None
    access.run(lambda client: list_usage(client, day, all_users=all_users, as_json=as_json))
