"""`teal keys`: access keys for scripts and small teams, in a file on this machine."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sk_agents.cli.options import Exit, Json, command_group, span
from sk_agents.exceptions import ConfigurationError

if TYPE_CHECKING:
    from sk_agents.authorization.access_keys import AccessKey, KeysFile

EXITS = "Exit codes: 0 done, 1 no such key, 2 bad usage, 78 the file cannot be used."

app = command_group(
    "keys",
    "Make, list and revoke access keys.\n\nA server started with TA_AUTHORIZER=keys accepts "
    "requests that carry one of them as `Authorization: Bearer KEY`. A change takes effect at the "
    "next request, without a restart.",
    "teal keys add alice --expires 90d",
    "teal keys add bob --role approver --group finance",
    "teal keys list",
    "teal keys revoke alice",
    exits=EXITS,
)
File = Annotated[
    Path | None,
    typer.Option(
        "--file", metavar="PATH", help="The file of keys. [TA_KEYS_FILE, in the data folder]"
    ),
]


def _expiry(text: str) -> timedelta:
    seconds = span(text)
    if not seconds:
        raise typer.BadParameter("must be longer than 0")
    return timedelta(seconds=seconds)


@app.command(epilog=EXITS)
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user that the key stands for.")],
    expires: Annotated[
        timedelta | None,
        typer.Option(metavar="TIME", parser=_expiry, help="How long it is valid: 12h, 90d, 52w."),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE",
            help="A role of this key, such as approver or operator. May be given several times.",
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP",
            help="A group of this key, as rules of approval and TA_ROLES name it. May be given "
            "several times.",
        ),
    ] = None,
    file: File = None,
) -> None:
    """Make a key and print it. It is shown only now: the file holds its hash.

    \b
    Examples:
      teal keys add alice
      teal keys add bob --role approver --role operator
      teal keys add carol --group finance --group board
      teal keys add nightly-report --expires 90d
    """
    if not name.strip() or len(name) > 256 or not name.isprintable():
        raise typer.BadParameter("must be a name of at most 256 printable characters")
    if name != name.strip():
        # It would be another user, whom no list tells from the one without the space.
        raise typer.BadParameter("must not begin or end with a space")
    roles, groups = role or [], group or []
    _refuse_unusable("role", roles)
    _refuse_unusable("group", groups)
    keys = _keys(file)
    end = datetime.now(UTC) + expires if expires is not None else None
    try:
        key, text = keys.add(name, expires_at=end, roles=roles, groups=groups)
    except ConfigurationError as error:
        raise _unusable(error) from None
    typer.echo(text)
    typer.echo(f"key {key.key_id} of {name}, {_until(key)}; kept in {keys.path}", err=True)


@app.command("list", epilog=EXITS)
def list_keys(as_json: Json = False, file: File = None) -> None:
    """List the keys: id, user, made, expires, roles, groups. The key itself is never shown.

    \b
    Examples:
      teal keys list --json
    """
    from sk_agents.cli.terminal import print_json  # noqa: PLC0415  # rich is slow to load

    try:
        keys = _keys(file).keys()
    except ConfigurationError as error:
        raise _unusable(error) from None
    if as_json:
        print_json([key.model_dump(mode="json", exclude={"secret_hash"}) for key in keys])
        return
    for key in keys:
        roles = f"  {', '.join(key.roles)}" if key.roles else ""
        groups = f"  groups: {', '.join(key.groups)}" if key.groups else ""
        made = f"made {key.made_at:%Y-%m-%d}"
        typer.echo(f"{key.key_id}  {key.name}  {made}  {_until(key)}{roles}{groups}")


@app.command(epilog=EXITS)
def revoke(
    which: Annotated[
        str, typer.Argument(metavar="ID|NAME", help="A key's id, or a user: all of its keys.")
    ],
    file: File = None,
) -> None:
    """Revoke keys. The server refuses requests with them from now on.

    \b
    Examples:
      teal keys revoke 1f2e3d4c5b6a
      teal keys revoke alice
    """
    try:
        gone = _keys(file).revoke(which)
    except ConfigurationError as error:
        raise _unusable(error) from None
    if not gone:
        typer.echo(f"teal: there is no key '{which}'", err=True)
        raise typer.Exit(Exit.FAILED)
    for key in gone:
        typer.echo(f"revoked {key.key_id} of {key.name}")


def _refuse_unusable(what: str, names: list[str]) -> None:
    """A name with a space at its end would be another one, whom no list tells apart."""
    for one in names:
        if not one or one != one.strip() or len(one) > 256 or not one.isprintable():
            raise typer.BadParameter(
                f"a {what} must have 1 to 256 printable characters, none of them a space at an end"
            )


def _keys(file: Path | None) -> KeysFile:
    # pydantic and the settings take most of a start; --help does without them.
    from sk_agents.authorization.access_keys import KeysFile, default_keys_file  # noqa: PLC0415
    from sk_agents.config.settings import load_settings  # noqa: PLC0415

    if file is None:
        try:
            file = load_settings().keys_file
        except ConfigurationError as error:
            raise _unusable(error) from None
    return KeysFile(file or default_keys_file(os.environ))


def _until(key: AccessKey) -> str:
    if key.expires_at is None:
        return "never expires"
    word = "expired" if key.is_over(datetime.now(UTC)) else "expires"
    return f"{word} {key.expires_at:%Y-%m-%d %H:%M} UTC"


def _unusable(error: ConfigurationError) -> typer.Exit:
    typer.echo(f"teal: {error}", err=True)
    return typer.Exit(Exit.BAD_CONFIGURATION)
