"""The contract itself: how many cases it has, and that stores with a flaw do not pass."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from sk_agents.engine.log.commits import Commit, Committed, Owned, Pending, Unchanged
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Count, Store
from sk_agents.exceptions import TealError
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing.predictable import SettableClock
from sk_agents.testing.store_contract import (
    DurableStoreContract,
    SharedStoreContract,
    StoreContract,
)
from sk_agents.testing.store_machine import SIZE, StoreMachine, store_machine


class Unfenced(MemoryStore):
    """Believes every owner."""

    async def commit(self, commit: Commit) -> Committed:
        if isinstance(commit.guard, Owned):
            head = await self.thread(commit.thread_id)
            commit = replace(commit, guard=Unchanged(head.next_seq))
        return await super().commit(commit)


class DecidesTwice(MemoryStore):
    """Takes a second decision of an approval."""

    async def commit(self, commit: Commit) -> Committed:
        if isinstance(commit.guard, Pending):
            head = await self.thread(commit.thread_id)
            commit = replace(commit, guard=Unchanged(head.next_seq))
        return await super().commit(commit)


class ForgetsCommitIds(MemoryStore):
    """Does not recognise a commit that is sent again."""

    async def commit(self, commit: Commit) -> Committed:
        return await super().commit(replace(commit, commit_id=uuid4().hex))


class OffersEverything(MemoryStore):
    """Offers parked and held threads for recovery, too."""

    async def orphans(self, limit: int = 100) -> Sequence[Thread]:
        return [log.known_head() for log in self._logs.values()][:limit]


FLAWS: list[tuple[type[MemoryStore], str]] = [
    (Unfenced, "test_stranger_is_refused"),
    (DecidesTwice, "test_one_of_many_decisions_wins"),
    (ForgetsCommitIds, "test_same_commit_again_answers_what_it_did"),
    (OffersEverything, "test_idle_and_ended_threads_are_none"),
]


def cases(contract: type[Any]) -> set[str]:
    return {name for name, _ in inspect.getmembers(contract, inspect.isfunction) if "test_" in name}


def test_contract_has_at_least_eighty_cases_and_larger_ones_have_more() -> None:
    assert len(cases(StoreContract)) >= 80
    assert cases(StoreContract) < cases(DurableStoreContract) < cases(SharedStoreContract)


def test_no_case_hides_another_of_the_same_name() -> None:
    declared = [
        name for base in SharedStoreContract.__mro__ for name in vars(base) if name[:5] == "test_"
    ]
    assert len(declared) == len(set(declared))


@pytest.mark.parametrize(("flawed", "case"), FLAWS)
async def test_case_finds_the_flaw(flawed: type[MemoryStore], case: str) -> None:
    clock = SettableClock()
    await getattr(StoreContract(), case)(MemoryStore(clock=clock))
    store: Store = flawed(clock=clock)
    with pytest.raises((AssertionError, TealError, pytest.fail.Exception)):
        await getattr(StoreContract(), case)(store)


@pytest.mark.parametrize("flawed", [flaw for flaw, _ in FLAWS])
def test_machine_finds_the_flaw(flawed: type[MemoryStore]) -> None:
    machine = store_machine(lambda clock: flawed(clock=clock))
    unshrunk = settings(
        SIZE, max_examples=300, database=None, print_blob=False, phases=[Phase.generate]
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=unshrunk)


def test_machine_lets_a_store_know_an_ended_counter_again_when_the_clock_is_set_back() -> None:
    machine = StoreMachine(lambda clock: MemoryStore(clock=clock))
    machine.count([Count("k1", 1, ttl=5), Count("k2", 1, ttl=60)])
    machine.let_time_pass(10)
    machine.count([])
    machine.move_the_wall_clock(-1)
    machine.count([Count("k1", 0, ttl=5), Count("k2", 2, ttl=5)])
    machine.let_time_pass(3600)
    machine.count([Count("k1", 3, ttl=5, at_most=3)])
    machine.teardown()
