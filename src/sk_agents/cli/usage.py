"""`teal usage`, `teal budgets` and `teal sessions`: what is used, what is left, who is at work."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from sk_agents.cli.options import Json, ServerAccess, moment, server_command

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


@server_command
def budgets(
    access: ServerAccess,
    all_users: Annotated[
        bool, typer.Option("--all", help="Of all users, agents and the server: for operators.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what you may spend on models, and what is left of it.

    \b
    Examples:
      teal budgets
      teal budgets --all --json
    """
    from sk_agents.cli.server_records import list_budgets  # noqa: PLC0415

    access.run(lambda client: list_budgets(client, all_users=all_users, as_json=as_json))


@server_command
def sessions(
    access: ServerAccess,
    since: Annotated[
        datetime | None,
        typer.Option(
            metavar="TIME",
            parser=moment,
            help="Also those that changed since: 2026-11-01T08:00:00Z, 7d. Default: an hour ago.",
        ),
    ] = None,
    of_user: Annotated[str | None, typer.Option("--of", metavar="ID", help="Of one user.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 200,
    as_json: Json = False,
) -> None:
    """Show who is at work: the conversations of all users that run or wait, and recent ones.

    For operators. Nothing that was said is shown.

    \b
    Examples:
      teal sessions
      teal sessions --since 1d --of alice --json
    """
    from sk_agents.cli.server_records import list_sessions  # noqa: PLC0415

    access.run(lambda client: list_sessions(client, since, of_user, limit, as_json=as_json))
