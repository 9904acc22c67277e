"""The commands for talking and for what a server keeps: `teal chat`, `chats`, `export`, `agents`.

Only options and help. What the commands do is in `chat_session`, `single_message` and
`server_records`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sk_agents.cli.options import (
    EXITS,
    Exit,
    Json,
    Limit,
    ServerAccess,
    command_group,
    server_command,
)

if TYPE_CHECKING:
    from sk_agents.client import TealClient

Answers = Literal["approve", "reject", "none"]
Output = Literal["text", "json", "events"]
ChatId = Annotated[str, typer.Argument(metavar="CHAT_ID", help="The chat.")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="A file with the passphrase, for scripts; it is not asked for."
    ),
]
ARCHIVE_EXITS = (
    "Exit codes: 0 done, 1 refused, not found or a file that cannot be used, 2 bad usage, "
    "69 no server."
)

chats_app = command_group(
    "chats",
    "List, search, read, rename, tag and delete chats.",
    "teal chats list",
    "teal chats search postcard --json",
    "teal chats show chat_123",
)
agents_app = command_group("agents", "See the agents of a server.", "teal agents list")


@server_command
def chat(
    access: ServerAccess,
    chat_id: Annotated[
        str | None, typer.Argument(metavar="CHAT_ID", help="A chat to continue.")
    ] = None,
    message: Annotated[
        str | None,
        typer.Option(
            "--message",
            "-m",
            metavar="TEXT",
            help="Send only this message; - reads it from standard input.",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The agent that answers; see teal agents list."),
    ] = None,
    fold_thinking: Annotated[
        bool, typer.Option("--fold-thinking", help="Show each thought as one line.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", "-r", help="Choose one of your last chats to continue.")
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Show Markdown as it was written.")
    ] = False,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="With -m: send this file along; may be repeated."
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="With -m: approve every call that needs approval.")
    ] = False,
    no_approvals: Annotated[
        bool,
        typer.Option("--no-approvals", help="With -m: reject every call that needs approval."),
    ] = False,
    as_json: Json = False,
    events: Annotated[
        bool, typer.Option("--events", help="With -m: print each event as a line of JSON.")
    ] = False,
) -> None:
    """Talk with an agent: read its answer as it comes, decide about its tool calls.

    CHAT_ID continues a chat, also one that waits for your decision. Without it a new chat begins.
    A message may name text files and pictures to send along: what is on @photo.png?
    Ctrl-C stops the answer, Ctrl-D leaves. With -m there are no questions: one message is sent, and
    only the answer is printed.

    \b
    Examples:
      teal chat
      teal chat --resume
      teal chat --agent assistant --fold-thinking
      teal chat chat_123 --server https://agents.example.org
      teal chat -m "What time is it?"
      teal chat -m "Shorten this" -f letter.txt
      cat letter.txt | teal chat -m - --json
      teal chat -m "Send a postcard to Ada" --yes

    \b
    Exit codes: 0 answered or left, 1 failed, cancelled or refused, 2 bad usage, 3 (with -m) a call
    waits for approval, 69 no server at this address, 130 (with -m) interrupted.
    """
    if (yes and no_approvals) or (as_json and events):
        raise typer.BadParameter(
            "--yes cannot be used with --no-approvals, nor --json with --events"
        )
    if resume and (chat_id is not None or message is not None):
        raise typer.BadParameter("--resume cannot be used with a chat's id or with -m")
    if message is None:
        if yes or no_approvals or as_json or events or files:
            raise typer.BadParameter(
                "--yes, --no-approvals, --json, --events and --file need -m; "
                "in a conversation a message names files with @"
            )
        if not sys.stdin.isatty():
            raise typer.BadParameter(
                "standard input is not a terminal; send a message with -m TEXT or -m -"
            )
        from sk_agents.cli.chat_session import run_chat  # noqa: PLC0415

        raise typer.Exit(
            run_chat(
                access, chat_id, agent, fold_thinking=fold_thinking, plain=plain, resume=resume
            )
        )
    answers: Answers = "approve" if yes else "reject" if no_approvals else "none"
    output: Output = "json" if as_json else "events" if events else "text"
    from sk_agents.cli.single_message import send_message  # noqa: PLC0415

    code = send_message(
        access,
        chat_id,
        message,
        agent=agent,
        answers=answers,
        output=output,
        files=files or [],
    )
    raise typer.Exit(code)


@chats_app.command("list", epilog=EXITS)
@server_command
def list_chats(
    access: ServerAccess,
    tag: Annotated[
        str | None, typer.Option("--tag", metavar="TAG", help="Only those with this tag.")
    ] = None,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List your chats, the last changed one first.

    \b
    Examples:
      teal chats list
      teal chats list --tag travel
      teal chats list --limit 5 --json
    """
    from sk_agents.cli.server_records import list_chats  # noqa: PLC0415

    access.run(lambda client: list_chats(client, None, limit, tag=tag, as_json=as_json))


