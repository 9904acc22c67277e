"""`make mutants`: sample mutants, run their tests, print those that live; exit 1 if any does."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.mutants.equivalent import is_equivalent
from tests.mutants.modules import TESTS_OF
from tests.mutants.operators import Mutant, mutants
from tests.mutants.workshop import (
    HAS_TO_BE_IMPORTED,
    NOT_FOUND,
    PASSED,
    ROOT,
    Baseline,
    Running,
    Workshop,
    load_libraries,
    wait_for,
)
from tests.patience import seconds

AT_ONCE = 2
# How many tests a mutant meets first: most die of one, and the others need not be collected.
FIRST_TESTS = 10
# Beside a multiple of what its tests take on the unchanged package; and never more than the bound.
PATIENCE_SECONDS = seconds(20.0)
MOST_SECONDS = 300.0
LEARNING_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant: `killed`, `timeout`, `survived`, `not run` by any test, `known`."""

    mutant: Mutant
    word: str

    @property
    def lives(self) -> bool:
        return self.word in ("survived", "not run")


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which mutants are sampled")
    parser.add_argument("--count", type=int, default=100, help="how many of them; 0: all there are")
    parser.add_argument(
        "--module",
        action="append",
        metavar="NAME",
        help="a module such as engine.context, or a room such as engine; may be repeated",
    )
    parser.add_argument("--list", action="store_true", help="only count the mutants there are")
    return parser.parse_args(arguments)


def chosen_modules(names: Sequence[str] | None) -> list[str]:
    if not names:
        return list(TESTS_OF)
    return [
        module
        for module in TESTS_OF
        if any(module == name or module.startswith(f"{name}.") for name in names)
    ]


@cache
def source_of(module: str) -> str:
    """As it is when a run begins: the tree may be worked on meanwhile."""
    return (ROOT / "src" / "sk_agents" / (module.replace(".", "/") + ".py")).read_text()


def sample(modules: Sequence[str], count: int, seed: int) -> list[Mutant]:
    found = [one for module in modules for one in mutants(module, source_of(module))]
    if not count or count >= len(found):
        return found
    return random.Random(seed).sample(found, count)


