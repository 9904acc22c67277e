"""How a run begins and how it ends: the checks, and the commit or the events of each.

A run that ends before its time is sealed: every open approval is withdrawn and every open call is
given a result, in the commit that ends the run. Afterwards the conversation can go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from sk_agents.engine.calls.call import Call
from sk_agents.engine.commands import Accepted, BeginRun, CancelRun, EditRun, StartRun, SteerRun
from sk_agents.engine.events import (
    Answered,
    Cancelled,
    CancelRequested,
    Event,
    Failed,
    RunEnded,
    RunQueued,
    RunStarted,
    Steered,
    ThreadChanged,
    ToolFinished,
)
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.log.blobs import with_references
from sk_agents.engine.log.commits import Absent, Claim, Commit, Quiet, Unchanged
from sk_agents.engine.log.state import BIN, PLACE, TITLE, Run
from sk_agents.engine.models import TERMINAL, CallState, NewThread, RunStatus, Usage
from sk_agents.engine.ports import Redaction, Spender
from sk_agents.engine.run.redacting import redacted_edit, redacted_start
from sk_agents.engine.run.vault import keeping, new_secrets
from sk_agents.engine.services import Services
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import (
    AlreadyTerminal,
    InvalidInput,
    LeaseHeld,
    LimitExceeded,
    NotSteerable,
    RunNotFound,
    SequenceConflict,
    ThreadBusy,
    ThreadExists,
    ThreadInBin,
    ThreadNotFound,
)

MAX_QUEUED = 100
# Of what a user says while one run works.
MAX_STEERING = 20
# What a command meets when the thread is no longer as it was seen: it is tried again.
LOST_RACES = (SequenceConflict, ThreadExists)

SealedBy = Literal["cancel", "human", "failure"]
_NOT_RUN: Mapping[SealedBy, str] = {
    "cancel": "Not run: the user cancelled before it started.",
    "human": "Not run: another call of this turn was rejected.",
    "failure": "Not run: the run failed before it started.",
}
_KEY_USED = "This Idempotency-Key was used for another request."
_UNKNOWN = "It was started, but its outcome is not known: it may or may not have taken effect."


def check_owner(known: KnownThread, user_id: str) -> None:
    """Raises ThreadNotFound: to the caller, another user's thread is no thread at all."""
    if known.head.user_id != user_id:
        raise ThreadNotFound(thread_id=known.head.thread_id, owner=known.head.user_id)


def repeated(known: KnownThread, command: BeginRun) -> Accepted | None:
    """The run that this same request has started before.

    Raises:
        InvalidInput: the key was used for another request.
    """
    key = command.idempotency_key
    if key is None:
        return None
    if (said := known.state.steering_keys.get(key)) is not None:
        raise InvalidInput(_KEY_USED, run_id=said.run_id)
    run_id = known.state.keys.get(key)
    if run_id is None:
        return None
    if known.state.run(run_id).request_digest != command.request_digest:
        raise InvalidInput(_KEY_USED, run_id=run_id)
    return Accepted(known.head.thread_id, run_id, after=0, repeated=True)


async def begin(services: Services, known: KnownThread, command: StartRun) -> Accepted:
    """Start a run on a thread at rest.

    Raises:
        SequenceConflict, LeaseHeld: the thread is no longer as `known` says.
    """
    check_new(known, command.run_id)
    guard = Quiet(known.state.next_seq)
    redaction = _redaction(services, command.agent or known.head.agent, known)
    command = redacted_start(redaction, command)
    await _check_quota(services, command, command.agent or known.head.agent)
    events: list[Event] = [
        RunStarted(
            **_beginning(services, command, redaction),
            message=command.message,
            parent_run=known.state.head_run,
        )
    ]
    if command.title is not None and TITLE not in known.head.metadata:
        events.append(ThreadChanged(run_id=command.run_id, metadata={TITLE: command.title}))
    await services.commit(known, guard, *events, lease=Claim(services.owner))
    failpoint("run_committed")
    return Accepted(known.head.thread_id, command.run_id, after=guard.next_seq - 1)


