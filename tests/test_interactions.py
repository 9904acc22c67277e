"""An interaction is a pure function of the fold of its log."""

import json
from typing import Literal

from sk_agents.engine.events import (
    Answered,
    ApprovalDecided,
    ApprovalRequested,
    Cancelled,
    Event,
    Imported,
    ImportedItem,
    RunEnded,
    RunQueued,
    RunStarted,
    Thinking,
    ToolFinished,
    ToolProposed,
    ToolStarted,
)
from sk_agents.engine.log.state import ThreadState, fold
from sk_agents.engine.models import EPOCH, Part, RunStatus, UserInput
from sk_agents.interactions import interaction_of
from sk_agents.wire.events import (
    AgentEvent,
    AnswerEvent,
    InteractionStatus,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from sk_agents.wire.views import ChatMessage, Interaction

Ending = Literal[RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED]


def folded(*events: Event) -> ThreadState:
    return fold(event.model_copy(update={"seq": seq}) for seq, event in enumerate(events, 1))


def started(run_id: str, text: str, parent: str | None = None) -> RunStarted:
    return RunStarted(
        run_id=run_id, message=UserInput(parts=(Part(content=text),)), parent_run=parent
    )


def ended(run_id: str, status: Ending = RunStatus.COMPLETED) -> RunEnded:
    return RunEnded(run_id=run_id, status=status)


def turn(run_id: str, question: str, answer: str, parent: str | None = None) -> list[Event]:
    return [
        started(run_id, question, parent),
        Answered(run_id=run_id, content=answer),
        ended(run_id),
    ]


def proposed(call_id: str, round: int = 1, problem: str | None = None) -> ToolProposed:
    return ToolProposed(
        run_id="int_1",
        round=round,
        call_id=call_id,
        plugin_name="web",
        function_name="search",
        arguments={"query": "wétter"},
        problem=problem,
    )


def finished(
    call_id: str, result: str, outcome: Literal["ok", "error", "refused"] = "ok"
) -> ToolFinished:
    return ToolFinished(run_id="int_1", call_id=call_id, result=result, outcome=outcome)


def asked(call_id: str) -> ApprovalRequested:
    return ApprovalRequested(
        run_id="int_1", call_id=call_id, approval_id=f"of-{call_id}", digest="", shown={}
    )


def decided(call_id: str, outcome: Literal["approved", "rejected"]) -> ApprovalDecided:
    return ApprovalDecided(
        run_id="int_1",
        call_id=call_id,
        approval_id=f"of-{call_id}",
        outcome=outcome,
        by="human",
        edited_arguments={"query": "edited"} if outcome == "approved" else None,
    )


def texts(interaction: Interaction) -> list[tuple[str, object]]:
    assert interaction.final_agent_state is not None
    return [(message.role, message.content) for message in interaction.final_agent_state.messages]


def test_plain_turn_has_its_question_and_its_answer() -> None:
    interaction = interaction_of(folded(*turn("int_1", "Hello", "Hi.")), "int_1")
    assert interaction.model_dump(mode="json") == {
        "id": "int_1",
        "status": "COMPLETED",
        "user_message": "Hello",
        "agent_events": [{"type": "ANSWER", "content": "Hi."}],
        "final_agent_state": {
            "messages": [
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "Hi."},
            ]
        },
        "created_at": "1970-01-01T00:00:00Z",
        "completed_at": "1970-01-01T00:00:00Z",
    }


def test_events_are_in_the_order_of_the_log() -> None:
    state = folded(
        started("int_1", "Weather?"),
        Thinking(run_id="int_1", round=1, content="I look it up.", spoken=True),
        proposed("c1"),
        proposed("c2"),
        ToolStarted(run_id="int_1", call_id="c1"),
        ToolStarted(run_id="int_1", call_id="c2"),
        finished("c2", "rain"),
        finished("c1", "sun"),
        Thinking(run_id="int_1", round=2, content="reasoning"),
        Answered(run_id="int_1", round=2, content="Both."),
        ended("int_1"),
    )
    expected: list[AgentEvent] = [
        ThinkingEvent(content="I look it up.", spoken=True),
        ToolCallEvent(id="c1", tool_name="web-search", tool_input='{"query": "wétter"}'),
        ToolCallEvent(id="c2", tool_name="web-search", tool_input='{"query": "wétter"}'),
        ToolResultEvent(id="c2", tool_name="web-search", tool_output="rain"),
        ToolResultEvent(id="c1", tool_name="web-search", tool_output="sun"),
        ThinkingEvent(content="reasoning"),
        AnswerEvent(content="Both."),
    ]
    assert interaction_of(state, "int_1").agent_events == expected


