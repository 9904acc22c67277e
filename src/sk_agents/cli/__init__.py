"""The `teal` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sk_agents import __version__
from sk_agents.cli import audit, encryption, feedback, keys, mcp
from sk_agents.cli.account import login, logout, whoami
from sk_agents.cli.approvals import approvals_app, grants_app
from sk_agents.cli.chats import (
    ARCHIVE_EXITS,
    agents_app,
    chat,
    chats_app,
    export,
    export_test,
    import_,
    logs,
    top,
)
from sk_agents.cli.doctor import doctor
from sk_agents.cli.garbage_collection import paused_collection
from sk_agents.cli.migrate_check import migrate_check
from sk_agents.cli.options import EXITS, CommandList, StoreUrl
from sk_agents.cli.retention import EXITS as PRUNE_EXITS
from sk_agents.cli.retention import prune
from sk_agents.cli.standard_streams import open_missing_streams
from sk_agents.cli.stores import MIGRATE_EXITS, MOVE_EXITS, migrate, migrate_store
from sk_agents.cli.usage import USAGE_EXITS, budgets, sessions, usage

app = typer.Typer(
    name="teal",
    cls=CommandList,
    context_settings={"help_option_names": ["-h", "--help"]},
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
    store: StoreUrl = None,
    workers: Annotated[
        str | None,
        typer.Option(metavar="N|auto", help="Processes; auto: one for each core. [TA_WORKERS, 1]"),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning, error. [TA_LOG_LEVEL, info]")
    ] = None,
) -> None:
    """Serve agents over HTTP until SIGTERM or Ctrl-C.

    Without CONFIG the server takes TA_SERVICE_CONFIG, or agents/config.yaml if that file exists.
    Without these it serves a tour that needs no key, and an assistant on the best model it finds
    (TA_MODEL, a provider's key, Ollama, the local model). When the server is ready, it prints one
    line on standard output.

    With several workers SIGHUP starts them again, one by one, with the configuration as it is then.

    \b
    Examples:
      teal serve
      teal serve agents/config.yaml --port 0
      teal serve demos --store sqlite:///var/lib/teal/teal.sqlite --workers auto
      teal serve agent.yaml --store memory: --log-level debug

    \b
    Exit codes: 0 stopped by a signal, 69 the address is in use, 74 the store broke,
    75 the store is busy: try again, 77 not permitted to listen at the address,
    78 bad configuration or a store that cannot be opened.
    """
    overrides = {
        "host": host,
        "port": port,
        "store": store,
        "workers": workers,
        "log_level": log_level,
    }
    with paused_collection():
        from sk_agents.cli.launch import run  # noqa: PLC0415

        raise typer.Exit(run(config or [], overrides))


@app.command()
def init(
    folder: Annotated[
        Path, typer.Argument(help="The folder to write to. It is made if it does not exist.")
    ] = Path("agents"),
    name: Annotated[
        str | None, typer.Option(help="The agent's name. Default: the folder's name.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="The agent's model. Default: the best one found on this machine."),
    ] = None,
) -> None:
    """Write a first agent: an agent file, two tools, a test and a README.

    Nothing is overwritten: if one of the files exists already, none is written.

    \b
    Examples:
      teal init
      teal init letters --model gpt-5.4-mini
      teal init letters && teal serve letters

    \b
    Exit codes: 0 written, 1 a file exists already or cannot be written, 2 bad usage.
    """
    from sk_agents.cli.agent_scaffold import write_agent  # noqa: PLC0415

    raise typer.Exit(write_agent(folder, name, model))


app.command()(login)
app.command()(logout)
app.command(epilog=EXITS)(whoami)
app.command()(chat)
app.add_typer(chats_app)
app.add_typer(approvals_app)
app.add_typer(grants_app)
app.add_typer(keys.app)
app.add_typer(mcp.app)
app.add_typer(audit.app)
app.add_typer(feedback.app)
app.add_typer(agents_app)
app.command(epilog=ARCHIVE_EXITS)(export)
app.command("import", epilog=ARCHIVE_EXITS)(import_)
app.command("export-test", epilog=ARCHIVE_EXITS)(export_test)
app.command(epilog=EXITS)(logs)
app.command(epilog=EXITS)(top)
app.command(epilog=USAGE_EXITS)(usage)
app.command(epilog=USAGE_EXITS)(budgets)
app.command(epilog=USAGE_EXITS)(sessions)
app.command(epilog=MIGRATE_EXITS)(migrate)
app.command("migrate-store", epilog=MOVE_EXITS)(migrate_store)
app.command("migrate-check")(migrate_check)
app.command(epilog=PRUNE_EXITS)(prune)
app.command(epilog=encryption.EXITS)(encryption.encrypt)
app.command(epilog=encryption.EXITS)(encryption.rekey)
app.command("encryption-key")(encryption.encryption_key)
app.command()(doctor)


def main() -> None:
    open_missing_streams()
    # Not built by a worker, which imports this package as well.
    from sk_agents.cli.command import command  # noqa: PLC0415

    command(prog_name="teal")
