"""`teal agents`: whom a server lets you talk to."""

from __future__ import annotations

import typer

from sk_agents.cli.options import Json, Target, on_server

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
@on_server
def list_agents(target: Target, as_json: Json = False) -> None:
    """The agents a chat can be held with, the default one first.

    \b
    Examples:
      teal agents list
      teal agents list --json
    """
    # The client and rich take most of a start; --help does without them.
    from sk_agents.cli.reading import list_agents  # noqa: PLC0415

    target.run(lambda client: list_agents(client, as_json=as_json))
