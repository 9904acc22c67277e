"""The observer of an engine that nobody observes. It costs a few calls a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from sk_agents.engine.events import Event
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import Thread, ToolCall, Usage


def _unheard(*told: object) -> None:
    pass


_AROUND: AbstractContextManager[None] = nullcontext()
# Holds nothing, so that one serves all, also at the same time.
_TOLD: AbstractContextManager[Callable[..., None]] = nullcontext(_unheard)


class Unobserved:
    def trace(self) -> str | None:
        return None

    def stored(self, thread: Thread, state: ThreadState, events: Sequence[Event]) -> None:
        pass

    def recovered(self) -> None:
        pass

    def driving(self, thread: Thread, state: ThreadState) -> AbstractContextManager[None]:
        return _AROUND

    def model_call(
        self, thread: Thread, run: Run, agent: str, round_number: int
    ) -> AbstractContextManager[Callable[[Usage, str], None]]:
        return _TOLD

    def tool_call(
        self, thread: Thread, run: Run, agent: str, call: ToolCall
    ) -> AbstractContextManager[Callable[[str], None]]:
        return _TOLD
