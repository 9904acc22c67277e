"""A line of a log of which the disk lost a part: power loss, or damage."""

import io
from pathlib import Path

import pytest

from sk_agents.exceptions import StateCorrupt
from sk_agents.persistence.encoding import encode_events
from sk_agents.persistence.file.lines import (
    SECTOR,
    decode_line,
    encode_line,
    is_torn,
    read_sealed,
    record_of,
    seal,
)
from sk_agents.persistence.file.log import FileLog, line_place
from sk_agents.persistence.file.tree import FileTree
from tests.engine.builders import started
from tests.engine.heads import NOW, head_after

OFFSET = SECTOR - 12
LENGTH = 12 + SECTOR + 76


def with_zeros(start: int, end: int) -> bytes:
    return b"x" * start + bytes(end - start) + b"x" * (LENGTH - end)


@pytest.mark.parametrize(
    ("start", "end", "torn"),
    [
        (0, 12, True),
        (12, 12 + SECTOR, True),
        (12 + SECTOR, LENGTH, True),
        (0, LENGTH, True),
        (0, 11, False),
        (1, 12 + SECTOR - 1, False),
        (13, LENGTH - 1, False),
        (0, 0, False),
    ],
)
def test_line_is_torn_where_a_whole_sector_of_it_is_missing(
    start: int, end: int, torn: bool
) -> None:
    assert is_torn(with_zeros(start, end), OFFSET) is torn


def test_line_that_another_follows_is_not_torn() -> None:
    lost = bytes(SECTOR)
    assert is_torn(lost + b"\n", 0)
    assert not is_torn(lost + b"\nx", 0)
    assert not is_torn(b"", 0)


@pytest.mark.parametrize("kept", [0, 1, 30, -3, -1])
def test_line_of_which_only_the_beginning_was_written_has_no_payload(kept: int) -> None:
    line = seal("t 1", b'{"a":1}')
    assert read_sealed(io.BytesIO(line[:kept]), "t 1") is None


def test_whole_line_is_read_at_its_place_alone() -> None:
    line = seal("t 1", b'{"a":1}')
    assert read_sealed(io.BytesIO(line + line), "t 1") == b'{"a":1}'
    with pytest.raises(StateCorrupt):
        read_sealed(io.BytesIO(line), "t 2")


@pytest.mark.parametrize("at", [0, 12, 25, 45, -4, -2, -1])
def test_line_with_one_other_byte_is_damaged(at: int) -> None:
    line = bytearray(seal("t 1", b'{"a":1}'))
    line[at] ^= 1
    with pytest.raises(StateCorrupt):
        read_sealed(io.BytesIO(bytes(line)), "t 1")
    if at == 25:
        with pytest.raises(StateCorrupt):
            read_sealed(io.BytesIO(bytes(line[:30])), "t 1")


def test_line_whose_head_counts_other_events_than_it_holds_is_damage(tmp_path: Path) -> None:
    head, body = head_after(started()), encode_events([started()], NOW)

    def payload(next_seq: int) -> bytes:
        return encode_line("c", 1, head._replace(next_seq=next_seq), (), body)

    assert len(record_of("t", decode_line("t", payload(2))).events) == 1
    with pytest.raises(StateCorrupt, match="gap"):
        record_of("t", decode_line("t", payload(3)))
    path = tmp_path / "chats" / "t" / "log.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(seal(line_place("t", 1, 0), payload(0)))
    with pytest.raises(StateCorrupt, match="gap"):
        FileLog(FileTree(tmp_path), "t", ("chats", "t")).refresh()


@pytest.mark.parametrize("left", [0, 10])
def test_log_without_its_first_line_is_told_so(tmp_path: Path, left: int) -> None:
    path = tmp_path / "chats" / "t" / "log.jsonl"
    path.parent.mkdir(parents=True)
    line = encode_line("c", 1, head_after(started()), (), encode_events([started()], NOW))
    path.write_bytes(seal(line_place("t", 1, 0), line)[:left])
    with pytest.raises(StateCorrupt, match="lost its first line"):
        FileLog(FileTree(tmp_path), "t", ("chats", "t")).refresh()
