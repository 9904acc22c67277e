"""The measurements run: seen by `make bench` before it measures, on a machine at rest."""

from __future__ import annotations

import pytest

from tests.bench import (
    chats,
    dynamodb,
    encryption,
    group_commit,
    long_thread,
    mcp,
    postgres,
    readers,
    redis,
    teal,
    telemetry,
    tools,
    turns,
    waiting,
    workers,
)
from tests.bench.report import Ratio, Report
from tests.requirements import requirement


@pytest.mark.bench
@requirement("S001-tests-benchmarks")
def test_group_commit_is_measured_beside_a_bare_loop() -> None:
    report = group_commit.measure(commits=128, repetitions=1)
    assert [line.split()[0] for line in report.lines] == ["bare", "1", "16", "64", "256"]
    assert all(ratio.value > 0 for ratio in report.ratios)


@pytest.mark.bench
def test_a_sync_covers_many_commits_when_many_wait() -> None:
    report = group_commit.measure(commits=640, repetitions=1)
    assert report.ratios[-1].value > 1


@pytest.mark.bench
@requirement("S001-tests-benchmarks")
def test_long_threads_are_measured_on_every_durable_store() -> None:
    report = long_thread.measure(late=50, commits=20, repetitions=1)
    assert [line.split()[0] for line in report.lines] == list(long_thread.BARS)


@pytest.mark.bench
def test_requests_and_units_of_a_turn_on_dynamodb_are_counted() -> None:
    report = dynamodb.measure(conversations=2, turns=1, counted=2)
    assert [line.split()[0] for line in report.lines] == ["sqlite", "dynamodb", "a", "a"]
    assert report.holds


@pytest.mark.bench
def test_an_mcp_call_is_measured_beside_the_library_s_own() -> None:
    report = mcp.measure(calls=3, rounds=1)
    assert [line.split()[0] for line in report.lines] == ["engine", "SDK", "two"]
    assert report.ratios[1].value > 0


@pytest.mark.bench
def test_turns_are_measured_beside_the_limit() -> None:
    report = turns.measure(conversations=4, turns=2, repetitions=1, crowd=4)
    assert len(report.lines) == 2
    assert all(ratio.value > 0 for ratio in report.ratios[:3])


@pytest.mark.bench
def test_encrypted_turns_are_measured_beside_plain_ones() -> None:
    report = encryption.measure(conversations=4, turns=2, repetitions=1)
    assert all(ratio.value > 0 for ratio in report.ratios)


@pytest.mark.bench
def test_telemetry_that_is_off_is_measured_beside_an_unobservable_build() -> None:
    report = telemetry.measure(conversations=4, turns=2, repetitions=1)
    assert report.ratios[0].value > 0
    assert report.ratios[1].holds


@pytest.mark.bench
def test_the_server_is_measured_beside_the_limit() -> None:
    report = chats.measure(conversations=4, turns=2, repetitions=1, streams=4)
    rows = [line.split()[0] for line in report.lines]
    assert rows == ["burst", "budgets", "paced", "budgets", "bare"]
    assert all(ratio.value > 0 for ratio in report.ratios[:10])


@pytest.mark.bench
def test_a_turn_without_a_stream_is_measured_beside_the_limit() -> None:
    report = teal.measure(conversations=4, turns=2, repetitions=1)
    assert report.ratios[0].value > 0


@pytest.mark.bench
def test_a_good_reader_is_measured_beside_a_crowd() -> None:
    report = readers.measure(repetitions=1, crowd=4)
    assert report.ratios[0].value > 0


@pytest.mark.bench
def test_waiting_runs_are_measured() -> None:
    report = waiting.measure(runs=20)
    assert report.ratios[1].value > 0


@pytest.mark.bench
def test_workers_are_measured_on_both_stores() -> None:
    report = workers.measure(
        conversations=4, turns=2, repetitions=1, runs=20, streams=5, idle_seconds=1.0
    )
    names = [line.split()[0] for line in report.lines]
    assert names == ["sqlite"] * 2 + ["postgresql"] * 2 + ["20"]
    assert all(ratio.value > 0 for ratio in report.ratios)


def test_a_missed_bar_is_reported_as_missed() -> None:
    missed = Ratio("speed", 2.9, 3.0)
    assert not missed.holds
    assert "MISSED" in str(Report("title", [], [missed]))
    assert Ratio("cost", 1.1, 1.2, at_least=False).holds


@pytest.mark.bench
def test_postgresql_is_measured_beside_sqlite() -> None:
    report = postgres.measure(
        conversations=4, turns=2, repetitions=1, threads=100, commits=128, events=50
    )
    assert all(ratio.value > 0 for ratio in report.ratios)


@pytest.mark.bench
def test_redis_is_measured_beside_sqlite() -> None:
    report = redis.measure(conversations=4, turns=2, repetitions=1)
    assert all(ratio.value > 0 for ratio in report.ratios)


@pytest.mark.bench
def test_turns_with_tools_are_measured() -> None:
    report = tools.measure(conversations=4, turns=2, repetitions=1)
    assert [line.split()[0] for line in report.lines] == ["1", "4"]
    assert all(ratio.value > 0 for ratio in report.ratios)
