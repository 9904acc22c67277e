"""What every store must do, as test cases that a store's own test class inherits.

`StoreContract` is for all stores, `DurableStoreContract` for those that keep what they hold when
they are closed, `SharedStoreContract` for those that several handles and processes use at once.
A subclass gives one fixture, `make_store`: a function from a clock to an unopened store, which
finds the same data each time it is called in a test if the store is durable. The two larger
contracts name the further fixtures they need. `PortableCases` are for a store whose threads can be
taken to another one, beside one of the contracts. The cases need pytest and pytest-asyncio.
"""

from __future__ import annotations

from sk_agents.testing.store_contract.case import MakeStore
from sk_agents.testing.store_contract.commits import CommitCases
from sk_agents.testing.store_contract.contents import ContentCases
from sk_agents.testing.store_contract.counters import CounterCases
from sk_agents.testing.store_contract.durable import Damage, DurableCases, SharedCases
from sk_agents.testing.store_contract.leases import LeaseCases
from sk_agents.testing.store_contract.portable import PortableCases
from sk_agents.testing.store_contract.reading import ReadingCases
from sk_agents.testing.store_contract.threads import ThreadCases

__all__ = [
    "Damage",
    "DurableStoreContract",
    "MakeStore",
    "PortableCases",
    "SharedStoreContract",
    "StoreContract",
]


class StoreContract(ThreadCases, CommitCases, LeaseCases, ReadingCases, ContentCases, CounterCases):
    """What holds for every store while it is open."""


class DurableStoreContract(DurableCases, StoreContract):
    """And after it was closed and opened again. Needs the fixture `damage`, too."""


class SharedStoreContract(SharedCases, DurableStoreContract):
    """And between several handles and processes. Needs the fixture `store_url`, too."""
