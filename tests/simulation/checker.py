"""The promises, held against what every client saw, what the store holds and what was done.

Each function below is one promise and yields what breaks it, in words. `Life` is one life of a
thread, from its making to its deletion; a user's text never leaves the life it was said in.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from sk_agents.chats.render import ChatRenderer
from sk_agents.client.sse_parser import Frame, SseParser
from sk_agents.engine.agent import RunLimits
from sk_agents.engine.events import (
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    Event,
    Failed,
    RunEnded,
    RunQueued,
    RunStarted,
    Steered,
    SteeringDelivered,
    ToolFinished,
    ToolProposed,
    ToolStarted,
)
from sk_agents.engine.log.state import Run, ThreadState, fold
from sk_agents.engine.models import TERMINAL, Effect, RunStatus
from sk_agents.exceptions import TealError
from sk_agents.llm.openai_wire import wire_message
from tests.engine.openai_rules import problems as broken_rules
from tests.simulation.instance import ZERO
from tests.simulation.model_actor import Asked
from tests.simulation.network import Connection
from tests.simulation.store_port import Life
from tests.simulation.users import Done

if TYPE_CHECKING:
    from tests.simulation.history import World

# A decision or a cancel takes effect within this time while the owner of the run lives.
BOUND = 2.0
TALKING = {"start", "enqueue", "interrupt", "edit", "regenerate"}
# What makes a chat that is not there.
MAKING = {"start", "enqueue", "interrupt"}
DECIDING = {"approve", "approve_edited", "reject"}
WORD = re.compile(r"\bm\d+\b")
ONCE = {"Mail-send", "Mail-post"}
# Nobody can tell a clock's small steps from the world's own imprecision.
TOLERANCE = timedelta(seconds=120)
PROGRESS = (RunStarted, ToolProposed, ToolFinished, ApprovalRequested, ApprovalDecided)


def check(world: World) -> list[str]:
    found: list[str] = [*world.shadow.contradictions]
    for promise in PROMISES if not world.faults.restored else WITH_ANOTHER_PAST:
        found.extend(promise(world))
    return found


def nothing_acknowledged_is_lost(world: World) -> Iterator[str]:
    lives = world.shadow.runs()
    for done in world.users.done:
        if done.kind not in TALKING or done.acknowledged is None or done.run_id is None:
            continue
        life = lives.get(done.run_id)
        if life is None:
            if not world.faults.restored:
                yield f"{done.kind} {done.text!r} was acknowledged and is in no log"
            continue
        said = [
            event.message.text
            for event in life.log()
            if isinstance(event, RunStarted | RunQueued)
            and event.run_id == done.run_id
            and event.message is not None
        ]
        # A thread that was deleted may have had events that no commit was known to have stored.
        if done.text and said != [done.text] and (said or life.is_whole):
            yield f"{done.text!r} is stored as {said}"
    for thread_id, all_lives in world.shadow.lives.items():
        for life in all_lives:
            yield from _kept(world, thread_id, life)


def _kept(world: World, thread_id: str, life: Life) -> Iterator[str]:
    if life.ended is not None or world.faults.restored:
        return
    head = world.heads.get(thread_id)
    if head is None or head.created_at != life.made_at:
        deleted = any(
            done.thread_id == thread_id and done.kind == "delete" and done.outcome != "refused"
            for done in world.users.done
        )
        if not deleted:
            yield f"{thread_id} is gone although nobody deleted it"
        return
    read_at = world.read_at[thread_id]
    known = {seq for seq, stored_at in life.stored.items() if stored_at <= read_at}
    if missing := known - {event.seq for event in world.logs[thread_id]}:
        yield f"{thread_id} has lost the events {sorted(missing)}"


def nothing_deleted_comes_back(world: World) -> Iterator[str]:
    for thread_id, lives in world.shadow.lives.items():
        head = world.heads.get(thread_id)
        for life in lives:
            if life.ended is not None and head is not None and head.created_at == life.made_at:
                yield f"{thread_id} was deleted at {life.ended:.3f} and is there again"


def lost_files_are_noticed(world: World) -> Iterator[str]:
    yield from world.faults.unnoticed


def every_run_ends_once_or_waits(world: World) -> Iterator[str]:
    for thread_id, lives in world.shadow.lives.items():
        for life in lives:
            ends = Counter(event.run_id for event in life.log() if isinstance(event, RunEnded))
            for run_id, times in ends.items():
                if times > 1:
                    yield f"{run_id} of {thread_id} ended {times} times"
    for thread_id, log in world.logs.items():
        try:
            state = fold(log)
        except TealError as error:
            yield f"the log of {thread_id} contradicts itself: {error!r}"
            continue
        for run in state.runs.values():
            if not _rests(state, run):
                yield f"{run.run_id} of {thread_id} is still {run.status} at the end"


def _rests(state: ThreadState, run: Run) -> bool:
    if run.phase in TERMINAL:
        return True
    active = state.runs.get(state.active_run or "")
    if run.phase is RunStatus.QUEUED:
        return active is not None and active.status is RunStatus.WAITING
    return run.status is RunStatus.WAITING


def no_run_fails_without_a_reason(world: World) -> Iterator[str]:
    for lives in world.shadow.lives.values():
        for life in lives:
            log = life.log() if life.is_whole else []
            texts = {
                e.run_id: e.message.text
                for e in log
                if isinstance(e, RunStarted | RunQueued) and e.message is not None
            }
            for event in log:
                if not isinstance(event, Failed):
                    continue
                script = texts.get(event.run_id, "").split()
                if event.code == "recovery_attempts_exceeded":
                    yield from _was_poison(life, event)
                elif not (event.code.startswith("llm_") and {"fail", "break"} & {*script}):
                    yield f"{event.run_id} failed with {event.code}: {event.message}"


def _was_poison(life: Life, failed: Failed) -> Iterator[str]:
    """A run is given up only if it was lost several times without getting anywhere."""
    # Its calls are sealed in the commit that gives it up.
    before = [e for e in life.log() if e.seq < failed.seq and e.at < failed.at]
    moved = max((e.seq for e in before if isinstance(e, PROGRESS)), default=0)
    lost = sum(seq > moved for seq in life.recovered)
    if lost <= 3:
        yield f"{failed.run_id} was given up after {lost} losses without progress"


def effects_happen_once_and_as_agreed(world: World) -> Iterator[str]:
    lives = world.shadow.runs()
    done = defaultdict(list)
    for effect in world.tools.ledger:
        done[effect.run_id, effect.call_id].append(effect)
    for (run_id, call_id), effects in done.items():
        life = lives.get(run_id)
        if life is None:
            yield f"{effects[0].tool} ran for a run that is nowhere: {run_id}"
            continue
        about = [event for event in life.log() if getattr(event, "call_id", None) == call_id]
        yield from _agreed(run_id, call_id, [e.text for e in effects], effects[0].tool, about)
    for life in {id(life): life for life in lives.values()}.values():
        if life.is_whole:
            yield from _results_are_true(life, {call_id for _, call_id in done})


def _agreed(
    run_id: str, call_id: str, texts: list[str], tool: str, about: list[Event]
) -> Iterator[str]:
    decisions = [event for event in about if isinstance(event, ApprovalDecided)]
    retries = sum(event.choice == "retry" for event in decisions)
    if tool in ONCE and len(texts) > 1 + retries:
        yield f"{tool} ran {len(texts)} times for {call_id} of {run_id}, {retries} retries"
    allowed = {str(e.arguments.get("text")) for e in about if isinstance(e, ToolProposed)}
    allowed |= {str(e.edited_arguments.get("text")) for e in decisions if e.edited_arguments}
    if strange := {*texts} - allowed:
        yield f"{tool} ran with {strange}, where {allowed} was agreed"
    is_approved = any(event.outcome == "approved" for event in decisions)
    if tool == "Mail-send" and not is_approved:
        yield f"{tool} ran for {call_id} of {run_id} without an approval"


def _results_are_true(life: Life, done: set[str]) -> Iterator[str]:
    """By the call's own id, which an imported chat keeps."""
    cancelled: set[str] = set()
    tools: dict[str, ToolProposed] = {}
    for event in life.log():
        match event:
            case CancelRequested():
                cancelled.add(event.run_id)
            case ToolProposed():
                tools[event.call_id] = event
            case ToolStarted() if event.run_id in cancelled:
                yield f"{event.call_id} of {event.run_id} started after the run was cancelled"
            case ToolFinished():
                was_done = event.call_id in done
                if event.outcome == "ok" and event.result.startswith("done") and not was_done:
                    yield f"{event.call_id} of {event.run_id} is told as done and was not"
                once = tools[event.call_id].effect is Effect.AT_MOST_ONCE
                if event.outcome == "refused" and was_done and once:
                    yield f"{event.call_id} of {event.run_id} is told as refused and was done"


