"""Lines that wait for a slow reader: bounded, counted, and in nobody's way."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sk_agents.cli.logs import MAX_MESSAGES, MAX_REPEATS, PERIOD_SECONDS, RepeatLimit
from sk_agents.telemetry.logs import COUNTS, LineWriter, print_line

PIPE_BYTES = 64 * 1024


@contextmanager
def pipe() -> Iterator[tuple[io.TextIOWrapper, io.BufferedReader]]:
    """The end to write to and the end that a test may read, or not."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w") as writer:
        yield writer, reader


def test_lines_are_written_whole_and_in_order() -> None:
    with pipe() as (writer, reader):
        lines = LineWriter(writer)
        for number in range(100):
            lines.put(f"line {number}")
        lines.close()
        writer.close()
        assert reader.read().decode().splitlines() == [f"line {n}" for n in range(100)]


def test_what_does_not_fit_is_dropped_counted_and_told_when_it_flows_again() -> None:
    before = COUNTS.unread
    with pipe() as (writer, reader):
        lines = LineWriter(writer, lambda dropped: f"{dropped} dropped", max_bytes=10_000)
        for number in range(1_000):
            lines.put(f"{number:05}" + "x" * 994)
        # The pipe's, one that is being written, and those that wait.
        held = PIPE_BYTES // 1_000 + 1 + 10
        dropped = COUNTS.unread - before
        assert dropped >= 1_000 - held - 1
        told: list[int] = []
        kept = 0
        # In more than one line if the pipe takes some of them while the others are still put.
        while sum(told) < dropped or kept < 1_000 - dropped:
            line = reader.readline().decode()
            if line.endswith("dropped\n"):
                told.append(int(line.split()[0]))
            else:
                kept += 1
        assert (sum(told), kept) == (dropped, 1_000 - dropped)
        lines.put("after")
        assert reader.readline() == b"after\n"
        lines.close()


def test_the_end_does_not_wait_for_a_reader_that_is_stuck() -> None:
    with pipe() as (writer, reader):
        lines = LineWriter(writer)
        lines.put("x" * 2 * PIPE_BYTES)
        assert not lines.flush(0.05)
        lines.close(0.05)
        reader.read(2 * PIPE_BYTES + 1)
        assert lines.flush()


def test_a_reader_that_is_gone_ends_the_writing() -> None:
    with pipe() as (writer, reader):
        lines = LineWriter(writer)
        reader.close()
        lines.put("nobody hears it")
        assert lines.flush()
        lines.put("nor this")
        lines.close()


def test_text_without_a_file_behind_it_is_written_too() -> None:
    stream = io.StringIO()
    print_line(stream, "caf\u00e9 \udce9")
    assert stream.getvalue() == "caf\u00e9 \\udce9\n"


def test_the_thread_of_a_writer_that_is_closed_ends() -> None:
    before = threading.active_count()
    LineWriter(io.StringIO()).close()
    assert threading.active_count() == before


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def test_a_message_is_written_so_often_and_the_rest_is_told_later(time: Time) -> None:
    repeats, before = RepeatLimit(time), COUNTS.repeated
    bad, other = ("uvicorn", 30, "bad request"), ("uvicorn", 30, "other")
    assert [repeats.admit(bad) for _ in range(MAX_REPEATS + 5)] == [True] * MAX_REPEATS + [
        False
    ] * 5
    assert repeats.admit(other)
    assert repeats.taken_omissions() == []
    time.now += PERIOD_SECONDS + 1
    assert repeats.admit(other)
    assert repeats.taken_omissions() == [("bad request", 5)]
    assert repeats.taken_omissions() == []
    assert repeats.admit(bad)
    assert COUNTS.repeated - before == 5


def test_what_is_remembered_of_messages_is_bounded(time: Time) -> None:
    repeats, first = RepeatLimit(time), ("somebody", 30, "first")
    assert [repeats.admit(first) for _ in range(MAX_REPEATS + 1)][-1] is False
    for number in range(MAX_MESSAGES - 1):
        assert repeats.admit(("somebody", 30, f"message {number}"))
    assert not repeats.admit(first)
    assert repeats.admit(("somebody", 30, "one too many"))
    assert repeats.taken_omissions() == [("first", 2)]
    assert repeats.admit(first)
