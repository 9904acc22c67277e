"""The `teal` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sk_agents import __version__
from sk_agents.cli import agents, approvals, archiving, chats, grants, keys, mcp
from sk_agents.cli.chat import CHAT_HELP, chat
from sk_agents.cli.collector import idle_collector
from sk_agents.cli.doctor.command import doctor
from sk_agents.cli.init import init

app = typer.Typer(
    name="teal",
    help="A self-hosted agent server.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"teal {__version__}")
        raise typer.Exit


@app.callback()
def teal(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """A self-hosted agent server."""


@app.command()
def serve(
    config: Annotated[
        list[Path] | None, typer.Argument(help="Agent files, or folders of them.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. [TA_HOST, 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port; 0 picks a free one. [TA_PORT, 8000]")
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Where conversations are kept. [TA_STORE]")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning, error. [TA_LOG_LEVEL, info]")
    ] = None,
) -> None:
    """Serve agents over HTTP until SIGTERM or Ctrl-C.

    Without CONFIG: TA_SERVICE_CONFIG, else agents/config.yaml if it is there, else a tour that
    needs no key and an assistant on the best model found (TA_MODEL, a provider's key, Ollama,
    the local model). One line on standard output tells that the server is ready.

    \b
    Examples:
      teal serve
      teal serve agents/config.yaml --port 0
      teal serve demos --store sqlite:///var/lib/teal/teal.sqlite
      teal serve agent.yaml --store memory: --log-level debug

    \b
    Exit codes: 0 stopped by a signal, 69 the address is in use, 77 not permitted to
    listen there, 78 bad configuration or a store that cannot be opened.
    """
    overrides = {"host": host, "port": port, "store": store, "log_level": log_level}
    with idle_collector():
        # FastAPI and uvicorn take most of a start; --help and --version do without them.
        from sk_agents.cli.serve import run  # noqa: PLC0415

        raise typer.Exit(run(config or [], overrides))


app.command(help=CHAT_HELP)(chat)
app.add_typer(chats.app)
app.add_typer(approvals.app)
app.add_typer(grants.app)
app.add_typer(keys.app)
app.add_typer(mcp.app)
app.add_typer(agents.app)
app.command(epilog=archiving.EXITS)(archiving.export)
app.command("import", epilog=archiving.EXITS)(archiving.import_)
app.command()(init)
app.command()(doctor)


def main() -> None:
    app(prog_name="teal")