def streams_neither_skip_nor_repeat(world: World) -> Iterator[str]:
    lives = world.shadow.runs()
    expected: dict[tuple[int, str | None], dict[int, Frame]] = {}
    for connection in world.users.connections:
        numbered = [(seq_of(frame), frame) for frame in connection.frames if frame.id]
        if not numbered or connection.at < max(world.faults.restored, default=0.0):
            continue
        seqs = [seq for seq, _ in numbered]
        where = f"{connection.request.method} {connection.request.path} at i{connection.instance}"
        if sorted(set(seqs)) != seqs:
            yield f"{where} repeated events: {seqs}"
        named = [_named(frame) for _, frame in numbered]
        run_id = _run_of(connection, named)
        life = lives.get(run_id or next((one for one in named if one), ""))
        if life is None or not life.is_whole:
            continue
        key = id(life), run_id
        if key not in expected:
            expected[key] = _frames(life, _chat_of(connection), run_id)
        known = expected[key]
        after = _cursor_of(connection)
        if after is None:
            after = seqs[0] - 1
        due = [seq for seq in known if after < seq <= seqs[-1]]
        if due != seqs:
            yield f"{where} after {after} sent {seqs} where {due} are stored"
        for seq, frame in numbered:
            if seq in known and known[seq].data != frame.data:
                yield f"{where} sent {frame} where {known[seq]} is stored"


