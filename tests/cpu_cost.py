"""What each test costs in processor time, its programs included: a ranking at the end of a run.

    make test ARGS="-p tests.cpu_cost -n 4 tests/cli"

Seconds on the clock say little on a busy machine; these stay the same. A program counts where it is
waited for, so one that a whole session shares counts for the last test that used it. The browser's
own processes are waited for by none of ours: about half of what they take is not seen here.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from heapq import nlargest

import pytest

PROPERTY = "cpu_seconds"
LINES = 20


class Cost:
    def __init__(self) -> None:
        self._before = _spent()
        self.tests: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = _spent()
        report.user_properties.append((PROPERTY, now - self._before))
        self._before = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Where the reports of all processes come together."""
        for name, value in report.user_properties:
            if name == PROPERTY and isinstance(value, float):
                self.tests[report.nodeid] += value

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in ranking(self.tests):
            terminalreporter.write_line(line)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Cost())


def ranking(tests: Mapping[str, float]) -> Iterator[str]:
    files: defaultdict[str, float] = defaultdict(float)
    for name, seconds in tests.items():
        files[name.partition("::")[0]] += seconds
    yield f"processor time of {len(tests)} tests: {sum(tests.values()):.1f} s"
    for costs in (files, tests):
        yield ""
        for name in nlargest(LINES, costs, key=costs.__getitem__):
            yield f"{costs[name]:8.2f} s  {name}"


def _spent() -> float:
    """Seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])
