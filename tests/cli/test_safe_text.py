import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sk_agents.cli.line_export import cell, json_line
from sk_agents.cli.safe_text import escaped, one_line, valid_text

JOINERS = {"\u200c", "\u200d"}


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    left = {char for char in escaped(text) if unicodedata.category(char) in {"Cc", "Cf", "Cs"}}
    assert left <= {"\n", "\t"} | JOINERS


@given(st.text(alphabet=st.characters(categories=["L", "M", "N", "P", "S", "Zs"])))
def test_letters_of_all_scripts_stay(text: str) -> None:
    assert escaped(text) == text


def test_sequences_are_spelt_out() -> None:
    assert escaped("\x1b[2J\x9b\u202e\U000e0041") == r"\x1b[2J\x9b\u202e\U000e0041"
    assert escaped("a\r\nb\rc\x7f\ud800") == "a\nb\nc\\x7f\\ud800"


@given(st.text(alphabet=st.characters()))
def test_what_is_sent_is_text(text: str) -> None:
    sent = valid_text({"a": [text]})["a"][0]
    assert sent.encode().decode() == sent
    assert "\ufffd" in sent or sent == text.encode("utf-16", "surrogatepass").decode("utf-16")


def test_one_line_has_no_breaks() -> None:
    assert one_line(" a\n\tb\u2028c ") == r"a b\u2028c"


@pytest.mark.parametrize(
    "text", ["=1", "+1", "-1", "@x", "\t=1", "\r\n=1", " =1", "\uff1d1", "\n\uff201"]
)
def test_cell_is_no_formula(text: str) -> None:
    assert str(cell(text)).startswith("'")


def test_cell_that_is_none_stays_as_it_is() -> None:
    assert [cell(value) for value in ("a=b", "", "1-2", None, -1)] == ["a=b", "", "1-2", None, -1]


@given(st.text())
def test_terminal_obeys_nothing_of_an_export(text: str) -> None:
    assert escaped(str(cell(text))) == cell(text)
    line = json_line({"note": text})
    assert line.isascii()
    assert not {char for char in line if ord(char) < 32} - {"\n"}
    assert json.loads(line) == {"note": text}
