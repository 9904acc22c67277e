"""One history: a plan carried out in a world of its own, then checked."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from sk_agents.engine.agent import Agent
from sk_agents.engine.events import Event
from sk_agents.engine.models import Thread
from sk_agents.exceptions import NotFound, TealError
from tests.simulation.checker import check
from tests.simulation.disk import Disk
from tests.simulation.faults import Faults
from tests.simulation.instance import AGENT, Chats, Instance, ProcessClock, chats_app
from tests.simulation.model_actor import ModelActor
from tests.simulation.plan import Plan
from tests.simulation.store_port import Shadow
from tests.simulation.substitution import WORLD
from tests.simulation.tool_actor import SimulatedPolicy, ToolActor
from tests.simulation.users import Users, thread_of
from tests.simulation.virtual_loop import Deadlock, Livelock
from tests.simulation.virtual_threads import ThreadedLoop

# From the last action on: leases run out, sweeps come round, models and tools end.
SETTLING = 150.0
LONGEST = 400.0
# So many looks in a row find nothing to do: a request whose client has left goes on by itself.
CALM = 4

_APPS: list[Chats] = []


@dataclass(slots=True)
class World:
    """All that takes part, and all that was seen."""

    plan: Plan
    loop: ThreadedLoop
    shadow: Shadow
    model: ModelActor
    tools: ToolActor
    instances: list[Instance]
    users: Users
    faults: Faults
    traced: list[str] = field(default_factory=list)
    # What the store holds at the end: heads and logs by thread.
    heads: dict[str, Thread] = field(default_factory=dict)
    logs: dict[str, list[Event]] = field(default_factory=dict)
    # When they were read: a tool that was left behind may have its result attached after that.
    read_at: dict[str, float] = field(default_factory=dict)
    # What each instance says of each thread at the end.
    documents: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def trace(self, *words: object) -> None:
        self.traced.append(f"{self.loop.time():9.4f} {' '.join(map(str, words))}")


@dataclass(frozen=True, slots=True)
class Result:
    plan: Plan
    problems: list[str]
    trace: list[str]
    steps: int


def run_history(plan: Plan, folder: Path) -> Result:
    """Carry the plan out; the same plan gives the same history."""
    WORLD.begin(plan.seed)
    gc.disable()
    loop = ThreadedLoop(Random(plan.seed))
    try:
        return _carried_out(plan, loop, folder)
    finally:
        _bury(loop)


def _carried_out(plan: Plan, loop: ThreadedLoop, folder: Path) -> Result:
    world = _world(plan, loop, folder)
    with _heard(world):
        try:
            loop.run_until_complete(_live(world))
            world.problems.extend(check(world))
        except (Deadlock, Livelock) as error:
            world.problems.append(f"{type(error).__name__}: {error}")
    world.problems.extend(loop.unhandled)
    return Result(plan, world.problems, world.traced, loop.steps)


def _world(plan: Plan, loop: ThreadedLoop, folder: Path) -> World:
    while len(_APPS) < plan.instances:
        _APPS.append(chats_app())
    model, tools, shadow = ModelActor(), ToolActor(), Shadow()
    agent = Agent(AGENT, model, tools, SimulatedPolicy(), "You help.")
    disk = Disk.begun(plan.store, folder, ProcessClock(loop))
    same_host = Random(plan.seed).random() < 0.5
    instances = [
        Instance(
            at, loop, _APPS[at], agent, shadow, plan.latency, disk.store, is_on_same_host=same_host
        )
        for at in range(plan.instances)
    ]
    users = Users(loop, [instance.server for instance in instances])
    faults = Faults(loop, instances, disk, shadow)
    world = World(plan, loop, shadow, model, tools, instances, users, faults)
    users.trace = faults.trace = world.trace
    return world


async def _live(world: World) -> None:
    loop = world.loop
    for instance in world.instances:
        instance.start()
    await asyncio.sleep(0.1)
    tasks = [loop.create_task(world.users.act(action)) for action in world.plan.actions]
    troubles = [loop.create_task(world.faults.strike(fault)) for fault in world.plan.faults]
    for task in troubles:
        await task
    last = max([action.at for action in world.plan.actions], default=0.0)
    await asyncio.sleep(max(0.0, last - loop.time()))
    await world.faults.heal()
    world.trace("all faults are over")
    over = loop.time() + SETTLING
    calm = 0
    while calm < CALM and loop.time() < min(over, LONGEST + last):
        await asyncio.sleep(1.0)
        is_calm = all(task.done() for task in tasks) and await _is_settled(world)
        calm = calm + 1 if is_calm else 0
    await _audit(world)
    await _ask_all(world)
    for task in tasks:
        if not task.done():
            task.cancel()
    for done in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(done, Exception):
            world.problems.append(f"a client failed: {done!r}")
    for instance in world.instances:
        if instance.is_alive:
            await instance.stop()
        loop.kill(instance.process)
    await world.faults.disk.close()


async def _is_settled(world: World) -> bool:
    """Whether nothing will happen any more unless a user does something."""
    store = await world.faults.disk.reader()
    for thread_id in _thread_ids(world):
        try:
            if (await store.thread(thread_id)).runnable:
                return False
        except NotFound:
            continue
        except TealError:
            return False
    return True


def _thread_ids(world: World) -> set[str]:
    return {thread_of(*chat) for chat in world.users.chats()} | {*world.shadow.lives}


async def _audit(world: World) -> None:
    """Read what the store holds, as an operator would, past every instance."""
    store = await world.faults.disk.reader()
    for thread_id in _thread_ids(world):
        world.read_at[thread_id] = world.loop.time()
        try:
            head = await store.thread(thread_id)
            log = list(await store.events_after(thread_id, 0, 100_000))
        except NotFound:
            continue
        except TealError as error:
            world.problems.append(f"{thread_id} cannot be read at the end: {error!r}")
            continue
        world.heads[thread_id], world.logs[thread_id] = head, log
        world.shadow.note(head, log)


async def _ask_all(world: World) -> None:
    """What every instance tells of every chat, once nothing changes any more."""
    for instance in world.instances:
        for user, chat in world.users.chats():
            told = await world.users.told(instance.server, user, chat)
            thread_id = thread_of(user, chat)
            world.documents.setdefault(thread_id, []).append((instance.index, told))


@contextmanager
def _heard(world: World) -> Iterator[None]:
    """What the code logs as its own mistake is a problem of the history."""

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            world.trace("log", record.getMessage(), _extra(record))
            if record.exc_info and record.exc_info[1] is not None:
                error = record.exc_info[1]
                if not isinstance(error, TealError):
                    world.problems.append(f"logged: {record.getMessage()}: {error!r}")

    ear = Ear()
    logger = logging.getLogger("sk_agents")
    level, logger.level = logger.level, logging.INFO
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(ear)
    try:
        yield
    finally:
        logger.removeHandler(ear)
        logger.level, logger.propagate = level, propagates


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    names = ("error", "thread_id", "run_id", "code", "reason")
    return {name: value for name in names if (value := getattr(record, name, None)) is not None}


def _bury(loop: ThreadedLoop) -> None:
    """What is left of the processes ends unheard, and before the next history begins."""
    loop.set_exception_handler(lambda *_: None)
    for task in loop.kept:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    heard, sys.unraisablehook = sys.unraisablehook, lambda _: None
    logging.disable(logging.CRITICAL)
    try:
        loop.kept.clear()
        gc.collect()
    finally:
        sys.unraisablehook = heard
        logging.disable(logging.NOTSET)
    loop.close()
