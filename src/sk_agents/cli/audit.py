"""`teal audit`: who did what, from the store itself, and whether the store is what it was."""

from __future__ import annotations

import csv
import getpass
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from sk_agents.cli.line_export import (
    Format,
    InFormat,
    OfAgent,
    Output,
    Since,
    cell,
    json_line,
    written_to,
)
from sk_agents.cli.options import Exit, Json, StoreUrl, command_group
from sk_agents.cli.safe_text import one_line
from sk_agents.cli.stores import CountLine, leave_with
from sk_agents.exceptions import ConfigurationError

if TYPE_CHECKING:
    from sk_agents.audit.checkpoints import Verifier
    from sk_agents.audit.verification import Verification
    from sk_agents.config.settings import Settings
    from sk_agents.wire.views import AuditEntry

EXITS = (
    "Exit codes: 0 done, 1 something is not as it was, 2 bad usage, 75 the store is busy or away: "
    "try again, 78 bad configuration or a store that cannot be opened."
)
# So many findings are printed.
SHOWN = 100

app = command_group(
    "audit",
    "Show who did what, and verify that the store is what it was.\n\nThese commands read the "
    "store itself; servers may run.",
    "teal audit export --since 7d --user alice",
    "teal audit verify --checkpoints kept.jsonl --public-key audit.key.pub",
    "teal audit key audit.key",
    exits=EXITS,
)


@app.command(epilog=EXITS)
def export(
    since: Since = None,
    user: Annotated[
        str | None, typer.Option(metavar="ID", help="Of this user's chats, or done by this user.")
    ] = None,
    agent: OfAgent = None,
    form: InFormat = Format.JSONL,
    output: Output = None,
    store: StoreUrl = None,
) -> None:
    """Print every entry: what was asked for, decided, begun, ended; by whom; digests of the rest.

    The entries of a log are in the order in which they happened, one log after the other. That
    there was an export is noted in the server's log.

    \b
    Examples:
      teal audit export --since 2026-11-01 > november.jsonl
      teal audit export --user alice --agent helper --format csv --output alice.csv
    """
    from sk_agents.audit.reading import AuditQuery  # noqa: PLC0415
    from sk_agents.audit.store_audit import opened_audit  # noqa: PLC0415
    from sk_agents.config.settings import load_settings  # noqa: PLC0415
    from sk_agents.wiring import existing_store  # noqa: PLC0415

    async def work() -> Exit:
        settings = load_settings((), store=store)
        async with opened_audit(existing_store(settings)) as opened:
            with written_to(output) as file:
                lines = Lines(file, form)
                async for entry in opened.exported(AuditQuery(since, user, agent), _operator()):
                    lines.write(entry)
        return Exit.DONE

    leave_with(work())