def seq_of(frame: Frame) -> int:
    """The place in the log that a frame's id stands for."""
    found = re.match(r"\d+", frame.id or "")
    assert found is not None, frame
    return int(found[0])


def _named(frame: Frame) -> str:
    found = re.search(r'"interaction_id":"([^"]+)"', frame.data)
    return found[1] if found else ""


def _run_of(connection: Connection, named: list[str]) -> str | None:
    """The run that a connection is about; `None` for a whole chat."""
    parts = connection.request.path.split("/")
    if parts[-1] == "events":
        return parts[4] if len(parts) == 6 else None
    return named[0]


def _chat_of(connection: Connection) -> str:
    return connection.request.path.split("/")[2]


def _cursor_of(connection: Connection) -> int | None:
    found = re.match(r"\d+", _given_cursor(connection) or "")
    return int(found[0]) if found else None


def _frames(life: Life, chat_id: str, run_id: str | None) -> dict[int, Frame]:
    """What a stream of this run, or of the chat, consists of, by the place in the log."""
    renderer = ChatRenderer(chat_id, whole_chat=run_id is None)
    events = [event for event in life.log() if run_id in (None, event.run_id)]
    frames = SseParser().feed(b"".join(renderer.frames(events)))
    return {seq_of(frame): frame for frame in frames}


