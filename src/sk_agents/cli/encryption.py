"""`teal encryption-key`, `encrypt` and `rekey`: what an operator does about encryption at rest."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sk_agents.cli.options import Exit, StoreUrl
from sk_agents.exceptions import ConfigurationError, StoreBusy, StoreError

if TYPE_CHECKING:
    from sk_agents.persistence.store_encryption import Outcome, Told

EXITS = (
    "Exit codes: 0 done, 1 done except for damaged threads, 2 bad usage, 75 a server has the store "
    "open or it is busy: try again, 78 the keys or the store cannot be used."
)
LINE_SECONDS = 5.0
Config = Annotated[
    list[Path] | None,
    typer.Argument(help="Agent files or folders: a .env file beside them is read, too."),
]


def encryption_key() -> None:
    """Print a new key for TA_ENCRYPTION_KEYS: 32 random bytes, as base64.

    With the key the store can be read, and without it by no means. Keep a copy of it, apart from
    the backups of the store.

    \b
    Examples:
      teal encryption-key
      (umask 077 && teal encryption-key > keys) && export TA_ENCRYPTION_KEYS_FILE=$PWD/keys

    \b
    Exit codes: 0 printed, 2 bad usage.
    """
    from sk_agents.persistence.encryption import new_key  # noqa: PLC0415  # cryptography

    typer.echo(new_key())


def encrypt(config: Config = None, store: StoreUrl = None) -> None:
    """Encrypt a store that was kept in plain text until now.

    Stop the server first. The keys are those of TA_ENCRYPTION_KEYS, TA_ENCRYPTION_KEYS_FILE or
    TA_ENCRYPTION_KEYS_COMMAND. If it is interrupted, run it again: it goes on where it stopped,
    and until it has finished no server opens the store. Backups that were made before stay in
    plain text, and so may free blocks of the disk.

    \b
    Examples:
      teal encrypt
      teal encrypt --store sqlite:///var/lib/teal/teal.sqlite
    """
    from sk_agents.persistence.store_encryption import encrypt_store  # noqa: PLC0415

    raise typer.Exit(_run(encrypt_store, config or [], store, "encrypted"))


def rekey(config: Config = None, store: StoreUrl = None) -> None:
    """Have the first encryption key wrap the key of every thread. Servers may run.

    To change keys: have every server run with TA_ENCRYPTION_KEYS=OLD,NEW, then with NEW,OLD, run
    this with NEW,OLD, then take OLD away. If it is interrupted, run it again.

    \b
    Examples:
      teal rekey
      teal rekey --store file:///var/lib/teal/chats
    """
    from sk_agents.persistence.store_encryption import rekey_store  # noqa: PLC0415

    raise typer.Exit(_run(rekey_store, config or [], store, "wrapped by the first key"))


def _run(
    work: Callable[..., Outcome],
    config: list[Path],
    store: str | None,
    done: str,
) -> Exit:
    from sk_agents.config.settings import load_settings  # noqa: PLC0415
    from sk_agents.config.store_url import store_url, without_secrets  # noqa: PLC0415
    from sk_agents.persistence.key_sources import configured_codec  # noqa: PLC0415

    try:
        settings = load_settings(config, store=store)
        url, codec = store_url(settings), configured_codec(settings)
        with shown_progress() as told:
            outcome = work(url, codec, told, password_command=settings.postgres_password_command)
    except StoreBusy as error:
        return _fail(Exit.TRY_AGAIN, error)
    except (ConfigurationError, StoreError) as error:
        return _fail(Exit.BAD_CONFIGURATION, error)
    sys.stdout.write(f"{without_secrets(url)}: {outcome.changed} threads were {done}\n")
    for name in outcome.damaged:
        sys.stderr.write(f"teal: {name} is damaged and was left as it is\n")
    return Exit.FAILED if outcome.damaged else Exit.DONE


@contextmanager
def shown_progress() -> Iterator[Told]:
    """On standard error: a bar in a terminal, else a line every few seconds."""
    from rich.console import Console  # noqa: PLC0415  # slow to load
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines()
        return
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("threads", total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def _lines() -> Told:
    last = time.monotonic()

    def told(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            sys.stderr.write(f"{done} of {total} threads\n")

    return told


def _fail(code: Exit, error: Exception) -> Exit:
    sys.stderr.write(f"teal: {error}\n")
    return code
