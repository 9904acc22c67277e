"""Instances of the engine on one store, as an experiment sees them: told, stopped, killed, judged.

The judge is never an instance: it folds the log from the store and counts the ledger's lines.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from sk_agents.engine.log.state import Run, ThreadState, fold
from sk_agents.engine.models import TERMINAL, RunStatus, Thread
from sk_agents.engine.ports import Store
from sk_agents.exceptions import ThreadNotFound
from sk_agents.persistence.store_factory import open_store
from tests.chaos.ledger import Ledger, running_ledger
from tests.chaos.obedient_model import ObedientModel
from tests.forked_python import PYTHON
from tests.patience import seconds

# A busy machine takes its time to start several processes, the more so if they are measured.
BOUND = seconds(60.0)
LOOK = 0.02

T = TypeVar("T")


class Refused(Exception):
    """The engine said no; the text is the error's code."""


class Gone(Exception):
    """The process ended before it answered."""


class Instance:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.dies_on_answer = False
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self.process.pid

    async def ready(self) -> Self:
        async with asyncio.timeout(BOUND):
            await self._ready
        return self

    async def ask(self, do: str, **arguments: Any) -> Any:
        """Raises Refused with the engine's code, Gone, or TimeoutError."""
        async with asyncio.timeout(BOUND):
            return await self.send(do, **arguments)

    def send(self, do: str, **arguments: Any) -> asyncio.Future[Any]:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        assert self.process.stdin is not None
        line = {"id": number, "do": do, **arguments}
        if self._reading.done():
            answer.set_exception(Gone())
        else:
            self.process.stdin.write(json.dumps(line).encode() + b"\n")
        return answer

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.ended()

    async def stopped(self) -> None:
        """Once SIGSTOP has taken effect."""

        async def look() -> bool | None:
            return _process_state(self.pid) == "T" or None

        await until(look)

    async def ended(self) -> int:
        """Its return code, once it has ended by itself."""
        async with asyncio.timeout(BOUND):
            await asyncio.shield(self._reading)
            return await self.process.wait()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while raw := await self.process.stdout.readline():
            line = json.loads(raw)
            if self.dies_on_answer and "id" in line:
                self.process.kill()
            if "ready" in line:
                self._ready.set_result(None)
            elif "event" in line:
                self.events.put_nowait(line["event"])
            elif not (answer := self._answers.pop(line["id"], _settled())).done():
                if "error" in line:
                    answer.set_exception(Refused(line["error"]))
                else:
                    answer.set_result(line["ok"])
        for answer in [self._ready, *self._answers.values()]:
            if not answer.done():
                answer.set_exception(Gone())
                answer.exception()


def _process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _settled() -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future


class Site:
    """One store with a model, a ledger and any number of instances."""

    def __init__(self, url: str, store: Store, model: ObedientModel, ledger: Ledger) -> None:
        self.url = url
        self.store = store
        self.model = model
        self.ledger = ledger
        self.instances: list[Instance] = []

    async def start(self, *options: str, failpoint: str | None = None) -> Instance:
        return await (await self.launch(*options, failpoint=failpoint)).ready()

    async def launch(self, *options: str, failpoint: str | None = None) -> Instance:
        environment = {**os.environ, "TEAL_FAILPOINT": failpoint or ""}
        arguments = [self.url, self.model.base_url, str(self.ledger.port), *options]
        process = await asyncio.create_subprocess_exec(
            PYTHON,
            "-m",
            "tests.chaos.engine_process",
            *arguments,
            stdin=PIPE,
            stdout=PIPE,
            env=environment,
            limit=1 << 20,
        )
        instance = Instance(process)
        self.instances.append(instance)
        return instance

    async def head(self, thread_id: str) -> Thread:
        return await self.store.thread(thread_id)

    async def state(self, thread_id: str) -> ThreadState:
        """The log, folded: raises if it tells of anything impossible."""
        return fold(await self.store.events_after(thread_id, 0, 100_000))

    async def exists(self, thread_id: str) -> bool:
        try:
            await self.store.thread(thread_id)
        except ThreadNotFound:
            return False
        return True

    async def settled(self, thread_id: str, run_id: str) -> Run:
        """The run once it has ended or waits for a person, and nobody holds it any more."""

        async def look() -> Run | None:
            run = (await self.state(thread_id)).runs[run_id]
            if run.phase in TERMINAL:
                return run
            head = await self.head(thread_id)
            return run if run.status is RunStatus.WAITING and head.owner is None else None

        return await until(look)

    async def approval_of(self, thread_id: str, run_id: str) -> str:
        """The one open approval of a run that waits."""
        [approval] = (await self.settled(thread_id, run_id)).pending_approvals
        return approval.request.approval_id

    async def close(self) -> None:
        for instance in self.instances:
            if instance.process.returncode is None:
                instance.signal(signal.SIGCONT)
            await instance.kill()


async def until(look: Callable[[], Awaitable[T | None]]) -> T:
    """What `look` finds, once it finds something. Raises TimeoutError."""
    async with asyncio.timeout(BOUND):
        while (found := await look()) is None:  # noqa: ASYNC110  # other processes set no event
            await asyncio.sleep(LOOK)
        return found


@asynccontextmanager
async def open_site(directory: Path) -> AsyncIterator[Site]:
    url = f"sqlite://{directory / 'teal.sqlite'}"
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(url))
        model = await stack.enter_async_context(ObedientModel())
        ledger = await stack.enter_async_context(running_ledger(directory / "ledger"))
        site = Site(url, store, model, ledger)
        stack.push_async_callback(site.close)
        yield site