def prompts_are_well_formed_and_of_their_branch(world: World) -> Iterator[str]:
    chains = defaultdict(list)
    for lives in world.shadow.lives.values():
        for life in lives:
            # Without a message that no sender learned of, what followed it is not known either.
            for run_id, text, parent_texts in _chains(life) if life.is_whole else ():
                chains[text].append((run_id, parent_texts))
    for asked in world.model.prompts:
        if wrong := broken_rules([wire_message(message) for message in asked.messages]):
            yield f"a prompt of {asked.process} at {asked.at:.3f} is malformed: {wrong}"
        said = asked.users
        possible = [texts for _, texts in chains.get(said[-1], ())]
        if possible and said not in possible:
            yield f"{asked.process} sent {_short(said)}, its branch is {[*map(_short, possible)]}"
        yield from _foreign_words(asked)


def _chains(life: Life) -> Iterator[tuple[str, str, list[str]]]:
    """Each run with its message and the messages of its branch up to it, and again with each one
    that was delivered while it worked."""
    texts: dict[str, list[str]] = defaultdict(list)
    parents: dict[str, str | None] = {}
    said: dict[str, str] = {}
    for event in life.log():
        match event:
            case RunStarted() | RunQueued() if event.message is not None:
                texts[event.run_id].append(event.message.text)
            case Steered():
                said[event.message_id] = event.content
            case SteeringDelivered():
                texts[event.run_id] += [said[message_id] for message_id in event.message_ids]
        if isinstance(event, RunStarted):
            parents[event.run_id] = event.parent_run
    for run_id in parents:
        branch: list[str] = []
        at = parents[run_id]
        while at is not None:
            branch = [*texts[at], *branch]
            at = parents.get(at)
        own = texts[run_id]
        for count in range(1, len(own) + 1):
            yield run_id, own[count - 1], [*branch, *own[:count]]


def steering_is_delivered_once_or_told_as_not(world: World) -> Iterator[str]:
    lives = world.shadow.runs()
    prompts = Counter(text for asked in world.model.prompts for text in set(asked.users))
    said_meanwhile = [done for done in world.users.done if done.kind == "steer"]
    for asked in world.model.prompts:
        times = Counter(asked.users)
        for done in said_meanwhile:
            if times[done.text] > 1:
                yield f"{done.text!r} is in one prompt {times[done.text]} times"
    for done in said_meanwhile:
        life = lives.get(done.run_id or "")
        if done.outcome != "ok" or life is None or not life.is_whole:
            continue
        log = [event for event in life.log() if event.run_id == done.run_id]
        said = [e for e in log if isinstance(e, Steered) and e.content == done.text]
        if len(said) != 1:
            yield f"{done.text!r} was acknowledged and is stored {len(said)} times"
            continue
        given = [
            e
            for e in log
            if isinstance(e, SteeringDelivered) and said[0].message_id in e.message_ids
        ]
        if len(given) > 1:
            yield f"{done.text!r} has {len(given)} receipts"
        if not given and prompts[done.text]:
            yield f"{done.text!r} reached the model and has no receipt"
        is_answered = any(isinstance(e, RunEnded) and e.status is RunStatus.COMPLETED for e in log)
        was_stopped = any(isinstance(e, CancelRequested) for e in log)
        if is_answered and not was_stopped and not (given and prompts[done.text]):
            yield f"{done.text!r} was acknowledged, and {done.run_id} was answered without it"


def _foreign_words(asked: Asked) -> Iterator[str]:
    own = {word for text in asked.users for word in WORD.findall(text)}
    for message in asked.messages:
        said = message.content + "".join(str(call.arguments) for call in message.tool_calls)
        if strange := set(WORD.findall(said)) - own:
            yield f"{asked.process} sent {strange}, which is of no message of this branch"


def _short(texts: list[str]) -> list[str]:
    return [text.split()[0] if text else "" for text in texts]


