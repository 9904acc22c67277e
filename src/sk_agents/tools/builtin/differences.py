"""What would change in a text, as `diff -u` shows it, found in bounded time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from sk_agents.tools.builtin.text_files import lines_of

CONTEXT = 3
# Old lines times new ones. Texts that differ in more are not compared line by line: the time for
# that grows with the product, and whoever wants a preview has not been allowed anything yet.
MOST_COMPARED = 4_000_000

Opcode = tuple[str, int, int, int, int]


def unified_diff(before: str, after: str, path: str) -> str:
    old, new = lines_of(before), lines_of(after)
    if old == new:
        return "(no change)\n"
    return "".join([f"--- a/{path}\n", f"+++ b/{path}\n", *_hunks(old, new)])


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    first, left = _equal_ends(old, new)
    start, end = max(0, first - CONTEXT), max(0, left - CONTEXT)
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    for group in _groups(old, new, first - start, left - end):
        (_, old_from, _, new_from, _), (_, _, old_to, _, new_to) = group[0], group[-1]
        ranges = _range(start + old_from, start + old_to), _range(start + new_from, start + new_to)
        yield "@@ -{} +{} @@\n".format(*ranges)
        for kind, old_at, old_end, new_at, new_end in group:
            if kind == "equal":
                yield from (_line(" ", line) for line in old[old_at:old_end])
                continue
            yield from (_line("-", line) for line in old[old_at:old_end])
            yield from (_line("+", line) for line in new[new_at:new_end])


def _equal_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many lines at the start and at the end are the same; no line counts twice."""
    most = min(len(old), len(new))
    first = 0
    while first < most and old[first] == new[first]:
        first += 1
    last = 0
    while last < most - first and old[-1 - last] == new[-1 - last]:
        last += 1
    return first, last


def _groups(
    old: Sequence[str], new: Sequence[str], above: int, below: int
) -> Iterator[Sequence[Opcode]]:
    """Changes with their surroundings; `above` and `below` lines are known to be the same."""
    if len(old) * len(new) <= MOST_COMPARED:
        yield from SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT)
        return
    old_end, new_end = len(old) - below, len(new) - below
    yield [
        ("equal", 0, above, 0, above),
        ("replace", above, old_end, above, new_end),
        ("equal", old_end, len(old), new_end, len(new)),
    ]


def _range(start: int, end: int) -> str:
    """Lines are counted from 1; of none at all, the one before is named."""
    length = end - start
    if length == 1:
        return f"{start + 1}"
    return f"{start + 1 if length else start},{length}"


def _line(sign: str, line: str) -> str:
    ending = "" if line.endswith("\n") else "\n\\ No newline at end of file\n"
    return f"{sign}{line}{ending}"
