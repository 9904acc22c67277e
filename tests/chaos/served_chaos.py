"""The whole experiment: a fleet on one store, clients, a nemesis; then peace, and the reckoning."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import httpx_sse

from sk_agents.audit.checkpoints import Verifier, make_keys, read_checkpoints
from sk_agents.audit.reading import AuditQuery, trail
from sk_agents.audit.verification import verify
from sk_agents.engine.events import Event, Failed, RunEnded
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import TERMINAL
from sk_agents.engine.ports import PortableStore, Store, ThreadQuery
from sk_agents.exceptions import StateCorrupt, ThreadNotFound
from sk_agents.persistence.store_factory import open_store
from tests.audit.rebuild import wrong_audit
from tests.chaos import history_check as check
from tests.chaos.chat_client import USER, Client, Slot, stored_frames
from tests.chaos.fleet import Fleet
from tests.chaos.histories import BEGINNING, Frame, History
from tests.chaos.ledger import Ledger, running_ledger
from tests.chaos.nemesis import Nemesis
from tests.chaos.paced_model import PacedModel, write_paced_agent
from tests.chaos.scale import trials
from tests.chaos.server_process import Server
from tests.patience import seconds

INSTANCES = trials(full=3, small=2)
LASTING, FLEETING = 12, 4
# A lease's 15 seconds, a sweep, the slowest tool and answer, a queue of them: G4's bound.
SETTLING = 120.0
SLOW_SECONDS = 2.0
TRACEBACK = re.compile(r"^Traceback .*?^\w[^\n]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Report:
    """`cancels` and `decisions` are how long they took, in seconds, where nothing excuses them."""

    problems: list[str]
    cancels: list[float]
    decisions: list[float]
    figures: dict[str, object]

    def __str__(self) -> str:
        lines = [f"{name}: {value}" for name, value in self.figures.items()]
        lines += [f"cancels: {spread(self.cancels)}", f"decisions: {spread(self.decisions)}"]
        return "\n".join([*lines, *self.problems])


def percentile(sample: Sequence[float], share: float) -> float:
    return sorted(sample)[min(int(len(sample) * share), len(sample) - 1)] if sample else 0.0


def spread(sample: Sequence[float]) -> str:
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    figures = [f"{name} {percentile(sample, share):.3f}" for name, share in shares.items()]
    return f"{len(sample)}, {', '.join(figures)} s"


class Site:
    def __init__(
        self,
        fleet: Fleet,
        judge: Store,
        model: PacedModel,
        ledger: Ledger,
        logs: Sequence[Path],
        checkpoints: Path,
    ) -> None:
        self.fleet = fleet
        self.judge = judge
        self.model = model
        self.ledger = ledger
        self.logs = logs
        self.history = History()
        self.checkpoints = checkpoints
        self.audited = 0

    async def endure(self, seed: str, *, clients: int, seconds: float, in_peace: bool) -> None:
        """The clients do what they do while the nemesis rages; at the end all instances work."""
        slots = [Slot(f"lasting{number}", False) for number in range(LASTING)]
        slots += [Slot(f"fleeting{number}", True) for number in range(FLEETING)]
        people = [
            Client(f"client {number}", seed, self.fleet, slots, self.history, self.judge)
            for number in range(1, clients + 1)
        ]
        nemesis = Nemesis(self.fleet, random.Random(f"{seed} nemesis"))
        async with asyncio.TaskGroup() as group:
            if not in_peace:
                group.create_task(nemesis.rage(seconds))
            for one in people:
                group.create_task(one.live(seconds))

    async def settle(self) -> dict[str, Sequence[Event]]:
        """Every chat's log, once all that began has ended or its time is over.

        Whatever waits for a person is turned down.
        """
        async with httpx.AsyncClient(base_url=self.fleet.members[0].server.url) as client:
            until = time.monotonic() + SETTLING
            while True:
                logs = await self.read_logs()
                if not any(map(_unended, logs.values())) or time.monotonic() > until:
                    return logs
                waiting = (await client.get("/approvals?limit=100")).json()["approvals"]
                for asked in waiting:
                    await client.post(
                        f"/approvals/{asked['approval_id']}", json={"approved": False}
                    )
                await asyncio.sleep(0.5)

    async def read_logs(self) -> dict[str, Sequence[Event]]:
        logs: dict[str, Sequence[Event]] = {}
        after = None
        while True:
            page = await self.judge.threads(ThreadQuery(USER, after=after, limit=100))
            for thread in page.threads:
                assert thread.wire_id is not None
                try:
                    log = await self.judge.events_after(thread.thread_id, 0, 100_000)
                except (StateCorrupt, ThreadNotFound) as error:
                    self.history.problem(f"at the end {thread.wire_id} cannot be read: {error!r}")
                else:
                    logs[thread.wire_id] = log
            after = page.after
            if after is None:
                return logs

    async def replays(self, logs: Mapping[str, Sequence[Event]]) -> dict[str, list[Frame]]:
        """All that a client read and that is still there, as it is read now, from its beginning."""
        ends = {
            chat: sum(isinstance(event, RunEnded) for event in log) for chat, log in logs.items()
        }
        there = {event.run_id for log in logs.values() for event in log}
        found = {}
        async with httpx.AsyncClient(timeout=seconds(30)) as client:
            for number, reading in enumerate(self.history.readings):
                is_there = reading.chat in logs and (
                    reading.is_of_chat or reading.interaction in there
                )
                if is_there and reading.frames and reading.path not in found:
                    server = self.fleet.members[number % INSTANCES].server
                    many = ends[reading.chat] if reading.is_of_chat else 1
                    found[reading.path] = await self._replay(client, server, reading.path, many)
        return found

    async def _replay(
        self, client: httpx.AsyncClient, server: Server, path: str, ends: int
    ) -> list[Frame]:
        """The frames up to the end of so many interactions."""
        headers, frames = {"Last-Event-ID": BEGINNING}, []
        url = f"{server.url}{path}"
        async with httpx_sse.aconnect_sse(client, "GET", url, headers=headers) as source:
            if source.response.status_code != 200:
                text = (await source.response.aread()).decode()
                self.history.problem(f"at the end GET {url} gave {text}")
                return []
            async for frame in stored_frames(source):
                frames.append(frame)
                ends -= frame.name == "interaction_complete"
                if not ends:
                    break
        return frames

    async def judged(self) -> Report:
        logs = await self.settle()
        replays = await self.replays(logs)
        history = self.history
        told = list(check.outcomes_of_orders(history, logs, self.fleet))
        outcomes = [one for one in told if isinstance(one, check.Outcome)]
        problems = [
            *history.problems,
            *check.wrong_logs(logs),
            *check.wrong_messages(history, logs),
            *check.wrong_effects(history, logs, self.ledger.lines()),
            *check.wrong_prompts(history, self.model.tokens),
            *self.model.malformed,
            *check.disagreeing_readings(history),
            *check.wrong_readings(history, replays),
            *(one for one in told if isinstance(one, str)),
            *self.tracebacks(),
            *await self.wrong_audit(),
        ]
        return Report(
            problems,
            [one.seconds for one in outcomes if not one.excuse and not one.order.approval_id],
            [one.seconds for one in outcomes if not one.excuse and one.order.approval_id],
            self._figures(logs, outcomes),
        )

    async def wrong_audit(self) -> list[str]:
        """Where the audit alone says something else than the ledger, or its chains do not hold."""
        assert isinstance(self.judge, PortableStore)
        entries = [
            json.loads(entry.model_dump_json(exclude_none=True))
            async for entry in trail(self.judge, AuditQuery())
        ]
        kept = read_checkpoints(self.checkpoints)
        verified = await verify(
            self.judge, kept=kept, keys=[Verifier.read(self.checkpoints.with_suffix(".key.pub"))]
        )
        self.audited = len(entries)
        return [
            *wrong_audit(entries, self.ledger.lines()),
            *(f"the audit finds: {finding}" for finding in verified.findings),
        ]

    def _figures(
        self, logs: Mapping[str, Sequence[Event]], outcomes: Sequence[check.Outcome]
    ) -> dict[str, object]:
        history, fleet = self.history, self.fleet
        excused: dict[str, list[float]] = {}
        for one in outcomes:
            if one.excuse:
                excused.setdefault(one.excuse, []).append(one.seconds)
        slow = [one for one in outcomes if not one.excuse and one.seconds > SLOW_SECONDS]
        return {
            "acknowledged messages": len(history.acked_messages()),
            "kills": fleet.kills,
            "stops": fleet.stops,
            "stops that kept the others from writing": len(fleet.held),
            "starts that failed": list(self._failed_starts()),
            "readings": sum(bool(one.frames) for one in history.readings),
            "effects": len(self.ledger.lines()),
            "audit entries": self.audited,
            "checkpoints": len(read_checkpoints(self.checkpoints)),
            "deletions": sum(one.is_done for one in history.deletions),
            "answers": dict(sorted(history.answers.items())),
            "ends": dict(_ends(logs)),
            **{f"not counted, {excuse}": spread(times) for excuse, times in excused.items()},
            "slow": "".join(f"\n  {one}" for one in slow[:20]),
        }

    def _failed_starts(self) -> Iterator[str]:
        for member in self.fleet.members:
            yield from member.failed_starts

    def tracebacks(self) -> list[str]:
        """Their ends: where it was, and what."""
        found = {
            tuple(match[0].splitlines()[-4:])
            for path in self.logs
            for match in TRACEBACK.finditer(path.read_text())
        }
        return ["a server logged: " + " ".join(map(str.strip, lines)) for lines in sorted(found)]


def _unended(log: Sequence[Event]) -> bool:
    try:
        return any(run.phase not in TERMINAL for run in fold(log).runs.values())
    except StateCorrupt:
        return False


def _ends(logs: Mapping[str, Sequence[Event]]) -> Counter[str]:
    events = [event for log in logs.values() for event in log]
    codes = [event.code for event in events if isinstance(event, Failed)]
    statuses = [str(event.status) for event in events if isinstance(event, RunEnded)]
    return Counter([*codes, *statuses])


@asynccontextmanager
async def open_site(
    folder: Path, store: str, instances: int = INSTANCES, **environment: str
) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(PacedModel())
        ledger = await stack.enter_async_context(running_ledger(folder / "ledger"))
        agent = write_paced_agent(folder / "helper", model, ledger.port)
        logs = [folder / f"instance{number}.log" for number in range(1, instances + 1)]
        servers = [Server(folder, agent, store=store, log=log) for log in logs]
        checkpoints = folder / "checkpoints"
        key = checkpoints.with_suffix(".key")
        make_keys(key)
        for server in servers:
            server.environment["TA_AUDIT_KEY_FILE"] = str(key)
            server.environment["TA_AUDIT_CHECKPOINT_SECONDS"] = "1"
            server.environment["TA_AUDIT_CHECKPOINTS_FILE"] = str(checkpoints)
            # The plugin imports the ledger's words, and the processes start elsewhere.
            paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
            server.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
            server.environment.update(environment)
        fleet = Fleet(servers)
        stack.push_async_callback(fleet.close)
        await fleet.start()
        judge = await stack.enter_async_context(open_store(store))
        yield Site(fleet, judge, model, ledger, logs, checkpoints)