def decisions_take_effect_in_time(world: World) -> Iterator[str]:
    lives = world.shadow.runs()
    slack = 30 * world.plan.latency
    for done in world.users.done:
        life = lives.get(done.run_id or "")
        if life is None or done.outcome != "ok" or done.completed is None or done.code:
            continue
        if done.kind == "cancel":
            effective = _ended(life, done)
        elif done.kind in DECIDING:
            if _is_lent(done) and _runs_a_tool(life, done):
                # The owner ends what it has begun before it gives the run to where the header is.
                continue
            effective = _obeyed(life, done)
        else:
            continue
        end = done.completed + BOUND + slack
        if done.kind == "cancel" and _runs_a_tool(life, done):
            # Its outcome is waited for, for a while: else it would be unknown.
            end += RunLimits().cancel_grace_seconds
        owner = life.owner_at(done.completed)
        if effective <= end or _is_disturbed(world, owner, done, end):
            continue
        if life.ended is not None and life.ended <= end:
            continue
        yield (
            f"{done.kind} of {done.run_id} at i{done.instance} was told at {done.completed:.3f} "
            f"and took effect at {effective:.3f}; {owner} drives the run"
        )


def _runs_a_tool(life: Life, done: Done) -> bool:
    assert done.completed is not None
    running = set()
    for event in life.log():
        if event.run_id == done.run_id and life.stored[event.seq] <= done.completed:
            if isinstance(event, ToolStarted):
                running.add(event.call_id)
            elif isinstance(event, ToolFinished):
                running.discard(event.call_id)
    return bool(running)


def _is_lent(done: Done) -> bool:
    return done.approval is not None and done.approval.kind == "auth"


def _is_disturbed(world: World, owner: str | None, done: Done, end: float) -> bool:
    touched = {done.instance}
    if owner is not None:
        touched.add(int(owner[1 : owner.index("b")]))
    return any(
        one.touches(done.invoked, end, instance)
        for one in world.faults.disturbances
        for instance in touched
    )


def _ended(life: Life, done: Done) -> float:
    ends = [
        event.seq
        for event in life.log()
        if isinstance(event, RunEnded) and event.run_id == done.run_id
    ]
    return life.stored[ends[0]] if ends else float("inf")


def _obeyed(life: Life, done: Done) -> float:
    """When the call went on after its decision, or its run ended."""
    assert done.approval is not None
    decided = 0
    for event in life.log():
        if isinstance(event, ApprovalDecided) and event.approval_id == done.approval.approval_id:
            decided = event.seq
        elif not decided and isinstance(event, CancelRequested) and event.run_id == done.run_id:
            # The run was being stopped already: nothing goes on.
            return 0.0
        elif decided and (
            getattr(event, "call_id", None) == done.approval.call_id
            or (isinstance(event, RunEnded | CancelRequested) and event.run_id == done.run_id)
        ):
            return life.stored[event.seq]
    return float("inf") if decided else 0.0


def _was_deleted_during(world: World, done: Done) -> bool:
    """Whether what an earlier try of this request made was deleted before a later one read it."""
    end = done.completed if done.completed is not None else float("inf")
    return any(
        other.kind == "delete"
        and other.thread_id == done.thread_id
        and other.invoked <= end
        and (other.completed is None or other.completed >= done.invoked)
        for other in world.users.done
    )


def refusals_are_deserved(world: World) -> Iterator[str]:
    for error in world.users.errors:
        yield f"an instance failed: {error!r}"
    for connection in world.users.connections:
        if connection.status == 500:
            request = connection.request
            yield f"500 for {request.method} {request.path} at i{connection.instance}"
        for frame in connection.frames:
            if frame.event == "stream_end" and re.search("internal|state_corrupt", frame.data):
                yield f"a stream ended with {frame.data}"
    for done in world.users.done:
        if done.code.startswith("500"):
            yield f"{done.kind} was answered with {done.code}"
        if done.kind in MAKING and done.acknowledged is None and "thread_not_found" in done.code:
            if _was_deleted_during(world, done):
                continue
            yield f"{done.kind} at i{done.instance} was answered with {done.code}"
        if done.outcome == "unknown" and done.acknowledged is None and not world.plan.faults:
            if done.kind not in ("watch", "resume") and done.code:
                yield f"{done.kind} had no outcome in a calm world: {done.code}"
        if "cursor_" in done.code and len(world.shadow.lives.get(done.thread_id, ())) < 2:
            if not world.faults.restored:
                yield f"{done.kind} was answered with {done.code}"


