"""`teal mcp`: tools that MCP servers have changed, and the operator's consent to them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sk_agents.cli.options import Exit, Json, StoreUrl, command_group

if TYPE_CHECKING:
    from sk_agents.tools.mcp.pins import Pins, Withheld

EXITS = "Exit codes: 0 done, 1 no tool waits, 2 bad usage, 78 bad configuration."

app = command_group(
    "mcp",
    "See and accept changed tools of MCP servers.\n\nA tool that was changed or added later is "
    "withheld from agents until you agree to it. A running server notices that by itself.",
    "teal mcp withheld",
    "teal mcp agree files",
    "teal mcp agree files delete_file",
    exits=EXITS,
)


@app.command(epilog=EXITS)
def withheld(store: StoreUrl = None, as_json: Json = False) -> None:
    """List the tools that wait for your consent.

    \b
    Examples:
      teal mcp withheld --json
    """
    _show(_pins(store).withheld(), as_json=as_json)


@app.command(epilog=EXITS)
def agree(
    server: Annotated[str, typer.Argument(help="The MCP server, by its name in the agent file.")],
    tool: Annotated[
        str | None, typer.Argument(help="One of its tools. Default: all of them.")
    ] = None,
    store: StoreUrl = None,
    as_json: Json = False,
) -> None:
    """Let agents use the tools as the server last described them.

    \b
    Examples:
      teal mcp agree files delete_file
    """
    from sk_agents.exceptions import NotFound  # noqa: PLC0415

    try:
        _show(_pins(store).repin(server, tool), as_json=as_json)
    except NotFound as error:
        typer.echo(f"teal: {error}", err=True)
        raise typer.Exit(Exit.FAILED) from None


def _pins(store: str | None) -> Pins:
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
