"""What an observer is told of runs, of calls of models and tools, and of what was stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sk_agents.engine.defaults import NoObserver
from sk_agents.engine.events import Event
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import RunStatus, Thread, ToolCall, Usage
from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.testing.scripted_model import Turn, calls
from tests.engine.fake_tools import FakeTools, tool
from tests.engine.kit import kinds, talking
from tests.engine.test_engine_tools import failing

TEN = Usage(prompt_tokens=6, completion_tokens=4)


class Noting(NoObserver):
    """Notes what it is told; what has a begin and an end is noted at its end."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.driven: list[tuple[str, str | None]] = []
        self.model_calls: list[tuple[Any, ...]] = []
        self.tool_calls: list[tuple[Any, ...]] = []

    def trace(self) -> str | None:
        return "of the request"

    def correlation_id(self) -> str | None:
        return "of the caller"

    def stored(self, thread: Thread, state: ThreadState, events: Sequence[Event]) -> None:
        assert thread.next_seq == state.next_seq
        self.events += events

    @contextmanager
    def driving(self, thread: Thread, state: ThreadState) -> Iterator[None]:
        begun = state.active_run
        yield
        self.driven.append((thread.thread_id, begun))

    @contextmanager
    def model_call(
        self, thread: Thread, run: Run, agent: str, round_number: int
    ) -> Iterator[Callable[[Usage, str, str | None], None]]:
        said: list[tuple[Usage, str, str | None]] = []
        yield lambda *told: said.append(told)
        self.model_calls.append((run.run_id, agent, round_number, *said))

    @contextmanager
    def tool_call(
        self, thread: Thread, run: Run, agent: str, call: ToolCall
    ) -> Iterator[Callable[[str], None]]:
        outcomes: list[str] = []
        yield outcomes.append
        self.tool_calls.append((run.run_id, agent, call.name, *outcomes))


async def test_observer_is_told_once_of_everything_in_a_run(tmp_path: Path) -> None:
    observer = Noting()
    tools = FakeTools(tool("Files-look"), tool("Files-break", failing(ValueError())))
    *asked, _ = calls(("Files-look", {}), ("Files-break", {}))
    script: list[Turn] = [
        [*asked, TurnFinished("tool_calls", TEN, "m-1")],
        [TextDelta("done"), TurnFinished("stop", TEN, "m-2")],
    ]
    async with talking(tmp_path, script=script, tools=tools, observer=observer) as talk:
        run = await talk.ask()
        assert run.status is RunStatus.COMPLETED
        await talk.parked()
        log = await talk.log()
    assert kinds(observer.events) == kinds(log)
    assert (run.trace, run.correlation_id) == ("of the request", "of the caller")
    assert observer.driven == [("t", "r1")]
    assert observer.model_calls == [
        ("r1", "a", 1, (TEN, "tool_calls", "m-1")),
        ("r1", "a", 2, (TEN, "stop", "m-2")),
    ]
    assert sorted(observer.tool_calls) == [
        ("r1", "a", "Files-break", "error"),
        ("r1", "a", "Files-look", "ok"),
    ]
