"""Several approvals of one run, decided together: all of them in one commit, or none."""

import asyncio
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from sk_agents.engine.agent import RunLimits
from sk_agents.engine.commands import DecideApproval
from sk_agents.engine.events import ApprovalDecided, ToolStarted
from sk_agents.engine.models import Entry, EntryKind, RunStatus
from sk_agents.engine.threads.catalog import RACES
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    ApprovalExpired,
    ApprovalMismatch,
    ApprovalNotFound,
    Conflict,
    InvalidInput,
    SequenceConflict,
    TealError,
)
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing import SettableClock
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine import builders as b
from tests.engine.kit import THREAD, UNSWEPT, USER, Talk, talking
from tests.engine.test_engine_orphans import SENT, leave
from tests.engine.troubled_store import TroubledStore
from tests.patience import seconds

THREE: list[Turn] = [
    calls(*(("Mail-send", {"text": text}) for text in ("x", "y", "z"))),
    says("done"),
]


def deciding(approval_id: str, **fields: Any) -> DecideApproval:
    return DecideApproval(approval_id, **{"user_id": USER, "approved": True, **fields})


async def decide(talk: Talk, *commands: DecideApproval) -> bool:
    async with asyncio.timeout(seconds(5)):
        return await talk.engine.decide(*commands)


async def asked(talk: Talk) -> list[str]:
    assert (await talk.ask()).status is RunStatus.WAITING
    return await talk.approvals("r1")


async def decided(talk: Talk) -> list[ApprovalDecided]:
    return [event for event in await talk.log() if isinstance(event, ApprovalDecided)]


def records(folder: Path) -> int:
    """How many commits with a decision in them the log holds."""
    with closing(apsw.Connection(str(folder / "teal.sqlite"))) as db:
        bodies = [bytes(body) for (body,) in db.execute("SELECT CAST(body AS BLOB) FROM record")]
    return sum(b"approval_decided" in body for body in bodies)


async def test_decisions_of_one_command_are_one_commit_with_an_event_each(tmp_path: Path) -> None:
    async with talking(tmp_path, script=THREE) as talk:
        x, y, z = await asked(talk)
        edited = {"text": "edited"}
        one = deciding(y, approved=False, message="no")
        assert await decide(talk, deciding(x), one, deciding(z, edited_arguments=edited))
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        events = await decided(talk)
        assert [(event.approval_id, event.outcome) for event in events] == [
            (x, "approved"),
            (y, "rejected"),
            (z, "approved"),
        ]
        assert records(tmp_path) == 1
        started = [arguments for _, arguments in talk.tools.started]
        assert started == [{"text": "x"}, edited]


BAD: dict[str, tuple[dict[str, Any], type[TealError]]] = {
    "breaks the schema": ({"edited_arguments": {"text": 1}}, InvalidInput),
    "shows another digest": ({"digest": "0" * 64}, ApprovalMismatch),
    "is another's": ({"user_id": "eve"}, ApprovalNotFound),
    "is said to be of another run": ({"run_id": "r2"}, ApprovalNotFound),
}


@pytest.mark.parametrize("bad", BAD)
async def test_one_bad_decision_leaves_the_others_undecided(tmp_path: Path, bad: str) -> None:
    fields, error = BAD[bad]
    async with talking(tmp_path, script=THREE) as talk:
        x, y, z = await asked(talk)
        with pytest.raises(error):
            await decide(talk, deciding(x), deciding(y), deciding(z, **fields))
        assert await talk.approvals("r1") == [x, y, z]
        assert await decided(talk) == []
        assert talk.tools.started == []


async def test_one_that_is_decided_already_leaves_the_others_undecided(tmp_path: Path) -> None:
    async with talking(tmp_path, script=THREE) as talk:
        x, y, z = await asked(talk)
        assert await decide(talk, deciding(y, approved=False))
        with pytest.raises(ApprovalAlreadyDecided) as refused:
            await decide(talk, deciding(x), deciding(y), deciding(z))
        assert refused.value.outcome == "rejected"
        assert await talk.approvals("r1") == [x, z]


async def test_word_on_an_unknown_outcome_may_be_repeated_and_not_changed() -> None:
    store = MemoryStore()
    await leave(store, b.started(), SENT, b.tool_started())
    async with talking(store, script=[says("sent")]) as talk:
        await talk.until(lambda state: bool(state.run("r1").pending_approvals))
        (approval_id,) = await talk.approvals("r1")
        word = deciding(approval_id, choice="done", idempotency_key="k")
        assert await decide(talk, word)
        assert not await decide(talk, word)
        with pytest.raises(InvalidInput):
            await decide(talk, replace(word, choice="give_up"))


async def test_one_that_is_late_leaves_the_others_undecided(tmp_path: Path) -> None:
    clock, limits = SettableClock(), RunLimits(approval_seconds=3600)
    async with talking(
        tmp_path, script=THREE, clock=clock, limits=limits, lease_ttl=UNSWEPT
    ) as talk:
        x, y, _ = await asked(talk)
        clock.advance(3601)
        with pytest.raises(ApprovalExpired):
            await decide(talk, deciding(x), deciding(y))
        assert await decided(talk) == []