@chats_app.command(epilog=EXITS)
@server_command
def search(
    access: ServerAccess,
    text: Annotated[str, typer.Argument(help="A text that the chats contain.")],
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List the chats that contain a text.

    \b
    Examples:
      teal chats search postcard
    """
    from sk_agents.cli.server_records import list_chats  # noqa: PLC0415

    access.run(lambda client: list_chats(client, text, limit, as_json=as_json))


@chats_app.command(epilog=EXITS)
@server_command
def show(
    access: ServerAccess,
    chat_id: ChatId,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Also show messages that an edit replaced.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show all messages, tool calls and answers of a chat.

    \b
    Examples:
      teal chats show chat_123
      teal chats show chat_123 --superseded --json
    """
    from sk_agents.cli.server_records import show_chat  # noqa: PLC0415

    access.run(
        lambda client: show_chat(client.chat(chat_id), superseded=superseded, as_json=as_json)
    )


@chats_app.command(epilog=EXITS)
@server_command
def rename(
    access: ServerAccess,
    chat_id: ChatId,
    title: Annotated[str, typer.Argument(help="Its new title.")],
    as_json: Json = False,
) -> None:
    """Change a chat's title.

    \b
    Examples:
      teal chats rename chat_123 "Letters to Ada"
    """

    async def work(client: TealClient) -> None:
        renamed = await client.chat(chat_id).rename(title)
        if as_json:
            from sk_agents.cli.terminal import print_json  # noqa: PLC0415

            print_json(renamed.model_dump(mode="json"))

    access.run(work)


@chats_app.command(epilog=EXITS)
@server_command
def tag(
    access: ServerAccess,
    chat_id: ChatId,
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="TAG...", help="Tags to add; none: show them.")
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove these tags instead of adding them.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Give a chat tags, remove some, or show those it has.

    \b
    Examples:
      teal chats tag chat_123 travel 2026
      teal chats tag chat_123 --remove 2026
      teal chats tag chat_123
    """
    from sk_agents.cli.server_records import tag_chat  # noqa: PLC0415

    access.run(
        lambda client: tag_chat(client.chat(chat_id), tags or [], remove=remove, as_json=as_json)
    )


@chats_app.command(epilog=EXITS)
@server_command
def delete(
    access: ServerAccess,
    chat_ids: Annotated[list[str], typer.Argument(metavar="CHAT_ID...", help="The chats.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Stop what runs in chats, and delete them. This cannot be undone.

    \b
    Examples:
      teal chats delete chat_123
      teal chats delete chat_123 chat_124 --yes
    """
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter(
                "standard input is not a terminal; --yes deletes without asking"
            )
        count = "1 chat" if len(chat_ids) == 1 else f"{len(chat_ids)} chats"
        typer.confirm(f"Delete {count}? This cannot be undone.", abort=True)

    async def work(client: TealClient) -> None:
        for chat_id in chat_ids:
            await client.chat(chat_id).delete()
        if as_json:
            from sk_agents.cli.terminal import print_json  # noqa: PLC0415

            print_json({"deleted": chat_ids})

    access.run(work)


@server_command
def export(
    access: ServerAccess,
    chat_id: ChatId,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write to this file, not to standard output."
        ),
    ] = None,
    with_passphrase: Annotated[
        bool, typer.Option("--passphrase", help="Encrypt it; the passphrase is asked for.")
    ] = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Write a whole chat as one JSON document.

    \b
    Examples:
      teal export chat_123 -o chat_123.json
      teal export chat_123 --passphrase -o chat_123.json
      teal export chat_123 | gzip > chat_123.json.gz
    """
    from sk_agents.cli.server_records import write_document  # noqa: PLC0415

    passphrase = None
    if with_passphrase or passphrase_file is not None:
        from sk_agents.cli.passphrase import ask_for_new  # noqa: PLC0415  # cryptography

        passphrase = ask_for_new(passphrase_file)

    async def work(client: TealClient) -> Exit:
        return write_document(await client.chat(chat_id).export(), output, passphrase)

    access.run(work)


@server_command
def import_(
    access: ServerAccess,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A file from teal export; - reads standard input."),
    ],
    chat_id: Annotated[
        str | None, typer.Option("--chat-id", metavar="ID", help="The new chat's id.")
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Its agent, if this server lacks the one it had."),
    ] = None,
    as_json: Json = False,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Make a chat from a document that `teal export` wrote, also on another server.

    The passphrase of an encrypted one is asked for.

    \b
    Examples:
      teal import chat_123.json
      teal import chat_123.json --agent assistant
      teal export chat_123 | teal import - --chat-id copy --server http://127.0.0.1:8001
    """
    from sk_agents.cli.server_records import import_document, read_document  # noqa: PLC0415

    document = read_document(file, passphrase_file)
    if document is None:
        raise typer.Exit(Exit.FAILED)
    access.run(lambda client: import_document(client, document, chat_id, agent, as_json=as_json))


