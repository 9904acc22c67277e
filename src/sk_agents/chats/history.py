"""A chat as it is read back: whole, unless that would be too much; then its newest part.

It is JSON, sent as it is written. Each interaction's final state repeats all that was said before
it: together the states grow with the square of the chat. So every message is encoded once and kept
while the chat is sent, and a state is those pieces one after the other.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sk_agents.chats.render import chat_summary, event_id, interaction_view
from sk_agents.chats.requests import ChatRequest
from sk_agents.engine.events import (
    BranchChanged,
    Compacted,
    Event,
    GrantChanged,
    RunQueued,
    RunStarted,
)
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import TERMINAL, RunStatus, Thread
from sk_agents.exceptions import MalformedRequest
from sk_agents.http.sse import WRITE_SECONDS
from sk_agents.interactions import messages_before, messages_of
from sk_agents.wire.events import WireModel
from sk_agents.wire.views import ChatMessage, InteractionView

# A chat with more events is shown from its newest part on.
MAX_EVENTS = 10_000
# A part of it: so many events at a time, and so many times if nothing there is to be shown.
WINDOW_EVENTS = 3_000
MAX_WINDOWS = 20
# Of all states together: so much in one answer at most.
MAX_STATE_BYTES = 128 * 1024 * 1024
# So many runs are encoded before others get their turn.
AT_ONCE = 50
CHUNK = 64 * 1024
# So many chunks are written before we look whether the client is still there.
LOOK_UP = 64

STATE = "final_agent_state"
_BEFORE_STATE = {"id", "status", "user_message", "agent_events"}
_AFTER_STATE = InteractionView.model_fields.keys() - _BEFORE_STATE - {STATE}

# Stands for the interaction that the first one follows.
ROOT = "-"
_CURSOR = re.compile(r"([0-9]{1,18})(?:\.([A-Za-z0-9_-]{1,128}))?")


@dataclass(frozen=True, slots=True)
class HistoryCursor:
    """Where an older part of a chat ends: before event `seq`, with the interaction `tip`."""

    seq: int
    tip: str | None = None

    @classmethod
    def of(cls, text: str) -> Self:
        """Raises MalformedRequest: this was never a `next`."""
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise MalformedRequest("Give as `before` what was given as `next`.")
        return cls(int(found[1]), found[2])

    def __str__(self) -> str:
        return f"{self.seq}.{self.tip}" if self.tip is not None else str(self.seq)


class States:
    """The final states of interactions, encoded. What has ended does not change any more, so that
    may take its time."""

    def __init__(self, state: ThreadState) -> None:
        self._state = state
        self._before = _encoded(messages_before(state))
        self._own: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}

    async def read(self, runs: Sequence[Run]) -> None:
        """Those that have ended, a few at a time.

        Raises:
            StateCorrupt: a run follows one that is not there.
        """
        for start in range(0, len(runs), AT_ONCE):
            self.read_now(runs[start : start + AT_ONCE])
            await asyncio.sleep(0)

    def read_now(self, runs: Sequence[Run]) -> None:
        """The same at once, for the few that were not there or had not ended before."""
        for run in runs:
            if run.phase in TERMINAL:
                self._read(run)

    def size(self, run: Run) -> int:
        """About how many bytes the state of this run takes."""
        return self._sizes.get(run.run_id, 0)

    def pieces(self, run: Run) -> Iterator[bytes]:
        """The state as JSON; null until the run has ended."""
        if run.run_id not in self._sizes:
            yield b"null"
            return
        said = (self._own[before.run_id] for before in self._state.path(run.run_id))
        is_first = True
        yield b'{"messages":['
        for messages in (self._before, *said):
            if messages:
                if not is_first:
                    yield b","
                yield messages
                is_first = False
        yield b"]}"

    def _read(self, run: Run) -> None:
        unread = []
        at: str | None = run.run_id
        while at is not None and at not in self._sizes:
            unread.append(at)
            at = self._state.run(at).parent_run
        size = self._sizes[at] if at is not None else len(self._before)
        for run_id in reversed(unread):
            self._own[run_id] = _encoded(messages_of(self._state.run(run_id)))
            size += len(self._own[run_id])
            self._sizes[run_id] = size


def _encoded(messages: Sequence[ChatMessage]) -> bytes:
    return b",".join(message.model_dump_json().encode() for message in messages)


@dataclass(frozen=True, slots=True)
class ChatDocument:
    """`ChatView` in pieces: these runs of a chat, with their states unless those are left out.

    `older` is its `next`, `last` the last event of the whole chat.
    """

    head: Thread
    state: ThreadState
    last: Event | None
    runs: Sequence[Run]
    visible: frozenset[str]
    states: States | None
    older: str | None

    def pieces(self) -> Iterator[bytes]:
        """What may change while this is read is looked at before the first piece."""
        ongoing = {
            run.run_id: b"".join(self._interaction(run))
            for run in self.runs
            if run.phase not in TERMINAL
        }
        return self._pieces(ongoing)

    def _pieces(self, ongoing: dict[str, bytes]) -> Iterator[bytes]:
        summary = chat_summary(self.head).model_dump(mode="json")
        yield b'{"id":' + orjson.dumps(summary.pop("id")) + b',"interactions":['
        separator = b""
        for run in self.runs:
            yield separator
            separator = b","
            if run.run_id in ongoing:
                yield ongoing[run.run_id]
            else:
                yield from self._interaction(run)
        rest = {
            **summary,
            "last_seq": self.last.seq if self.last is not None else 0,
            "last_event_id": event_id(self.last) if self.last is not None else "0",
            "truncated": self.older is not None,
            "next": self.older,
        }
        yield b"]," + orjson.dumps(rest)[1:]

    def _interaction(self, run: Run) -> Iterator[bytes]:
        # Those that wait for their turn are on no branch yet.
        visible = run.run_id in self.visible or run.phase is RunStatus.QUEUED
        view = interaction_view(self.head, self.state, run, visible=visible, with_state=False)
        before = view.model_dump_json(include=_BEFORE_STATE, by_alias=True)
        after = view.model_dump_json(include=_AFTER_STATE, by_alias=True)
        yield before[:-1].encode() + f',"{STATE}":'.encode()
        yield from self.states.pieces(run) if self.states is not None else (b"null",)
        yield b"," + after[1:].encode()


def list_pieces(
    fields: Mapping[str, Any], name: str, items: Iterable[WireModel]
) -> Iterator[bytes]:
    """An object as JSON: these fields and the list `name`, whose items are made as it is sent."""
    yield orjson.dumps({**fields, name: []})[:-2]
    separator = b""
    for item in items:
        yield separator + item.model_dump_json(by_alias=True).encode()
        separator = b","
    yield b"]}"


class DocumentResponse(Response):
    """Sends a document piece by piece; a reader that takes nothing for long is let go."""

    media_type = "application/json"

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        for number, chunk in enumerate(_chunks(self._pieces), 1):
            body = {"type": "http.response.body", "body": chunk, "more_body": True}
            try:
                async with asyncio.timeout(WRITE_SECONDS):
                    await send(body)
            except TimeoutError:
                # Without its end the response is cut: no client takes it for a whole one.
                return
            # A quick reader never makes us wait, and other requests must have their turn.
            await asyncio.sleep(0)
            if number % LOOK_UP == 0 and await request.is_disconnected():
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= CHUNK:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


@dataclass(slots=True)
class Window:
    """What a part of a log says about the runs that began in it.

    `cut` names for a run that follows an older one, which is not here, that older one. What older
    runs and grants still have to say is left out.
    """

    state: ThreadState = field(default_factory=ThreadState)
    cut: dict[str, str] = field(default_factory=dict)

    def parent(self, run_id: str) -> str | None:
        """The run that this one follows, here or not."""
        return self.cut.get(run_id) or self.state.run(run_id).parent_run


def window_of(events: Iterable[Event]) -> Window:
    window = Window()
    state = window.state
    for event in events:
        match event:
            case RunStarted(message=None) if event.run_id not in state.runs:
                continue
            case RunStarted(parent_run=str(parent)) if parent not in state.runs:
                window.cut[event.run_id] = parent
                event = event.model_copy(update={"parent_run": None})
            case BranchChanged() if event.head_run is None or event.head_run not in state.runs:
                continue
            case GrantChanged() | Compacted():
                continue
            case RunStarted() | RunQueued():
                pass
            case _ if event.run_id and event.run_id not in state.runs:
                continue
        state.next_seq = event.seq
        state.apply(event)
    return window


async def chat_document(
    chat: ChatRequest, *, with_superseded: bool, with_state: bool, before: HistoryCursor | None
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
        str(HistoryCursor(shown[0].first_seq)) if len(shown) < len(runs) else None,
    )


def _runs(state: ThreadState, with_superseded: bool, before: HistoryCursor | None) -> Sequence[Run]:
    if with_superseded:
        runs = list(state.runs.values())
    else:
        runs = state.branch() + [state.run(run_id) for run_id in state.queue]
    return runs if before is None else [run for run in runs if run.first_seq < before.seq]


async def _part(
    chat: ChatRequest, head: Thread, with_superseded: bool, before: HistoryCursor | None
) -> ChatDocument:
    """The part of a long chat that ends at `before`, without the states: those are too long."""
    last_seq = head.next_seq - 1
    [last] = await chat.engine.catalog.events(head, last_seq - 1, 1)
    before = before or HistoryCursor(last_seq + 1, head.head_run)
    for _ in range(MAX_WINDOWS):
        end = min(last_seq, before.seq - 1)
        start = max(0, end - WINDOW_EVENTS)
        # What begins here may end further on.
        events = await chat.engine.catalog.events(head, start, end - start + WINDOW_EVENTS)
        window = window_of(events)
        runs = [run for run in window.state.runs.values() if run.first_seq <= end]
        visible, tip = _path(window, before.tip or (runs[-1].run_id if runs else None))
        before = HistoryCursor(min((run.first_seq for run in runs), default=start + 1), tip or ROOT)
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
