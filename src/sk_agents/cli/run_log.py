"""`teal logs`: everything that a server has stored of one run, each event with its time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sk_agents.cli.event_printer import EventPrinter, usage_text
from sk_agents.cli.options import Exit
from sk_agents.cli.safe_text import one_line
from sk_agents.cli.terminal import BAD, DIM, STRONG, Screen, print_json
from sk_agents.client import TealClient, event_name
from sk_agents.wire.views import FoundInteraction

# What every event has, or what says the same as another line.
COMMON = {"type", "run_id", "at", "seq", "usage"}
MAX_VALUE = 200
OPEN = {"RUNNING", "WAITING_APPROVAL"}


async def show_log(client: TealClient, run_id: str, *, whole: bool, as_json: bool) -> Exit | None:
    """A run that has not ended is read along to its end; `whole` cuts no value."""
    found = await client.find(run_id)
    screen = Screen()
    if not as_json:
        _print_head(screen, found)
    if found.status in OPEN:
        return await _follow(client, found, screen, as_json=as_json)
    document = await client.chat(found.chat_id).export()
    events = [event for event in document["events"] if event.get("run_id") == run_id]
    if as_json:
        head = found.model_dump(mode="json", by_alias=True, exclude={"agent_events"})
        print_json({**head, "events": events})
        return None
    start = _moment(events[0]["at"]) if events else None
    for event in events:
        _print_event(screen, event, start, whole=whole)
    screen.line(usage_text(found.usage, [found.cost]), DIM)
    if found.error is not None:
        screen.line(f"✗ {found.error.code}: {one_line(found.error.message)}", BAD)
        if found.error.correlation_id:
            screen.line(f"  in the server's log: {found.error.correlation_id}", DIM)
    return None


async def _follow(
    client: TealClient, found: FoundInteraction, screen: Screen, *, as_json: bool
) -> Exit | None:
    printer = EventPrinter(screen, whole_results=True, with_costs=True)
    async for event in client.chat(found.chat_id).watch(found.id):
        if as_json:
            fields = event.model_dump(mode="json", by_alias=True, exclude_none=True)
            print_json({"event": event_name(event), **fields}, on_one_line=True)
        else:
            printer.print(event)
    return None


def _print_head(screen: Screen, found: FoundInteraction) -> None:
    screen.line(f"{found.id} ({found.agent}, {found.status.lower()})", STRONG)
    branch = ", on a branch that is not shown" if found.superseded else ""
    screen.line(f"  in chat {found.chat_id}, begun {found.created_at}{branch}", DIM)


def _print_event(
    screen: Screen, event: Mapping[str, Any], start: datetime | None, *, whole: bool
) -> None:
    at = _moment(event["at"])
    since = f"+{(at - start).total_seconds():.3f} s" if start is not None else ""
    screen.line(f"{at:%H:%M:%S.%f}"[:-3] + f"  {since:>12}  {event['type']}", STRONG)
    for name, value in event.items():
        if name in COMMON or value in (None, "", [], {}, False):
            continue
        text = one_line(str(value))
        if len(text) > MAX_VALUE and not whole:
            text = f"{text[:MAX_VALUE]}… ({len(text)} characters; --whole shows them)"
        screen.line(f"    {name}: {text}")
    usage = event.get("usage")
    if usage:
        tokens = f"{usage.get('prompt_tokens', 0)} tokens read, {usage.get('completion_tokens', 0)}"
        screen.line(f"    {tokens} written", DIM)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