async def test_approval_named_twice_or_of_another_thread_is_refused(tmp_path: Path) -> None:
    script = [THREE[0], THREE[0]]
    async with talking(tmp_path, script=script) as talk:
        x, *_ = await asked(talk)
        with pytest.raises(InvalidInput):
            await decide(talk, deciding(x), deciding(x, approved=False))
        other = await talk.ask(thread="another")
        (elsewhere, *_) = await talk.approvals(other.run_id, thread="another")
        with pytest.raises(ApprovalNotFound):
            await decide(talk, deciding(x), deciding(elsewhere))
        assert await decided(talk) == []


async def test_refusal_that_ends_the_run_keeps_what_was_approved_with_it_from_starting(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path, script=THREE, on_reject="cancel") as talk:
        x, y, z = await asked(talk)
        assert await decide(talk, deciding(x), deciding(y, approved=False), deciding(z))
        run = await talk.ended("r1")
        assert run.status is RunStatus.CANCELLED
        assert not any(isinstance(event, ToolStarted) for event in await talk.log())
        told = await talk.results("r1")
        assert told[1] == "Rejected by ada. It did not run."
        assert told[0] == told[2] == "Not run: another call of this turn was rejected."


async def test_overlapping_commands_are_each_done_whole_or_not_at_all(tmp_path: Path) -> None:
    async with talking(tmp_path, script=THREE) as talk:
        x, y, z = await asked(talk)
        pairs = [(x, y), (y, z), (z, x)] * 4

        def both(number: int) -> list[DecideApproval]:
            return [deciding(one, idempotency_key=str(number)) for one in pairs[number]]

        outcomes = await asyncio.gather(
            *(decide(talk, *both(number)) for number in range(len(pairs))), return_exceptions=True
        )
        [winner] = [number for number, outcome in enumerate(outcomes) if outcome is True]
        refused = [outcome for outcome in outcomes if outcome is not True]
        assert all(isinstance(outcome, ApprovalAlreadyDecided) for outcome in refused)
        events = await decided(talk)
        assert {event.approval_id for event in events} == set(pairs[winner])
        assert {event.idempotency_key for event in events} == {str(winner)}
        assert await decide(talk, *both(winner)) is False
        assert len(await decided(talk)) == 2


async def test_decision_that_meets_a_change_each_time_is_given_up() -> None:
    store = TroubledStore()
    async with talking(store, script=THREE) as talk:
        x, y, _ = await asked(talk)
        await talk.parked()
        store.before_commit = [SequenceConflict() for _ in range(RACES)]
        with pytest.raises(Conflict) as refused:
            await decide(talk, deciding(x), deciding(y))
        assert (type(refused.value), refused.value.thread_id) == (Conflict, THREAD)
        assert store.before_commit == []
        # One change less is met.
        store.before_commit = [SequenceConflict() for _ in range(RACES - 1)]
        assert await decide(talk, deciding(x), deciding(y))
        assert [event.approval_id for event in await decided(talk)] == [x, y]


class WrongIndex(MemoryStore):
    """What it finds of an approval is not what the log says."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: dict[str, Any] = {}

    async def find(self, kind: EntryKind, key: str) -> Entry | None:
        entry = await super().find(kind, key)
        return replace(entry, **self.wrong) if entry is not None else None


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"due_at": datetime(2100, 1, 1, tzinfo=UTC)}, ApprovalMismatch),
        ({"due_at": None}, ApprovalMismatch),
        ({"user_id": "eve"}, ApprovalNotFound),
        ({"run_id": "r9"}, ApprovalNotFound),
        ({"key": "approval_9"}, ApprovalNotFound),
        ({"key": "approval_9", "open": False}, ApprovalNotFound),
    ],
)
async def test_decision_is_refused_where_index_and_log_disagree(
    wrong: dict[str, Any], error: type[TealError]
) -> None:
    store = WrongIndex()
    async with talking(store, script=THREE) as talk:
        x, *_ = await asked(talk)
        store.wrong = wrong
        with pytest.raises(error):
            await decide(talk, deciding(x, user_id=wrong.get("user_id", USER)))
        assert (await decided(talk), talk.tools.started) == ([], [])
        store.wrong = {}
        assert await decide(talk, deciding(x))


async def test_no_counts_also_where_the_index_says_another_time() -> None:
    store = WrongIndex()
    async with talking(store, script=THREE) as talk:
        x, *_ = await asked(talk)
        store.wrong = {"due_at": None}
        assert await decide(talk, deciding(x, approved=False))


async def test_decisions_made_while_another_call_of_the_run_ends_are_not_lost(
    tmp_path: Path,
) -> None:
    """The log grows under a command that expects it unchanged: it is tried anew."""
    async with talking(tmp_path, script=THREE) as talk:
        x, y, z = await asked(talk)
        one, both = await asyncio.gather(
            decide(talk, deciding(x)), decide(talk, deciding(y), deciding(z))
        )
        assert one and both
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert len(talk.tools.started) == 3
