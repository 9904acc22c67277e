"""What calls would change, found out before a person is asked about them.

A preview helps to decide and binds nobody: the digest of an approval stands for the arguments, and
what they are about may be another by the time the call runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sk_agents.engine.calls.execution import printable
from sk_agents.engine.calls.steps import effective_call
from sk_agents.engine.events import ApprovalRequested, Event
from sk_agents.engine.turns import ToolContext

if TYPE_CHECKING:
    from sk_agents.engine.run.driver import Driver

# Nobody waits longer for being asked.
SECONDS = 5.0
MOST_CHARACTERS = 65_536


async def with_previews(driver: Driver, events: Sequence[Event]) -> Sequence[Event]:
    """The same events; what asks for a call also shows what that would change, where there is
    something to show."""
    if not any(_asks(event) for event in events):
        return events
    return await asyncio.gather(*(_shown(driver, event) for event in events))


def _asks(event: Event) -> bool:
    return isinstance(event, ApprovalRequested) and event.kind == "tool"


async def _shown(driver: Driver, event: Event) -> Event:
    if not isinstance(event, ApprovalRequested) or not _asks(event):
        return event
    preview = await _preview(driver, event.call_id)
    if preview is None:
        return event
    return event.model_copy(update={"shown": {**event.shown, "preview": preview}})


async def _preview(driver: Driver, call_id: str) -> str | None:
    """None of a call that has none, or takes too long to have one."""
    context = ToolContext(
        thread_id=driver.thread_id,
        run_id=driver.run.run_id,
        call_id=call_id,
        user_id=driver.known.head.user_id,
        idempotency_key="",
    )
    call = effective_call(driver.run.calls[call_id])
    try:
        async with asyncio.timeout(SECONDS):
            text = await driver.agent.toolbox.preview(call, context)
    except TimeoutError:
        return None
    return _cut(printable(text)) if text is not None else None


def _cut(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    left = len(text) - MOST_CHARACTERS
    return f"{text[:MOST_CHARACTERS]}\n[cut: {left} more characters]\n"
