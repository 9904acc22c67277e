"""Streams that a user holds open at several instances are counted together."""

from __future__ import annotations

from functools import partial

import pytest

from sk_agents.exceptions import LimitExceeded
from sk_agents.http.limits import StreamSlots
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.spending.streams import PERIOD_SECONDS, StreamCensus
from sk_agents.testing import SettableClock


class Instances:
    def __init__(self, number: int, limit: int) -> None:
        self.clock = SettableClock()
        store = MemoryStore(clock=self.clock)
        self.slots = [StreamSlots(limit) for _ in range(number)]
        self.censuses = [
            StreamCensus(store, self.clock, slots.by_user, partial(setattr, slots, "elsewhere"))
            for slots in self.slots
        ]

    async def pass_periods(self, number: int) -> None:
        for _ in range(number):
            self.clock.advance(PERIOD_SECONDS)
            # Twice, as each does in a period.
            for census in (*self.censuses, *self.censuses):
                await census.tell()


async def test_streams_elsewhere_count_after_two_periods_and_no_more_once_they_end() -> None:
    instances = Instances(3, limit=3)
    one, two, three = instances.slots
    held = [one.held("ann"), one.held("ann"), two.held("ann")]
    three.held("bob")
    await instances.pass_periods(2)
    for slots in (one, two, three):
        with pytest.raises(LimitExceeded):
            slots.held("ann")
    assert [slots.elsewhere.get("ann") for slots in instances.slots] == [1, 2, 3]
    assert (one.elsewhere, three.elsewhere.get("bob")) == ({"ann": 1, "bob": 1}, None)
    for slot in held[:2]:
        slot.release()
    await instances.pass_periods(2)
    two.held("ann").release()
    assert [slots.elsewhere.get("ann", 0) for slots in instances.slots] == [1, 0, 1]


async def test_instance_that_is_gone_is_forgotten() -> None:
    instances = Instances(2, limit=2)
    instances.slots[0].held("ann")
    await instances.pass_periods(2)
    del instances.censuses[0]
    await instances.pass_periods(2)
    assert instances.slots[1].elsewhere == {}
