"""`teal approvals`: what waits for you, wherever it was asked."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from sk_agents.cli.options import Json, Limit, Target, on_server

ApprovalId = Annotated[str, typer.Argument(metavar="APPROVAL_ID", help="The approval.")]
EXITS = (
    "Exit codes: 0 done, 1 refused (unknown, expired, decided already, bad arguments), "
    "2 bad usage, 69 no server."
)

app = typer.Typer(
    name="approvals",
    no_args_is_help=True,
    rich_markup_mode=None,
    help=f"""See and decide what waits for you.

    \b
    Examples:
      teal approvals list
      teal approvals show approval_1f
      teal approvals approve approval_1f
      teal approvals reject approval_1f --reason "not on a Sunday"

    \b
    {EXITS}""",
)


@app.command("list", epilog=EXITS)
@on_server
def list_approvals(target: Target, limit: Limit = 100, as_json: Json = False) -> None:
    """Every call that waits for a decision of yours.

    \b
    Examples:
      teal approvals list
      teal approvals list --json
    """
    # The client and rich take most of a start; --help does without them.
    from sk_agents.cli.reading import list_approvals  # noqa: PLC0415

    target.run(lambda client: list_approvals(client, limit, as_json=as_json))


@app.command(epilog=EXITS)
@on_server
def show(target: Target, approval_id: ApprovalId, as_json: Json = False) -> None:
    """Exactly what a call would run.

    \b
    Examples:
      teal approvals show approval_1f
    """
    # As above.
    from sk_agents.cli.deciding import show_approval  # noqa: PLC0415

    target.run(lambda client: show_approval(client, approval_id, as_json=as_json))


@app.command(epilog=EXITS)
@on_server
def approve(
    target: Target,
    approval_id: ApprovalId,
    edit: Annotated[
        str | None, typer.Option(metavar="JSON", help="Run it with these arguments instead.")
    ] = None,
    choice: Annotated[
        Literal["done", "retry", "give_up"] | None,
        typer.Option(help="For a call whose outcome is unknown: what happened."),
    ] = None,
    answer: Annotated[
        str | None, typer.Option(metavar="TEXT", help="For a question: JSON, or a text.")
    ] = None,
    remember: Annotated[
        Literal["run", "thread"] | None,
        typer.Option(help="Ask no more about this tool in this run, or in this chat (thread)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Let a call run, exactly as it is shown or with other arguments.

    \b
    Examples:
      teal approvals approve approval_1f
      teal approvals approve approval_1f --edit '{"to": "Bob", "text": "Hello"}'
      teal approvals approve approval_1f --choice retry
      teal approvals approve approval_1f --remember thread
    """
    # As above.
    from sk_agents.cli.deciding import decide, verdict_of  # noqa: PLC0415

    verdict = verdict_of(edit=edit, choice=choice, answer=answer, remember=remember)
    target.run(lambda client: decide(client, approval_id, True, verdict, as_json=as_json))


@app.command(epilog=EXITS)
@on_server
def reject(
    target: Target,
    approval_id: ApprovalId,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model is told.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Do not let a call run.

    \b
    Examples:
      teal approvals reject approval_1f
      teal approvals reject approval_1f --reason "not on a Sunday"
    """
    # As above.
    from sk_agents.cli.deciding import decide, verdict_of  # noqa: PLC0415

    verdict = verdict_of(reason=reason)
    target.run(lambda client: decide(client, approval_id, False, verdict, as_json=as_json))
