"""The final states of a chat's interactions, each of which repeats all that was said before it.

Together they grow with the square of the chat. So every message is encoded once, and a state is
those pieces one after the other: what is kept grows with the chat alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import TERMINAL
from sk_agents.interactions import messages_before, messages_of
from sk_agents.wire.views import ChatMessage

# So many runs are encoded before others get their turn.
AT_ONCE = 50
NONE = b"null"


class States:
    """Of what has been read; what has ended does not change any more, so that may take its time."""

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
            yield NONE
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
