"""`teal chat -m`: one message, one answer, an exit code; nobody is asked anything."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import typer

from sk_agents.cli.chat import Answers, Output
from sk_agents.cli.exits import Exit
from sk_agents.cli.following import Follower, Left
from sk_agents.cli.neutral import one_line
from sk_agents.cli.options import Target
from sk_agents.cli.reaching import client_of, complain, quiet_client_logs
from sk_agents.cli.screen import Screen, print_json, print_json_line
from sk_agents.cli.session import new_chat_id
from sk_agents.client import (
    ApprovalRequired,
    Chat,
    ClientError,
    Event,
    Reply,
    TealServerError,
)
from sk_agents.client.chat import MessageOptions

NOBODY = "Nobody is there to approve this."


def ask_once(
    target: Target,
    chat_id: str | None,
    message: str,
    *,
    agent: str | None,
    answers: Answers,
    output: Output,
) -> Exit:
    quiet_client_logs()
    try:
        if message == "-":
            message = sys.stdin.read()
        return asyncio.run(_ask(target, chat_id, message, agent, answers, output))
    except (ClientError, ValueError) as error:
        return complain(error, target.server)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


async def _ask(
    target: Target,
    chat_id: str | None,
    message: str,
    agent: str | None,
    answers: Answers,
    output: Output,
) -> Exit:
    async with client_of(target, give_up_after=0) as probe:
        await probe.agents()
    async with client_of(target) as client:
        chat = client.chat(chat_id or new_chat_id())
        tell = _event_printer(chat) if output == "events" else _nothing
        follower = Follower(chat, tell)
        options: MessageOptions = {"agent": agent} if agent else {}
        try:
            await follower.follow(chat.say(message, **options))
            while await _answer_all(chat, follower, answers):
                await follower.follow(follower.further_events())
        except Left:
            return Exit.INTERRUPTED
    return _report(chat, follower, output)


async def _answer_all(chat: Chat, follower: Follower, answers: Answers) -> bool:
    """False if something waits that only a person can decide, or if nothing waits."""
    waiting = follower.open_approvals
    if answers == "none" or not all(approval.kind == "tool" for approval in waiting):
        return False
    for approval in waiting:
        await _answer(chat, approval, answers)
        follower.note_decided(approval)
    return bool(waiting)


async def _answer(chat: Chat, approval: ApprovalRequired, answers: Answers) -> None:
    try:
        if answers == "approve":
            await chat.approve(approval)
        else:
            await chat.reject(approval, message=NOBODY)
    except TealServerError as error:
        # Somebody else was faster; the stream tells what they said.
        if error.status not in {400, 409}:
            raise


def _report(chat: Chat, follower: Follower, output: Output) -> Exit:
    reply = follower.reply
    code = _exit_code(follower)
    match output:
        case "json":
            print_json(_document(chat, reply))
        case "text":
            if reply.text:
                Screen().line(reply.text.rstrip("\n"))
        case "events":
            pass
    if code == Exit.WAITING:
        for approval in reply.approvals:
            typer.echo(
                f"teal: {one_line(approval.tool_name)} waits for a decision: "
                f"teal approvals approve {approval.approval_id}",
                err=True,
            )
        typer.echo(f"Then read on with: teal chat {chat.id}", err=True)
    elif code == Exit.FAILED:
        error = reply.error
        reason = f"{error.code}: {one_line(error.message)}" if error else reply.status.lower()
        typer.echo(f"teal: {reason}", err=True)
    return code


def _exit_code(follower: Follower) -> Exit:
    if follower.was_stopped:
        return Exit.INTERRUPTED
    match follower.reply.status:
        case "COMPLETED":
            return Exit.DONE
        case "WAITING_APPROVAL":
            return Exit.WAITING
        case _:
            return Exit.FAILED


def _document(chat: Chat, reply: Reply) -> dict[str, object]:
    return {
        "chat_id": chat.id,
        "interaction_id": reply.interaction_id,
        "status": reply.status,
        "text": reply.text,
        "tool_calls": [
            {
                "id": use.id,
                "tool_name": use.tool_name,
                "tool_input": use.tool_input,
                "tool_output": use.tool_output,
            }
            for use in reply.tool_calls
        ],
        "approvals": [a.model_dump(mode="json", by_alias=True) for a in reply.approvals],
        "usage": reply.usage.model_dump() if reply.usage else None,
        "error": reply.error.model_dump(mode="json") if reply.error else None,
    }


def _event_printer(chat: Chat) -> Callable[[Event], None]:
    def print_event(event: Event) -> None:
        fields = event.model_dump(mode="json", by_alias=True, exclude_none=True)
        print_json_line({"event": type(event).__name__, "chat_id": chat.id, **fields})

    return print_event


def _nothing(event: Event) -> None:
    pass
