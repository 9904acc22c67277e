"""Whatever happens in whatever order: no prompt is ever sent that a provider would refuse."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sk_agents.engine.agent import RunLimits
from sk_agents.engine.engine import Engine
from sk_agents.engine.log.commits import Commit, Committed
from sk_agents.engine.log.state import ThreadState, fold
from sk_agents.engine.models import Effect, Message, RunStatus
from sk_agents.engine.ports import Store
from sk_agents.engine.run.conversation import thread_messages
from sk_agents.engine.turns import (
    CallRequested,
    ModelPiece,
    Prompt,
    ReasoningDelta,
    TextDelta,
    ToolContext,
    TurnFinished,
)
from sk_agents.exceptions import (
    Conflict,
    LimitExceeded,
    ModelInterrupted,
    ModelUnavailable,
    NotFound,
)
from sk_agents.llm.openai_wire import wire_message
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing import SettableClock
from tests.engine.fake_tools import FakeTools, tool
from tests.engine.kit import Setup, Talk, engine_of, wire
from tests.engine.openai_rules import problems
from tests.patience import seconds

LEASE = 1000.0
REQUESTS = [
    ("Files-look", "{}"),
    ("Mail-send", "{}"),
    ("Mail-send", '{"text": "x"}'),
    ("Mail-hang", "{}"),
    ("no such tool!", "{}"),
    ("Files-look", "{broken"),
    ("", "[]"),
]


class RandomModel:
    """Says anything a model may say, and has every prompt checked."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.found: list[str] = []

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece], None]:
        # Raised here, it would only be one more way for a model to fail.
        self.found += problems(wire(prompt))
        for piece in self._reply():
            await asyncio.sleep(0)
            if isinstance(piece, Exception):
                raise piece
            yield (piece,)

    def _reply(self) -> list[Any]:
        chance = self._chance
        pieces: list[Any] = [ReasoningDelta("hm")] * chance.randrange(2)
        pieces += [TextDelta(chance.choice(["so", " ", ""]))] * chance.randrange(3)
        match chance.randrange(10):
            case 0:
                return [*pieces, ModelUnavailable()]
            case 1:
                return [*pieces, ModelInterrupted()]
            case 2 | 3 | 4:
                return [*pieces, TurnFinished()]
        for _ in range(chance.randrange(1, 4)):
            name, arguments = chance.choice(REQUESTS)
            pieces.append(CallRequested(chance.choice(["", "1", "2"]), name, arguments))
        return [*pieces, TurnFinished("tool_calls")]


async def work(arguments: dict[str, Any], context: ToolContext) -> str:
    for _ in range(5):
        await asyncio.sleep(0)
    return "worked"


async def hang(arguments: dict[str, Any], context: ToolContext) -> str:
    await asyncio.Event().wait()
    return "never"


class SlowStore(MemoryStore):
    """Others get a turn before a commit, and after it, before its sender knows."""

    async def commit(self, commit: Commit) -> Committed:
        await asyncio.sleep(0)
        done = await super().commit(commit)
        await asyncio.sleep(0)
        return done


