"""`teal chats`: what is kept on a server."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sk_agents.cli.exits import Exit
from sk_agents.cli.options import Json, Limit, Target, on_server

if TYPE_CHECKING:
    from sk_agents.client import TealClient

ChatId = Annotated[str, typer.Argument(metavar="CHAT_ID", help="The chat.")]
EXITS = "Exit codes: 0 done, 1 refused or not found, 2 bad usage, 69 no server."

app = typer.Typer(
    name="chats",
    no_args_is_help=True,
    rich_markup_mode=None,
    help=f"""List, search, read, rename and delete chats.

    \b
    Examples:
      teal chats list
      teal chats search postcard --json
      teal chats show chat_123

    \b
    {EXITS}""",
)


@app.command("list", epilog=EXITS)
@on_server
def list_chats(target: Target, limit: Limit = 50, as_json: Json = False) -> None:
    """Your chats, those changed last first.

    \b
    Examples:
      teal chats list
      teal chats list --limit 5 --json
    """
    _list(target, None, limit, as_json)


@app.command(epilog=EXITS)
@on_server
def search(
    target: Target,
    text: Annotated[str, typer.Argument(help="What was said in them.")],
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """The chats in which a text was said.

    \b
    Examples:
      teal chats search postcard
    """
    _list(target, text, limit, as_json)


@app.command(epilog=EXITS)
@on_server
def show(
    target: Target,
    chat_id: ChatId,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Also what was edited away.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Everything that was said and done in a chat.

    \b
    Examples:
      teal chats show chat_123
      teal chats show chat_123 --superseded --json
    """
    # The client and rich take most of a start; --help does without them.
    from sk_agents.cli.reading import show_chat  # noqa: PLC0415

    target.run(
        lambda client: show_chat(client.chat(chat_id), superseded=superseded, as_json=as_json)
    )


@app.command(epilog=EXITS)
@on_server
def rename(
    target: Target,
    chat_id: ChatId,
    title: Annotated[str, typer.Argument(help="Its new title.")],
) -> None:
    """Give a chat a title.

    \b
    Examples:
      teal chats rename chat_123 "Letters to Ada"
    """

    async def work(client: TealClient) -> Exit:
        await client.chat(chat_id).rename(title)
        return Exit.DONE

    target.run(work)


@app.command(epilog=EXITS)
@on_server
def delete(
    target: Target,
    chat_ids: Annotated[list[str], typer.Argument(metavar="CHAT_ID...", help="The chats.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Stop what runs in chats and remove them for good.

    \b
    Examples:
      teal chats delete chat_123
      teal chats delete chat_123 chat_124 --yes
    """
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("there is nobody to ask; --yes deletes without asking")
        typer.confirm(f"Delete {len(chat_ids)} for good?", abort=True)

    async def work(client: TealClient) -> Exit:
        for chat_id in chat_ids:
            await client.chat(chat_id).delete()
        return Exit.DONE

    target.run(work)


def _list(target: Target, text: str | None, limit: int, as_json: bool) -> None:
    # As above.
    from sk_agents.cli.reading import list_chats  # noqa: PLC0415

    target.run(lambda client: list_chats(client, text, limit, as_json=as_json))
