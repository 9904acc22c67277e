import unicodedata

from hypothesis import given
from hypothesis import strategies as st

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
