"""Deliberately broken builds: an experiment that never fails proves nothing.

Each undoes one protection of the engine or the store, in the process that asks for it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sk_agents.engine import tool_steps
from sk_agents.engine.calls import Call
from sk_agents.engine.commits import Commit, Committed, Guard, Owned, Pending, Quiet, Unchanged
from sk_agents.engine.ports import Store
from sk_agents.engine.turns import ToolSpec
from sk_agents.exceptions import SequenceConflict
from sk_agents.persistence.sqlite_store import SqliteStore
from sk_agents.persistence.store_factory import open_store

ACK_BEFORE_COMMIT = "ack-before-commit"
RETRY_ON_MISSING_RESULT = "retry-on-missing-result"
LOAD_CHECK_SAVE_DECISION = "load-check-save-decision"
LEASE_WITHOUT_EPOCH = "lease-without-epoch"
BUSY_CHECK_WITHOUT_CONDITION = "busy-check-without-condition"


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


CARELESS = {
    LOAD_CHECK_SAVE_DECISION: Pending,
    LEASE_WITHOUT_EPOCH: Owned,
    BUSY_CHECK_WITHOUT_CONDITION: Quiet,
}


def store_for(url: str, broken: str) -> Store:
    if broken in CARELESS:
        return CarelessStore(Path(url.partition("://")[2]), CARELESS[broken])
    return open_store(url)


def break_engine(broken: str) -> None:
    if broken == RETRY_ON_MISSING_RESULT:
        tool_steps._lost = _always_again


def _always_again(call: Call, spec: ToolSpec | None) -> tool_steps.Step:
    assert call.started is not None
    return tool_steps.Start(attempt=call.started.attempt + 1)