async def create(services: Services, command: StartRun, new: NewThread) -> KnownThread:
    """Make the thread with its first run.

    Raises:
        ThreadExists: another request was faster.
    """
    redaction = _redaction(services, command.agent or new.agent)
    command = redacted_start(redaction, command)
    new = command.new or new
    await _check_quota(services, command, command.agent or new.agent, makes_thread=True)
    started = RunStarted(**_beginning(services, command, redaction), message=command.message)
    lease = Claim(services.owner)
    commit_id = services.next_commit_id()
    events = with_references((started,), {})
    done = await services.send(Commit(command.thread_id, commit_id, Absent(new), events, lease))
    failpoint("run_committed")
    known = KnownThread(done.thread)
    await services.learn(known, done)
    return known


async def enqueue(services: Services, known: KnownThread, command: StartRun) -> Accepted:
    """Queue a run behind those of a busy thread.

    Raises:
        LimitExceeded: too many wait already.
        SequenceConflict: the thread is no longer as `known` says.
    """
    check_new(known, command.run_id)
    guard = Unchanged(known.state.next_seq)
    redaction = _redaction(services, command.agent or known.head.agent, known)
    command = redacted_start(redaction, command)
    await _check_quota(services, command, command.agent or known.head.agent)
    waiting = len(known.state.queue)
    if waiting >= MAX_QUEUED:
        raise LimitExceeded(f"{MAX_QUEUED} messages wait in this conversation already.")
    queued = RunQueued(
        **_beginning(services, command, redaction), message=command.message, position=waiting + 1
    )
    await services.commit(known, guard, queued)
    thread_id, after = known.head.thread_id, guard.next_seq - 1
    return Accepted(thread_id, command.run_id, after, queued=waiting + 1)


async def begin_edit(services: Services, known: KnownThread, command: EditRun) -> Accepted:
    """Start a sibling of the edited run; it becomes the tip of the visible branch.

    Raises:
        RunNotFound: the thread has no such run, or it never started.
        SequenceConflict, LeaseHeld: the thread is no longer as `known` says.
    """
    check_new(known, command.run_id)
    edited = edited_run(known, command)
    agent = command.agent or edited.agent or known.head.agent
    redaction = _redaction(services, agent, known)
    command = redacted_edit(redaction, command)
    guard = Quiet(known.state.next_seq)
    await _check_quota(services, command, agent)
    beginning = _beginning(services, command, redaction)
    for name in ("agent", "on_disconnect", "response_schema"):
        beginning[name] = beginning[name] or getattr(edited, name)
    message = command.message or edited.message
    started = RunStarted(
        **beginning, message=message, parent_run=edited.parent_run, edits=edited.run_id
    )
    await services.commit(known, guard, started, lease=Claim(services.owner))
    failpoint("edit_committed")
    return Accepted(known.head.thread_id, command.run_id, after=guard.next_seq - 1)


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


def is_in_bin(known: KnownThread) -> bool:
    return known.head.metadata.get(PLACE) == BIN


def refuse_in_bin(known: KnownThread) -> None:
    if is_in_bin(known):
        raise ThreadInBin(thread_id=known.head.thread_id)


async def _check_quota(
    services: Services, command: BeginRun, agent: str, *, makes_thread: bool = False
) -> None:
    """This may take a while: the guard of the commit has to be made before."""
    await services.budget.admit(Spender(command.user_id, agent, command.run_id))
    if command.quota is not None:
        await command.quota.admit(command.user_id, makes_thread=makes_thread)


def _redaction(
    services: Services, agent: str | None, known: KnownThread | None = None
) -> Redaction | None:
    secrets = known.state.secrets if known is not None else {}
    return keeping(services.redaction(agent), secrets, services.ids)


def _beginning(
    services: Services, command: BeginRun, redaction: Redaction | None
) -> dict[str, Any]:
    """What every beginning says; see `events.Beginning`."""
    return {
        "run_id": command.run_id,
        "idempotency_key": command.idempotency_key,
        "request_digest": command.request_digest,
        "agent": command.agent,
        "on_disconnect": command.on_disconnect,
        "response_schema": command.response_schema,
        "trace": services.observer.trace(),
        "correlation_id": services.observer.correlation_id(),
        "user_name": command.user_name,
        "secrets": new_secrets(redaction),
    }


def said_before(known: KnownThread, command: SteerRun) -> str | None:
    """The id of the message that this same request has left before.

    Raises:
        InvalidInput: the key was used for another request.
    """
    key = command.idempotency_key
    if key is None:
        return None
    if (run_id := known.state.keys.get(key)) is not None:
        raise InvalidInput(_KEY_USED, run_id=run_id)
    said = known.state.steering_keys.get(key)
    if said is None:
        return None
    if (said.run_id, said.request_digest) != (command.run_id, command.request_digest):
        raise InvalidInput(_KEY_USED, run_id=said.run_id)
    return said.message_id


