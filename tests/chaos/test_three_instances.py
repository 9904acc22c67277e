"""Three instances and twenty clients, in peace and while an instance is hit every second.

In `make test` fewer of both, for a few seconds, and nothing is measured. The figures are printed;
`-s` shows them. `TEAL_CHAOS_SEED` and `TEAL_CHAOS_SECONDS` choose another course of events and
another length. What clients and nemesis do follows from the seed; when it happens, as with all
real processes, does not.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.chaos.scale import FULL, trials
from tests.chaos.served_chaos import Report, open_site, percentile
from tests.patience import seconds

SEED = os.environ.get("TEAL_CHAOS_SEED", "1")
SECONDS = float(os.environ.get("TEAL_CHAOS_SECONDS", trials(full=600, small=6)))
PEACEFUL_SECONDS = min(SECONDS, 120)
DATABASE_SECONDS = min(SECONDS, 180)
CLIENTS = trials(full=20, small=6)
# What was ordered elsewhere takes effect so soon in a run whose owner lives.
EFFECTIVE_SECONDS = 2.0


async def experiment(folder: Path, store: str, seconds: float, *, in_peace: bool) -> Report:
    if store == "sqlite":
        url = f"sqlite://{folder}/teal.sqlite"
    else:
        url = f"file://{folder}/store" if store == "file" else store
    async with open_site(folder, url) as site:
        await site.endure(SEED, clients=CLIENTS, seconds=seconds, in_peace=in_peace)
        report = await site.judged()
    sys.stdout.write(f"seed {SEED} on {store}\n{report}\n")
    return report


@pytest.mark.timeout(seconds(1800))
@pytest.mark.parametrize("store", ["sqlite", "file"])
async def test_nothing_is_lost_or_done_twice_whatever_happens_to_the_instances(
    tmp_path: Path, store: str
) -> None:
    report = await experiment(tmp_path, store, SECONDS, in_peace=False)
    assert report.problems == []
    if FULL:
        assert percentile(report.cancels, 0.99) <= EFFECTIVE_SECONDS
        assert percentile(report.decisions, 0.99) <= EFFECTIVE_SECONDS


@pytest.mark.chaos
@pytest.mark.timeout(seconds(1800))
async def test_nothing_is_lost_or_done_twice_over_one_database(tmp_path: Path, schema: str) -> None:
    """Leases by the database's clock: nothing tells an instance that another one was killed."""
    report = await experiment(tmp_path, schema, DATABASE_SECONDS, in_peace=False)
    assert report.problems == []


@pytest.mark.chaos
@pytest.mark.timeout(seconds(1800))
@pytest.mark.parametrize("store", ["sqlite", "file"])
async def test_cancels_and_decisions_at_any_instance_take_effect_while_others_read(
    tmp_path: Path, store: str
) -> None:
    report = await experiment(tmp_path, store, PEACEFUL_SECONDS, in_peace=True)
    assert report.problems == []
    assert percentile(report.cancels, 0.99) <= EFFECTIVE_SECONDS
    assert percentile(report.decisions, 0.99) <= EFFECTIVE_SECONDS
