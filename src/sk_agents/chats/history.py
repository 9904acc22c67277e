"""A chat as it is read back: whole, unless that would be too much; then its newest part."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from sk_agents.chats.desk import Visit
from sk_agents.chats.views import ChatView, InteractionView, chat_summary, interaction_view
from sk_agents.chats.window import Window, window_of
from sk_agents.engine.models import RunStatus, Thread
from sk_agents.engine.state import Run, ThreadState
from sk_agents.exceptions import MalformedRequest

# A chat with more events is shown from its newest part on.
MAX_EVENTS = 10_000
# A part of it: so many events at a time, and so many times if nothing there is to be shown.
WINDOW_EVENTS = 3_000
MAX_WINDOWS = 20
# Each interaction repeats all that was said before it: so many messages in one answer at most.
MAX_STATE_MESSAGES = 50_000

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


async def chat_view(
    visit: Visit, *, with_superseded: bool, with_state: bool, before: Place | None
) -> ChatView:
    """Raises ThreadNotFound: the caller has no such chat."""
    user_id = visit.caller.user_id
    head = await visit.engine.shelf.head(visit.thread_id, user_id)
    if head.next_seq - 1 > MAX_EVENTS:
        return await _part(visit, head, with_superseded, before)
    known = await visit.engine.thread(visit.thread_id, user_id)
    state = known.state
    branch = state.branch()
    visible = {run.run_id for run in branch}
    waiting = [state.run(run_id) for run_id in state.queue]
    runs = list(state.runs.values()) if with_superseded else branch + waiting
    if before is not None:
        runs = [run for run in runs if run.first_seq < before.seq]
    shown = _newest(runs) if with_state else runs
    views = [
        interaction_view(
            known.head, state, run, visible=_is_visible(run, visible), with_state=with_state
        )
        for run in shown
    ]
    older = Place(shown[0].first_seq) if len(shown) < len(runs) else None
    # Waiting as its interactions do, also in the moment before the thread is given up.
    head = known.head._replace(status=state.status)
    return _view(head, state.next_seq - 1, views, older)


async def _part(
    visit: Visit, head: Thread, with_superseded: bool, before: Place | None
) -> ChatView:
    """The part of a long chat that ends at `before`, without the states: those are too long."""
    last_seq = head.next_seq - 1
    before = before or Place(last_seq + 1, head.head_run)
    for _ in range(MAX_WINDOWS):
        end = min(last_seq, before.seq - 1)
        start = max(0, end - WINDOW_EVENTS)
        # What begins here may end further on.
        events = await visit.engine.shelf.events(
            visit.thread_id, start, end - start + WINDOW_EVENTS
        )
        window = window_of(events)
        runs = [run for run in window.state.runs.values() if run.first_seq <= end]
        visible, tip = _path(window, before.tip or (runs[-1].run_id if runs else None))
        before = Place(min((run.first_seq for run in runs), default=start + 1), tip or ROOT)
        shown = [run for run in runs if with_superseded or _is_visible(run, visible)]
        is_first = before.seq <= 1 or (before.tip == ROOT and not with_superseded)
        if shown or is_first:
            break
    views = [_state_view(head, window.state, run, visible) for run in shown]
    return _view(head, last_seq, views, None if is_first else before)


def _path(window: Window, tip: str | None) -> tuple[set[str], str | None]:
    """The runs of the window on the way from `tip` to the root, and where that leaves it."""
    visible = set()
    while tip is not None and tip in window.state.runs:
        visible.add(tip)
        tip = window.parent(tip)
    return visible, tip


def _state_view(head: Thread, state: ThreadState, run: Run, visible: set[str]) -> InteractionView:
    return interaction_view(head, state, run, visible=_is_visible(run, visible), with_state=False)


def _is_visible(run: Run, visible: set[str]) -> bool:
    """Those that wait for their turn are on no branch yet."""
    return run.run_id in visible or run.phase is RunStatus.QUEUED


def _view(
    head: Thread, last_seq: int, views: list[InteractionView], older: Place | None
) -> ChatView:
    summary = chat_summary(head)
    return ChatView(
        id=summary.id,
        interactions=views,
        created_at=summary.created_at,
        title=summary.title,
        agent=summary.agent,
        status=summary.status,
        updated_at=summary.updated_at,
        last_seq=last_seq,
        truncated=older is not None,
        next=str(older) if older is not None else None,
    )


def _newest(runs: list[Run]) -> list[Run]:
    """As many of the newest as may be shown with everything said before each of them."""
    shown = 0
    messages = 0
    for at in range(len(runs) - 1, -1, -1):
        messages += 2 * (at + 1)
        if messages > MAX_STATE_MESSAGES and shown:
            break
        shown += 1
    return runs[len(runs) - shown :]
