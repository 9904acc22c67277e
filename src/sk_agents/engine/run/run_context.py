"""What the parts that work for a driver see of it: its run, and two ways to act for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from sk_agents.engine.agent import Agent
from sk_agents.engine.events import Event
from sk_agents.engine.log.state import Run
from sk_agents.engine.ports import Spender
from sk_agents.engine.reading.live import LiveRun
from sk_agents.engine.services import Services
from sk_agents.engine.threads.known import KnownThread
from sk_agents.engine.values import dataclass

T = TypeVar("T")


class CommitAsOwner(Protocol):
    """See `Driver.commit`."""

    async def __call__(self, *events: Event, as_of: int | None = None) -> None: ...


class UnlessStopped(Protocol):
    """See `Driver.unless_stopped`."""

    async def __call__(self, work: Callable[[], Awaitable[T]]) -> T | None: ...


@dataclass(slots=True)
class UserHeader:
    """The `Authorization` header that the user has lent, the newest one.

    `is_lost`: the run was given back to the instance that held its header, and that one is gone.
    """

    value: str | None = None
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class RunContext:
    """`run` is as it is now, also once another instance has ended it; `epoch` is that of the
    driver's lease; `must_stop` says that nothing new is to begin."""

    services: Services
    known: KnownThread
    run: Run
    epoch: int
    agent: Agent
    live: LiveRun
    header: UserHeader
    commit: CommitAsOwner
    unless_stopped: UnlessStopped
    must_stop: Callable[[], bool]

    @property
    def thread_id(self) -> str:
        return self.known.head.thread_id

    @property
    def spender(self) -> Spender:
        head = self.known.head
        agent = self.run.agent or head.agent or self.agent.name
        return Spender(head.user_id, agent, self.run_id, used=self.run.usage)

    @property
    def run_id(self) -> str:
        return self.run.run_id
