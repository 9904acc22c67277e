"""S004 sections 4 to 13: patterns, flows, errors, deployment, security and performance."""

from tests.seeds.requirement import (
    FLEET,
    NOT_OBSERVABLE,
    Requirement,
)

S004_DESIGN = {
    "S004-4.1-plain-http": Requirement(
        "Everything is done with plain HTTP requests, no websocket."
    ),
    "S004-4.1-separate-control": Requirement(
        "Approve and cancel are requests beside the open stream."
    ),
    "S004-4.1-latency": Requirement(
        "A control request may take 100 to 200 ms to act.",
        "The seed allows this delay and does not promise it; the benchmarks report ours.",
    ),
    "S004-4.2-request-approval": Requirement(
        "ApprovalManager.request_approval waits until the approval is decided."
    ),
    "S004-4.2-respond": Requirement("ApprovalManager.respond decides and wakes whoever waits."),
    "S004-4.2-others-continue": Requirement("Other requests go on while a run waits for a human."),
    "S004-4.2-parked": Requirement(
        "A waiting run is a stored row: it survives a restart and holds no task or lease."
    ),
    "S004-4.3-before-each-step": Requirement("No model call and no tool starts after a cancel."),
    "S004-4.3-disconnect": Requirement(
        "A chat's run is cancelled when its last reader has been gone for the grace period."
    ),
    "S004-4.3-checkpoint-always": Requirement(
        "However a run stops, its state is stored and its calls have results."
    ),
    "S004-4.3-sealed": Requirement(
        "Folding any log gives a history in which every tool call has its result."
    ),
    "S004-4.4-step-commits": Requirement(
        "Events are stored at every step, so a crash loses no finished step."
    ),
    "S004-4.4-restart": Requirement(
        "An interaction cut by a crash is continued; read-only and idempotent tools run again."
    ),
    "S004-4.4-chat-file": Requirement(
        "The file store keeps a chat's metadata in chats/<chat id>/chat.json."
    ),
    "S004-4.4-interaction-files": Requirement(
        "The file store keeps each interaction in interactions/int_*.json of its chat."
    ),
    "S004-4.4-interaction-contents": Requirement(
        "An interaction file has the seed's seven fields, readable as plain JSON."
    ),
    "S004-4.4-final-agent-state": Requirement(
        "An ended interaction's file holds the messages of the whole conversation so far."
    ),
    "S004-4.4-equals-fold": Requirement(
        "The files equal the fold of the log and are rebuilt from it when behind."
    ),
    "S004-4.4-resume": Requirement("Interaction N starts from the final state of interaction N-1."),
    "S004-4.5-interface": Requirement(
        "An InteractionStore lacking one of its four methods cannot be built."
    ),
    "S004-4.5-save-interaction": Requirement(
        "save_interaction stores an interaction with its final state."
    ),
    "S004-4.5-load-interaction": Requirement(
        "load_interaction returns the interaction that was saved."
    ),
    "S004-4.5-load-chat": Requirement("load_chat returns the chat with all its interactions."),
    "S004-4.5-get-previous-state": Requirement(
        "get_previous_state returns the state before an interaction, None before the first."
    ),
    "S004-4.5-file-store": Requirement(
        "FileInteractionStore is the InteractionStore over the file store."
    ),
    "S004-5.1-standard-flow": Requirement(
        "A run with a tool streams started, thinking, call, result, answer, complete in order.",
    ),
    "S004-5.2-approval-flow": Requirement(
        "With an approval the stream shows approval_required, approved, tool_call, tool_result.",
    ),
    "S004-5.2-review": Requirement("The page shows a person what will run before they decide."),
    "S004-5.3-cancel-flow": Requirement(
        "A cancelled run's stream ends with cancelled and interaction_complete."
    ),
    "S004-5.3-click": Requirement("A person stops a run with a click."),
    "S004-5.4-edit-flow": Requirement(
        "An edit's stream begins with interaction_started of the new interaction."
    ),
    "S004-5.4-page": Requirement("A person edits a message on the page and sees the new branch."),
    "S004-6.1-approval-id": Requirement(
        "Each gated call has its own approval id, named with its action in the event."
    ),
    "S004-6.1-rejection": Requirement(
        "After a rejection the run goes on or ends, as the agent's on_reject says."
    ),
    "S004-6.3-protected-save": Requirement(
        "Closing a stream in the middle does not stop what is being stored."
    ),
    "S004-7.1-error-result": Requirement(
        "A tool that raises gives an error result and the run goes on."
    ),
    "S004-7.1-model-decides": Requirement("The model sees the error and decides what to do."),
    "S004-7.1-safe-text": Requirement(
        "An unexpected error reaches model and client as a stable code, never as its text."
    ),
    "S004-7.2-error-event": Requirement("A failing run sends error before interaction_complete."),
    "S004-7.2-failed": Requirement("A failed run is stored as FAILED with the reason's code."),
    "S004-7.3-save-fails": Requirement(
        "When saving fails the run stops and is continued from the log once the store is back."
    ),
    "S004-7.3-temp-file": Requirement(
        "A failed save falls back to a temporary file.",
        "Decided against: no other instance could see such a file, and it would escape encryption.",
    ),
    "S004-8.1-basic": Requirement(
        "The seed's curl command for streaming works as printed, on a chat id new to the server.",
    ),
    "S004-8.1-reattach": Requirement(
        "A second terminal can follow a running interaction by its id."
    ),
    "S004-8.1-cancel": Requirement("The seed's curl command for cancelling works as printed."),
    "S004-8.1-approve": Requirement("The seed's curl command for approving works as printed."),
    "S004-9.1-single-instance": Requirement(
        "One process with a file store serves alone, with no other service running."
    ),
    "S004-9.2-shared-state": Requirement(
        "Several instances share approvals and chats without sticky sessions.", FLEET
    ),
    "S004-10.1-approval": Requirement(
        "Tools that write, delete, execute or send always ask unless a rule allows them."
    ),
    "S004-10.1-unknown-tool": Requirement(
        "A tool nothing speaks about asks unless it is read-only."
    ),
    "S004-10.1-sandbox": Requirement(
        "Code runs in a sandbox with a restricted filesystem, or not at all."
    ),
    "S004-10.1-log": Requirement(
        "Every tool execution is in the log with its arguments and outcome."
    ),
    "S004-10.1-limits": Requirement(
        "Tool calls a round and rounds a run are limited, with a clear failure."
    ),
    "S004-10.2-encryption": Requirement("Interactions are encrypted at rest."),
    "S004-10.2-redaction": Requirement("Sensitive data is redacted before it is stored."),
    "S004-10.2-access": Requirement(
        "A chat id means the caller's own chat: another user's is 404."
    ),
    "S004-11.1-streaming-response": Requirement(
        "Streams are sent by FastAPI's StreamingResponse.",
        "Decided against: a small ASGI response of our own sends the same bytes at less cost.",
    ),
    "S004-11.1-flush": Requirement(
        "Each event is sent as soon as it is there, as a frame of its own."
    ),
    "S004-11.2-async-io": Requirement(
        "The event loop goes on while a store waits for the disk or a lock."
    ),
    "S004-11.2-write-ahead-log": Requirement(
        "An acknowledged commit survives the process being killed."
    ),
    "S004-11.2-single-write": Requirement(
        "All changes of a commit are stored together or not at all."
    ),
    "S004-11.3-bounded-memory": Requirement(
        "Memory stays bounded however many conversations a server has served."
    ),
    "S004-11.3-on-demand": Requirement(
        "A store reads a thread's events in pages from any point on."
    ),
    "S004-11.3-long-interactions": Requirement(
        "A chat too long for one answer is returned in parts and says so."
    ),
    "S004-12.1-tool-output": Requirement("A tool's output can be streamed while it runs."),
    "S004-12.1-code-output": Requirement("The output of running code is streamed live."),
    "S004-12.3-parent": Requirement(
        "Each run names its parent; folding gives the tree and its visible branch."
    ),
    "S004-12.3-branches": Requirement(
        "Branches of a chat are listed and one call switches between them."
    ),
    "S004-13-echo-tool": Requirement("A run with a simple echo tool returns what was echoed."),
    "S004-13-logging": Requirement("Logs are structured and carry the ids of run and thread."),
    "S004-13-monitoring": Requirement(
        "The server answers whether it is alive and whether its store is ready."
    ),
    "S004-13-failure-scenarios": Requirement(
        "Unwritable, read-only, full, locked or newer storage is a typed error, clearly worded."
    ),
    "S004-13-phases": Requirement("The work is done in four phases.", NOT_OBSERVABLE),
}
