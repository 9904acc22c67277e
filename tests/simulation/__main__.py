"""`make simulate`: histories one after the other, or one of them with all that happened in it.

python -m tests.simulation --histories 20000 --jobs 2
python -m tests.simulation --seed 123 --store sqlite
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from tests.simulation.defects import HASHES, defects, red_after
from tests.simulation.disk import SimulatedLocks, SimulatedOs, install_sqlite
from tests.simulation.history import run_history
from tests.simulation.plan import STORES, Plan, plan_of
from tests.simulation.shrinking import shrunk
from tests.simulation.substitution import substitute

SHM = Path("/dev/shm")
# After how many histories it says how far it is.
PROGRESS = 500


def main() -> int:
    options = _options()
    if not HASHES.items() <= os.environ.items():
        again = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        return subprocess.run(again, env={**os.environ, **HASHES}).returncode
    if options.defects or options.defect:
        return _find(defects() if options.defects else [options.defect])
    if options.jobs > 1 and options.seed is None:
        return _in_parallel(options)
    _prepare()
    with tempfile.TemporaryDirectory(dir=SHM if SHM.is_dir() else None) as folder:
        if options.seed is not None:
            return _replay(
                plan_of(options.seed, options.store), Path(folder) / "disk", options.shrink
            )
        return _run_all(options, Path(folder) / "disk")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this history and print its trace")
    parser.add_argument("--store", choices=STORES, help="one store only; else each in turn")
    parser.add_argument("--histories", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--step", type=int, default=1, help="the distance between two seeds")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--until-red", action="store_true", help="stop at the first failure")
    parser.add_argument("--defects", action="store_true", help="find each defect that is put back")
    parser.add_argument("--defect", help="find this one only")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    return parser.parse_args()


def _prepare() -> None:
    """This process simulates from now on."""
    logging.lastResort = None
    # A task of a killed process may never have begun.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited")
    substitute(SimulatedOs(), SimulatedLocks())
    install_sqlite()
    # Nothing that is there by now goes away: it need not be looked at after every history.
    gc.collect()
    gc.freeze()


def _run_all(options: argparse.Namespace, folder: Path) -> int:
    failed, began = 0, time.process_time()
    last = options.first + options.histories * options.step
    seeds = range(options.first, last, options.step)
    for number, seed in enumerate(seeds, 1):
        result = run_history(plan_of(seed, options.store), folder)
        if result.problems:
            failed += 1
            _say(f"seed {seed} ({result.plan.store}): {result.problems[0]}")
            _say(f"    make simulate ARGS='--seed {seed} --store {result.plan.store}'")
            if options.until_red:
                _say(f"red after {number} histories")
                return 1
        if number % PROGRESS == 0:
            _say(f"{number} histories from {options.first}, {failed} failed so far")
    spent = time.process_time() - began
    _say(f"{len(seeds)} histories from {options.first}, {failed} failed, {spent:.1f} s of CPU")
    return 1 if failed else 0


def _in_parallel(options: argparse.Namespace) -> int:
    """Every `jobs`-th seed in a process of its own."""
    share = options.histories // options.jobs
    commands = []
    for job in range(options.jobs):
        first = options.first + job
        arguments = ["--first", str(first), "--step", str(options.jobs), "--histories", str(share)]
        store = ["--store", options.store] if options.store else []
        commands.append([sys.executable, "-m", "tests.simulation", *arguments, *store])
    running = [subprocess.Popen(command) for command in commands]
    return max(process.wait() for process in running)


def _find(names: Sequence[str]) -> int:
    """Put each defect back and say how many histories it takes to find it."""
    missed = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            number, said = red_after(name, Path(folder))
        missed += number is None
        _say(f"{name}: " + (f"found by history {number}: {said}" if number else f"missed: {said}"))
    return 1 if missed else 0


def _replay(plan: Plan, folder: Path, shrink: bool) -> int:
    result = run_history(plan, folder)
    if result.problems and shrink:
        plan = shrunk(plan, lambda tried: bool(run_history(tried, folder).problems))
        result = run_history(plan, folder)
        _say(f"shrunk to {len(plan.actions)} actions and {len(plan.faults)} faults")
    for one in (*plan.actions, *plan.faults):
        _say(str(one))
    for line in result.trace:
        _say(line)
    for problem in result.problems:
        _say(f"problem: {problem}")
    _say("red" if result.problems else "green")
    return 1 if result.problems else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
