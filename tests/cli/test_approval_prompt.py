"""Questions that no tool of today asks yet, answered from a list of lines."""

import json

import pytest

from sk_agents.cli.chat_session import ApprovalPrompt, UserDecision
from sk_agents.cli.event_printer import PREVIEW_LINES, print_approval, time_left
from sk_agents.cli.terminal import Keyboard, Screen
from sk_agents.client import ApprovalRequired
from sk_agents.wire.events import ApprovalKind


class Typed(Keyboard):
    """A keyboard on which these lines were typed."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    def line(self, prompt: str, prefill: str = "") -> str:
        return self.lines.pop(0)


def asked(kind: ApprovalKind, *lines: str, **schema: object) -> UserDecision | None:
    approval = ApprovalRequired.model_validate(
        {"approval_id": "a", "kind": kind, "call_id": "c", "tool_name": "t", "schema": schema}
    )
    keyboard = Typed(*lines)
    decision = ApprovalPrompt(Screen(), keyboard).ask(approval)
    assert keyboard.lines == []
    return decision


@pytest.mark.parametrize(
    ("typed", "choice"), [("d", "done"), ("retry", "retry"), ("give up", "give_up")]
)
def test_outcome_is_chosen_by_letter_or_word(typed: str, choice: str) -> None:
    decision = asked("outcome_unknown", "dunno", typed)
    assert decision is not None
    assert (decision.approved, decision.verdict) == (True, {"choice": choice})


def test_reason_that_a_rule_wants_is_asked_for_until_there_is_one() -> None:
    approval = ApprovalRequired(
        approval_id="a", call_id="c", tool_name="t", tool_input="{}", reason_required=True
    )
    for typed, decision in (
        (["a", "y", " ", "planned"], UserDecision(True, {"message": "planned"})),
        (["n", "", "too late"], UserDecision(False, {"message": "too late"})),
    ):
        keyboard = Typed(*typed)
        assert ApprovalPrompt(Screen(), keyboard).ask(approval) == decision
        assert keyboard.lines == []


def test_question_takes_a_text_and_nothing_declines_it() -> None:
    assert asked("question", "Oslo") == UserDecision(True, {"answer": "Oslo"})
    assert asked("question", "") == UserDecision(False)


def test_question_with_a_schema_takes_json() -> None:
    decision = asked("question", "{", '{"n": 1}', type="object")
    assert decision == UserDecision(True, {"answer": {"n": 1}})


def test_question_with_choices_shows_its_text_and_takes_a_number_or_a_choice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    question = "The MCP server 'poet' asks:\n\nuser:\nPraise the sea\x1b[2J"
    approval = ApprovalRequired.model_validate(
        {
            "approval_id": "a",
            "kind": "question",
            "call_id": "c",
            "tool_name": "t",
            "tool_input": json.dumps({"question": question, "call": {"about": "the sea"}}),
            "choices": ["send it", "do not send it"],
        }
    )
    print_approval(Screen(), approval)
    shown = capsys.readouterr().out.splitlines()
    asked_at = shown.index("  The MCP server 'poet' asks:")
    assert shown[asked_at + 1 : asked_at + 3] == ["  ", "  user:"]
    assert shown[asked_at + 3].startswith("  Praise the sea") and "\x1b" not in "".join(shown)
    assert '  (asked in a call with {"about": "the sea"})' in shown
    assert shown[-2:] == ["  [1] send it", "  [2] do not send it"]
    for typed, decision in (
        (["3", "yes", "2"], UserDecision(True, {"answer": "do not send it"})),
        (["send it"], UserDecision(True, {"answer": "send it"})),
        ([""], UserDecision(False)),
    ):
        keyboard = Typed(*typed)
        assert ApprovalPrompt(Screen(), keyboard).ask(approval) == decision
        assert keyboard.lines == []


def test_own_name_is_lent_refused_or_left_for_later() -> None:
    assert asked("auth", "maybe", "y") == UserDecision(True)
    assert asked("auth", "no") == UserDecision(False)
    assert asked("auth", "w") is None


def test_what_a_call_would_change_is_shown_and_does_nothing_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    difference = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new \x1b[31m\n" + "+more\n" * 100
    approval = ApprovalRequired.model_validate(
        {"approval_id": "a", "call_id": "c", "tool_name": "write_file", "preview": difference}
    )
    print_approval(Screen(), approval)
    shown = capsys.readouterr().out
    assert "  -old\n  +new \\x1b[31m\n  +more" in shown
    assert shown.count("+more") == PREVIEW_LINES - 5
    assert "45 more lines would change" in shown


@pytest.mark.parametrize("moment", [None, "nonsense", "2026-01-01T00:00:00"])
def test_expiry_that_cannot_be_read_is_not_shown(moment: str | None) -> None:
    assert time_left(moment) is None


def test_expiry_in_the_past_is_shown() -> None:
    assert time_left("2020-01-01T00:00:00+00:00") == "expired"
