"""`teal doctor`: checks an installation. Here are options and help; `checks` runs the checks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sk_agents.cli.options import Json, ServerAccess, StoreUrl, Token, User


def doctor(
    config: Annotated[
        list[Path] | None, typer.Argument(help="Agent files, or folders of them, as for serve.")
    ] = None,
    store: StoreUrl = None,
    offline: Annotated[bool, typer.Option("--offline", help="Try no address or model.")] = False,
    model_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="How long to wait for each model.")
    ] = 30.0,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="TA_SERVER",
            help="Also check a running server, through the proxies in front of it.",
        ),
    ] = None,
    token: Token = None,
    user: User = None,
    check_token: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Instead: print what the token in this file (- for standard input) says, and what "
            "would be refused about it.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check configuration, store, network, MCP servers, models, machine and a running server.

    Without CONFIG it checks what `teal serve` would serve. It opens the store and writes to it as a
    server would. It asks each model for one word.

    \b
    Examples:
      teal doctor
      teal doctor agents --offline
      teal doctor agents --store sqlite:///var/lib/teal/teal.sqlite --json
      teal doctor --server https://agents.example.org
      teal doctor --check-token token.txt

    \b
    Exit codes: 0 nothing failed (there may be warnings), 1 something failed, 2 bad usage.
    """
    from sk_agents.cli.doctor.checks import run_checks  # noqa: PLC0415

    access = None if server is None else ServerAccess(server, token, user)
    code = run_checks(
        config or [],
        store=store,
        model_timeout=None if offline else model_timeout,
        access=access,
        token_source=check_token,
        as_json=as_json,
    )
    raise typer.Exit(code)
