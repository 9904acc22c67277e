"""Differences of texts: those that everybody knows, and bounded where those are not."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sk_agents.tools.builtin.files import MOST_COMPARED, lines_of, unified_diff

TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "-x\n", "@@\r\n"])).map("".join)


def applied(before: str, diff: str) -> str:
    """The text after a difference in hunks, read as the format says."""
    lines, at, after = lines_of(before), 0, []
    _, _, *body = lines_of(diff)
    for line in body:
        if line.startswith("@@"):
            start, _, count = line.split()[1][1:].partition(",")
            first = int(start) - (count != "0")
            after.extend(lines[at:first])
            at = first
        elif line.startswith("\\"):
            after[-1:] = [text.removesuffix("\n") for text in after[-1:]]
        elif line.startswith("+"):
            after.append(line[1:])
        else:
            assert lines[at].removesuffix("\n") == line[1:].removesuffix("\n")
            if line.startswith(" "):
                after.append(line[1:])
            at += 1
    return "".join([*after, *lines[at:]])


@given(before=TEXTS, after=TEXTS)
def test_difference_applied_to_the_old_text_gives_the_new_one(before: str, after: str) -> None:
    if before != after:
        assert applied(before, unified_diff(before, after, "f")) == after


@pytest.mark.parametrize(
    "change", [{5: "five\n"}, {0: "first\n"}, {49: "last\n"}, {3: "", 40: "x\ny\n"}]
)
def test_difference_is_what_everybody_else_makes_of_it(change: dict[int, str]) -> None:
    old = [f"line {number}\n" for number in range(50)]
    new = [change.get(number, line) for number, line in enumerate(old)]
    after = "".join(new)
    expected = "".join(difflib.unified_diff(old, lines_of(after), "a/f", "b/f"))
    assert unified_diff("".join(old), after, "f") == expected


def test_equal_texts_have_no_difference() -> None:
    assert unified_diff("a\n", "a\n", "f") == "(no change)\n"


def test_texts_that_differ_in_too_much_are_shown_as_replaced() -> None:
    size = int(MOST_COMPARED**0.5) + 1
    # Of such texts each line of one could be each line of the other.
    old = [f"{number % 150}\n" for number in range(size)]
    new = [f"{number * 7 % 150 + 1}\n" for number in range(size)]
    before, after = ("".join(["top\n", *lines, "end\n"]) for lines in (old, new))
    diff = unified_diff(before, after, "f")
    assert diff.startswith(f"--- a/f\n+++ b/f\n@@ -1,{size + 2} +1,{size + 2} @@\n top\n-0\n-1\n")
    assert applied(before, diff) == after


def test_last_line_without_an_end_says_so() -> None:
    assert unified_diff("a", "b\n", "f") == (
        "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n"
    )