def learn(workshops: Sequence[Workshop], modules: Sequence[str]) -> dict[str, Baseline]:
    """A baseline a module, each set of tests run once."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for module in modules:
        groups.setdefault(TESTS_OF[module], []).append(module)
    waiting, learned = list(groups.items()), {}
    at_work: dict[Workshop, tuple[Running, list[str]]] = {}
    while waiting or at_work:
        for workshop in workshops:
            if workshop not in at_work and waiting:
                tests, group = waiting.pop(0)
                say(f"running {' '.join(tests)} on the unchanged package")
                at_work[workshop] = (workshop.learn(tests, group), group)
        wait_for([running for running, _ in at_work.values()], 1.0)
        for workshop, (running, group) in list(at_work.items()):
            if running.is_at_work and running.seconds < LEARNING_SECONDS:
                continue
            del at_work[workshop]
            code = running.end()
            if code not in (0, 1):
                sys.exit(f"the tests could not be run ({code}):\n{running.output.read_text()}")
            baseline = workshop.baseline()
            for test in baseline.failed:
                say(f"left out, since it fails on the unchanged package: {test}")
            learned.update(dict.fromkeys(group, baseline))
    return learned


class Trial:
    """One mutant in one workshop, from its first test to its verdict."""

    def __init__(
        self, workshop: Workshop, mutant: Mutant, learned: Baseline, tests: list[str]
    ) -> None:
        self._workshop = workshop
        self._mutant = mutant
        self._learned = learned
        self._tests, self._others = tests[:FIRST_TESTS], tests[FIRST_TESTS:]
        workshop.collect(TESTS_OF[mutant.module])
        self._changed = workshop.changed(mutant)
        self._changed.__enter__()
        self._is_collected = True
        self.running = self._run()

    def _run(self) -> Running:
        usual = sum(self._learned.seconds.get(test, 0.0) for test in self._tests)
        self._limit = min(PATIENCE_SECONDS + 4 * usual, MOST_SECONDS)
        if not self._is_collected:
            return self._workshop.run(self._tests)
        original = source_of(self._mutant.module)
        return self._workshop.run_collected(self._mutant, original, self._tests)

    def verdict(self) -> Verdict | None:
        """`None` while its tests are at work."""
        is_late = self.running.seconds > self._limit
        if self.running.is_at_work and not is_late:
            return None
        code = self.running.end()
        if code == HAS_TO_BE_IMPORTED:
            self._is_collected = False
            self.running = self._run()
            return None
        files = sorted({test.partition("::")[0] for test in self._tests})
        if code in NOT_FOUND and self._tests != files:
            # A mutant may change the names of cases: then their whole files are run.
            self._tests = files
            self.running = self._run()
            return None
        if code == PASSED and self._others:
            self._tests, self._others = self._others, []
            self.running = self._run()
            return None
        self._changed.__exit__(None, None, None)
        if code is None:
            return Verdict(self._mutant, "timeout")
        return Verdict(self._mutant, "survived" if code == PASSED else "killed")


def try_all(
    workshops: Sequence[Workshop], some: Sequence[Mutant], learned: dict[str, Baseline]
) -> Iterator[Verdict]:
    # Those with the same tests one after the other: their tests are collected once.
    waiting = sorted(some, key=lambda one: TESTS_OF[one.module])
    at_work: dict[Workshop, Trial] = {}
    killers: Counter[str] = Counter()
    while waiting or at_work:
        for workshop in workshops:
            while workshop not in at_work and waiting:
                mutant = waiting.pop(0)
                baseline = learned[mutant.module]
                tests = baseline.tests_of(mutant, killers)
                if is_equivalent(mutant, source_of(mutant.module)):
                    yield Verdict(mutant, "known")
                elif not tests:
                    yield Verdict(mutant, "not run")
                else:
                    at_work[workshop] = Trial(workshop, mutant, baseline, tests)
        wait_for([trial.running for trial in at_work.values()], 1.0)
        for workshop, trial in list(at_work.items()):
            verdict = trial.verdict()
            if verdict is not None:
                del at_work[workshop]
                killer = trial.running.failed_test
                if verdict.word == "killed" and killer is not None:
                    killers[killer] += 1
                yield verdict


def summary(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """A line a module; equivalent mutants are not counted among those that should die."""
    by_module: dict[str, Counter[str]] = {}
    for one in verdicts:
        by_module.setdefault(one.mutant.module, Counter())[one.word] += 1
    total: Counter[str] = sum(by_module.values(), Counter())
    yield f"{'module':32} tried  died lived equivalent  died of others"
    for name, counts in [*sorted(by_module.items()), ("all", total)]:
        died = counts["killed"] + counts["timeout"]
        lived = counts["survived"] + counts["not run"]
        share = f"{100 * died / (died + lived):.1f} %" if died + lived else "-"
        yield f"{name:32} {counts.total():5} {died:5} {lived:5} {counts['known']:10} {share:>15}"


def say(line: str) -> None:
    print(line, flush=True)


def main(arguments: Sequence[str]) -> int:
    asked = options(arguments)
    modules = chosen_modules(asked.module)
    if not modules:
        say(f"no such module; there are: {', '.join(TESTS_OF)}")
        return 2
    some = sample(modules, asked.count, asked.seed)
    if asked.list:
        for module, count in Counter(one.module for one in some).items():
            say(f"{module:32} {count:5}")
        return 0
    load_libraries()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants-")))
        workshops = [
            stack.enter_context(Workshop(folder / str(number))) for number in range(AT_ONCE)
        ]
        learned = learn(workshops, sorted({one.module for one in some}))
        verdicts: list[Verdict] = []
        for verdict in try_all(workshops, some, learned):
            verdicts.append(verdict)
            mutant = verdict.mutant
            say(
                f"{len(verdicts):4}/{len(some)} {verdict.word:9} "
                f"{mutant.module}:{mutant.line} {mutant.operator}"
            )
            if verdict.lives:
                say(mutant.diff(source_of(mutant.module)))
    say(f"\nseed {asked.seed}, {len(some)} mutants")
    for line in summary(verdicts):
        say(line)
    return 1 if any(verdict.lives for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
