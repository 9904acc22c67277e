"""`teal approvals` and `teal grants`: calls that wait for you, and approvals that stay valid."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sk_agents.cli.options import EXITS, Json, Limit, ServerAccess, command_group, server_command

if TYPE_CHECKING:
    from sk_agents.client import TealClient

ApprovalId = Annotated[str, typer.Argument(metavar="APPROVAL_ID", help="The approval.")]
ApprovalIds = Annotated[
    list[str], typer.Argument(metavar="APPROVAL_ID...", help="One approval, or several.")
]
APPROVAL_EXITS = (
    "Exit codes: 0 done, 1 refused (unknown, expired, already decided, bad arguments), "
    "2 bad usage, 69 no server."
)

approvals_app = command_group(
    "approvals",
    "See and decide the calls that wait for you.",
    "teal approvals list",
    "teal approvals watch",
    "teal approvals show approval_1f",
    "teal approvals approve approval_1f",
    'teal approvals reject approval_1f --reason "not on a Sunday"',
    "teal approvals withdraw approval_1f",
    exits=APPROVAL_EXITS,
)
grants_app = command_group(
    "grants",
    "See and revoke standing approvals.",
    "teal grants list",
    "teal grants revoke grant_1f",
)


@approvals_app.command("list", epilog=APPROVAL_EXITS)
@server_command
def list_approvals(
    access: ServerAccess,
    limit: Limit = 100,
    chat_id: Annotated[
        str | None, typer.Option("--chat", metavar="CHAT_ID", help="Only those of this chat.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List every call that waits in your chats, or for you as an approver; the oldest first.

    \b
    Examples:
      teal approvals list
      teal approvals list --chat chat_123 --json
    """
    from sk_agents.cli.server_records import list_approvals  # noqa: PLC0415

    access.run(lambda client: list_approvals(client, limit, chat_id, as_json=as_json))


@approvals_app.command(epilog=APPROVAL_EXITS)
@server_command
def watch(
    access: ServerAccess,
    ask: Annotated[
        bool | None,
        typer.Option(
            "--ask/--no-ask",
            show_default=False,
            help="Decide here about each call. Default: at a terminal.",
        ),
    ] = None,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.5, help="How often it looks.")
    ] = 2.0,
    as_json: Json = False,
) -> None:
    """Show calls that wait for you as they come, in all chats, and decide about them.

    With --json each one is a line: "waiting" when it comes, "gone" when it waits no longer.

    \b
    Examples:
      teal approvals watch
      teal approvals watch --no-ask
      teal approvals watch --json
    """
    from sk_agents.cli.approval_watch import watch_approvals  # noqa: PLC0415

    asks = sys.stdin.isatty() and not as_json if ask is None else ask
    if asks and (as_json or not sys.stdin.isatty()):
        raise typer.BadParameter("--ask needs a terminal, and cannot be used with --json")
    raise typer.Exit(watch_approvals(access, every, ask=asks, as_json=as_json))


@approvals_app.command(epilog=APPROVAL_EXITS)
@server_command
def show(
    access: ServerAccess,
    approval_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[APPROVAL_ID...]", help="Without one, all that wait."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show exactly what calls would run.

    \b
    Examples:
      teal approvals show
      teal approvals show approval_1f
    """
    from sk_agents.cli.server_records import show_approvals  # noqa: PLC0415

    access.run(lambda client: show_approvals(client, approval_ids or [], as_json=as_json))


@approvals_app.command(epilog=APPROVAL_EXITS)
@server_command
def approve(
    access: ServerAccess,
    approval_ids: ApprovalIds,
    edit: Annotated[
        str | None, typer.Option(metavar="JSON", help="Run the call with these arguments instead.")
    ] = None,
    choice: Annotated[
        Literal["done", "retry", "give_up"] | None,
        typer.Option(help="For a call whose outcome is unknown: how to go on."),
    ] = None,
    answer: Annotated[
        str | None, typer.Option(metavar="TEXT", help="For a question: your answer, JSON or text.")
    ] = None,
    remember: Annotated[
        Literal["run", "thread"] | None,
        typer.Option(
            help="Do not ask about this tool again in this run, or in this chat (thread)."
        ),
    ] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; some rules want a reason.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Let calls run, exactly as they are shown, or one of them with other arguments.

    Where several people decide about it, this is your vote.

    \b
    Examples:
      teal approvals approve approval_1f approval_20
      teal approvals approve approval_1f --edit '{"to": "Bob", "text": "Hello"}'
      teal approvals approve approval_1f --choice retry
      teal approvals approve approval_1f --remember thread
      teal approvals approve approval_1f --reason "agreed with Ada"
    """
    from sk_agents.cli.server_records import decide, verdict_of  # noqa: PLC0415

    if len(approval_ids) > 1 and not edit is choice is answer is None:
        raise typer.BadParameter("--edit, --choice and --answer are for one approval")
    verdict = verdict_of(edit=edit, choice=choice, answer=answer, remember=remember)
    verdict["reason"] = reason
    access.run(lambda client: decide(client, approval_ids, True, verdict, as_json=as_json))


@approvals_app.command(epilog=APPROVAL_EXITS)
@server_command
def reject(
    access: ServerAccess,
    approval_ids: ApprovalIds,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The reason; the model reads it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Refuse calls: they do not run, also if others have approved them.

    \b
    Examples:
      teal approvals reject approval_1f
      teal approvals reject approval_1f --reason "not on a Sunday"
    """
    from sk_agents.cli.server_records import decide  # noqa: PLC0415

    access.run(
        lambda client: decide(client, approval_ids, False, {"reason": reason}, as_json=as_json)
    )


@approvals_app.command(epilog=APPROVAL_EXITS)
@server_command
def withdraw(access: ServerAccess, approval_id: ApprovalId, as_json: Json = False) -> None:
    """Take your vote back, while the call is not decided about.

    \b
    Examples:
      teal approvals withdraw approval_1f
    """

    async def work(client: TealClient) -> None:
        await client.withdraw_vote(approval_id)
        if as_json:
            from sk_agents.cli.terminal import print_json  # noqa: PLC0415

            print_json({"status": "withdrawn", "approval_id": approval_id})
        else:
            typer.echo(f"vote withdrawn: {approval_id}")

    access.run(work)


@grants_app.command("list", epilog=EXITS)
@server_command
def list_grants(access: ServerAccess, limit: Limit = 100, as_json: Json = False) -> None:
    """List the tools that no longer ask you.

    \b
    Examples:
      teal grants list --json
    """
    from sk_agents.cli.server_records import list_grants  # noqa: PLC0415

    access.run(lambda client: list_grants(client, limit, as_json=as_json))


@grants_app.command(epilog=EXITS)
@server_command
def revoke(
    access: ServerAccess,
    grant_id: Annotated[str, typer.Argument(metavar="GRANT_ID", help="The standing approval.")],
    as_json: Json = False,
) -> None:
    """Let a tool ask you again.

    \b
    Examples:
      teal grants revoke grant_1f
    """

    async def work(client: TealClient) -> None:
        await client.revoke(grant_id)
        if as_json:
            from sk_agents.cli.terminal import print_json  # noqa: PLC0415

            print_json({"status": "revoked", "grant_id": grant_id})

    access.run(work)
