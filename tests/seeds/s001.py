"""S001: authorizers, persistence managers, models, the handler and their tests."""

from tests.seeds.requirement import (
    FLEET,
    NOT_OBSERVABLE,
    Requirement,
)

S001 = {
    "S001-authorizer-abstract": Requirement(
        "A RequestAuthorizer without authorize_request cannot be built."
    ),
    "S001-authorizer-user-id": Requirement(
        "authorize_request takes the Authorization header and returns a unique user id."
    ),
    "S001-authorizer-sync-class": Requirement(
        "A user's authorizer works with a plain method as well as with a coroutine."
    ),
    "S001-authorizer-dummy": Requirement("DummyAuthorizer answers 'dummyuser' for every header."),
    "S001-authorizer-factory": Requirement(
        "AuthorizerFactory builds the class that the two authorizer variables name."
    ),
    "S001-authorizer-singleton": Requirement(
        "Threads asking an AuthorizerFactory at once all get the same one instance."
    ),
    "S001-authorizer-import-failure": Requirement(
        "A missing authorizer module and an error inside it are two different clear errors."
    ),
    "S001-authorizer-misconfiguration": Requirement(
        "A missing class, a wrong base or half a setting is an error naming the variable."
    ),
    "S001-persistence-abstract": Requirement(
        "A TaskPersistenceManager lacking one of its four methods cannot be built."
    ),
    "S001-persistence-create": Requirement(
        "create stores a new task and refuses an id that is already there."
    ),
    "S001-persistence-load": Requirement(
        "load returns the stored task, or None for an unknown id."
    ),
    "S001-persistence-update": Requirement(
        "update stores a task's new items and status and refuses an unknown id."
    ),
    "S001-persistence-delete": Requirement("delete removes a task, after which load returns None."),
    "S001-persistence-sync-class": Requirement(
        "A user's four-method class serves as a store, with plain methods or coroutines."
    ),
    "S001-persistence-thread-safe": Requirement(
        "InMemoryPersistenceManager loses and mixes nothing when threads use it at once."
    ),
    "S001-persistence-copies": Requirement(
        "Changing a task after it was stored or loaded does not change what is stored."
    ),
    "S001-persistence-factory": Requirement(
        "PersistenceFactory builds the class that the two persistence variables name."
    ),
    "S001-persistence-factory-errors": Requirement(
        "A missing module, class or base named for persistence is a clear error of its own."
    ),
    "S001-persistence-failure": Requirement(
        "A store that cannot read or write raises a typed error and leaves nothing half written."
    ),
    "S001-persistence-memory-bound": Requirement(
        "A full in-memory store refuses with a clear error and keeps what it has."
    ),
    "S001-persistence-monitoring": Requirement(
        "The in-memory store tells how many tasks and bytes it holds."
    ),
    "S001-models-module": Requirement(
        "All models of the API are importable from sk_agents.tealagents.models."
    ),
    "S001-agenttaskitem": Requirement(
        "AgentTaskItem has task_id, role, item, request_id and updated; role is user or assistant."
    ),
    "S001-agenttask": Requirement(
        "AgentTask has its ids, user, items, two times and a status that starts as Running."
    ),
    "S001-agenttask-status": Requirement("AgentTask refuses a status that is not one of the five."),
    "S001-agenttask-last-updated": Requirement(
        "AgentTask writes last_updated_at and also reads last_updated."
    ),
    "S001-response": Requirement(
        "TealAgentsResponse has the three ids and one output in place of the two older ones."
    ),
    "S001-partial-response": Requirement(
        "TealAgentsPartialResponse has the three ids and output_partial."
    ),
    "S001-module-structure": Requirement(
        "The packages tealagents and tealagents.v1alpha1 exist with the seed's entry points."
    ),
    "S001-isolation-imports": Requirement(
        "An import of skagents inside tealagents is found and named with file and line."
    ),
    "S001-isolation-no-shared-state": Requirement("The API versions share no mutable state."),
    "S001-isolation-errors": Requirement(
        "An error in one API version's handling does not reach another version's routes."
    ),
    "S001-isolation-configuration": Requirement(
        "Each API version validates its configuration by its own rules."
    ),
    "S001-isolation-behaviour": Requirement(
        "A change made to tealagents at run time does not change a skagents answer."
    ),
    "S001-handler-class": Requirement(
        "TealAgentsV1Alpha1Handler is found in handler and, for older imports, in agent."
    ),
    "S001-invoke-authorize": Requirement(
        "invoke authorizes with the configured authorizer before anything is stored."
    ),
    "S001-invoke-task-id": Requirement(
        "invoke loads a known task and creates one only when no task id is given."
    ),
    "S001-invoke-chat-history": Requirement(
        "invoke builds the conversation from the stored AgentTaskItem objects."
    ),
    "S001-stream-state": Requirement("invoke_stream authorizes and loads state as invoke does."),
    "S001-stream-save": Requirement("After a stream the stored task holds the whole answer."),
    "S001-handler-status-codes": Requirement(
        "Each failure of the handler has its own documented HTTP status."
    ),
    "S001-routes-first-token": Requirement(
        "The first token of apiVersion decides which handlers the routes use."
    ),
    "S001-app-unsupported-version": Requirement(
        "An unknown tealagents version stops start-up, naming file and field."
    ),
    "S001-tests-files": Requirement(
        "The tests of handler, authorization, persistence and isolation are in the named files.",
    ),
    "S001-tests-coverage": Requirement(
        "The check command fails when the tests cover less than 80 percent of the code."
    ),
    "S001-tests-concurrency": Requirement(
        "Simultaneous requests to one task run one at a time or are refused, none is lost."
    ),
    "S001-auth-valid-user": Requirement(
        "A caller with a valid header is known by the authorizer's user id."
    ),
    "S001-auth-invalid-user": Requirement(
        "A caller whose header the authorizer refuses is answered 401."
    ),
    "S001-auth-missing-header": Requirement(
        "A caller without the header is answered 401 by an authorizer that needs one."
    ),
    "S001-tests-end-to-end": Requirement(
        "A new request, follow-ons and a restart in between make one conversation."
    ),
    "S001-tests-benchmarks": Requirement(
        "The bench command measures store operations next to the bare database."
    ),
    "S001-v1-unchanged": Requirement(
        "The skagents/v1 file of demos/03_plugins works as in the public project."
    ),
    "S001-v2-unchanged": Requirement(
        "The skagents/v2alpha1 file of demos/10_chat_plugins works as in the public project."
    ),
    "S001-message-authorization": Requirement(
        "A refused authorization says so without repeating the header."
    ),
    "S001-message-persistence": Requirement(
        "A persistence failure's message names the store and what it could not do."
    ),
    "S001-message-task-not-found": Requirement("An unknown task's error names the task id."),
    "S001-message-ownership": Requirement(
        "An ownership mismatch says so without naming the owner."
    ),
    "S001-error-authorization-401": Requirement(
        "An authorization failure on a tealagents route is answered 401."
    ),
    "S001-error-configuration": Requirement(
        "A configuration error stops start-up with exit code 78, naming file and field."
    ),
    "S001-error-task-id": Requirement(
        "A malformed task id is answered 422, an unknown one 404; neither makes a task."
    ),
    "S001-stream-ids": Requirement(
        "Every streamed event carries the session, task and request ids."
    ),
    "S001-stream-updates": Requirement(
        "While a stream runs the stored task is Running and holds the user's message."
    ),
    "S001-stream-errors": Requirement(
        "A failing stream ends with an error event and the task takes a next request."
    ),
    "S001-performance-lazy": Requirement(
        "A factory loads and builds its class at the first use, not at import."
    ),
    "S001-performance-history": Requirement(
        "A turn's own cost does not grow with the number of earlier turns."
    ),
    "S001-performance-pooling": Requirement("Connections to a shared store are pooled.", FLEET),
    "S001-extensibility-authorizer": Requirement(
        "Another authorizer replaces the development one by configuration alone."
    ),
    "S001-env-teal-names": Requirement(
        "The TEAL_ names of the four class variables are read like their TA_ names."
    ),
    "S001-env-both-names": Requirement(
        "Where a TA_ and a TEAL_ name differ, TA_ wins and a warning says so."
    ),
    "S001-env-default-authorizer": Requirement(
        "The default authorizer is sk_agents.authorization.dummy_authorizer.DummyAuthorizer."
    ),
    "S001-env-default-persistence": Requirement(
        "With nothing set, tasks are kept in SQLite and survive a restart."
    ),
    "S001-env-in-memory": Requirement(
        "Naming InMemoryPersistenceManager gives the same store as the memory URL."
    ),
    "S001-env-conflict": Requirement(
        "A store URL and a persistence class that disagree stop start-up with exit code 78."
    ),
    "S001-phases": Requirement("The work is done in four weekly phases.", NOT_OBSERVABLE),
}
