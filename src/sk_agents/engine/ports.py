"""Everything the engine needs from the outside, and nothing else.

Invariants that every implementation keeps:

- The log is the truth. State is a fold of events; order is `seq`, never time.
- One conditional commit is the only way to change a thread: all of it or nothing.
- Store, then show. What a client sees has been committed before.
- Intent before effect, result after. Between them the truth is unknown, and we say so.
- Signals are hints. Losing all of them costs latency, never correctness.
- History is sealed. No run ends with a tool call that has no result.

Constructors open nothing: a resource is an async context manager, entered where it is wired.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import field
from datetime import datetime
from typing import Any, Literal, Protocol, Self, runtime_checkable

from sk_agents.engine.events import Event, Noted
from sk_agents.engine.log.commits import Commit, Committed
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import (
    Durability,
    Entry,
    EntryKind,
    Message,
    Review,
    Thread,
    ToolCall,
    Usage,
)
from sk_agents.engine.turns import (
    ModelStream,
    Preview,
    Prompt,
    ToolContext,
    ToolPieces,
    ToolSpec,
)
from sk_agents.engine.values import dataclass


class Clock(Protocol):
    def now(self) -> datetime:
        """Wall time, aware, in UTC: for people and for expiry in hours. Never for order."""

    def monotonic(self) -> float:
        """Seconds that only grow, the same for all processes of a host: for leases."""


class Ids(Protocol):
    def new(self) -> str:
        """A UUID in canonical text that was never returned before and cannot be guessed."""


@dataclass(frozen=True, slots=True)
class ThreadQuery:
    """`text` matches, without regard to case, the title and what was said in the thread.

    `labels` are values that the thread's metadata has to have; `None` is for one that it must not
    have.
    """

    user_id: str
    surface: str | None = None
    session_id: str | None = None
    text: str | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    after: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """Most recently changed first. `after` continues the listing; `None` at its end."""

    threads: tuple[Thread, ...]
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """An amount to add to the counter `key`, which is forgotten `ttl` seconds of wall time after
    its first addition. Where the clock is set back to before that, it may be known again.

    With `at_most`, only if the sum stays within it. A negative amount gives back: it is never
    refused, and no sum falls below 0.
    """

    key: str
    amount: int
    ttl: float
    at_most: int | None = None


@runtime_checkable
class WeakenedStore(Protocol):
    """A store whose durability depends on its surroundings: a server's settings, a file system.

    `durability` and `weaknesses` are known once it is open, and looked at again by each `ping`.
    """

    weaknesses: Sequence[str]
    """Why it keeps less than it could, each as a clause: `fsync is off`."""


class Store(Protocol):
    """Threads and their logs. Every method may raise `StoreError`; one thread's damage is
    `StateCorrupt`, for that thread alone, and leaves the damaged bytes as they are."""

    durability: Durability

    async def __aenter__(self) -> Self:
        """Open, and migrate an older schema forward.

        Raises:
            StoreUnavailable, StoreReadOnly, StoreBusy: cannot be opened for writing.
            SchemaTooNew: written by a newer version; not touched.
        """

    async def __aexit__(self, *exc_info: object) -> None:
        """Finish what was accepted, then close. Never raises for work that was refused."""

    async def ping(self) -> None:
        """Return iff the store can serve reads and accept writes now: it writes, to see that.

        Raises:
            StoreFull: no room, perhaps only for what was refused last.
            StoreBroken: this process must end.
        """

    async def commit(self, commit: Commit) -> Committed:
        """Append the events and change the head iff the guard holds; durable when it returns.

        A commit id that this thread has seen returns what it did then, if it had events and its
        guard's `next_seq` is no later than they are; one without events leaves no trace of its id.

        Raises:
            Conflict: the guard does not hold (see `admit`), or `CommitReused`: the id was used
                for other events. Nothing was written.
            ThreadNotFound: there is no thread of this id and this incarnation.
            ApprovalNotFound: what the guard names does not exist.
            StoreFull: no room. Nothing was written; there may be room again later.
            CommitOutcomeUnknown: send the same commit again to learn which.
            InvalidInput: an event cannot be written as JSON.
        """

    async def claim(self, thread_id: str, owner: str) -> Thread:
        """Take the lease of a thread without a live owner; a recovery, unless it was given back.

        Raises:
            LeaseHeld: a live owner has it.
            ThreadNotFound: no such thread.
        """

    def renew(self, owner: str, ttl: float) -> None:
        """All leases of `owner` hold until `ttl` seconds from now, by the store's clock.

        Blocking and safe to call from any thread: the lease keeper is an OS thread, so that a
        stalled event loop is seen as stalled. An owner that never renewed holds no live lease.

        Raises:
            StoreBroken: what this process wrote may not be kept; others may take its runs over.
        """

    async def retire(self, owner: str) -> None:
        """The leases of `owner` end now. Its threads can be claimed at once."""

    async def thread(self, thread_id: str) -> Thread:
        """The head.

        Raises:
            ThreadNotFound: no such thread.
        """

    async def heads(self, thread_ids: Collection[str]) -> Sequence[Thread]:
        """The heads of these threads in one read, in any order, each once.

        One that does not exist or is damaged is left out.
        """

    async def events_after(
        self,
        thread_id: str,
        seq: int,
        limit: int = 500,
        *,
        incarnation: str | None = None,
        max_bytes: int | None = None,
    ) -> Sequence[Event]:
        """The events with a larger `seq`, in order, without gaps, at most `limit` of them.

        With `max_bytes` it reads no further once it has about as many bytes; one event at least.

        Raises:
            ThreadNotFound: no such thread, or not of this `incarnation`.
            StateCorrupt: a record in this range is damaged, missing or moved.
        """

    async def find(self, kind: EntryKind, key: str) -> Entry | None:
        """Where this run, approval, grant or review lies. One may dangle, none is missing."""

    async def open_entries(
        self, kind: EntryKind, user_id: str, *, after: str | None = None, limit: int = 100
    ) -> Sequence[Entry]:
        """The user's open entries of a kind, ordered by key, after the key `after`."""

    async def overdue(self, kind: EntryKind, limit: int = 100) -> Sequence[Entry]:
        """Open entries whose `due_at` has passed by the store's clock, the most overdue first."""

    async def threads(self, query: ThreadQuery) -> ThreadPage:
        """One user's threads.

        Raises:
            InvalidCursor: `after` is none that a page gave.
        """

    async def orphans(self, limit: int = 100) -> Sequence[Thread]:
        """Runnable threads without a live owner, the longest untouched first."""

    async def mark_watched(self, run_ids: Collection[str], *, ago: float = 0.0) -> None:
        """These runs were read so many seconds ago, at another instance than the one that drives.

        A later mark stays. Need not outlive the machine, and is forgotten after a while.
        """

    async def unwatched_for(self, run_id: str) -> float | None:
        """Seconds since the run was last marked, by the store's clock; `None` if it never was."""

    async def count(self, additions: Sequence[Count]) -> Sequence[int]:
        """Add all of them or none, in one step over all processes; the sums after it, in order.

        Survives the process; need not survive a power cut. An amount of 0 reads.

        Raises:
            CounterFull: an amount would pass its `at_most`; names its `key` and the `sum` before
                it. Nothing was added.
        """

    async def sums(self, prefix: str) -> Mapping[str, int]:
        """The sums of all counters whose key begins so, by key."""

    async def delete(
        self, thread_id: str, *, next_seq: int, incarnation: str | None = None
    ) -> None:
        """Remove the thread, its log and its entries iff nothing was appended and it has no owner.

        Raises:
            SequenceConflict, LeaseHeld: the condition does not hold.
            ThreadNotFound: no such thread, or not of this `incarnation`.
        """

    def metrics(self) -> Mapping[str, float]:
        """Numbers for monitoring, by name; cheap to read."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One commit as every store keeps it: `body` is its events as JSON, the same bytes in all."""

    first_seq: int
    commit_id: str
    body: bytes


