"""Compares what clients were told with the log, the ledger and what the model was asked.

Each function returns what is wrong, as sentences that name the client, the chat and the events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sk_agents.engine.events import (
    ApprovalDecided,
    CancelRequested,
    Event,
    RunEnded,
    RunQueued,
    RunStarted,
    ToolFinished,
    ToolProposed,
    ToolStarted,
)
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import Effect, RunStatus
from sk_agents.exceptions import StateCorrupt
from tests.chaos.fleet import Fleet
from tests.chaos.histories import BEGINNING, Frame, History, Order, Reading

# Of every chat that is still there, all that its log says.
Logs = Mapping[str, Sequence[Event]]


def wrong_messages(history: History, logs: Logs) -> Iterator[str]:
    """Acknowledged messages that are lost, doubled, changed, or back after a deletion."""
    begun = {chat: _begun(log) for chat, log in logs.items()}
    for message in history.messages:
        here = begun.get(message.chat, {})
        about = f"{message.client}: {message.token} in {message.chat} ({message.interaction})"
        runs = [run for run, text in here.items() if text.split()[0] == message.token]
        if len(runs) > 1:
            yield f"{about} is there more than once: {runs}"
        if not message.interaction:
            continue
        if message.interaction not in here:
            if not history.may_be_deleted(message):
                yield f"{about} was acknowledged and is lost"
        elif runs != [message.interaction]:
            yield f"{about} is there as {here[message.interaction]!r} and in {runs}"
        elif history.must_be_deleted(message):
            yield f"{about} was deleted and is there again"


def _begun(log: Sequence[Event]) -> dict[str, str]:
    return {
        event.run_id: event.message.parts[0].content
        for event in log
        if isinstance(event, RunQueued | RunStarted) and event.message is not None
    }


def wrong_logs(logs: Logs) -> Iterator[str]:
    """Logs that cannot be, runs that have not ended once, and tools begun after a cancel."""
    for chat, log in logs.items():
        try:
            fold(log)
        except StateCorrupt as error:
            yield f"{chat} is corrupt: {error!r}"
        numbers = [event.seq for event in log]
        if numbers != list(range(1, len(log) + 1)):
            yield f"the log of {chat} has gaps: {numbers}"
        ends = Counter(event.run_id for event in log if isinstance(event, RunEnded))
        for run in _begun(log):
            if ends[run] != 1:
                yield f"{run} of {chat} has {ends[run]} ends: {told([log], run)}"
        cancelled = set()
        for event in log:
            if isinstance(event, CancelRequested):
                cancelled.add(event.run_id)
            if isinstance(event, ToolStarted) and event.run_id in cancelled:
                yield f"{event.call_id} of {event.run_id} of {chat} began after its cancel"


def told(logs: Sequence[Sequence[Event]], run: str) -> list[str]:
    return [f"{event.seq} {event.type}" for log in logs for event in log if event.run_id == run]


def wrong_readings(history: History, replays: Mapping[str, Sequence[Frame]]) -> Iterator[str]:
    """Readings that are not what a reader sees who reads the same as a whole, at rest."""
    for reading in history.readings:
        if reading.path in replays and reading.frames:
            whole = replays[reading.path]
            ids = [frame.id for frame in whole]
            begin = ids.index(reading.after) + 1 if reading.after in ids else 0
            expected = whole[begin : begin + len(reading.frames)]
            if reading.after not in (None, BEGINNING, *ids):
                yield f"{_about(reading)} began after {reading.after}, which is not among {ids}"
            elif list(expected) != reading.frames:
                yield f"{_about(reading)} saw {_short(reading.frames)}, not {_short(expected)}"


def disagreeing_readings(history: History) -> Iterator[str]:
    """Two clients that saw different events under one id, also in chats that are gone."""
    seen: dict[tuple[str, str], tuple[Frame, Reading]] = {}
    for reading in history.readings:
        for frame in reading.frames:
            other, by = seen.setdefault((reading.path, frame.id), (frame, reading))
            if other != frame:
                yield f"{_about(reading)} saw {frame}, {by.client} saw {other}"


def _about(reading: Reading) -> str:
    return f"{reading.client}: reading {reading.path}"


def _short(frames: Sequence[Frame]) -> str:
    return " ".join(f"{frame.id}:{frame.name}" for frame in frames)


def wrong_effects(
    history: History, logs: Logs, ledger: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Calls that took effect too often, under several keys, unannounced, or not at all."""
    lines: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for line in ledger:
        lines.setdefault((line["run_id"], line["call_id"]), []).append(line)
    for call, its in lines.items():
        if not its[0]["is_idempotent"] and len(its) > 1 + history.retries[call]:
            yield f"{call} had {len(its)} effects, {history.retries[call]} retries were asked for"
        if its[0]["is_idempotent"] and len({line["key"] for line in its}) > 1:
            yield f"{call} was repeated with another key: {its}"
    for chat, log in logs.items():
        started = {(event.run_id, event.call_id) for event in log if isinstance(event, ToolStarted)}
        runs = _begun(log)
        for call in lines:
            if call[0] in runs and call not in started:
                yield f"{call} of {chat} had an effect and no start: {told([log], call[0])}"
        for event in log:
            if isinstance(event, ToolFinished) and event.outcome == "ok" and event.by is None:
                if event.result == "written" and (event.run_id, event.call_id) not in lines:
                    yield f"{event.call_id} of {event.run_id} of {chat} says that it has run"


