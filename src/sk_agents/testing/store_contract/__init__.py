"""What every store must do, as test cases that a store's own test class inherits.

`StoreContract` is for all stores, `DurableStoreContract` for those that keep what they hold when
they are closed, `SharedStoreContract` for those that several handles and processes use at once.
A subclass gives one fixture, `make_store`: a function from a clock to an unopened store, which
finds the same data each time it is called in a test if the store is durable. The two larger
contracts name the further fixtures they need. The cases need pytest and pytest-asyncio.
"""

from __future__ import annotations

from sk_agents.testing.store_contract.approvals import ApprovalCases
from sk_agents.testing.store_contract.case import MakeStore, snapshot
from sk_agents.testing.store_contract.commit_ids import CommitIdCases
from sk_agents.testing.store_contract.creation import CreationCases
from sk_agents.testing.store_contract.deletion import DeletionCases
from sk_agents.testing.store_contract.durable import Damage, DurableCases
from sk_agents.testing.store_contract.entries import EntryCases
from sk_agents.testing.store_contract.event_types import EventTypeCases
from sk_agents.testing.store_contract.fencing import FencingCases
from sk_agents.testing.store_contract.guards import GuardCases
from sk_agents.testing.store_contract.head import HeadCases
from sk_agents.testing.store_contract.lease_changes import LeaseChangeCases
from sk_agents.testing.store_contract.lease_time import LeaseTimeCases
from sk_agents.testing.store_contract.listing import ListingCases
from sk_agents.testing.store_contract.orphans import OrphanCases
from sk_agents.testing.store_contract.races import RaceCases
from sk_agents.testing.store_contract.reading import ReadingCases
from sk_agents.testing.store_contract.search import SearchCases
from sk_agents.testing.store_contract.shared import SharedCases
from sk_agents.testing.store_contract.sizes import SizeCases
from sk_agents.testing.store_contract.texts import TextCases
from sk_agents.testing.store_contract.watching import WatchingCases

__all__ = [
    "Damage",
    "DurableStoreContract",
    "MakeStore",
    "SharedStoreContract",
    "StoreContract",
    "snapshot",
]


class StoreContract(
    CreationCases,
    GuardCases,
    HeadCases,
    LeaseChangeCases,
    LeaseTimeCases,
    FencingCases,
    CommitIdCases,
    ApprovalCases,
    EntryCases,
    OrphanCases,
    ListingCases,
    SearchCases,
    ReadingCases,
    EventTypeCases,
    TextCases,
    SizeCases,
    DeletionCases,
    WatchingCases,
    RaceCases,
):
    """What holds for every store while it is open."""


class DurableStoreContract(DurableCases, StoreContract):
    """And after it was closed and opened again. Needs the fixture `damage`, too."""


class SharedStoreContract(SharedCases, DurableStoreContract):
    """And between several handles and processes. Needs the fixture `store_url`, too."""