@runtime_checkable
class ListedStore(Store, Protocol):
    """A store that can list the threads of all users."""

    async def all_threads(self, *, after: str = "", limit: int = 500) -> Sequence[str]:
        """The ids of all threads of all users, damaged ones too, in order, after the id `after`."""


@runtime_checkable
class PortableStore(ListedStore, Protocol):
    """A store whose threads can be taken to another one, with every id and every byte."""

    async def whole_thread(self, thread_id: str) -> tuple[Thread, Sequence[StoredRecord]]:
        """The head and the whole log, as of one moment.

        Raises:
            ThreadNotFound: no such thread.
            StateCorrupt: something of it is damaged or missing.
        """

    async def restore(self, thread: Thread, records: Sequence[StoredRecord]) -> None:
        """Write a thread as another store had it: all of it or nothing, durable when it returns.

        Raises:
            ThreadExists: there is one of this id. Nothing was written.
            StateCorrupt: the records are not the log that the head describes.
        """


class Subscription(Protocol):
    async def wait(self, seconds: float) -> bool:
        """True once the thread may have changed since the last wait; False after `seconds`."""


class Signals(Protocol):
    """Wake-ups between the writers of a log and its readers, in this process and in others."""

    def notify(self, thread_id: str, *, local: bool = False) -> None:
        """Wake all subscribers, soon. Never blocks, never fails; may be lost.

        With `local` only those in this process: there is new live text, nothing was stored.
        """

    def subscribe(self, thread_id: str) -> AbstractAsyncContextManager[Subscription]:
        """Changes after entry are reported; several of them may be reported as one."""

    def listen(self, listener: Callable[[str], None]) -> None:
        """From now on call it, on the event loop, with each thread that another instance has
        notified of; several times for one change, or not at all."""


