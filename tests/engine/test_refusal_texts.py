"""The sentences that a model reads about a call that did not run."""

import pytest

from sk_agents.engine.calls import steps
from sk_agents.engine.events import ApprovalDecided, Event
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import ApprovalKind, ApprovalState
from sk_agents.engine.run import lifecycle
from sk_agents.engine.turns import ToolSpec
from tests.engine.builders import asked, log, proposed, started, tool_started

SPEC = ToolSpec("files-write", "", {"type": "object"})
DID_NOT_RUN = " It did not run."


def rejected(who: str | None, why: str | None) -> ApprovalDecided:
    return ApprovalDecided(
        run_id="r1",
        approval_id="a1",
        call_id="c1",
        outcome="rejected",
        by="human",
        decided_by=who,
        message=why,
    )


EXPIRED = ApprovalDecided(
    run_id="r1", approval_id="a1", call_id="c1", outcome="expired", by="timeout"
)


def told(*events: Event, verdict: str = "ask", spec: ToolSpec | None = SPEC) -> tuple[str, str]:
    """Who refused it, and the text for the model."""
    state = fold(log(started(), proposed(), *events))
    run = state.run("r1")
    step = steps.next_step(steps.Case("t1", state, run, run.calls["c1"], spec, verdict))
    assert isinstance(step, steps.Finish)
    return step.by or "", step.text


REASONS = [
    (None, "Rejected by ada."),
    ("", "Rejected by ada."),
    ("  ", "Rejected by ada."),
    ("not now", "Rejected by ada: not now."),
    (" not now\n", "Rejected by ada: not now."),
    ("Ask Bob first.", "Rejected by ada: Ask Bob first."),
    ("Why?", "Rejected by ada: Why?"),
    ("No!", "Rejected by ada: No!"),
    ("first this\nthen that", "Rejected by ada: first this\nthen that."),
]


@pytest.mark.parametrize("kind", ["tool", "auth"])
@pytest.mark.parametrize(("why", "sentence"), REASONS)
def test_rejection_names_who_and_why_in_whole_sentences(
    kind: ApprovalKind, why: str | None, sentence: str
) -> None:
    assert told(asked(kind=kind), rejected("ada", why)) == ("human", sentence + DID_NOT_RUN)
    unnamed = sentence.replace("ada", "the user")
    assert told(asked(kind=kind), rejected(None, why)) == ("human", unnamed + DID_NOT_RUN)


@pytest.mark.parametrize(
    ("kind", "decision", "by", "text"),
    [
        ("tool", EXPIRED, "timeout", "Nobody approved this call in time. It did not run."),
        ("auth", EXPIRED, "timeout", "Nobody authorized this call in time. It did not run."),
        ("question", EXPIRED, "timeout", "Nobody answered in time."),
        ("question", rejected("ada", None), "human", "The user did not want to answer."),
        ("question", rejected("ada", "no"), "human", "The user did not want to answer: no."),
        ("question", rejected("ada", "No!"), "human", "The user did not want to answer: No!"),
    ],
)
def test_expiry_and_declined_questions_are_told(
    kind: ApprovalKind, decision: ApprovalDecided, by: str, text: str
) -> None:
    assert told(asked(kind=kind), decision) == (by, text)


def test_policy_and_a_missing_tool_are_told() -> None:
    denied = "This call is not allowed by policy. It did not run."
    assert told(verdict="deny") == ("policy", denied)
    assert told(spec=None) == ("", "There is no tool named files-write any more.")


@pytest.mark.parametrize(
    ("by", "text"),
    [
        ("cancel", "Not run: the user cancelled before it started."),
        ("human", "Not run: another call of this turn was rejected."),
        ("failure", "Not run: the run failed before it started."),
    ],
)
def test_calls_of_a_run_that_ends_before_its_time_are_told_why(
    by: lifecycle.SealedBy, text: str
) -> None:
    run = fold(log(started(), proposed(), asked())).run("r1")
    withdrawn, finished = lifecycle.sealed(run, by)
    assert (withdrawn.outcome, withdrawn.by) == (  # type: ignore[union-attr]  # a decision
        ApprovalState.WITHDRAWN,
        "failure" if by == "failure" else "cancel",
    )
    assert (finished.outcome, finished.by, finished.result) == ("sealed", by, text)  # type: ignore[union-attr]  # a result


def test_call_that_was_started_may_have_taken_effect() -> None:
    run = fold(log(started(), proposed(), tool_started())).run("r1")
    (finished,) = lifecycle.sealed(run, "failure")
    assert "may or may not have taken effect" in finished.result  # type: ignore[union-attr]  # a result
