"""What a server keeps: chats, approvals, grants and agents, listed, shown, decided and copied."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeVar

import typer

from sk_agents.cli.event_printer import (
    EventPrinter,
    approval_place,
    money_text,
    print_approval,
    print_end,
    print_told,
)
from sk_agents.cli.options import Exit
from sk_agents.cli.safe_text import one_line
from sk_agents.cli.terminal import DIM, STRONG, Screen, print_json
from sk_agents.client import Answer, Chat, PendingApproval, TealClient, TealServerError
from sk_agents.client.teal_client import DecisionOptions
from sk_agents.wire.events import Choice, WireModel
from sk_agents.wire.requests import Remember, checked_tag
from sk_agents.wire.views import ChatSummary

Record = TypeVar("Record", bound=WireModel)


async def list_chats(
    client: TealClient, text: str | None, limit: int, *, tag: str | None = None, as_json: bool
) -> None:
    chats = await _first(client.chats(text, tag=tag), limit)
    _print(
        chats,
        ["chat", "title", "agent", "status", "changed", *(["tags"] if _have_tags(chats) else [])],
        lambda chat: [
            *(chat.id, chat.title, chat.agent, chat.status, _when(chat.updated_at)),
            *([", ".join(chat.tags)] if _have_tags(chats) else []),
        ],
        as_json=as_json,
    )


def _have_tags(chats: Sequence[ChatSummary]) -> bool:
    return any(chat.tags for chat in chats)


async def tag_chat(chat: Chat, tags: Sequence[str], *, remove: bool, as_json: bool) -> Exit | None:
    """Add the tags to those of the chat, or remove them; without any, only show them."""
    try:
        named = [checked_tag(tag) for tag in tags]
    except ValueError as problem:
        typer.echo(f"teal: {problem}", err=True)
        return Exit.FAILED
    kept = list((await chat.history(state=False)).tags)
    if named:
        rest = [tag for tag in kept if tag not in named]
        kept = list((await chat.tag(rest if remove else [*kept, *named])).tags)
    if as_json:
        print_json({"id": chat.id, "tags": kept})
    else:
        Screen().line(", ".join(kept) or "no tags")
    return None


async def list_approvals(
    client: TealClient, limit: int, chat_id: str | None, *, as_json: bool
) -> None:
    _print(
        await _first(waiting_approvals(client, chat_id), limit),
        ["approval", "chat", "kind", "tool", "arguments", "expires", "decided by", "title", "for"],
        lambda a: [
            *(a.approval_id, a.chat_id, a.kind, a.tool_name, a.tool_input, _when(a.expires_at)),
            *(_deciders(a), a.chat_title, a.requested_by),
        ],
        as_json=as_json,
    )


async def waiting_approvals(
    client: TealClient, chat_id: str | None = None
) -> AsyncGenerator[PendingApproval, None]:
    """The oldest first; of one chat, if it is named."""
    async with aclosing(client.approvals()) as approvals:
        async for approval in approvals:
            if chat_id in (None, approval.chat_id):
                yield approval


def _deciders(approval: PendingApproval) -> str:
    """You, or what is missing of the votes of others."""
    review = approval.review
    if review is None:
        return "you"
    who = "you have voted" if approval.my_vote else "you" if approval.may_decide else "others"
    return f"{who}, {review.missing} of {review.quorum} missing"


async def list_grants(client: TealClient, limit: int, *, as_json: bool) -> None:
    _print(
        await _first(client.grants(), limit),
        ["grant", "chat", "tool", "scope", "given"],
        lambda grant: [
            *(grant.grant_id, grant.chat_id, grant.tool, grant.scope, _when(grant.granted_at))
        ],
        as_json=as_json,
    )


async def list_usage(
    client: TealClient, since: date | None, *, all_users: bool, as_json: bool
) -> None:
    report = await client.usage(since, all_users=all_users)
    if as_json:
        print_json(report.model_dump(mode="json"))
        return
    headings = ["day", *(["user"] if all_users else []), "agent", "model"]
    headings += ["calls", "read", "written", "cost"]
    rows = [
        [
            row.day,
            *([row.user_id] if all_users else []),
            *(row.agent, row.model, str(row.calls)),
            *(str(row.prompt_tokens), str(row.completion_tokens), money_text(row.cost)),
        ]
        for row in report.rows
    ]
    screen = Screen()
    screen.table(headings, rows)
    if cost := money_text(cost for row in report.rows for cost in row.cost):
        screen.note(f"{cost} since {report.since}")


async def list_budgets(client: TealClient, *, all_users: bool, as_json: bool) -> None:
    report = await client.budgets(all_users=all_users)
    if as_json:
        print_json(report.model_dump(mode="json"))
        return

    def amount(number: float, unit: str) -> str:
        if unit == "tokens":
            return f"{number:.0f} tokens"
        return f"{number:.4f}".rstrip("0").rstrip(".") + f" {unit}"

    others = "each other user"
    headings = ["budget of", *(["user"] if all_users else []), "agent", "spent", "of", "left"]
    rows = [
        [
            {"user": "a day", "hour": "an hour"}.get(row.scope, f"the {row.scope}"),
            *([row.user_id or (others if row.scope in ("user", "hour") else "")] * all_users),
            row.agent or "",
            *(amount(number, row.unit) for number in (row.spent, row.most, row.left)),
            _when(row.resets_at),
        ]
        for row in report.rows
    ]
    screen = Screen()
    screen.table([*headings, "until"], rows)
    if report.run:
        screen.note(f"a single turn may spend {' and '.join(report.run)}")
    elif not rows:
        screen.note("no budget is set")


async def list_sessions(
    client: TealClient, since: datetime | None, user: str | None, limit: int, *, as_json: bool
) -> None:
    report = await client.sessions(since, user=user, limit=limit)
    if as_json:
        print_json(report.model_dump(mode="json"))
        return
    screen = Screen()
    if not report.users:
        screen.note(f"nobody is at work, or was since {_when(report.since)}")
        return
    screen.table(
        ["user", "running", "waiting", "ended", "streams", "last"],
        [
            [
                one.user_id,
                *map(str, (one.running, one.waiting, one.ended, one.streams)),
                _when(one.last_at) if one.last_at else "",
            ]
            for one in report.users
        ],
    )
    screen.line("")
    screen.table(
        ["status", "user", "agent", "api", "thread", "changed"],
        [
            [
                # A run that no instance works at is one that a lost instance left behind.
                one.status if one.is_driven or one.status != "running" else "running, left behind",
                *(one.user_id, one.agent, one.surface, one.thread_id, _when(one.updated_at)),
            ]
            for one in report.sessions
        ],
    )
    if report.is_cut:
        screen.note(f"these are the first {limit}, and there are more; see --limit")


async def list_agents(client: TealClient, *, as_json: bool) -> None:
    def tools(each: Sequence[Any]) -> str:
        return ", ".join(str(tool.get("name")) for tool in each if isinstance(tool, dict))

    _print(
        await client.agents(),
        ["agent", "model", "tools", "description"],
        lambda agent: [agent.name, agent.model, tools(agent.tools), agent.description],
        as_json=as_json,
    )


async def _first(records: AsyncGenerator[Record, None], limit: int) -> list[Record]:
    """As many as may be shown. If there are more, the user is told."""
    found: list[Record] = []
    async with aclosing(records):
        async for record in records:
            if len(found) == limit:
                note = f"teal: these are the first {limit}, and there are more; see --limit"
                typer.echo(note, err=True)
                break
            found.append(record)
    return found


def _print(
    records: Sequence[Record],
    headings: list[str],
    cells: Callable[[Record], list[str | None]],
    *,
    as_json: bool,
) -> None:
    if as_json:
        print_json([record.model_dump(mode="json", by_alias=True) for record in records])
        return
    Screen().table(headings, [[cell or "" for cell in cells(record)] for record in records])


def _when(moment: str | None) -> str:
    """To the second; a reader of a list does not need the fraction and the zone."""
    return (moment or "")[:19].replace("T", " ")


async def show_chat(chat: Chat, *, superseded: bool, as_json: bool) -> None:
    interactions = [i async for i in chat.interactions(superseded=superseded)][::-1]
    history = await chat.history(state=False)
    if as_json:
        whole = history.model_copy(update={"interactions": tuple(interactions), "next": None})
        print_json(whole.model_dump(mode="json", by_alias=True))
        return
    screen = Screen()
    screen.line(f"{history.title or chat.id} ({history.agent}, {history.status})", DIM)
    for interaction in interactions:
        screen.line(f"> {interaction.user_message}", STRONG)
        printer = EventPrinter(screen, whole_results=True)
        for place, event in enumerate(interaction.agent_events):
            print_told(screen, interaction, place)
            printer.print(event)
            if isinstance(event, Answer):
                screen.line()
        print_told(screen, interaction, len(interaction.agent_events))
        print_end(screen, interaction)
        for approval in interaction.approvals:
            print_approval(screen, approval)


async def show_approvals(
    client: TealClient, approval_ids: Sequence[str], *, as_json: bool
) -> Exit | None:
    """Those that are named; without a name all that wait."""
    if not approval_ids:
        found = [each async for each in waiting_approvals(client)]
    else:
        found = [await client.approval(approval_id) for approval_id in approval_ids]
    if as_json:
        documents = [each.model_dump(mode="json", by_alias=True) for each in found]
        print_json(documents[0] if len(approval_ids) == 1 else documents)
        return None
    screen = Screen()
    for approval in found:
        _show_approval(screen, approval)
    if not found:
        screen.note("no call waits for you")
    return None


def _show_approval(screen: Screen, approval: PendingApproval) -> None:
    print_approval(screen, approval)
    for turn in approval.conversation or ():
        screen.line(f"  > {one_line(turn.user_message)}", DIM)
        if turn.answer is not None:
            screen.line(f"    {one_line(turn.answer)}", DIM)
    screen.line(f"  {approval.state}{approval_place(approval)}")


async def decide(
    client: TealClient,
    approval_ids: Sequence[str],
    approved: bool,
    verdict: DecisionOptions,
    *,
    as_json: bool,
) -> Exit:
    """Decide about each. One that is refused does not keep the others from being decided."""
    code = Exit.DONE
    receipts: list[dict[str, Any]] = []
    for approval_id in approval_ids:
        try:
            receipts.append(await _decide(client, approval_id, approved, verdict, as_json=as_json))
        except TealServerError as error:
            if len(approval_ids) == 1:
                raise
            typer.echo(f"teal: {approval_id}: {one_line(str(error))}", err=True)
            code = Exit.FAILED
    if as_json:
        print_json(receipts[0] if len(approval_ids) == 1 else receipts)
    return code


async def _decide(
    client: TealClient, approval_id: str, approved: bool, verdict: DecisionOptions, *, as_json: bool
) -> dict[str, Any]:
    # The decision carries the digest of what was fetched, so it is valid for nothing else.
    approval = await client.approval(approval_id)
    send = client.approve if approved else client.reject
    decided = await send(approval, **verdict)
    if not as_json:
        word = "approved" if approved else "rejected"
        if decided.missing:
            word = f"vote counted, {decided.missing} more needed"
        typer.echo(f"{word}: {one_line(approval.tool_name)} {one_line(approval.tool_input)}")
    return decided.model_dump(mode="json")


def verdict_of(
    *, edit: str | None, choice: Choice | None, answer: str | None, remember: Remember | None
) -> DecisionOptions:
    """Raises typer.BadParameter: the arguments are not a JSON object."""
    verdict: DecisionOptions = {"choice": choice, "remember": remember}
    if edit is not None:
        try:
            arguments = json.loads(edit)
        except ValueError as error:
            raise typer.BadParameter(f"--edit is not JSON: {error}") from None
        if not isinstance(arguments, dict):
            raise typer.BadParameter("--edit must be a JSON object")
        verdict["edited_arguments"] = arguments
    if answer is not None:
        try:
            verdict["answer"] = json.loads(answer)
        except ValueError:
            verdict["answer"] = answer
    return verdict


def write_document(
    document: dict[str, Any], path: Path | None, passphrase: str | None = None
) -> Exit:
    """A crash leaves the old file or the new one, never a part of it. With a passphrase it is
    encrypted."""
    if passphrase is not None:
        from sk_agents.cli.passphrase import encrypted  # noqa: PLC0415  # cryptography

        document = encrypted(document, passphrase)
    if path is None:
        print_json(document)
        return Exit.DONE
    text = json.dumps(document, indent=2)
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError as error:
        return _unusable(path, error.strerror or error)
    return Exit.DONE


def read_document(path: Path, passphrase_file: Path | None = None) -> dict[str, Any] | None:
    """The document, decrypted if need be; `None`, after a line that says why, if the file has
    none."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        document = json.loads(text)
    except OSError as error:
        _unusable(path, error.strerror or error)
        return None
    except ValueError as error:
        _unusable(path, f"it is not JSON: {error}")
        return None
    if not isinstance(document, dict):
        _unusable(path, "it is not a JSON object")
        return None
    opened = _decrypted(path, document, passphrase_file)
    if opened is not None and "events" not in opened:
        _unusable(path, "`teal export` did not write it")
        return None
    return opened


def _decrypted(
    path: Path, document: dict[str, Any], passphrase_file: Path | None
) -> dict[str, Any] | None:
    from sk_agents.cli import passphrase  # noqa: PLC0415  # cryptography

    if not passphrase.is_encrypted(document):
        return document
    try:
        return passphrase.decrypted(document, passphrase.ask_for(passphrase_file))
    except (passphrase.WrongPassphrase, ValueError) as error:
        _unusable(path, error)
        return None


async def import_document(
    client: TealClient,
    document: dict[str, Any],
    chat_id: str | None,
    agent: str | None,
    *,
    as_json: bool,
) -> None:
    try:
        made = await client.import_chat(document, chat_id=chat_id, agent=agent)
    except TealServerError:
        names = [known.name for known in await client.agents()]
        if agent is None and document.get("agent") not in names:
            hint = f"--agent NAME gives the chat one of this server's: {', '.join(names)}"
            typer.echo(f"teal: {one_line(hint)}", err=True)
        raise
    if as_json:
        print_json(made.model_dump(mode="json"))
    else:
        typer.echo(made.id)


def _unusable(path: Path, reason: object) -> Exit:
    typer.echo(f"teal: {path} cannot be used: {reason}", err=True)
    return Exit.FAILED