class Peers(Protocol):
    """Short messages to the other instances that share a store, for what is not stored yet.

    Hints, as signals are: a message may be lost, come late, out of order or twice, but it is never
    altered. What they mean is the engine's business (`reading.live_relay`).
    """

    @property
    def address(self) -> str:
        """Where the others reach this instance; no instance has had it before."""

    @property
    def most_bytes(self) -> int:
        """The size of the largest message that `send` takes: 4,096 at least."""

    def send(self, message: bytes, *, to: str | None = None) -> None:
        """To the instance of this address, or to all others. Never blocks, never fails: what cannot
        be delivered soon is dropped. `message` is UTF-8 text without a zero character."""

    def receive(self, receiver: Callable[[str, bytes], None]) -> None:
        """From now on call it, on the event loop, with the sender's address and each message."""


class Model(Protocol):
    """A chat model behind one streaming call."""

    def stream(self, prompt: Prompt) -> ModelStream:
        """The reply: at each step the pieces that arrived together, the last `TurnFinished`.

        What can be repeated unnoticed is retried inside. Closing it cancels.

        Raises:
            ModelInterrupted: it broke off after the first piece; what came so far is void.
            ReplyTooLarge: it passes one of the prompt's limits.
            ModelError: no reply, for the reason its class names.
        """


class Toolbox(Protocol):
    """The tools of one agent."""

    def specs(self) -> Sequence[ToolSpec]:
        """What the model is offered, in a stable order."""

    def check(self, call: ToolCall) -> Mapping[str, object]:
        """The arguments as they will run: validated, defaults filled in.

        Raises:
            ToolError: unknown tool, or arguments that break its schema. The text is for the model.
        """

    def check_answer(self, schema: Mapping[str, object], answer: object) -> None:
        """Return iff a question with this schema may be answered so.

        Raises:
            ToolError: it breaks the schema. The text names the field, for the person who answers.
        """

    async def sign_ins(self, names: Collection[str], user_id: str) -> Mapping[str, str]:
        """Of these tools, those that cannot run before this user has signed in somewhere, and where
        that is, by a name that the user knows. A tool run all the same says so to the model."""

    async def preview(self, call: ToolCall, context: ToolContext) -> Preview | None:
        """For an approval: what the call would change now, or why it would fail; `None` if its
        arguments show it. It is shown beside the arguments, never instead of them."""

    def run(self, call: ToolCall, context: ToolContext) -> ToolPieces:
        """Run it. The last piece is the `ToolResult`. Closing it cancels what can be cancelled.

        Raises:
            ToolInterrupted: it was begun and broke off; what it did is not known.
            ToolError: the text is for the model. Anything else is shown as a stable code only.
        """


