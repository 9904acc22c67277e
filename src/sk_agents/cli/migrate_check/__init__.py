"""`teal migrate-check`: a folder of the public Teal Agents project, as this server takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sk_agents.cli.options import Json


def migrate_check(
    folder: Annotated[
        Path,
        typer.Argument(
            exists=True, file_okay=False, help="Where the server would be started: with the .env."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Say what of the public Teal Agents project's files works here, what changes, what to do.

    Reads the .env file, the agent files, the catalogs and the Python modules that they name, and
    then loads them as a server would: plugins and other classes are imported, in a process of
    their own. No model and no address is asked, and no conversation is stored.

    \b
    Examples:
      teal migrate-check .
      teal migrate-check ~/agents --json

    \b
    Exit codes: 0 it can be served (there may be warnings), 1 something must be done first, 2 bad
    usage.
    """
    from sk_agents.cli.migrate_check.checks import check_folder  # noqa: PLC0415

    raise typer.Exit(check_folder(folder, as_json=as_json))