@server_command
def export_test(
    access: ServerAccess,
    run_id: Annotated[
        str, typer.Argument(metavar="RUN", help="The run: the id of an interaction.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write to this file, not to standard output."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The agent's file: the test then uses its rules, tools and limits.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """Write a pytest file that replays a completed run, without its model and its tools.

    The model says what it said, tools return what they returned, and people decide as they decided.
    With the agent's file the test fails when its rules or its tools' parameters change what
    happens. An existing file is not overwritten.

    \b
    Examples:
      teal export-test int_1f
      teal export-test int_1f -o tests/test_postcard.py --config agents/config.yaml
    """
    from sk_agents.cli.export_test import export_test  # noqa: PLC0415

    access.run(lambda client: export_test(client, run_id, output, config))


@server_command
def logs(
    access: ServerAccess,
    run_id: Annotated[
        str, typer.Argument(metavar="RUN", help="The run: the id of an interaction.")
    ],
    whole: Annotated[bool, typer.Option("--whole", help="Cut no value, however long.")] = False,
    as_json: Json = False,
) -> None:
    """Show everything of one run by its id: each event with its time, tokens, cost, and its error.

    A run that has not ended is read along, until it ends or Ctrl-C.

    \b
    Examples:
      teal logs int_1f
      teal logs int_1f --whole
      teal logs int_1f --json
    """
    from sk_agents.cli.run_log import show_log  # noqa: PLC0415

    access.run(lambda client: show_log(client, run_id, whole=whole, as_json=as_json))


@server_command
def top(
    access: ServerAccess,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.5, help="How often it is shown again.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    as_json: Json = False,
) -> None:
    """Show what runs and waits in your chats now, and what models have used today.

    In a pipe, and with --json, it is shown once.

    \b
    Examples:
      teal top
      teal top --once
      teal top --json
    """
    from sk_agents.cli.top import show_activity  # noqa: PLC0415

    is_once = once or not sys.stdout.isatty()
    access.run(lambda client: show_activity(client, every, once=is_once, as_json=as_json))


@agents_app.callback()
def agents() -> None:
    """Makes `list` a command of its own: more may come."""


@agents_app.command("list", epilog=EXITS)
@server_command
def list_agents(access: ServerAccess, as_json: Json = False) -> None:
    """List the agents that you can talk to, the default one first.

    \b
    Examples:
      teal agents list
      teal agents list --json
    """
    from sk_agents.cli.server_records import list_agents  # noqa: PLC0415

    access.run(lambda client: list_agents(client, as_json=as_json))