@dataclass(frozen=True, slots=True)
class Scene:
    """What a `Director` is shown: the run, the thread it belongs to and what was said in it."""

    thread_id: str
    user_id: str
    state: ThreadState
    run: Run
    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """What the model is told and offered in one round, and what its answer must be like.

    `history` stands in for the conversation, if the model is to see another one. `offered` names
    the tools; `None` are all of the agent's. Of those in `exclusive` one may be called in a round.
    With an `answer` the model is not asked: the run ends with it.
    """

    model: Model
    instructions: tuple[Message, ...] = ()
    history: Sequence[Message] | None = None
    offered: Collection[str] | None = None
    exclusive: Collection[str] = ()
    temperature: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    response_schema: Mapping[str, Any] | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    answer: str | None = None
    check: Callable[[str], Awaitable[None]] | None = None
    """Returns iff this may be the answer. Raises `OutputInvalid`: worth one more try; or another
    `ModelError`, which ends the run."""
    is_held: bool = False
    """Whether readers see nothing of the answer before it was checked."""


class Director(Protocol):
    """Decides anew for each round what its agent says and offers."""

    async def plan(self, scene: Scene) -> RoundPlan:
        """The next round. It depends on the scene alone: after a restart it is the same.

        Raises:
            ModelError: the run ends with it.
        """


class RedactionStream(Protocol):
    """One text that comes in pieces. Joined, what it gives is the whole text without secrets."""

    def feed(self, piece: str) -> str:
        """What can be shown now: nothing that may be the beginning of a secret."""

    def end(self) -> str:
        """The rest."""


class Redaction(Protocol):
    """Takes secrets out of what is said and what tools return. No method raises or waits, and a
    text without secrets comes back as it is."""

    def text(self, text: str) -> str:
        """The text, with a mark in place of each secret."""

    def value(self, value: Any) -> Any:
        """A JSON value with every text in it redacted."""

    def stream(self, also: Collection[str] = ()) -> RedactionStream:
        """For a text that comes in pieces: a secret may be spread over several. `also` are further
        secrets."""

    @property
    def hidden(self) -> str:
        """The usual mark: what is in the place of a secret that is gone."""

    @property
    def keeps_secrets(self) -> bool:
        """Whether tools get back what was taken out; see `run.vault`."""

    def marked(self, text: str, mark: Callable[[str], str]) -> str:
        """The text, with `mark` of it in place of each secret that a tool may get back, and the
        usual mark in place of all others."""

    def opens_for(self, tool: str) -> bool:
        """Whether a call of this tool gets the secrets that its arguments name."""


class Observer(Protocol):
    """Is called with what the engine does, and changes nothing. No method raises or waits.

    The blocks must be left in the task that entered them.
    """

    def trace(self) -> str | None:
        """The trace that the caller works in, as a W3C `traceparent`: kept with a run it starts."""

    def correlation_id(self) -> str | None:
        """By which the caller's request is found in the logs: kept with a run it starts, so that
        what becomes of the run is found by it, too."""

    def stored(self, thread: Thread, state: ThreadState, events: Sequence[Event]) -> None:
        """This process has committed these events; `state` has taken them over."""

    def recovered(self) -> None:
        """This process has claimed a thread that had lost its owner."""

    def driving(self, thread: Thread, state: ThreadState) -> AbstractContextManager[None]:
        """Around the time in which this process drives the active run."""

    def model_call(
        self, thread: Thread, run: Run, agent: str, round_number: int
    ) -> AbstractContextManager[Callable[[Usage, str, str | None], None]]:
        """Around one call of the model; call what it gives with the usage, the finish reason and
        the model that answered, if that is known."""

    def tool_call(
        self, thread: Thread, run: Run, agent: str, call: ToolCall
    ) -> AbstractContextManager[Callable[[str], None]]:
        """Around one execution of a tool; call what it gives with the outcome."""


