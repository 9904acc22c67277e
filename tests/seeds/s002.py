"""S002: interception of tool calls, pausing, and what it says of S001's parts in its own words."""

from tests.seeds.requirement import Requirement

S002 = {
    "S002-env-authorizer": Requirement(
        "TA_AUTHORIZER_MODULE and TA_AUTHORIZER_CLASS name the authorizer."
    ),
    "S002-env-persistence": Requirement(
        "TA_PERSISTENCE_MODULE and TA_PERSISTENCE_CLASS name the persistence manager."
    ),
    "S002-env-module-path": Requirement(
        "A module variable takes a dotted name or the path of a file."
    ),
    "S002-models-chronology": Requirement(
        "A task's items stay in chronological order, also when times are equal."
    ),
    "S002-models-request-id": Requirement("Every item of a task names the request it belongs to."),
    "S002-models-timestamps": Requirement("Every event, item and task carries an aware UTC time."),
    "S002-response-fields": Requirement(
        "Responses keep source, token_usage and extra_data of the older versions."
    ),
    "S002-handler-module": Requirement(
        "handler holds the request handling, agent the model and tool loop."
    ),
    "S002-compat-configuration": Requirement(
        "Existing configuration files, with comments and unknown keys, keep working."
    ),
    "S002-hitl-entry-point": Requirement(
        "hitl_manager.check_for_intervention takes a tool call and answers True or False."
    ),
    "S002-hitl-complete-call": Requirement(
        "The interception sees the call's id, plugin, function and all arguments."
    ),
    "S002-hitl-policy": Requirement(
        "Rules, the catalog and the tool's declaration decide whether a call is asked about."
    ),
    "S002-hitl-control": Requirement(
        "A call for which the interception answers True does not run unapproved."
    ),
    "S002-hitl-before-execution": Requirement("Every call of a round is inspected before it runs."),
    "S002-hitl-individual": Requirement(
        "Each call is inspected by itself: free calls run while gated ones wait."
    ),
    "S002-hitl-nobody-to-ask": Requirement(
        "On skagents routes a gated call is refused by policy and the model is told."
    ),
    "S002-loop-model-client": Requirement(
        "A user's own chat completion factory supplies the model."
    ),
    "S002-loop-extraction": Requirement(
        "Tool calls are taken from the model's reply with name, id and arguments."
    ),
    "S002-loop-parallel": Requirement("Calls of one round that may run do so at the same time."),
    "S002-loop-rounds": Requirement(
        "The model is called again with the results until it asks for no more tools."
    ),
    "S002-loop-streaming": Requirement(
        "Streaming and non-streaming calls are intercepted in the same way."
    ),
    "S002-pipeline-order": Requirement(
        "Identity, ids and ownership are settled before history is read or a model called."
    ),
    "S002-paused-status": Requirement(
        "A run with an open approval is waiting, and its task reads Paused."
    ),
    "S002-paused-history": Requirement(
        "A paused task read by another process holds the whole conversation and the open calls."
    ),
    "S002-paused-authorization": Requirement(
        "After a pause plugins get the deciding owner's header; it is never stored."
    ),
    "S002-response-approval-request": Requirement(
        "A paused reply lists the waiting calls with working approve and reject URLs."
    ),
    "S002-response-resume": Requirement("A paused task goes on when its request id is resumed."),
    "S002-response-paused-stream": Requirement(
        "A stream that pauses ends with an event holding the approval request."
    ),
    "S002-approval-users": Requirement(
        "An approval belongs to its task's user, and its decision names who decided."
    ),
    "S002-approval-foreign-user": Requirement(
        "Another user can neither see nor decide a task's approvals."
    ),
}
