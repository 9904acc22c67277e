"""`teal export` and `teal import`: a chat as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sk_agents.cli.exits import Exit
from sk_agents.cli.options import Json, Target, on_server

if TYPE_CHECKING:
    from sk_agents.client import TealClient

EXITS = (
    "Exit codes: 0 done, 1 refused, not found or a file that cannot be used, 2 bad usage, "
    "69 no server."
)


@on_server
def export(
    target: Target,
    chat_id: Annotated[str, typer.Argument(metavar="CHAT_ID", help="The chat.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; else standard output."),
    ] = None,
) -> None:
    """Write a chat as one JSON document, with everything that was said and done.

    \b
    Examples:
      teal export chat_123 -o chat_123.json
      teal export chat_123 | gzip > chat_123.json.gz
    """
    # The client takes most of a start; --help does without it.
    from sk_agents.cli.documents import write_document  # noqa: PLC0415

    async def work(client: TealClient) -> Exit:
        return write_document(await client.chat(chat_id).export(), output)

    target.run(work)


@on_server
def import_(
    target: Target,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What export wrote; - reads standard input.")
    ],
    chat_id: Annotated[
        str | None, typer.Option("--chat-id", metavar="ID", help="Its id here; else a new one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a chat out of what `teal export` wrote, here or on another server.

    \b
    Examples:
      teal import chat_123.json
      teal export chat_123 | teal import - --chat-id copy --server http://127.0.0.1:8001
    """
    # As above.
    from sk_agents.cli.documents import print_imported, read_document  # noqa: PLC0415

    document = read_document(file)
    if document is None:
        raise typer.Exit(Exit.FAILED)

    async def work(client: TealClient) -> Exit:
        made = await client.import_chat(document, chat_id=chat_id)
        return print_imported(made, as_json=as_json)

    target.run(work)
