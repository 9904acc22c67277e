"""S000: sessions, tasks and requests; the two flows; what tealagents/v1alpha1 must be."""

from tests.seeds.requirement import (
    NOT_OBSERVABLE,
    Requirement,
)

S000 = {
    "S000-objective-stateful": Requirement(
        "A client sends only its new message; the server supplies the conversation so far."
    ),
    "S000-session-groups-tasks": Requirement(
        "Tasks started with one session id are listed under it for the client who owns them."
    ),
    "S000-session-lifecycle": Requirement(
        "A session takes a new task after all its earlier tasks have ended."
    ),
    "S000-task-orchestrated": Requirement(
        "A task can be an orchestration of several agents.",
        "An orchestrator is a client of this server, not a part of it.",
    ),
    "S000-task-history": Requirement(
        "A loaded task holds every message and answer given in it, in their order."
    ),
    "S000-task-execution-trace": Requirement(
        "Folding a task's log gives the steps taken, the tools used and their intermediate results."
    ),
    "S000-task-status": Requirement(
        "A task's status is that of its last run: Running, Paused, Completed, Failed or Canceled."
    ),
    "S000-task-user-identity": Requirement("A stored task names the user who created it."),
    "S000-task-timestamps": Requirement(
        "A stored task keeps the time of its creation and of its last update."
    ),
    "S000-task-expiration": Requirement("A task may carry a time after which it expires."),
    "S000-task-metadata": Requirement(
        "A task's metadata comes back from the store as it was given."
    ),
    "S000-task-follow-on": Requirement(
        "A task takes a follow-on in every status in which nothing is running or waiting."
    ),
    "S000-task-lifecycle": Requirement(
        "A task written by one process is read by the next one after a restart."
    ),
    "S000-task-concurrency": Requirement(
        "Writers racing for one task never damage it: each write is whole or refused."
    ),
    "S000-request-unique-id": Requirement("Every invocation has a request id of its own."),
    "S000-request-scope": Requirement(
        "Everything done in an invocation, tool calls included, belongs to its request id."
    ),
    "S000-request-hitl-target": Requirement(
        "A resume acts on the request id it names and on no other request of the task."
    ),
    "S000-request-idempotency": Requirement(
        "An approval is decided once: a repeated decision is refused and the first one stands."
    ),
    "S000-request-idempotency-execution": Requirement(
        "A resume received many times runs the approved tool once."
    ),
    "S000-request-idempotency-key": Requirement(
        "A request repeated with its Idempotency-Key starts no second run."
    ),
    "S000-request-auditing": Requirement(
        "The log lists every committed action in order; nothing in it is changed or removed."
    ),
    "S000-request-traceability": Requirement(
        "Spans and log lines carry the session, task and request ids they belong to."
    ),
    "S000-new-request-1": Requirement(
        "A request without a task id is accepted with and without a session id."
    ),
    "S000-new-request-2": Requirement(
        "A request without a session id is given a new one; a session id sent is kept."
    ),
    "S000-new-request-3": Requirement(
        "A request without a task id gets a new task id and a new request id."
    ),
    "S000-new-request-4": Requirement(
        "The request is stored under its task id before the model is called."
    ),
    "S000-new-request-5": Requirement(
        "The model is sent the system prompt and the user's message."
    ),
    "S000-new-request-6": Requirement(
        "The model's answer, to a first request or a follow-on, is stored under the task id."
    ),
    "S000-new-request-7": Requirement(
        "The reply carries the session id, the task id and the request id."
    ),
    "S000-follow-on-1": Requirement("A request with a known task id continues that task."),
    "S000-follow-on-2": Requirement(
        "A follow-on gets a new request id and keeps the session and task ids."
    ),
    "S000-follow-on-3": Requirement(
        "A follow-on by another user than the task's owner is answered 401."
    ),
    "S000-follow-on-3-hidden": Requirement(
        "Where existence is hidden, a foreign task is answered 404 like an unknown one."
    ),
    "S000-follow-on-4": Requirement(
        "A follow-on's prompt holds all earlier messages of the task, each once, then the new one.",
    ),
    "S000-follow-on-6": Requirement("The reply to a follow-on carries the three ids."),
    "S000-app-v3": Requirement(
        "AppV3 serves a tealagents configuration as AppV1 and AppV2 serve theirs."
    ),
    "S000-app-routes-reuse": Requirement(
        "The routes of the older versions are reused where possible.", NOT_OBSERVABLE
    ),
    "S000-app-telemetry": Requirement(
        "The new routes produce the telemetry the older versions' routes produce."
    ),
    "S000-app-no-websocket": Requirement("tealagents/v1alpha1 has no websocket route."),
    "S000-app-detection": Requirement(
        "The application serves an apiVersion of tealagents/v1alpha1 by AppV3."
    ),
    "S000-usermessage-no-inheritance": Requirement("UserMessage is not a BaseMultiModalInput."),
    "S000-usermessage-items": Requirement(
        "UserMessage takes a list of text and image items as the current message."
    ),
    "S000-usermessage-no-chat-history": Requirement("UserMessage has no chat_history field."),
    "S000-usermessage-optional-ids": Requirement(
        "UserMessage takes an optional session id and an optional task id."
    ),
    "S000-usermessage-uuid": Requirement(
        "A session or task id that is not a UUID is answered 422."
    ),
    "S000-usermessage-required": Requirement(
        "A message without items, or with an empty list of them, is answered 422."
    ),
    "S000-responses-ids": Requirement(
        "Every shape of reply carries the session, task and request ids."
    ),
    "S000-state-models": Requirement(
        "Sessions, tasks and requests are models: a request has one task, a task one session."
    ),
    "S000-auth-entra-scopes": Requirement("A token without the platform's scope is refused."),
    "S000-auth-entra-oid": Requirement("The user id is the OID of a verified token."),
    "S000-auth-caller": Requirement(
        "A route learns who is calling from the configured authorizer and from nothing else."
    ),
    "S000-auth-owner": Requirement(
        "The owner check lets a task's owner pass and refuses every other user."
    ),
    "S000-auth-mock": Requirement(
        "Without any configuration an authorizer for development is in use."
    ),
    "S000-auth-mock-loopback": Requirement(
        "With the development authorizer the server starts on loopback only, unless told otherwise."
    ),
    "S000-auth-follow-up": Requirement(
        "The integration of Entra ID is planned as follow-up tasks.", NOT_OBSERVABLE
    ),
    "S000-config-structure": Requirement(
        "A skagents/v2alpha1 file serves as tealagents/v1alpha1 once its apiVersion says so."
    ),
    "S000-state-providers": Requirement(
        "One setting chooses among the stores; callers see the same behaviour from each."
    ),
    "S000-state-in-memory": Requirement(
        "An in-memory store keeps the same promises as the others while the process lives."
    ),
    "S000-state-future-stores": Requirement(
        "A store written outside this project proves itself with the public contract suite."
    ),
    "S000-state-redis-dynamodb": Requirement("Redis and DynamoDB serve as stores."),
    "S000-state-last-updated": Requirement(
        "Every write moves a task's last-updated time forward and leaves its creation time."
    ),
    "S000-state-no-cleanup": Requirement(
        "Nothing is removed by itself: a task stays until somebody deletes it."
    ),
    "S000-state-rebuild": Requirement(
        "The stored log alone is enough to rebuild the conversation a model must be sent."
    ),
    "S000-error-persistence": Requirement("A request whose store fails is answered 503."),
    "S000-error-corrupt-state": Requirement(
        "A damaged record is a typed error for its own task; its bytes stay, other tasks work."
    ),
    "S000-error-corrupt-state-5xx": Requirement(
        "A request to a task with a damaged record is answered 500."
    ),
    "S000-error-timeout": Requirement(
        "A call that outlasts the wait is answered 504 with its ids, and its run goes on."
    ),
    "S000-error-keepalive": Requirement(
        "A silent stream sends a keepalive event every 30 seconds."
    ),
    "S000-error-messages": Requirement(
        "An error reply says what is wrong and carries an id that finds it in the logs."
    ),
}
