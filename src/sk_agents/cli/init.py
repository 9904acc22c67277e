"""`teal init`: a folder with an agent of one's own, its tools and a test that passes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def init(
    folder: Annotated[Path, typer.Argument(help="Where to; it is made if it is not there.")] = Path(
        "agents"
    ),
    name: Annotated[str | None, typer.Option(help="The agent's name; else the folder's.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Its model; else the best one found on this machine.")
    ] = None,
) -> None:
    """Write an agent to start from: a file, two tools, a test, a README.

    Nothing is overwritten: if one of the files is there already, none is written.

    \b
    Examples:
      teal init
      teal init letters --model gpt-5.4-mini
      teal init letters && teal serve letters

    \b
    Exit codes: 0 written, 1 a file is there already or cannot be written, 2 bad usage.
    """
    # Looking for a model loads the server's settings; --help does without them.
    from sk_agents.cli.scaffolding import write_scaffold  # noqa: PLC0415

    raise typer.Exit(write_scaffold(folder, name, model))
