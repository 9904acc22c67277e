"""Deliberately broken builds: an experiment that never fails proves nothing.

Each undoes one protection of the engine or the store, in the process that asks for it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sk_agents.engine.calls import steps as tool_steps
from sk_agents.engine.calls.call import Approval, Call
from sk_agents.engine.commands import Accepted, EditRun
from sk_agents.engine.events import BranchChanged
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.log.commits import Commit, Committed, Guard, Owned, Pending, Quiet, Unchanged
from sk_agents.engine.ports import Store
from sk_agents.engine.run import lifecycle
from sk_agents.engine.services import Services
from sk_agents.engine.threads.known import KnownThread
from sk_agents.engine.turns import ToolSpec
from sk_agents.exceptions import SequenceConflict
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.persistence.store_factory import open_store

ACK_BEFORE_COMMIT = "ack-before-commit"
RETRY_ON_MISSING_RESULT = "retry-on-missing-result"
LOAD_CHECK_SAVE_DECISION = "load-check-save-decision"
LEASE_WITHOUT_EPOCH = "lease-without-epoch"
BUSY_CHECK_WITHOUT_CONDITION = "busy-check-without-condition"
START_WITHOUT_DIGEST = "start-without-digest"
CANCEL_SEEN_AT_LOOP_TOP = "cancel-seen-at-loop-top"
CANCEL_WITHOUT_CONDITION = "cancel-without-condition"
EDIT_IN_TWO_COMMITS = "edit-in-two-commits"


class CarelessStore(SqliteStore):
    """Takes the named condition of a commit for granted, as of the moment it is looked at."""

    def __init__(self, path: Path, careless: type[Guard]) -> None:
        super().__init__(path)
        self._careless = careless

    async def commit(self, commit: Commit) -> Committed:
        if not isinstance(commit.guard, self._careless):
            return await super().commit(commit)
        while True:
            head = await self.thread(commit.thread_id)
            try:
                return await super().commit(replace(commit, guard=Unchanged(head.next_seq)))
            except SequenceConflict:
                continue


class InexactStore(SqliteStore):
    """Lets an owner append to whatever is there: it has looked at the flag before."""

    async def commit(self, commit: Commit) -> Committed:
        if isinstance(commit.guard, Owned):
            commit = replace(commit, guard=replace(commit.guard, exact=False))
        return await super().commit(commit)


_begin_edit = lifecycle.begin_edit
CARELESS = {
    LOAD_CHECK_SAVE_DECISION: Pending,
    LEASE_WITHOUT_EPOCH: Owned,
    BUSY_CHECK_WITHOUT_CONDITION: Quiet,
    CANCEL_WITHOUT_CONDITION: Unchanged,
}


def store_for(url: str, broken: str) -> Store:
    path = Path(url.partition("://")[2])
    if broken in CARELESS:
        return CarelessStore(path, CARELESS[broken])
    if broken == CANCEL_SEEN_AT_LOOP_TOP:
        return InexactStore(path)
    return open_store(url)


def break_engine(broken: str) -> None:
    if broken == RETRY_ON_MISSING_RESULT:
        tool_steps._lost = _always_again
    elif broken == START_WITHOUT_DIGEST:
        tool_steps._approved = _as_approved
    elif broken == EDIT_IN_TWO_COMMITS:
        lifecycle.begin_edit = _superseded_then_begun


def _always_again(call: Call, spec: ToolSpec | None) -> tool_steps.Step:
    assert call.started is not None
    return tool_steps.Start(attempt=call.started.attempt + 1)


def _as_approved(case: tool_steps.Case, approval: Approval, attempt: int = 1) -> tool_steps.Step:
    return tool_steps.Start(attempt, approval_id=approval.request.approval_id)


async def _superseded_then_begun(
    services: Services, known: KnownThread, command: EditRun
) -> Accepted:
    edited = lifecycle.edited_run(known, command)
    moved = BranchChanged(head_run=edited.parent_run)
    await services.commit(known, Quiet(known.state.next_seq), moved)
    failpoint("edit_committed")
    return await _begin_edit(services, known, command)
