"""`teal chat -m`: one message, one answer, an exit code. The user is asked nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from sk_agents.cli.attachments import read_items
from sk_agents.cli.chat_session import new_chat_id
from sk_agents.cli.chats import Answers, Output
from sk_agents.cli.event_printer import CUT_NOTES
from sk_agents.cli.interaction_reader import InteractionReader, UserLeft
from sk_agents.cli.options import Exit, ServerAccess
from sk_agents.cli.safe_text import one_line
from sk_agents.cli.server_connection import print_error, silence_client_log, unopened_client
from sk_agents.cli.terminal import Screen, print_json
from sk_agents.client import (
    ApprovalRequired,
    Chat,
    ClientError,
    Event,
    Reply,
    TealServerError,
    event_name,
)
from sk_agents.client.teal_client import MessageOptions

REJECTION = "No user is present to approve this."


def send_message(
    access: ServerAccess,
    chat_id: str | None,
    message: str,
    *,
    agent: str | None,
    answers: Answers,
    output: Output,
    files: Sequence[Path] = (),
) -> Exit:
    silence_client_log()
    try:
        if message == "-":
            message = sys.stdin.read()
        if not message.strip() and not files:
            raise ValueError("the message is empty")
        options: MessageOptions = {"agent": agent} if agent else {}
        if files:
            options["items"] = read_items(files)
        return asyncio.run(_send(access, chat_id, message, options, answers, output))
    except (ClientError, ValueError) as error:
        return print_error(error, access.server)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


async def _send(
    access: ServerAccess,
    chat_id: str | None,
    message: str,
    options: MessageOptions,
    answers: Answers,
    output: Output,
) -> Exit:
    async with unopened_client(access, give_up_after=0) as probe:
        await probe.agents()
    async with unopened_client(access) as client:
        chat = client.chat(chat_id or new_chat_id())

        def print_event(event: Event) -> None:
            if output == "events":
                fields = event.model_dump(mode="json", by_alias=True, exclude_none=True)
                named = {"event": event_name(event), "chat_id": chat.id, **fields}
                print_json(named, on_one_line=True)

        reader = InteractionReader(chat, print_event)
        try:
            await reader.read(chat.say(message, **options))
            while await _answer_all(chat, reader, answers):
                await reader.read_on()
        except UserLeft:
            return Exit.INTERRUPTED
    return _report(chat, reader, output)


async def _answer_all(chat: Chat, reader: InteractionReader, answers: Answers) -> bool:
    """False if a call waits that only the user can decide, or if none waits."""
    waiting = reader.open_approvals
    is_ours = all(
        approval.kind == "tool"
        and approval.review is None
        # A rule that wants a reason wants a person's.
        and not (answers == "approve" and approval.reason_required)
        for approval in waiting
    )
    if answers == "none" or not is_ours:
        return False
    for approval in waiting:
        await _answer(chat, approval, answers)
        reader.mark_decided(approval)
    return bool(waiting)


async def _answer(chat: Chat, approval: ApprovalRequired, answers: Answers) -> None:
    try:
        if answers == "approve":
            await chat.approve(approval)
        else:
            await chat.reject(approval, message=REJECTION)
    except TealServerError as error:
        # Decided elsewhere at the same time; the stream shows how.
        if error.status not in {400, 409}:
            raise


def _report(chat: Chat, reader: InteractionReader, output: Output) -> Exit:
    reply = reader.reply
    code = _exit_code(reader)
    match output:
        case "json":
            print_json(_document(chat, reply))
        case "text":
            if reply.text:
                Screen().line(reply.text.rstrip("\n"))
        case "events":
            pass
    if reply.finish_reason is not None and output != "events":
        typer.echo(f"teal: {CUT_NOTES[reply.finish_reason]}", err=True)
    if code == Exit.WAITING:
        for approval in reply.approvals:
            waits = "a decision" if approval.review is None else "others, who decide with"
            typer.echo(
                f"teal: {one_line(approval.tool_name)} waits for {waits}: "
                f"teal approvals approve {approval.approval_id}",
                err=True,
            )
        typer.echo(f"Then continue with: teal chat {chat.id}", err=True)
    elif code == Exit.FAILED:
        error = reply.error
        reason = f"{error.code}: {one_line(error.message)}" if error else reply.status.lower()
        typer.echo(f"teal: {reason}", err=True)
    return code


def _exit_code(reader: InteractionReader) -> Exit:
    if reader.was_stopped:
        return Exit.INTERRUPTED
    match reader.reply.status:
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
        "finish_reason": reply.finish_reason,
        "tool_calls": [asdict(use) for use in reply.tool_calls],
        "approvals": [a.model_dump(mode="json", by_alias=True) for a in reply.approvals],
        "usage": reply.usage.model_dump() if reply.usage else None,
        "cost": reply.cost.model_dump() if reply.cost else None,
        "error": reply.error.model_dump(mode="json") if reply.error else None,
    }