def no_cursor_of_another_log_is_followed(world: World) -> Iterator[str]:
    """After a backup was put back: a reader whose last event is gone must be told so."""
    if not world.faults.restored:
        return
    last = max(world.faults.restored)
    seen = defaultdict(set)
    for connection in world.users.connections:
        for frame in connection.frames:
            if frame.id and connection.at < last:
                seen[_chat_of(connection), frame.id].add(frame.data)
    for connection in world.users.connections:
        given = _given_cursor(connection)
        if connection.at < last or not given or connection.status != 200:
            continue
        run_id = _run_of(connection, [""])
        for lives in world.shadow.lives.values():
            for life in lives:
                runs = {event.run_id for event in life.events.values()}
                if run_id not in runs or not life.is_whole:
                    continue
                now = _frames(life, _chat_of(connection), run_id).get(_cursor_of(connection) or 0)
                before = seen[_chat_of(connection), given]
                if before and (now is None or now.data not in before):
                    yield f"{connection.request.path} went on after {given}, which is gone"


def _given_cursor(connection: Connection) -> str | None:
    headers, query = connection.request.headers, connection.request.query
    return headers.get("Last-Event-ID") or query.get("after")


def approvals_wait_as_long_as_they_say(world: World) -> Iterator[str]:
    for lives in world.shadow.lives.values():
        for life in lives:
            due = {}
            for event in life.log():
                stored = ZERO + timedelta(seconds=life.stored[event.seq])
                if isinstance(event, ApprovalRequested) and event.expires_at is not None:
                    if abs(event.at - stored) < TOLERANCE:
                        due[event.approval_id] = event.expires_at
                if isinstance(event, ApprovalDecided) and event.outcome == "expired":
                    if stored + TOLERANCE < due.get(event.approval_id, stored):
                        yield f"{event.approval_id} expired at {stored}, before its time"


def authorization_is_asked_for_once(world: World) -> Iterator[str]:
    if {fault.kind for fault in world.plan.faults} - {"clock", "cut", "lost_signals"}:
        return
    for lives in world.shadow.lives.values():
        for life in lives:
            given: set[str] = set()
            for event in life.log():
                if isinstance(event, ApprovalDecided) and event.outcome == "approved":
                    given.add(event.call_id)
                if isinstance(event, ApprovalRequested) and event.kind == "auth":
                    if event.call_id in given:
                        yield f"{event.run_id} asked for authorization again after it was given"


def all_instances_tell_the_same(world: World) -> Iterator[str]:
    for thread_id, documents in world.documents.items():
        told = {text for _, text in documents}
        if len(told) > 1:
            yield f"instances differ about {thread_id}: {sorted(told)}"


PROMISES = (
    nothing_acknowledged_is_lost,
    nothing_deleted_comes_back,
    lost_files_are_noticed,
    every_run_ends_once_or_waits,
    no_run_fails_without_a_reason,
    effects_happen_once_and_as_agreed,
    streams_neither_skip_nor_repeat,
    prompts_are_well_formed_and_of_their_branch,
    steering_is_delivered_once_or_told_as_not,
    decisions_take_effect_in_time,
    refusals_are_deserved,
    no_cursor_of_another_log_is_followed,
    approvals_wait_as_long_as_they_say,
    authorization_is_asked_for_once,
    all_instances_tell_the_same,
)
# What is promised although a backup was put back: what came after it is lost by intention.
WITH_ANOTHER_PAST = (
    every_run_ends_once_or_waits,
    streams_neither_skip_nor_repeat,
    refusals_are_deserved,
    no_cursor_of_another_log_is_followed,
    all_instances_tell_the_same,
)
