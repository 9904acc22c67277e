"""`teal feedback`: what you think of an answer, and for operators what all users think."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Annotated, Literal

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
from sk_agents.cli.options import (
    EXITS,
    Exit,
    Json,
    ServerAccess,
    command_group,
    server_command,
)
from sk_agents.exceptions import ConfigurationError

if TYPE_CHECKING:
    from sk_agents.client import TealClient

app = command_group(
    "feedback",
    "Rate answers, and read what users think of them.",
    'teal feedback give int_1f down --note "It named the wrong year."',
    "teal feedback export --since 7d --agent helper > feedback.jsonl",
)


@app.command(epilog=EXITS)
@server_command
def give(
    access: ServerAccess,
    interaction_id: Annotated[
        str, typer.Argument(metavar="INTERACTION", help="The interaction with the answer.")
    ],
    rating: Annotated[
        Literal["up", "down", "none"], typer.Argument(help="What it is worth; none takes it back.")
    ],
    note: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Why. The operators of the server read it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what an answer of one of your chats is worth.

    \b
    Examples:
      teal feedback give int_1f up
      teal feedback give int_1f down --note "It named the wrong year."
      teal feedback give int_1f none
    """
    if rating == "none" and note is not None:
        raise typer.BadParameter("--note goes with up or down")

    async def work(client: TealClient) -> None:
        found = await client.find(interaction_id)
        chat = client.chat(found.chat_id)
        await chat.rate(interaction_id, None if rating == "none" else rating, note)
        if as_json:
            from sk_agents.cli.terminal import print_json  # noqa: PLC0415

            print_json({"interaction_id": interaction_id, "rating": rating, "note": note})

    access.run(work)


@app.command(epilog=EXITS)
@server_command
def export(
    access: ServerAccess,
    since: Since = None,
    agent: OfAgent = None,
    form: InFormat = Format.JSONL,
    output: Output = None,
) -> None:
    """Print what users think of answers, the oldest first: for operators.

    Ratings, notes and ids. What was asked and answered is not in it.

    \b
    Examples:
      teal feedback export --since 7d
      teal feedback export --agent helper --format csv --output feedback.csv
    """

    async def work(client: TealClient) -> Exit:
        rows = [row async for row in client.feedback(since=since, agent=agent)]
        rows.sort(key=lambda row: row.at)
        try:
            with written_to(output) as file:
                if form is Format.JSONL:
                    file.writelines(json_line(row.model_dump(mode="json")) for row in rows)
                    return Exit.DONE
                from sk_agents.wire.views import FeedbackRow  # noqa: PLC0415

                table = csv.DictWriter(file, list(FeedbackRow.model_fields))
                table.writeheader()
                table.writerows(
                    {name: cell(value) for name, value in row.model_dump().items()} for row in rows
                )
        except ConfigurationError as error:
            typer.echo(f"teal: {error}", err=True)
            return Exit.FAILED
        return Exit.DONE

    access.run(work)
