"""Taking on a run: the checks before it and the one commit that makes it durable."""

from __future__ import annotations

from sk_agents.engine.commands import Accepted, EditRun, StartRun
from sk_agents.engine.events import RunQueued, RunStarted, ThreadChanged
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.log.commits import Absent, Claim, Commit, Quiet, Unchanged
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import TERMINAL, NewThread
from sk_agents.engine.services import Services
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import (
    InvalidInput,
    LimitExceeded,
    RunNotFound,
    SequenceConflict,
    ThreadBusy,
    ThreadExists,
    ThreadNotFound,
)

MAX_QUEUED = 100
# The key of a thread's metadata that holds its title.
TITLE = "title"


def check_owner(known: KnownThread, user_id: str) -> None:
    """Another's thread is, to the caller, no thread at all."""
    if known.head.user_id != user_id:
        raise ThreadNotFound(thread_id=known.head.thread_id, owner=known.head.user_id)


def repeated(known: KnownThread, command: StartRun | EditRun) -> Accepted | None:
    """The run this very request has started before.

    Raises:
        InvalidInput: the key was used for another request.
    """
    key = command.idempotency_key
    run_id = known.state.keys.get(key) if key is not None else None
    if run_id is None:
        return None
    if known.state.run(run_id).request_digest != command.request_digest:
        raise InvalidInput("This Idempotency-Key was used for another request.", run_id=run_id)
    return Accepted(known.head.thread_id, run_id, after=0, repeated=True)


async def begin(services: Services, known: KnownThread, command: StartRun) -> Accepted:
    """Start it on a thread at rest.

    Raises:
        SequenceConflict, LeaseHeld: the thread is no longer as `known` says.
    """
    check_new(known, command.run_id)
    guard = Quiet(known.state.next_seq)
    await _admit(command)
    started = _started(services, command, parent=known.state.head_run)
    after = guard.next_seq - 1
    title = _titled(known, command)
    await services.commit(known, guard, started, *title, lease=Claim(services.owner))
    failpoint("run_committed")
    return Accepted(known.head.thread_id, command.run_id, after)


async def create(services: Services, command: StartRun, new: NewThread) -> KnownThread:
    """Make the thread with its first run.

    Raises:
        ThreadExists: somebody else was faster.
    """
    await _admit(command, makes_thread=True)
    commit = Commit(
        command.thread_id,
        services.next_commit_id(),
        Absent(new),
        (_started(services, command, parent=None),),
        Claim(services.owner),
    )
    done = await services.send(commit)
    failpoint("run_committed")
    known = KnownThread(done.thread)
    await services.learn(known, done)
    return known


async def enqueue(services: Services, known: KnownThread, command: StartRun) -> Accepted:
    """Let it wait for its turn.

    Raises:
        LimitExceeded: too many wait already.
        SequenceConflict: the thread is no longer as `known` says.
    """
    check_new(known, command.run_id)
    guard = Unchanged(known.state.next_seq)
    await _admit(command)
    waiting = len(known.state.queue)
    if waiting >= MAX_QUEUED:
        raise LimitExceeded(f"{MAX_QUEUED} messages wait in this conversation already.")
    queued = RunQueued(
        run_id=command.run_id,
        message=command.message,
        position=waiting + 1,
        idempotency_key=command.idempotency_key,
        request_digest=command.request_digest,
        agent=command.agent,
        on_disconnect=command.on_disconnect,
        response_schema=command.response_schema,
        trace=services.observer.trace(),
    )
    await services.commit(known, guard, queued)
    after = guard.next_seq - 1
    return Accepted(known.head.thread_id, command.run_id, after, queued=waiting + 1)


async def begin_edit(services: Services, known: KnownThread, command: EditRun) -> Accepted:
    """Start a sibling of the edited run; it becomes the tip of the visible branch.

    Raises:
        RunNotFound: the thread has no such run, or it never started.
        SequenceConflict, LeaseHeld: the thread is no longer as `known` says.
    """
    check_new(known, command.run_id)
    edited = edited_run(known, command)
    guard = Quiet(known.state.next_seq)
    await _admit(command)
    started = RunStarted(
        run_id=command.run_id,
        message=command.message or edited.message,
        parent_run=edited.parent_run,
        edits=edited.run_id,
        idempotency_key=command.idempotency_key,
        request_digest=command.request_digest,
        agent=command.agent or edited.agent,
        on_disconnect=command.on_disconnect or edited.on_disconnect,  # type: ignore[arg-type]
        response_schema=edited.response_schema,
        trace=services.observer.trace(),
    )
    after = guard.next_seq - 1
    await services.commit(known, guard, started, lease=Claim(services.owner))
    failpoint("edit_committed")
    return Accepted(known.head.thread_id, command.run_id, after)


def edited_run(known: KnownThread, command: EditRun) -> Run:
    run = known.state.runs.get(command.edited_run)
    if run is None or run.phase not in TERMINAL or run.message is None:
        raise RunNotFound(run_id=command.edited_run)
    return run


def check_new(known: KnownThread, run_id: str) -> None:
    """A run id is never used twice: the log would contradict itself."""
    if run_id in known.state.runs:
        raise InvalidInput("There is a run with this id already.", run_id=run_id)


def busy_with(known: KnownThread) -> str | None:
    """The run that keeps this thread from starting another."""
    if known.state.active_run is not None:
        return known.state.active_run
    return known.state.queue[0] if known.state.queue else None


def refuse_busy(known: KnownThread) -> None:
    run_id = busy_with(known)
    if run_id is not None:
        raise ThreadBusy(thread_id=known.head.thread_id, run_id=run_id)


RETRIED = (SequenceConflict, ThreadExists)


async def _admit(command: StartRun | EditRun, *, makes_thread: bool = False) -> None:
    """This may take a while: the guard of the commit has to be made before."""
    if command.quota is not None:
        await command.quota.admit(command.user_id, makes_thread=makes_thread)


def _titled(known: KnownThread, command: StartRun) -> tuple[ThreadChanged, ...]:
    if command.title is None or TITLE in known.head.metadata:
        return ()
    return (ThreadChanged(run_id=command.run_id, metadata={TITLE: command.title}),)


def _started(services: Services, command: StartRun, parent: str | None) -> RunStarted:
    return RunStarted(
        run_id=command.run_id,
        message=command.message,
        parent_run=parent,
        idempotency_key=command.idempotency_key,
        request_digest=command.request_digest,
        agent=command.agent,
        on_disconnect=command.on_disconnect,
        response_schema=command.response_schema,
        trace=services.observer.trace(),
    )
