"""Deciding about a call from its id alone. What is approved is what was fetched and shown."""

from __future__ import annotations

import json

import typer

from sk_agents.cli.asking import show
from sk_agents.cli.exits import Exit
from sk_agents.cli.neutral import one_line
from sk_agents.cli.screen import Screen, print_json
from sk_agents.client import TealClient
from sk_agents.client.decision import Choice, Remember, Verdict


async def show_approval(client: TealClient, approval_id: str, *, as_json: bool) -> Exit:
    approval = await client.approval(approval_id)
    if as_json:
        print_json(approval.model_dump(mode="json", by_alias=True))
        return Exit.DONE
    screen = Screen()
    show(screen, approval)
    screen.line(f"  {approval.state}, in chat {approval.chat_id}")
    return Exit.DONE


async def decide(
    client: TealClient, approval_id: str, approved: bool, verdict: Verdict, *, as_json: bool
) -> Exit:
    # The decision carries the digest of what was fetched: nothing else can be meant.
    approval = await client.approval(approval_id)
    send = client.approve if approved else client.reject
    decided = await send(approval, **verdict)
    if as_json:
        print_json(decided.model_dump(mode="json"))
    else:
        word = "approved" if approved else "rejected"
        typer.echo(f"{word}: {one_line(approval.tool_name)} {one_line(approval.tool_input)}")
    return Exit.DONE


def verdict_of(
    *,
    edit: str | None = None,
    choice: Choice | None = None,
    answer: str | None = None,
    remember: Remember | None = None,
    reason: str | None = None,
) -> Verdict:
    """Raises typer.BadParameter: the arguments are no JSON object."""
    verdict: Verdict = {"choice": choice, "remember": remember, "message": reason}
    if edit is not None:
        try:
            arguments = json.loads(edit)
        except ValueError as error:
            raise typer.BadParameter(f"--edit is no JSON: {error}") from None
        if not isinstance(arguments, dict):
            raise typer.BadParameter("--edit must be a JSON object")
        verdict["edited_arguments"] = arguments
    if answer is not None:
        try:
            verdict["answer"] = json.loads(answer)
        except ValueError:
            verdict["answer"] = answer
    return verdict
