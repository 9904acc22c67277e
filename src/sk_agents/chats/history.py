"""A chat as it is read back: whole, unless that would be too much; then its newest part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from sk_agents.chats.chat_document import ChatDocument
from sk_agents.chats.requests import ChatRequest
from sk_agents.chats.states import States
from sk_agents.chats.window import Window, window_of
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import RunStatus, Thread
from sk_agents.exceptions import MalformedRequest

# A chat with more events is shown from its newest part on.
MAX_EVENTS = 10_000
# A part of it: so many events at a time, and so many times if nothing there is to be shown.
WINDOW_EVENTS = 3_000
MAX_WINDOWS = 20
# Each interaction repeats all that was said before it: so much of that in one answer at most.
MAX_STATE_BYTES = 128 * 1024 * 1024

# Stands for the interaction that the first one follows.
ROOT = "-"
_PLACE = re.compile(r"([0-9]{1,18})(?:\.([A-Za-z0-9_-]{1,128}))?")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an older part of a chat ends: before event `seq`, with the interaction `tip`."""

    seq: int
    tip: str | None = None

    @classmethod
    def of(cls, text: str) -> Self:
        """Raises MalformedRequest: this was never anybody's `next`."""
        found = _PLACE.fullmatch(text)
        if found is None:
            raise MalformedRequest("Give as `before` what was given as `next`.")
        return cls(int(found[1]), found[2])

    def __str__(self) -> str:
        return f"{self.seq}.{self.tip}" if self.tip is not None else str(self.seq)


async def chat_document(
    chat: ChatRequest, *, with_superseded: bool, with_state: bool, before: Place | None
) -> ChatDocument:
    """The chat as it is when this returns.

    Raises:
        ThreadNotFound: the caller has no such chat.
    """
    user_id = chat.caller.user_id
    head = await chat.engine.catalog.head(chat.thread_id, user_id)
    if head.next_seq - 1 > MAX_EVENTS:
        return await _part(chat, head, with_superseded, before)
    known = await chat.engine.thread(chat.thread_id, user_id)
    state = known.state
    states = States(state) if with_state else None
    if states is not None:
        await states.read(_runs(state, with_superseded, before))
    # Nothing is awaited from here on: all of it is the chat at one moment.
    shown = runs = _runs(state, with_superseded, before)
    if states is not None:
        states.read_now(runs)
        shown = newest(runs, states)
    return ChatDocument(
        # Waiting as its interactions do, also in the moment before the thread is given up.
        known.head._replace(status=state.status),
        state,
        state.last_event,
        shown,
        frozenset(run.run_id for run in state.branch()),
        states,
        str(Place(shown[0].first_seq)) if len(shown) < len(runs) else None,
    )


def _runs(state: ThreadState, with_superseded: bool, before: Place | None) -> Sequence[Run]:
    if with_superseded:
        runs = list(state.runs.values())
    else:
        runs = state.branch() + [state.run(run_id) for run_id in state.queue]
    return runs if before is None else [run for run in runs if run.first_seq < before.seq]


async def _part(
    chat: ChatRequest, head: Thread, with_superseded: bool, before: Place | None
) -> ChatDocument:
    """The part of a long chat that ends at `before`, without the states: those are too long."""
    last_seq = head.next_seq - 1
    [last] = await chat.engine.catalog.events(head, last_seq - 1, 1)
    before = before or Place(last_seq + 1, head.head_run)
    for _ in range(MAX_WINDOWS):
        end = min(last_seq, before.seq - 1)
        start = max(0, end - WINDOW_EVENTS)
        # What begins here may end further on.
        events = await chat.engine.catalog.events(head, start, end - start + WINDOW_EVENTS)
        window = window_of(events)
        runs = [run for run in window.state.runs.values() if run.first_seq <= end]
        visible, tip = _path(window, before.tip or (runs[-1].run_id if runs else None))
        before = Place(min((run.first_seq for run in runs), default=start + 1), tip or ROOT)
        shown = [run for run in runs if with_superseded or _is_visible(run, visible)]
        is_first = before.seq <= 1 or (before.tip == ROOT and not with_superseded)
        if shown or is_first:
            break
    older = None if is_first else str(before)
    return ChatDocument(head, window.state, last, shown, frozenset(visible), None, older)


def _path(window: Window, tip: str | None) -> tuple[set[str], str | None]:
    """The runs of the window on the way from `tip` to the root, and where that leaves it."""
    visible = set()
    while tip is not None and tip in window.state.runs:
        visible.add(tip)
        tip = window.parent(tip)
    return visible, tip


def _is_visible(run: Run, visible: set[str]) -> bool:
    """Those that wait for their turn are on no branch yet."""
    return run.run_id in visible or run.phase is RunStatus.QUEUED


def newest(runs: Sequence[Run], states: States, max_bytes: int = MAX_STATE_BYTES) -> Sequence[Run]:
    """As many of the newest as their states may be sent in one answer; one at least."""
    size = 0
    for number, run in enumerate(reversed(runs)):
        size += states.size(run)
        if size > max_bytes and number:
            return runs[len(runs) - number :]
    return runs
