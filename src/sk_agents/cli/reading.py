"""What a server keeps, shown: lists as tables or JSON, a chat as its transcript."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

from sk_agents.cli.asking import show
from sk_agents.cli.exits import Exit
from sk_agents.cli.screen import DIM, Screen, print_json
from sk_agents.cli.telling import Teller, tell_past
from sk_agents.client import AgentInfo, Answer, Chat, Interaction, TealClient
from sk_agents.client.events import Received

Record = TypeVar("Record", bound=Received)


async def first(records: AsyncGenerator[Record, None], limit: int) -> list[Record]:
    found: list[Record] = []
    async with aclosing(records):
        async for record in records:
            found.append(record)
            if len(found) == limit:
                break
    return found


def print_records(records: Sequence[Received]) -> None:
    print_json([record.model_dump(mode="json", by_alias=True) for record in records])


async def list_chats(client: TealClient, text: str | None, limit: int, *, as_json: bool) -> Exit:
    chats = await first(client.chats(text), limit)
    if as_json:
        print_records(chats)
        return Exit.DONE
    Screen().table(
        ["chat", "title", "agent", "status", "changed"],
        [
            [chat.id, chat.title or "", chat.agent or "", chat.status or "", _when(chat.updated_at)]
            for chat in chats
        ],
    )
    return Exit.DONE


async def show_chat(chat: Chat, *, superseded: bool, as_json: bool) -> Exit:
    interactions = [i async for i in chat.interactions(superseded=superseded)][::-1]
    history = await chat.history(state=False)
    if as_json:
        whole = history.model_copy(update={"interactions": tuple(interactions), "next": None})
        print_json(whole.model_dump(mode="json", by_alias=True))
        return Exit.DONE
    screen = Screen()
    screen.line(f"{history.title or chat.id} ({history.agent}, {history.status})", DIM)
    for interaction in interactions:
        _show_interaction(screen, interaction)
    return Exit.DONE


def _show_interaction(screen: Screen, interaction: Interaction) -> None:
    tell_past(screen, interaction.model_copy(update={"agent_events": ()}))
    teller = Teller(screen, whole_results=True)
    for event in interaction.agent_events:
        teller.tell(event)
        if isinstance(event, Answer):
            screen.line()
    for approval in interaction.approvals:
        show(screen, approval)


async def list_approvals(client: TealClient, limit: int, *, as_json: bool) -> Exit:
    approvals = await first(client.approvals(), limit)
    if as_json:
        print_records(approvals)
        return Exit.DONE
    Screen().table(
        ["approval", "chat", "kind", "tool", "arguments", "expires"],
        [
            [a.approval_id, a.chat_id, a.kind, a.tool_name, a.tool_input, _when(a.expires_at)]
            for a in approvals
        ],
    )
    return Exit.DONE


async def list_grants(client: TealClient, limit: int, *, as_json: bool) -> Exit:
    grants = await first(client.grants(), limit)
    if as_json:
        print_records(grants)
        return Exit.DONE
    Screen().table(
        ["grant", "chat", "tool", "scope", "given"],
        [[g.grant_id, g.chat_id, g.tool, g.scope, _when(g.granted_at)] for g in grants],
    )
    return Exit.DONE


async def list_agents(client: TealClient, *, as_json: bool) -> Exit:
    agents = await client.agents()
    if as_json:
        print_records(agents)
        return Exit.DONE
    Screen().table(
        ["agent", "model", "tools", "description"],
        [[a.name, a.model or "", _tools(a), a.description or ""] for a in agents],
    )
    return Exit.DONE


def _tools(agent: AgentInfo) -> str:
    return ", ".join(str(tool.get("name")) for tool in agent.tools if isinstance(tool, dict))


def _when(moment: str | None) -> str:
    """To the second; the fraction and the zone say nothing to a reader of a list."""
    return (moment or "")[:19].replace("T", " ")
