"""Whether the logs are what they were: their chains, and what checkpoints said of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from sk_agents.audit.checkpoints import Verifier
from sk_agents.audit.reading import pages_of, thread_ids
from sk_agents.audit.server_log import CONTINUED
from sk_agents.audit.trail import CHECKPOINT, COVERED
from sk_agents.engine.events import DELETING, Event, Noted
from sk_agents.engine.log.chain import chain_start, rebuilt
from sk_agents.engine.models import SERVER_LOG, Thread, server_log_part
from sk_agents.engine.ports import PortableStore
from sk_agents.exceptions import SchemaTooNew, StateCorrupt, ThreadNotFound
from sk_agents.wire.views import Checkpoint

# Is called with how many threads have been looked at, and how many there are.
Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """What is not as it was, in which log, and from which event on if that is known."""

    log: str
    problem: str
    seq: int | None = None

    def __str__(self) -> str:
        place = f", event {self.seq}" if self.seq is not None else ""
        return f"{self.log}{place}: {self.problem}"


@dataclass(slots=True)
class Verification:
    findings: list[AuditFinding] = field(default_factory=list)
    threads: int = 0
    events: int = 0
    # Threads that were changed since the last checkpoint, or were never covered by one.
    uncovered: int = 0
    # Threads of a version without chains, whose first events no chain covers.
    unchained: int = 0
    checkpoints: int = 0
    last_checkpoint: Checkpoint | None = None
    # Of checkpoints whose signature could not be checked: no public key was given, or another one.
    unsigned: int = 0

    def found(self, log: str, problem: str, seq: int | None = None) -> None:
        self.findings.append(AuditFinding(log, problem, seq))


@dataclass(frozen=True, slots=True)
class Covered:
    """How far a thread had come at a checkpoint."""

    incarnation: str
    next_seq: int
    chain: str


@dataclass(slots=True)
class ServerLogReader:
    """What the server's log says of threads and of itself. Reads on where it stopped."""

    store: PortableStore
    result: Verification
    covered: dict[str, list[Covered]] = field(default_factory=lambda: defaultdict(list))
    deleted: set[tuple[str, str]] = field(default_factory=set)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    # By incarnation of a part: its chain at each place where a commit ended.
    chains: dict[str, dict[int, str]] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)

    async def read_on(self) -> None:
        before: Thread | None = None
        part = 1
        while True:
            thread_id = server_log_part(part)
            try:
                thread, records = await self.store.whole_thread(thread_id)
            except ThreadNotFound:
                return
            except (StateCorrupt, SchemaTooNew) as damage:
                self.result.found(thread_id, str(damage), damage.attributes.get("seq"))
                return
            self.chains[thread.incarnation] = dict(rebuilt(thread, records))
            async for page in pages_of(self.store, thread, after=self.read.get(thread_id, 0)):
                for event in page:
                    if event.seq == 1 and before is not None:
                        self._check_continued(thread_id, event, before)
                    if isinstance(event, Noted):
                        self._take(event)
            self.read[thread_id] = thread.next_seq - 1
            before = thread
            part += 1

    def _check_continued(self, thread_id: str, event: Event, before: Thread) -> None:
        named = (CONTINUED, before.thread_id, before.chain)
        if not isinstance(event, Noted) or (event.what, event.subject, event.digest) != named:
            self.result.found(thread_id, "does not follow the part of the log before it", 1)

    def _take(self, note: Noted) -> None:
        if note.what == COVERED:
            for thread_id, place in _covered(note):
                self.covered[thread_id].append(place)
        elif note.what == DELETING:
            self.deleted.add((note.subject or "", str(note.details.get("incarnation"))))
        elif note.what == CHECKPOINT:
            try:
                self.checkpoints.append(Checkpoint.model_validate(note.details))
            except ValidationError:
                self.result.found(SERVER_LOG, "a checkpoint cannot be read", note.seq)


async def verify(
    store: PortableStore,
    *,
    kept: Sequence[Checkpoint] = (),
    keys: Sequence[Verifier] = (),
    told: Told = lambda done, of: None,
) -> Verification:
    """Look at every log. The store may be in use. `kept` are checkpoints from elsewhere, `keys`
    those that may have signed."""
    result = Verification()
    server = ServerLogReader(store, result)
    await server.read_on()
    _check_checkpoints(server, kept, keys, result)
    ids = [thread_id async for thread_id in thread_ids(store)]
    gone = {
        (thread_id, place.incarnation)
        for thread_id, places in server.covered.items()
        for place in places
    }
    for number, thread_id in enumerate(ids, 1):
        found = await _check_thread(store, thread_id, server.covered.get(thread_id, []), result)
        gone.discard((thread_id, found))
        told(number, len(ids))
    if gone:
        # Some may have been deleted while this looked at the others.
        await server.read_on()
    for thread_id, incarnation in sorted(gone - server.deleted):
        result.found(thread_id, f"is missing ({incarnation}), and no deletion of it was noted")
    return result


def _check_checkpoints(
    server: ServerLogReader,
    kept: Sequence[Checkpoint],
    keys: Sequence[Verifier],
    result: Verification,
) -> None:
    by_id: Mapping[str, Verifier] = {key.key_id: key for key in keys}
    for checkpoint in (*server.checkpoints, *kept):
        result.checkpoints += 1
        key = by_id.get(checkpoint.key_id)
        if key is None:
            result.unsigned += 1
        elif not key.verifies(checkpoint):
            result.found(SERVER_LOG, f"the checkpoint of {checkpoint.at} is not signed by its key")
            continue
        chains = server.chains.get(checkpoint.incarnation, {})
        place = f"the log is not the one that the checkpoint of {checkpoint.at} was made of"
        if chains.get(checkpoint.next_seq) != checkpoint.chain:
            result.found(SERVER_LOG, place, checkpoint.next_seq - 1)
        last = result.last_checkpoint
        if last is None or checkpoint.at > last.at:
            result.last_checkpoint = checkpoint


async def _check_thread(
    store: PortableStore, thread_id: str, covered: Sequence[Covered], result: Verification
) -> str | None:
    """The incarnation that is there."""
    try:
        thread, records = await store.whole_thread(thread_id)
    except ThreadNotFound:
        return None
    except (StateCorrupt, SchemaTooNew) as damage:
        result.found(thread_id, str(damage), damage.attributes.get("seq"))
        return covered[-1].incarnation if covered else None
    result.threads += 1
    result.events += thread.next_seq - 1
    result.unchained += thread.next_seq > 1 and chain_start(thread.chain) != 1
    chains = dict(rebuilt(thread, records))
    own = [place for place in covered if place.incarnation == thread.incarnation]
    wrong = [place.next_seq for place in own if chains.get(place.next_seq) != place.chain]
    if wrong:
        result.found(thread_id, f"was changed before event {min(wrong)}, as a checkpoint shows")
    is_covered = any(place.next_seq == thread.next_seq for place in own)
    result.uncovered += thread.next_seq > 1 and not is_covered
    return thread.incarnation


def _covered(note: Noted) -> Iterator[tuple[str, Covered]]:
    threads: Any = note.details.get("threads")
    for thread_id, incarnation, next_seq, chain in threads or ():
        yield thread_id, Covered(incarnation, next_seq, chain)
