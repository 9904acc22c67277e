"""`teal migrate` and `teal migrate-store`: what an operator does with a store as a whole."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sk_agents.cli.options import Exit, StoreUrl

if TYPE_CHECKING:
    from sk_agents.wiring import Migration

MIGRATE_EXITS = (
    "Exit codes: 0 the store is ready, 75 the store is busy or away: try again, "
    "78 bad configuration or a store that cannot be opened."
)
MOVE_EXITS = (
    "Exit codes: 0 everything is in TO, byte for byte; 1 some conversations are not, as listed; "
    "2 bad usage, 75 a store is busy or away: try again, 78 bad configuration, a target that is "
    "not empty, or a store that cannot be opened."
)
# So many ids are named of what went wrong.
SHOWN = 10


def migrate(store: StoreUrl = None) -> None:
    """Bring a store's tables or files to this version, or make them.

    A server does so by itself when it starts. This is for a database whose tables the server's role
    may not change, and for doing it at a chosen time. Any number may run at once.

    \b
    Examples:
      teal migrate --store postgresql://owner@db.example/teal
    """
    from sk_agents.config.settings import load_settings  # noqa: PLC0415
    from sk_agents.wiring import build_stores  # noqa: PLC0415

    async def work() -> Exit:
        stores = build_stores(load_settings((), store=store))
        async with stores.main as opened:
            typer.echo(f"{opened}: ready, durability {opened.durability}")
        return Exit.DONE

    leave_with(work())


def migrate_store(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The URL of the store to copy.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The URL of the store to copy to.")],
    merge: Annotated[
        bool,
        typer.Option(
            "--merge", help="Copy into a store that holds other conversations; they stay."
        ),
    ] = False,
) -> None:
    """Copy all conversations of a store to another one, of whatever kind.

    Every id, event, approval and grant is kept; at the end both stores are compared. Stop the
    servers that use FROM first. If the copy is interrupted, run it again: it goes on where it
    stopped. FROM is not changed. Kinds: sqlite:///path, file:///dir, postgresql://user@host/db,
    redis://host:6379/0, dynamodb://table?region=...

    \b
    Examples:
      teal migrate-store sqlite:///var/lib/teal/teal.sqlite postgresql://teal@db.example/teal
      teal migrate-store postgresql://teal@db.example/teal file:///srv/chats
    """
    from sk_agents.config.settings import load_settings  # noqa: PLC0415
    from sk_agents.wiring import copy_store  # noqa: PLC0415

    progress = CountLine()

    async def work() -> Exit:
        settings = load_settings(())
        done = await copy_store(settings, source, target, progress.told, merge=merge)
        progress.end()
        return _report(done)

    leave_with(work())


class CountLine:
    """One line on the terminal that counts; nothing where there is none."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._is_open = False

    def told(self, what: str, done: int, all_of_them: int) -> None:
        self.show(f"{what} {done} of {all_of_them}")

    def show(self, line: str) -> None:
        if self._is_shown:
            typer.echo(f"\r\033[K{line}", err=True, nl=False)
            self._is_open = True

    def end(self) -> None:
        if self._is_open:
            typer.echo("", err=True)


def _report(done: Migration) -> Exit:
    typer.echo(
        f"{done.threads} conversations with {done.events} events are the same in both stores,"
        f" {done.copied} of them copied now"
    )
    typer.echo(f"digest {done.digest}")
    if done.foreign:
        typer.echo(f"{len(done.foreign)} other conversations were left in the target")
    for ids, what in (
        (done.damaged, "damaged in the source and not copied"),
        (done.different, "not the same in both: stop the servers that use FROM and run this again"),
    ):
        if ids:
            shown = ", ".join(ids[:SHOWN]) + (", ..." if len(ids) > SHOWN else "")
            typer.echo(f"teal: {len(ids)} conversations are {what}: {shown}", err=True)
    return Exit.DONE if done.is_complete else Exit.FAILED


def leave_with(work: Coroutine[Any, Any, Exit]) -> None:
    """Run it; leave with its exit code, or with the one of what it raised."""
    import asyncio  # noqa: PLC0415

    from sk_agents.exceptions import (  # noqa: PLC0415
        StoreBusy,
        StoreReadOnly,
        StoreUnavailable,
        TealError,
    )

    try:
        code = asyncio.run(work)
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    except (StoreBusy, StoreReadOnly, StoreUnavailable) as error:
        typer.echo(f"teal: {error}", err=True)
        code = Exit.TRY_AGAIN
    except TealError as error:
        typer.echo(f"teal: {error}", err=True)
        code = Exit.BAD_CONFIGURATION
    raise typer.Exit(code)