class World:
    """A store that stays, engines that come and go."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = SettableClock()
        self.model = RandomModel(self.chance)
        tools = FakeTools(
            tool("Files-look", work),
            tool("Mail-send", work, effect=Effect.AT_MOST_ONCE),
            tool("Mail-hang", hang, effect=Effect.AT_MOST_ONCE, timeout=0.001),
        )
        limits = RunLimits(model_rounds=4, invalid_rounds=2, cancel_grace_seconds=0.001)
        self.setup = Setup(
            tools=tools, limits=limits, clock=self.clock, lease_ttl=LEASE, model=self.model
        )
        self.retried: set[str] = set()
        self.owners = 0
        self.talk: Talk

    async def open(self, store: Store) -> None:
        self.owners += 1
        engine = engine_of(store, self.setup, self.model, f"owner {self.owners}")
        await engine.__aenter__()
        runs = self.talk.runs if self.owners > 1 else 0
        self.talk = Talk(engine, store, self.setup, self.model)
        self.talk.runs = runs

    async def crash(self) -> None:
        """The process is gone in the middle of whatever it did; its lease runs out."""
        await drop(self.talk.engine)
        self.clock.advance(LEASE + 1)
        await self.open(self.talk.store)

    async def state(self) -> ThreadState:
        return fold(await self.talk.log())

    async def act(self, action: str) -> None:
        talk, chance = self.talk, self.chance
        state = await self.state()
        match action:
            case "say" | "enqueue" | "interrupt":
                on_busy = "reject" if action == "say" else action
                await talk.say(f"message {talk.runs}", on_busy=on_busy)
            case "approve" | "reject":
                waiting = [a for run in state.runs.values() for a in run.pending_approvals]
                if waiting:
                    request = chance.choice(waiting).request
                    fields: dict[str, Any] = {"approved": action == "approve"}
                    if request.kind == "outcome_unknown" and action == "approve":
                        fields["choice"] = chance.choice(["done", "retry", "give_up"])
                        self.retried |= {request.call_id} if fields["choice"] == "retry" else set()
                    elif action == "approve" and chance.random() < 0.3:
                        fields["edited_arguments"] = {"text": "edited"}
                    await talk.decide(request.approval_id, **fields)
            case "cancel":
                await talk.cancel(chance.choice(list(state.runs)))
            case "edit":
                on_busy = chance.choice(["reject", "interrupt"])
                await talk.edit(chance.choice(list(state.runs)), "edited", on_busy=on_busy)
            case "crash":
                await self.crash()
            case "sweep":
                await talk.sweep()

    async def settle(self) -> ThreadState:
        """Until every run has ended or waits for a person."""
        await self.talk.sweep()
        return await self.talk.until(
            lambda state: (
                state.active_run is None or state.run(state.active_run).status is RunStatus.WAITING
            )
        )


async def drop(engine: Engine) -> None:
    """All that it does ends where it is; nothing else is at work here."""
    engine.parts.services.lease.stop_renewing()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def world(seed: int) -> AsyncIterator[World]:
    made = World(seed)
    async with SlowStore(clock=made.clock) as store:
        await made.open(store)
        try:
            yield made
        finally:
            await made.talk.engine.__aexit__()


ACTIONS = st.sampled_from(
    ["say", "enqueue", "interrupt", "approve", "approve", "reject", "cancel", "edit", "crash"]
    + ["sweep"]
)


async def live(seed: int, actions: Sequence[tuple[str, int]]) -> None:
    async with asyncio.timeout(seconds(20)), world(seed) as here:
        await here.talk.say("message 0")
        for action, pause in actions:
            try:
                await here.act(action)
            except (Conflict, NotFound, LimitExceeded):
                pass
            for _ in range(pause):
                await asyncio.sleep(0)
        state = await here.settle()
        assert here.model.found == []
        assert_sendable(state)
        assert_at_most_once(here)


def assert_sendable(state: ThreadState) -> None:
    if state.active_run is None:
        messages = [*thread_messages(state), Message(role="user", content="and now?")]
        assert problems([wire_message(message) for message in messages]) == []


def assert_at_most_once(here: World) -> None:
    started = Counter(
        context.call_id
        for (name, _), context in zip(
            here.setup.tools.started, here.setup.tools.contexts, strict=True
        )
        if name != "Files-look" and context.call_id not in here.retried
    )
    assert all(count == 1 for count in started.values())


@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32),
    actions=st.lists(st.tuples(ACTIONS, st.integers(0, 40)), max_size=25),
)
def test_no_history_is_ever_stored_that_a_provider_would_refuse(
    seed: int, actions: list[tuple[str, int]]
) -> None:
    """A build that ends a run without sealing its calls turns this red."""
    asyncio.run(live(seed, actions))


def test_checker_refuses_what_providers_refuse() -> None:
    user = {"role": "user", "content": "hi"}
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    tells = {"role": "tool", "tool_call_id": "1", "content": "ok"}
    assert problems([user, asks, tells]) == []
    for history in (
        [],
        [user, asks],
        [user, asks, user],
        [user, tells],
        [user, asks, tells, tells],
        [user, asks, tells, asks, tells],
        [user, {"role": "assistant", "content": ""}, user],
        [user, {"role": "assistant", "content": "", "tool_calls": []}, user],
        [user, {"role": "robot", "content": "x"}, user],
        [user, asks, {"role": "tool", "tool_call_id": "2", "content": "ok"}],
        [user, {"role": "assistant", "content": "x"}],
    ):
        assert problems(history) != []  # type: ignore[arg-type]  # lists of plain dicts