def test_messages_of_a_round_are_what_was_said_its_calls_and_their_results() -> None:
    state = folded(
        started("int_1", "Weather?"),
        Thinking(run_id="int_1", round=1, content="I look it up.", spoken=True),
        Thinking(run_id="int_1", round=1, content="secret reasoning"),
        proposed("c1"),
        ToolStarted(run_id="int_1", call_id="c1"),
        finished("c1", "sun"),
        proposed("c2", round=2, problem="no such tool"),
        finished("c2", "no such tool", "error"),
        Answered(run_id="int_1", round=3, content="Sunny."),
        ended("int_1"),
    )
    final = interaction_of(state, "int_1").final_agent_state
    assert final is not None
    function = {
        "name": "web-search",
        "arguments": json.dumps({"query": "wétter"}, ensure_ascii=False),
    }
    assert final.messages == [
        ChatMessage(role="user", content="Weather?"),
        ChatMessage(
            role="assistant",
            content="I look it up.",
            tool_calls=[{"id": "c1", "type": "function", "function": function}],
        ),
        ChatMessage(role="tool", content="sun", tool_call_id="c1"),
        ChatMessage(
            role="assistant",
            content="",
            tool_calls=[{"id": "c2", "type": "function", "function": function}],
        ),
        ChatMessage(role="tool", content="no such tool", tool_call_id="c2"),
        ChatMessage(role="assistant", content="Sunny."),
    ]


def test_waiting_interaction_has_no_final_state_yet() -> None:
    interaction = interaction_of(
        folded(started("int_1", "x"), proposed("c1"), asked("c1")), "int_1"
    )
    assert interaction.status is InteractionStatus.WAITING_APPROVAL
    assert interaction.final_agent_state is None
    assert interaction.completed_at is None
    assert interaction.agent_events == []


def test_queued_interaction_is_running_and_has_its_message() -> None:
    queued = RunQueued(run_id="int_2", message=UserInput(parts=(Part(content="next"),)))
    interaction = interaction_of(folded(started("int_1", "x"), queued), "int_2")
    assert (interaction.status, interaction.user_message) == (InteractionStatus.RUNNING, "next")


def test_approved_call_shows_the_arguments_it_ran_with() -> None:
    state = folded(
        started("int_1", "x"),
        proposed("c1"),
        asked("c1"),
        decided("c1", "approved"),
        ToolStarted(run_id="int_1", call_id="c1", approval_id="of-c1"),
    )
    assert interaction_of(state, "int_1").agent_events == [
        ToolCallEvent(id="c1", tool_name="web-search", tool_input='{"query": "edited"}')
    ]


def test_refused_call_was_never_made_but_the_model_is_told() -> None:
    state = folded(
        started("int_1", "x"),
        proposed("c1"),
        asked("c1"),
        decided("c1", "rejected"),
        finished("c1", "refused by bob", "refused"),
        Answered(run_id="int_1", round=2, content="Then not."),
        ended("int_1"),
    )
    interaction = interaction_of(state, "int_1")
    assert interaction.agent_events == [AnswerEvent(content="Then not.")]
    assert ("tool", "refused by bob") in texts(interaction)


def test_cancelled_interaction_keeps_what_it_had_said() -> None:
    state = folded(
        started("int_1", "x"),
        Cancelled(run_id="int_1", partial="Half an"),
        ended("int_1", RunStatus.CANCELLED),
    )
    interaction = interaction_of(state, "int_1")
    assert interaction.status is InteractionStatus.CANCELLED
    assert texts(interaction) == [
        ("user", "x"),
        ("assistant", "Half an\n[cut short: the user cancelled this answer]"),
    ]


def test_final_state_follows_the_parents_and_not_the_siblings() -> None:
    state = folded(
        *turn("int_1", "a", "A"),
        *turn("int_2", "b", "B", parent="int_1"),
        *turn("int_3", "edited", "E", parent="int_1"),
        *turn("int_4", "d", "D", parent="int_3"),
    )
    assert [content for _, content in texts(interaction_of(state, "int_4"))] == [
        *("a", "A", "edited", "E", "d", "D")
    ]
    assert [content for _, content in texts(interaction_of(state, "int_2"))] == [
        *("a", "A", "b", "B")
    ]


def test_images_and_files_are_parts_of_the_message() -> None:
    image = Part(kind="image", content="data:image/png;base64,AA==")
    message = UserInput(
        parts=(Part(content="look"), image, Part(kind="file", name="a.txt", content="text"))
    )
    state = folded(RunStarted(run_id="int_1", message=message), ended("int_1"))
    assert texts(interaction_of(state, "int_1")) == [
        (
            "user",
            [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": image.content}},
                {"type": "text", "text": "File a.txt:\ntext"},
            ],
        )
    ]


def test_imported_history_comes_first() -> None:
    items = (
        ImportedItem(role="user", content="before", run_id="r", at=EPOCH),
        ImportedItem(
            role="user", content_type="image", content="data:image/png,", run_id="r", at=EPOCH
        ),
    )
    state = folded(Imported(items=items), *turn("int_1", "a", "A"))
    assert texts(interaction_of(state, "int_1")) == [
        ("user", "before"),
        ("user", [{"type": "image_url", "image_url": {"url": "data:image/png,"}}]),
        ("user", "a"),
        ("assistant", "A"),
    ]


def test_interaction_reads_back_from_its_json() -> None:
    state = folded(
        started("int_1", "x"),
        Thinking(run_id="int_1", round=1, content="hm"),
        proposed("c1"),
        ToolStarted(run_id="int_1", call_id="c1"),
        finished("c1", "sun"),
        Answered(run_id="int_1", round=2, content="Sunny."),
        ended("int_1"),
    )
    interaction = interaction_of(state, "int_1")
    assert Interaction.model_validate_json(interaction.model_dump_json()) == interaction
