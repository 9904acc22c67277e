"""A chat as JSON, sent as it is written: however long it is, it is never in memory as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sk_agents.chats.cursors import event_id
from sk_agents.chats.render import chat_summary, interaction_view
from sk_agents.chats.states import NONE, States
from sk_agents.engine.events import Event
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import TERMINAL, RunStatus, Thread
from sk_agents.http.sse import WRITE_SECONDS
from sk_agents.wire.views import InteractionView

CHUNK = 64 * 1024
# So many chunks are written before we look whether anybody is left to read them.
LOOK_UP = 64

STATE = "final_agent_state"
_BEFORE_STATE = {"id", "status", "user_message", "agent_events"}
_AFTER_STATE = InteractionView.model_fields.keys() - _BEFORE_STATE - {STATE}


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
        """Whatever may change while this is read is looked at before the first piece."""
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
        yield from self.states.pieces(run) if self.states is not None else (NONE,)
        yield b"," + after[1:].encode()


class DocumentResponse(Response):
    """Sends a document piece by piece; a reader that takes nothing for long is let go."""

    media_type = "application/json"

    def __init__(self, document: ChatDocument) -> None:
        super().__init__()
        self._pieces = document.pieces()
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
                # Without its end the response is cut: nobody takes it for a whole one.
                return
            # A quick reader never makes us wait; the others of this process must not.
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