def check_steerable(run: Run) -> None:
    """Raises AlreadyTerminal, NotSteerable, LimitExceeded: no call of the model will get it."""
    if run.phase in TERMINAL:
        raise AlreadyTerminal(run_id=run.run_id, status=run.phase)
    if run.phase is RunStatus.QUEUED:
        raise NotSteerable("This run waits for its turn: nothing can be added to it yet.")
    if run.is_stopping:
        raise NotSteerable("This run was asked to stop: the model is not called again.")
    if len(run.steering) >= MAX_STEERING:
        raise LimitExceeded(f"{MAX_STEERING} messages were sent to this run while it worked.")


async def steer(services: Services, known: KnownThread, run: Run, command: SteerRun) -> str:
    """Store what the user says to a run at work; the id of the message.

    Raises:
        SequenceConflict: the thread is no longer as `known` says.
    """
    guard = Unchanged(known.state.next_seq)
    agent = run.agent or known.head.agent
    redaction = _redaction(services, agent, known)
    text = redaction.text(command.text) if redaction is not None else command.text
    await services.budget.admit(Spender(command.user_id, agent, run.run_id))
    said = Steered(
        run_id=run.run_id,
        message_id=f"msg_{services.ids.new()}",
        content=text,
        said_by=command.user_id,
        idempotency_key=command.idempotency_key,
        request_digest=command.request_digest,
        secrets=new_secrets(redaction),
    )
    await services.commit(known, guard, said)
    return said.message_id


async def request_cancel(
    services: Services, known: KnownThread, run: Run, command: CancelRun
) -> None:
    """Commit what stops the run. Afterwards it has ended, or its owner must end it.

    Raises:
        SequenceConflict: the thread is no longer as `known` says.
    """
    asked = CancelRequested(
        run_id=run.run_id,
        requested_by=command.user_id,
        reason=command.reason,
        after=command.after,
    )
    next_seq = known.state.next_seq
    if run.phase is RunStatus.QUEUED:
        await services.commit(known, Unchanged(next_seq), asked, *cancelled(run))
        return
    if run.status is RunStatus.WAITING and not known.state.queue:
        try:
            await services.commit(known, Quiet(next_seq), asked, *cancelled(run))
            return
        except LeaseHeld:
            # Not parked yet, or never to be: its owner has to end it.
            pass
    lease = services.claim_if_free()
    await services.commit(known, Unchanged(next_seq), asked, lease=lease)


def answered(run: Run, answer: Answered, usage: Usage) -> tuple[Event, ...]:
    return answer, RunEnded(run_id=run.run_id, status=RunStatus.COMPLETED, usage=usage)


def cancelled(
    run: Run, *, partial: str | None = None, by: Literal["cancel", "human"] = "cancel"
) -> tuple[Event, ...]:
    return (
        *sealed(run, by),
        Cancelled(run_id=run.run_id, partial=partial or None),
        RunEnded(run_id=run.run_id, status=RunStatus.CANCELLED, usage=run.usage),
    )


def failed(run: Run, *, code: str, message: str, correlation_id: str | None) -> tuple[Event, ...]:
    return (
        *sealed(run, "failure"),
        Failed(run_id=run.run_id, code=code, message=message, correlation_id=correlation_id),
        RunEnded(run_id=run.run_id, status=RunStatus.FAILED, usage=run.usage),
    )


def sealed(run: Run, by: SealedBy) -> Iterator[Event]:
    """A result for every call that has none, and its open approval withdrawn."""
    for call in run.unresolved_calls:
        if call.waits and call.approval is not None:
            yield call.approval.closed("withdrawn", "failure" if by == "failure" else "cancel")
        yield ToolFinished(
            run_id=run.run_id,
            call_id=call.proposal.call_id,
            outcome="sealed",
            by=by,
            result=_seal(call, by),
            attachments=call.late_attachments,
        )


def _seal(call: Call, by: SealedBy) -> str:
    if call.late_result is not None:
        return call.late_result
    started = call.state in (CallState.STARTED, CallState.UNKNOWN)
    return _UNKNOWN if started else _NOT_RUN[by]
