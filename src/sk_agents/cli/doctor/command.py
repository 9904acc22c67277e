"""`teal doctor`: is everything in place? Options and help; the checks are elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sk_agents.cli.options import Json, Target, Token, User


def doctor(
    config: Annotated[
        list[Path] | None, typer.Argument(help="Agent files, or folders of them, as for serve.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Where conversations are kept. [TA_STORE]")
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask any model anything.")
    ] = False,
    model_timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="How long a model may think.")
    ] = 30.0,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="TA_SERVER",
            help="A running server, and whatever stands before it, to look at too.",
        ),
    ] = None,
    token: Token = None,
    user: User = None,
    as_json: Json = False,
) -> None:
    """Check the configuration, the store, the models, the machine and a running server.

    Without CONFIG it looks at what `teal serve` would serve. The store is opened and written to
    as a server would; models are asked for one word each.

    \b
    Examples:
      teal doctor
      teal doctor agents --offline
      teal doctor agents --store sqlite:///var/lib/teal/teal.sqlite --json
      teal doctor --server https://agents.example.org

    \b
    Exit codes: 0 nothing failed (warnings are no failures), 1 something failed, 2 bad usage.
    """
    # The whole server is loaded for the checks; --help does without it.
    from sk_agents.cli.doctor.examination import Examination, examine  # noqa: PLC0415

    target = None if server is None else Target(server, token, user)
    examination = Examination(
        config or [], store=store, offline=offline, model_timeout=model_timeout, target=target
    )
    raise typer.Exit(examine(examination, as_json=as_json))
