"""`teal login`, `teal logout` and `teal whoami`: help and options; `signing_in` does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from sk_agents.cli.options import DEFAULT_SERVER, Json, ServerAccess, server_command

ServerName = Annotated[
    str, typer.Argument(metavar="[SERVER]", envvar="TA_SERVER", help="The server's address.")
]


def login(
    server: ServerName = DEFAULT_SERVER,
    device: Annotated[
        bool,
        typer.Option("--device", help="With a code that you type into a browser anywhere."),
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser", help="With the browser of this computer.")
    ] = False,
) -> None:
    """Sign in to a server. The other commands and the Python client then use this sign-in.

    The server says how: at its issuer (Entra ID, OpenID Connect) or with an access key. At an
    issuer your browser is opened; on a computer without one you get a code to type in elsewhere.
    The sign-in is kept in your data folder, readable by you alone, and renewed when needed.

    \b
    Examples:
      teal login https://agents.example.org
      teal login https://agents.example.org --device
      teal login

    \b
    Exit codes: 0 done, 1 refused, 2 bad usage, 69 no server.
    """
    from sk_agents.cli.signing_in import sign_in  # noqa: PLC0415

    if device and browser:
        raise typer.BadParameter("choose one of --device and --browser")
    raise typer.Exit(sign_in(server, "device" if device else "browser" if browser else None))


def logout(server: ServerName = DEFAULT_SERVER) -> None:
    """Sign out of a server: the stored sign-in is removed, and the issuer forgets it.

    \b
    Examples:
      teal logout https://agents.example.org
      teal logout

    \b
    Exit codes: 0 done, also if there was none, 1 it is removed here, but the issuer did not answer.
    """
    from sk_agents.cli.signing_in import sign_out  # noqa: PLC0415

    raise typer.Exit(sign_out(server))


@server_command
def whoami(access: ServerAccess, as_json: Json = False) -> None:
    """Say who you are to the server: id, name, tenant and roles.

    \b
    Examples:
      teal whoami
      teal whoami --server https://agents.example.org --json
    """
    from sk_agents.cli.signing_in import print_me  # noqa: PLC0415

    access.run(lambda client: print_me(client, as_json=as_json))
