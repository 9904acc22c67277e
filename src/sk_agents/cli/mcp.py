"""`teal mcp`: what MCP servers have changed, and the operator's word on it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sk_agents.cli.exits import Exit
from sk_agents.cli.options import Json

if TYPE_CHECKING:
    from sk_agents.tools.mcp.pins import Pins, Withheld

EXITS = "Exit codes: 0 done, 1 nothing waits, 2 bad usage, 78 bad configuration."

app = typer.Typer(
    name="mcp",
    no_args_is_help=True,
    rich_markup_mode=None,
    help=f"""See and accept changed tools of MCP servers.

    A tool whose definition has changed, or that was added later, is withheld from agents until
    you agree to it. A running server notices by itself.

    \b
    Examples:
      teal mcp withheld
      teal mcp agree files
      teal mcp agree files delete_file

    \b
    {EXITS}""",
)

Store = Annotated[str | None, typer.Option(metavar="URL", help="The server's store. [TA_STORE]")]


@app.command(epilog=EXITS)
def withheld(store: Store = None, as_json: Json = False) -> None:
    """The tools that wait for your word.

    \b
    Examples:
      teal mcp withheld --json
    """
    _show(_pins(store).withheld(), as_json=as_json)


@app.command(epilog=EXITS)
def agree(
    server: Annotated[str, typer.Argument(help="The MCP server, by its name in the agent file.")],
    tool: Annotated[str | None, typer.Argument(help="One of its tools; all unless given.")] = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Let agents use the tools as they were last seen.

    \b
    Examples:
      teal mcp agree files delete_file
    """
    # Settings take most of a start; --help does without them.
    from sk_agents.exceptions import NotFound  # noqa: PLC0415

    try:
        _show(_pins(store).repin(server, tool), as_json=as_json)
    except NotFound as error:
        typer.echo(f"teal: {error}", err=True)
        raise typer.Exit(Exit.FAILED) from None


def _pins(store: str | None) -> Pins:
    # As above.
    from sk_agents.config.settings import load_settings  # noqa: PLC0415
    from sk_agents.exceptions import ConfigurationError  # noqa: PLC0415
    from sk_agents.wiring import build_pins  # noqa: PLC0415

    try:
        return build_pins(load_settings((), store=store))
    except ConfigurationError as error:
        typer.echo(f"teal: {error}", err=True)
        raise typer.Exit(Exit.BAD_CONFIGURATION) from None


def _show(tools: list[Withheld], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([asdict(tool) for tool in tools]))
        return
    for tool in tools:
        typer.echo("\t".join((tool.server, tool.tool, tool.why)))