@app.command(epilog=EXITS)
def verify(
    checkpoints: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Checkpoints that were kept elsewhere, one a line. Several files."
        ),
    ] = None,
    public_key: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Public keys that checkpoints are signed with. Default: the one beside "
            "TA_AUDIT_KEY_FILE.",
        ),
    ] = None,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Read every log and compare it with its chain and with all checkpoints.

    Without a checkpoint that was kept elsewhere a store cannot be told from an older state of it,
    and without the public key an attacker who can write the store can rewrite it as a whole.

    \b
    Examples:
      teal audit verify
      teal audit verify --checkpoints /mnt/worm/teal.jsonl --public-key audit.key.pub
    """
    from sk_agents.audit.checkpoints import read_checkpoints  # noqa: PLC0415
    from sk_agents.audit.store_audit import opened_audit  # noqa: PLC0415
    from sk_agents.config.settings import load_settings  # noqa: PLC0415
    from sk_agents.config.store_url import store_name  # noqa: PLC0415
    from sk_agents.wiring import existing_store  # noqa: PLC0415

    progress = CountLine()

    async def work() -> Exit:
        settings = load_settings((), store=store)
        kept = [one for path in checkpoints or () for one in read_checkpoints(path)]
        keys = _public_keys(settings, public_key or [])
        async with opened_audit(existing_store(settings)) as opened:
            result = await opened.verified(
                kept, keys, lambda done, of: progress.told("verified", done, of)
            )
        progress.end()
        if as_json:
            _print_json(result)
        else:
            typer.echo(store_name(settings))
            _print(result, has_keys=bool(keys), kept=len(kept))
        return Exit.FAILED if result.findings else Exit.DONE

    leave_with(work())


@app.command(epilog=EXITS)
def checkpoint(
    everything: Annotated[
        bool,
        typer.Option("--all", help="Take in all threads, not only those changed since the last."),
    ] = False,
    store: StoreUrl = None,
) -> None:
    """Sign a checkpoint now and print it, to be kept elsewhere. Needs TA_AUDIT_KEY_FILE.

    A server with TA_AUDIT_KEY_FILE does so by itself every TA_AUDIT_CHECKPOINT_SECONDS.

    \b
    Examples:
      teal audit checkpoint >> /mnt/worm/teal.jsonl
    """
    from sk_agents.audit.store_audit import opened_audit  # noqa: PLC0415
    from sk_agents.config.settings import load_settings  # noqa: PLC0415
    from sk_agents.wiring import checkpoint_plan, existing_store  # noqa: PLC0415

    async def work() -> Exit:
        settings = load_settings((), store=store)
        main = existing_store(settings)
        plan = checkpoint_plan(settings, main)
        if plan is None:
            raise ConfigurationError("TA_AUDIT_KEY_FILE is not set; `teal audit key` makes a key")
        async with opened_audit(main) as opened:
            signed = await opened.sign(plan.signer, plan.path, everything=everything)
        typer.echo(signed.model_dump_json())
        return Exit.DONE

    leave_with(work())


@app.command(epilog="Exit codes: 0 written, 2 bad usage, 78 a file exists or cannot be written.")
def key(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The private key's new file.")],
) -> None:
    """Make a key that signs checkpoints: FILE, for TA_AUDIT_KEY_FILE, and FILE.pub beside it.

    Keep FILE.pub, and the checkpoints, where the server cannot write: they prove what FILE signed.

    \b
    Examples:
      teal audit key /etc/teal/audit.key && export TA_AUDIT_KEY_FILE=/etc/teal/audit.key
    """
    from sk_agents.audit.checkpoints import PUBLIC_SUFFIX, make_keys  # noqa: PLC0415

    try:
        made = make_keys(path)
    except ConfigurationError as error:
        typer.echo(f"teal: {error}", err=True)
        raise typer.Exit(Exit.BAD_CONFIGURATION) from None
    typer.echo(f"key {made.key_id}: {path} signs, {path}{PUBLIC_SUFFIX} verifies")


class Lines:
    """Entries as lines of one of the formats."""

    def __init__(self, file: TextIO, form: Format) -> None:
        from sk_agents.wire.views import AuditEntry  # noqa: PLC0415

        self._file = file
        self._csv = None
        if form is Format.CSV:
            self._csv = csv.DictWriter(file, list(AuditEntry.model_fields))
            self._csv.writeheader()

    def write(self, entry: AuditEntry) -> None:
        if self._csv is None:
            self._file.write(json_line(entry.model_dump(mode="json", exclude_none=True)))
            return
        row = {**entry.model_dump(), "details": json.dumps(entry.details, ensure_ascii=False)}
        self._csv.writerow({name: cell(value) for name, value in row.items()})


def _public_keys(settings: Settings, named: list[Path]) -> list[Verifier]:
    """Raises ConfigurationError: a file holds no public key."""
    from sk_agents.audit.checkpoints import PUBLIC_SUFFIX, Verifier  # noqa: PLC0415

    if not named and settings.audit_key_file is not None:
        beside = settings.audit_key_file.with_name(settings.audit_key_file.name + PUBLIC_SUFFIX)
        named = [beside] if beside.exists() else []
    return [Verifier.read(path) for path in named]


def _operator() -> str:
    try:
        return f"{getpass.getuser()} on this machine"
    except (KeyError, OSError):
        return "an unnamed user of this machine"


def _print(result: Verification, *, has_keys: bool, kept: int) -> None:
    typer.echo(f"{result.threads} threads with {result.events} events")
    last = result.last_checkpoint
    typer.echo(
        f"{result.checkpoints} checkpoints, {kept} of them kept elsewhere"
        + (f"; the last of {last.at}" if last is not None else "")
    )
    for number, what in (
        (result.uncovered, "threads have changed since the last checkpoint, or had none"),
        (result.unchained, "threads began in a version without chains: their first part has none"),
        (result.unsigned, "checkpoints were signed by a key that was not given"),
    ):
        if number:
            typer.echo(f"{number} {what}")
    if not kept:
        typer.echo(
            "no checkpoint was given that was kept elsewhere: an older state of the whole store, "
            "or its newest part removed, would not be found"
        )
    elif not has_keys:
        typer.echo("no public key was given: the signatures were not looked at")
    for finding in result.findings[:SHOWN]:
        typer.echo(f"teal: {one_line(str(finding))}", err=True)
    if len(result.findings) > SHOWN:
        typer.echo(f"teal: and {len(result.findings) - SHOWN} more", err=True)
    typer.echo("nothing was found" if not result.findings else "the store is not what it was")


def _print_json(result: Verification) -> None:
    last = result.last_checkpoint
    document = {**asdict(result), "last_checkpoint": last.model_dump() if last else None}
    typer.echo(json.dumps(document))
