"""Histories of several instances in virtual time keep every promise, and broken builds do not.

Each runs in a process of its own: a simulating process takes the machine's time, threads and files
for its own.
"""

from pathlib import Path

import pytest

from tests.patience import seconds
from tests.simulation.defects import ROOT, broken_copy, defects, simulated
from tests.simulation.plan import STORES, Plan, plan_of
from tests.simulation.shrinking import shrunk

HISTORIES = 100


@pytest.mark.timeout(seconds(600))
@pytest.mark.parametrize("store", STORES)
def test_histories_with_faults_keep_every_promise(store: str) -> None:
    done = simulated(ROOT, "--histories", str(HISTORIES), "--store", store)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{HISTORIES} histories from 0, 0 failed" in done.stdout


@pytest.mark.timeout(seconds(120))
@pytest.mark.parametrize("store", STORES)
def test_same_seed_gives_the_same_history(store: str) -> None:
    first, second = (simulated(ROOT, "--seed", "3", "--store", store) for _ in range(2))
    assert first.stdout.endswith("green\n"), first.stdout + first.stderr
    assert first.stdout == second.stdout


@pytest.mark.timeout(seconds(300))
def test_defect_that_is_put_back_is_found_and_shrunk(tmp_path: Path) -> None:
    copy = broken_copy("resuming_a_queued_run_fails", tmp_path / "copy")
    found = simulated(copy, "--seed", "151", "--store", "memory")
    assert "500 for GET" in found.stdout, found.stdout + found.stderr
    assert found.stdout.startswith("shrunk to 4 actions and 0 faults")


@pytest.mark.parametrize("defect", defects())
def test_kept_defect_can_still_be_put_back(defect: str, tmp_path: Path) -> None:
    copy = broken_copy(defect, tmp_path / "copy")
    package = Path("src", "sk_agents")
    changed = [
        path
        for path in (copy / package).rglob("*.py")
        if path.read_bytes() != (ROOT / path.relative_to(copy)).read_bytes()
    ]
    assert changed
    for path in changed:
        compile(path.read_text(), str(path), "exec")


def test_shrinking_leaves_what_the_failure_needs() -> None:
    plan = plan_of(12, "sqlite")
    needed = {plan.actions[1], plan.actions[-1]}

    def fails(tried: Plan) -> bool:
        return needed <= {*tried.actions}

    small = shrunk(plan, fails)
    assert {*small.actions} == needed
    assert small.faults == ()