class Audit(Protocol):
    """The log of what happens at the server and belongs to no thread, or to one that is gone."""

    async def note(self, *notes: Noted) -> None:
        """Durable when it returns, in this order.

        Raises:
            StoreError, StoreFull: they are not known to be stored; what they speak of must not be
                done.
        """

    def count(self, note: Noted) -> None:
        """Will be noted soon, once for all that differ in nothing but their number. For what
        outsiders can cause at any rate: never waits, never fails."""

    async def keep_calls(self, thread: Thread, events: Sequence[Event]) -> None:
        """Keep what these events say of calls, approvals and grants: the thread's own store does
        not keep them, or cannot list its threads. Raises as `note`."""

    async def deleting(self, thread: Thread, *, who: str | None, reason: str) -> None:
        """Keep of this thread what must outlive it: that it is deleted, by whom, its chain, and
        what happened to calls in it. To be called before it is. Raises as `note`."""


class Copies(Protocol):
    """What is kept of threads elsewhere, beside the store."""

    def stored(self, thread: Thread, events: Sequence[Event]) -> None:
        """This process has committed these events. Never waits, never fails."""

    def removing(self, thread: Thread) -> AbstractAsyncContextManager[None]:
        """Around the deletion of this thread: what is kept of it is removed first.

        Raises:
            NotDeletable: it cannot be removed there; the thread must not be deleted.
            StoreUnavailable: try again later.
        """


class Quota(Protocol):
    """How much one user may pile up; a surface sends it along with a command that begins a run."""

    async def admit(self, user_id: str, *, makes_thread: bool) -> None:
        """Return iff a run of this user may begin now; with `makes_thread`, in a thread of its own.

        The engine asks after it has checked the command and before it commits. A command that was
        carried out before does not ask again; one whose commit lost a race does.

        Raises:
            LimitExceeded: the user has as many threads, or as many approvals wait. Nothing begins.
        """


@dataclass(frozen=True, slots=True)
class Spender:
    """Which run spends; `agent` is the name under which the engine was given it. `model` is the
    one that is asked, if it is not the agent's own. `used` is what the run's log says so far."""

    user_id: str
    agent: str
    run_id: str
    model: str | None = None
    used: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Reservation:
    """An amount held for one call of a model; `held` means something to its budget alone."""

    spender: Spender
    held: object = None


class Budget(Protocol):
    """What runs may spend on models and tools. Counts over all instances."""

    async def admit(self, spender: Spender) -> None:
        """Return iff a run of this user and agent may begin now. Asked before it is committed.

        Raises:
            BudgetExceeded: a budget is used up; nothing begins.
        """

    async def reserve(self, spender: Spender, estimate: Usage) -> Reservation:
        """Hold what one call of the model may use, until it is settled.

        A reservation that is never settled, since its process was killed, is held until the
        budget's time is over.

        Raises:
            BudgetExceeded: it does not fit what is left; nothing is held.
            StoreError: try again.
        """

    async def settle(self, reservation: Reservation, usage: Usage) -> str | None:
        """Charge what was used instead, be it more or less. Never raises.

        Returns what to ask a person before the run spends more, if a budget is nearly used up.
        """

    async def admit_calls(self, spender: Spender, wanted: int) -> int:
        """How many of so many calls of tools may run now; those are counted.

        Raises:
            StoreError: try again.
        """


class Policy(Protocol):
    """Which calls may run. Every doubt means ask."""

    def verdict(self, call: ToolCall, spec: ToolSpec) -> Literal["allow", "ask", "deny"]:
        """What to do with this call, from rules, catalog and declaration, in that order."""

    def review(self, call: ToolCall, spec: ToolSpec) -> Review | None:
        """Of a call that is asked about: who decides, and how; `None` is the requester alone."""
