"""What holds up the event loop is told, with its place in the code."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest

from sk_agents.telemetry.loop_watchdog import LoopWatchdog
from tests.patience import seconds
from tests.telemetry.stories import telemetry_for

PATIENCE = seconds(10)


class Reports(logging.Handler):
    """Says when a report has come."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.has_one = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.has_one.set()

    @property
    def stacks(self) -> list[str]:
        return [vars(record)["stack"] for record in self.records]


@pytest.fixture
def reports() -> Iterator[Reports]:
    found, logger = Reports(), logging.getLogger("sk_agents.telemetry.loop_watchdog")
    logger.addHandler(found)
    yield found
    logger.removeHandler(found)


def open_files() -> int:
    """0 where the system does not say."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


def hold_up(reports: Reports) -> None:
    """On the event loop, until that is reported."""
    assert reports.has_one.wait(PATIENCE)


def compute(reports: Reports) -> None:
    """The same without ever giving up the interpreter by itself."""
    end = time.monotonic() + PATIENCE
    while not reports.has_one.is_set():
        assert time.monotonic() < end


@pytest.mark.parametrize("work", [hold_up, compute])
async def test_what_holds_up_the_loop_is_reported_while_it_does(
    reports: Reports, work: FunctionType
) -> None:
    held: list[float] = []
    async with LoopWatchdog(0.05, held.append):
        work(reports)
        async with asyncio.timeout(PATIENCE):
            while not held:  # noqa: ASYNC110  # a thread fills it
                await asyncio.sleep(0)
    assert work.__name__ in reports.stacks[0]
    assert "test_loop_watchdog.py" in reports.stacks[0]
    assert held[0] >= 0.05


async def test_a_loop_that_is_held_up_again_and_again_is_not_reported_each_time(
    reports: Reports,
) -> None:
    held: list[float] = []
    async with LoopWatchdog(0.02, held.append, report_seconds=3600), asyncio.timeout(PATIENCE):
        while len(held) < 3:
            time.sleep(0.1)  # noqa: ASYNC251  # it is what is looked for
            await asyncio.sleep(0.05)
    assert len(reports.records) == 1


async def test_the_thread_ends_with_its_block(reports: Reports) -> None:
    before, files = threading.active_count(), open_files()
    async with LoopWatchdog(0.02):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    assert open_files() == files


def test_holds_are_measured() -> None:
    telemetry = telemetry_for(metrics_enabled=True)
    telemetry.loop_held(0.2)
    assert telemetry.page is not None
    page = telemetry.page().decode()
    assert "teal_loop_held_seconds_count 1.0" in page
    assert 'teal_log_lines_dropped_total{reason="unread"}' in page
