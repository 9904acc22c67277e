"""A line of a log of which the disk lost a part: power loss, or damage."""

import io

import pytest

from sk_agents.exceptions import StateCorrupt
from sk_agents.persistence.file.lines import SECTOR, is_torn, read_sealed, seal

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
