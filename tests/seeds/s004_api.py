"""S004 sections 1 to 3: the models, the SSE events and the five endpoints."""

from tests.seeds.requirement import FLEET, Requirement

S004_API = {
    "S004-1-litellm": Requirement(
        "Providers without a client of our own are reached through litellm."
    ),
    "S004-1-file-storage": Requirement("Chats can be stored as files, chosen by a file URL."),
    "S004-1-postgresql": Requirement(
        "Moving from files to PostgreSQL changes a setting and no client.", FLEET
    ),
    "S004-2.1-event-type": Requirement(
        "The type of an agent event is TOOL_CALL, TOOL_RESULT, THINKING or ANSWER."
    ),
    "S004-2.1-tool-call": Requirement(
        "A tool call event has type, id, tool_name and tool_input as a string."
    ),
    "S004-2.1-tool-result": Requirement(
        "A tool result event has type, the call's id, tool_name and tool_output."
    ),
    "S004-2.1-thinking": Requirement("A thinking event has type and content."),
    "S004-2.1-answer": Requirement("An answer event has type and content."),
    "S004-2.1-agent-state": Requirement(
        "An agent state is the list of messages a model would be sent."
    ),
    "S004-2.1-status": Requirement(
        "An interaction is RUNNING, COMPLETED, FAILED, CANCELLED or WAITING_APPROVAL."
    ),
    "S004-2.1-interaction": Requirement("An interaction has the seed's seven fields."),
    "S004-2.1-interaction-running": Requirement(
        "final_agent_state and completed_at are null until an interaction has ended."
    ),
    "S004-2.1-chat": Requirement("A chat has id, interactions and created_at."),
    "S004-2.1-times": Requirement("Times are ISO 8601 with their zone."),
    "S004-2.2-format": Requirement(
        "An SSE frame is an event line, a one-line JSON data line and an empty line."
    ),
    "S004-2.2-interaction-started": Requirement(
        "interaction_started is sent when an interaction begins."
    ),
    "S004-2.2-tool-call": Requirement("tool_call is sent when a tool is started."),
    "S004-2.2-tool-result": Requirement("tool_result is sent with what a tool returned."),
    "S004-2.2-thinking": Requirement("thinking is sent with the agent's reasoning."),
    "S004-2.2-answer": Requirement("answer is sent with the final answer."),
    "S004-2.2-approval-required": Requirement(
        "approval_required is sent when a call waits for a human."
    ),
    "S004-2.2-approved": Requirement("approved is sent when a call was approved."),
    "S004-2.2-rejected": Requirement("rejected is sent when a call was rejected."),
    "S004-2.2-cancelled": Requirement("cancelled is sent when an interaction was cancelled."),
    "S004-2.2-error": Requirement("error is sent when an interaction fails."),
    "S004-2.2-interaction-complete": Requirement(
        "interaction_complete is the last event and holds the id and the final status."
    ),
    "S004-3.1-start": Requirement(
        "POST /chats/{chat_id}/interactions with a user_message starts an interaction."
    ),
    "S004-3.1-content-type": Requirement("The answer is a stream of type text/event-stream."),
    "S004-3.1-headers": Requirement(
        "The stream's headers forbid caching and proxy buffering and keep it alive."
    ),
    "S004-3.1-running": Requirement(
        "The interaction is stored as RUNNING before its first event is sent."
    ),
    "S004-3.1-streaming": Requirement("Events arrive while the agent still works."),
    "S004-3.1-approval-waits": Requirement(
        "After approval_required the stream stays open and silent until a decision."
    ),
    "S004-3.1-continues": Requirement(
        "The same stream continues after an approval and after a rejection."
    ),
    "S004-3.1-complete": Requirement("Every interaction that ends sends one interaction_complete."),
    "S004-3.1-final-state": Requirement(
        "When an interaction has ended its final state can be read from the store."
    ),
    "S004-3.2-approve": Requirement(
        "POST .../approve with approved true answers processed with the id and the decision."
    ),
    "S004-3.2-reject": Requirement(
        "POST .../approve with approved false rejects the call, which never runs."
    ),
    "S004-3.2-resumes": Requirement("An approved call runs and the open stream shows it."),
    "S004-3.2-immediate": Requirement(
        "The approve endpoint answers without waiting for the tool to finish."
    ),
    "S004-3.2-not-found": Requirement("An unknown approval_id is answered 404."),
    "S004-3.2-already-processed": Requirement(
        "A second decision is answered 400 with the recorded one; the tool runs once."
    ),
    "S004-3.2-same-key": Requirement(
        "A decision repeated with its Idempotency-Key gets the stored 200 again."
    ),
    "S004-3.3-cancel": Requirement(
        "POST .../cancel answers cancelling with the id and the seed's message."
    ),
    "S004-3.3-signal": Requirement(
        "A cancel is stored before it is signalled and is seen by whoever owns the run."
    ),
    "S004-3.3-flag-checked": Requirement(
        "A running agent notices a cancel without finishing its work first."
    ),
    "S004-3.3-checkpoint": Requirement(
        "A cancelled interaction is stored as CANCELLED with what it had done."
    ),
    "S004-3.3-stream-closes": Requirement(
        "The stream of a cancelled interaction closes after its last event."
    ),
    "S004-3.4-get-chat": Requirement(
        "GET /chats/{chat_id} answers the chat with all its interactions in order."
    ),
    "S004-3.4-shape": Requirement(
        "The answer has exactly the seed's fields, with ours only added."
    ),
    "S004-3.4-unknown": Requirement("An unknown chat is answered 404."),
    "S004-3.5-edit": Requirement(
        "POST .../edit with a new_user_message streams a new interaction with a new id."
    ),
    "S004-3.5-unknown": Requirement("Editing an unknown interaction is answered 404."),
    "S004-3.5-previous-state": Requirement(
        "An edit starts from the state before the edited message."
    ),
    "S004-3.5-first": Requirement("Editing the first message starts from the initial state."),
    "S004-3.5-superseded": Requirement(
        "The edited interaction and all after it are superseded and none is lost."
    ),
    "S004-3.5-history": Requirement(
        "After an edit the chat shows the new branch; the superseded one on request."
    ),
}
