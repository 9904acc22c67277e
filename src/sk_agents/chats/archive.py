"""A chat as a document that can be taken elsewhere and brought back.

The document holds the log itself, so nothing is lost: branches, tools, approvals, dates. Runs that
have not ended are left out. Brought back, it is a new chat: nothing in it can be mistaken for what
is kept already, and no standing approval comes with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, ValidationError

from sk_agents.chats.requests import new_interaction_id
from sk_agents.engine.defaults import RandomIds
from sk_agents.engine.events import (
    ApprovalDecided,
    ApprovalRequested,
    Beginning,
    BranchChanged,
    Compacted,
    Event,
    GrantChanged,
    Imported,
    LateResult,
    ReviewExtended,
    RunQueued,
    RunStarted,
    Steered,
    ThreadChanged,
    ToolFinished,
    ToolStarted,
    Unrecognised,
    VoteCast,
    VoteWithdrawn,
    event_from,
)
from sk_agents.engine.log.blobs import carried
from sk_agents.engine.log.state import ThreadState
from sk_agents.engine.models import TERMINAL, Thread
from sk_agents.exceptions import InvalidInput
from sk_agents.interactions import spelled_time
from sk_agents.wire.requests import MAX_TITLE, AgentName, RequestBody, Title

FORMAT: Literal["teal-chat"] = "teal-chat"
VERSION: Literal[1] = 1
MAX_EVENTS = 100_000
TITLE = "title"

# What belongs to the place a chat is kept in, not to what was said.
_LOCAL = GrantChanged | Unrecognised


class Archive(RequestBody):
    format: Literal["teal-chat"]
    version: Literal[1]
    agent: AgentName
    title: Title | None = None
    created_at: str | None = None
    events: Annotated[list[dict[str, Any]], Field(max_length=MAX_EVENTS)]


async def archive(
    thread: Thread, state: ThreadState, pages: AsyncIterable[Sequence[Event]]
) -> AsyncIterator[bytes]:
    """The document for a chat, as JSON in pieces: however long it is, it is never there whole."""
    ended = {run.run_id for run in state.runs.values() if run.phase in TERMINAL}
    head = {
        "format": FORMAT,
        "version": VERSION,
        "agent": thread.agent,
        "title": thread.metadata.get("title") or None,
        "created_at": spelled_time(thread.created_at),
    }
    yield orjson.dumps(head)[:-1] + b',"events":['
    separator = b""
    taken: set[str] = set()
    async for page in pages:
        kept = [
            carried(_kept(event), state.contents, taken) for event in page if _is_kept(event, ended)
        ]
        if kept:
            yield separator + b",".join(
                event.model_dump_json(exclude={"seq"}).encode() for event in kept
            )
            separator = b","
    yield b"]}"


def restored(document: Archive, has_agent: Callable[[str | None], bool]) -> list[Event]:
    """The events of a document under new ids; runs of agents we do not have are the chat's own.

    Raises:
        InvalidInput: an entry is not an event of ours.
    """
    renamed = _Renamed(has_agent)
    events = [renamed.event(event) for event in _events(document)]
    started = {event.run_id for event in events if isinstance(event, RunStarted)}
    for event in events:
        if isinstance(event, Compacted) and event.through_run not in started:
            raise InvalidInput("A summary speaks of an interaction that is not there.")
    return events


def _is_kept(event: Event, ended: set[str]) -> bool:
    match event:
        case GrantChanged() | Unrecognised():
            return False
        case BranchChanged():
            return event.head_run is None or event.head_run in ended
        case ThreadChanged() | Imported() | Compacted():
            return True
        case _:
            return event.run_id in ended


def _events(document: Archive) -> Iterator[Event]:
    for number, entry in enumerate(document.events):
        try:
            event = event_from(entry)
        except (ValidationError, OverflowError):
            raise InvalidInput(f"events[{number}] is not an event of a chat.") from None
        if isinstance(event, RunStarted | RunQueued) and not event.run_id:
            raise InvalidInput(f"events[{number}] has no run_id.")
        if not isinstance(event, _LOCAL):
            yield _kept(event)


def _kept(event: Event) -> Event:
    """Of a chat's labels only the title is its own; what placeholders stand for leaves with no
    document, and comes with none."""
    if isinstance(event, Beginning | ToolFinished | LateResult | Steered) and event.secrets:
        return event.model_copy(update={"secrets": None})
    if not isinstance(event, ThreadChanged):
        return event
    title = event.metadata.get(TITLE)
    is_title = isinstance(title, str) and 0 < len(title) <= MAX_TITLE
    return event.model_copy(update={"metadata": {TITLE: title} if is_title else {}})


class _Renamed:
    """Gives every run and approval a new id, the same wherever it is named."""

    def __init__(self, has_agent: Callable[[str | None], bool]) -> None:
        self._has_agent = has_agent
        self._runs: dict[str, str] = {}
        self._approvals: dict[str, str] = {}
        self._ids = RandomIds()

    def event(self, event: Event) -> Event:
        update: dict[str, Any] = {"seq": 0}
        if event.run_id:
            update["run_id"] = self._run(event.run_id)
        match event:
            case RunStarted():
                update |= {"parent_run": self._run(event.parent_run)}
                update |= {"edits": self._run(event.edits), **self._start(event)}
            case RunQueued():
                update |= self._start(event)
            case Steered():
                update |= {"idempotency_key": None, "request_digest": None}
            case BranchChanged():
                update |= {"head_run": self._run(event.head_run)}
            case Compacted():
                update |= {"through_run": self._run(event.through_run)}
            case (
                ApprovalRequested()
                | VoteCast()
                | VoteWithdrawn()
                | ReviewExtended()
                | ApprovalDecided()
                | ToolStarted()
            ):
                update |= {"approval_id": self._approval(event.approval_id)}
            case _:
                pass
        return event.model_copy(update=update)

    def _start(self, event: RunStarted | RunQueued) -> dict[str, Any]:
        agent = event.agent if self._has_agent(event.agent) else None
        return {"idempotency_key": None, "request_digest": None, "agent": agent}

    def _run(self, run_id: str | None) -> str | None:
        if run_id is None:
            return None
        return self._runs.setdefault(run_id, new_interaction_id())

    def _approval(self, approval_id: str | None) -> str | None:
        if approval_id is None:
            return None
        return self._approvals.setdefault(approval_id, f"approval_{self._ids.new()}")
