"""What a surface may ask of the engine."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, Literal

from sk_agents.engine.models import NewThread, UserInput
from sk_agents.engine.ports import Quota
from sk_agents.engine.values import dataclass

OnBusy = Literal["reject", "enqueue", "interrupt"]
OnDisconnect = Literal["cancel", "continue"]


@dataclass(frozen=True, slots=True)
class BeginRun:
    """What both ways to begin a run say: `StartRun` and `EditRun`."""

    thread_id: str
    user_id: str
    run_id: str
    _: KW_ONLY
    agent: str | None = None
    idempotency_key: str | None = None
    request_digest: str | None = None
    response_schema: dict[str, Any] | None = None
    on_busy: OnBusy = "reject"
    on_disconnect: OnDisconnect | None = None
    authorization: str | None = None
    quota: Quota | None = None
    user_name: str | None = None


@dataclass(frozen=True, slots=True)
class StartRun(BeginRun):
    """Say something in a thread; `new` lets an absent thread be made.

    `fresh` says that the thread id was just made up, so that it need not be looked for first;
    `title` becomes the thread's unless it has one, and a `response_schema` is what the answer has
    to follow.
    """

    message: UserInput
    new: NewThread | None = None
    fresh: bool = False
    title: str | None = None


@dataclass(frozen=True, slots=True)
class EditRun(BeginRun):
    """Say something else instead of what `edited_run` was started with; `None` repeats it."""

    edited_run: str
    message: UserInput | None = None


@dataclass(frozen=True, slots=True)
class DecideApproval:
    """Say yes or no. `memberships` are the keys of the audiences this user belongs to now."""

    approval_id: str
    user_id: str
    approved: bool
    thread_id: str | None = None
    run_id: str | None = None
    message: str | None = None
    edited_arguments: dict[str, Any] | None = None
    remember: Literal["run", "thread"] | None = None
    digest: str | None = None
    choice: Literal["done", "retry", "give_up"] | None = None
    answer: Any = None
    idempotency_key: str | None = None
    authorization: str | None = None
    user_name: str | None = None
    memberships: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class WithdrawVote:
    """Take a yes back that has not decided anything yet."""

    approval_id: str
    user_id: str
    user_name: str | None = None
    memberships: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SteerRun:
    """Say something to a run that works or waits for a person."""

    thread_id: str
    user_id: str
    run_id: str
    text: str
    idempotency_key: str | None = None
    request_digest: str | None = None


@dataclass(frozen=True, slots=True)
class CancelRun:
    """At once; with `after="step"`, once what is at work has come to its end."""

    thread_id: str
    user_id: str
    run_id: str
    reason: Literal["user", "disconnect", "interrupt"] = "user"
    after: Literal["step"] | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """A run was taken on: watch it from `after`. `queued` is its place when it has to wait."""

    thread_id: str
    run_id: str
    after: int
    queued: int | None = None
    repeated: bool = False