def wrong_prompts(history: History, prompts: Sequence[Sequence[str]]) -> Iterator[str]:
    """Prompts that hold messages of two conversations, or of one that was deleted in between."""
    messages = {message.token: message for message in history.messages}
    deletions = [one for one in history.deletions if one.is_done]
    for tokens in prompts:
        prompt = [messages[token] for token in tokens]
        last = prompt[-1]
        for before in prompt[:-1]:
            if before.chat != last.chat:
                yield f"{last.token} of {last.chat} was sent with {before.token} of {before.chat}"
            for one in deletions if before.attempts == 1 else ():
                if one.chat == last.chat and before.acked < one.sent and one.acked < last.sent:
                    yield (
                        f"{last.client}: {last.token} to {last.chat} was sent to the model with "
                        f"{before.token}, which was deleted before"
                    )
        if len(set(tokens)) < len(tokens):
            yield f"{last.client}: {last.token} was sent to the model with {tokens}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How long a cancel or a decision took, and what excuses it, if anything does."""

    order: Order
    seconds: float
    excuse: str = ""


def outcomes_of_orders(history: History, logs: Logs, fleet: Fleet) -> Iterator[Outcome | str]:
    """What became of every confirmed cancel and decision; what is wrong, as a sentence."""
    for order in history.orders:
        log = [event for event in logs.get(order.chat, ()) if event.run_id == order.interaction]
        if not log:
            continue
        asked = next((event for event in log if _is_about(event, order)), None)
        if asked is None:
            yield f"{order} was confirmed and is not in the log: {told([log], order.interaction)}"
            continue
        done = next((event for event in log if _is_effect(event, asked)), None)
        if done is None:
            yield f"{order} had no effect: {told([log], order.interaction)}"
            continue
        since, until = asked.at.timestamp(), done.at.timestamp()
        excuse = _excuse(order, log, asked, done) or _disturbance(order, fleet, since, until)
        yield Outcome(order, until - since, excuse)
        last = log[-1]
        if isinstance(asked, CancelRequested) and isinstance(last, RunEnded):
            if last.status is not RunStatus.CANCELLED:
                yield f"{order} was confirmed, but the run is {last.status}"


def _disturbance(order: Order, fleet: Fleet, since: float, until: float) -> str:
    life = fleet.life(order.owner) if order.owner is not None else None
    if life is not None and not life.was_well(since, until):
        return "its owner was killed or stopped"
    if not fleet.store_was_free(since, until):
        return "a stopped process held the store's lock"
    return ""


def _excuse(order: Order, log: Sequence[Event], asked: Event, done: Event) -> str:
    """A call that must not be cut is given some time to end, before the run does."""
    cancels = [event.seq for event in log if isinstance(event, CancelRequested)]
    if order.approval_id:
        return "the run was cancelled" if cancels and cancels[0] < done.seq else ""
    risky = {
        event.call_id
        for event in log
        if isinstance(event, ToolProposed) and event.effect is Effect.AT_MOST_ONCE
    }
    before = [event for event in log if event.seq < asked.seq]
    running = {event.call_id for event in before if isinstance(event, ToolStarted)}
    running -= {event.call_id for event in before if isinstance(event, ToolFinished)}
    return "a call was running that must not be cut" if running & risky else ""


def _is_about(event: Event, order: Order) -> bool:
    if order.approval_id:
        return isinstance(event, ApprovalDecided) and event.approval_id == order.approval_id
    return isinstance(event, CancelRequested)


def _is_effect(event: Event, asked: Event) -> bool:
    if event.seq < asked.seq:
        return False
    if isinstance(asked, ApprovalDecided) and isinstance(event, ToolStarted | ToolFinished):
        return event.call_id == asked.call_id
    return isinstance(event, RunEnded)
