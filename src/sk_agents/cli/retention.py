"""`teal prune`: conversations that are too old are removed."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sk_agents.cli.options import Exit, StoreUrl, span
from sk_agents.cli.stores import CountLine, leave_with

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from sk_agents.config.settings import Settings

EXITS = (
    "Exit codes: 0 done, 1 not confirmed, 2 bad usage, 75 the store is busy or away: try again, "
    "78 bad configuration or a store that cannot be opened."
)


class Status(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    IDLE = "idle"


ENDED = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)


def prune(
    config: Annotated[
        list[Path] | None,
        typer.Argument(help="Agent files or folders: a .env file beside them is read, too."),
    ] = None,
    older_than: Annotated[
        int | None,
        typer.Option(
            metavar="TIME",
            parser=span,
            help="Remove what has not changed for so long: 12h, 90d, 52w. Default: the ages that "
            "TA_RETENTION names.",
        ),
    ] = None,
    status: Annotated[
        list[Status] | None,
        typer.Option(
            help="With --older-than: only of this status. May be given several times. "
            "Default: completed, failed and cancelled."
        ),
    ] = None,
    expired: Annotated[
        bool, typer.Option("--expired", help="Remove tasks whose time to expire has passed.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first.")] = False,
    store: StoreUrl = None,
) -> None:
    """Remove conversations that are too old, for good.

    Only those in which nothing runs, waits for a person or is queued. One that goes on at the same
    time stays. Servers may run. If it is interrupted, run it again. In a terminal
    it asks first. A server with TA_RETENTION does the same by itself.

    \b
    Examples:
      teal prune --older-than 90d --dry-run
      teal prune --older-than 30d --status failed --status cancelled
      TA_RETENTION=completed=90d,failed=30d teal prune --yes
    """
    from sk_agents.config.settings import load_settings  # noqa: PLC0415

    if status and older_than is None:
        raise typer.BadParameter("--status needs --older-than")
    if older_than == 0:
        raise typer.BadParameter("--older-than must be longer than 0")

    async def work() -> Exit:
        settings = load_settings(config or [], store=store)
        ages: dict[str, float] = dict.fromkeys(status or ENDED, older_than) if older_than else {}
        if expired:
            ages["expired"] = 0
        ages = ages or dict(settings.retention or {})
        if not ages:
            typer.echo("teal: give --older-than or --expired, or set TA_RETENTION", err=True)
            return Exit.USAGE
        return await _prune(settings, ages, dry_run=dry_run, asks=not yes and sys.stdin.isatty())

    leave_with(work())


async def _prune(
    settings: Settings, ages: Mapping[str, float], *, dry_run: bool, asks: bool
) -> Exit:
    from sk_agents.wiring import prune_store  # noqa: PLC0415

    progress = CountLine()

    def told(seen: int, removed: int) -> None:
        progress.show(f"looked at {seen} conversations, removed {removed}")

    if dry_run or asks:
        found = await prune_store(settings, ages, told, dry_run=True)
        progress.end()
        typer.echo(f"{_amounts(found.due)} of {found.seen} conversations are old enough")
        if dry_run or not found.due:
            return Exit.DONE
        if not typer.confirm("Remove them for good?", err=True):
            return Exit.FAILED
    done = await prune_store(settings, ages, told)
    progress.end()
    typer.echo(f"{_amounts(done.removed)} of {done.seen} conversations were removed")
    if kept := done.due.total() - done.removed.total():
        typer.echo(f"{kept} were old enough, but were changed or removed at the same time")
    return Exit.DONE


def _amounts(by_reason: Counter[str]) -> str:
    parts = ", ".join(f"{number} {reason}" for reason, number in sorted(by_reason.items()))
    return f"{by_reason.total()} ({parts})" if parts else "0"
