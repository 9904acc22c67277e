"""S003: one turn of the todo agent in eight steps, on a server that keeps no state."""

from tests.seeds.requirement import FLEET, Requirement

S003 = {
    "S003-1.1-receive": Requirement("POST /chat takes user_message, session_id and user_id."),
    "S003-1.1-user-id": Requirement(
        "A user_id that differs from the verified caller is answered 403."
    ),
    "S003-1.1-user-id-development": Requirement(
        "With the development authorizer the user_id sent is the user."
    ),
    "S003-1.2-history": Requirement("The turn sees all earlier messages of its session_id."),
    "S003-1.2-sqlite": Requirement(
        "A SQLite database written by one process is read by another while both are open."
    ),
    "S003-1.2-postgresql": Requirement("A PostgreSQL database serves as the store.", FLEET),
    "S003-1.3-append": Requirement("The prompt is the history followed by the new message."),
    "S003-1.4-store-first": Requirement(
        "The user message is stored before the model is called and survives its failure."
    ),
    "S003-1.5-run-agent": Requirement(
        "The model gets the TodoChatAgent's instructions and the full history."
    ),
    "S003-1.5-agents-sdk": Requirement(
        "An agent of the OpenAI Agents SDK can run as one of the agents."
    ),
    "S003-1.6-mcp-tools": Requirement(
        "The agent calls the todo tools of an MCP server, one or several in a turn."
    ),
    "S003-1.6-results": Requirement(
        "Tool results go back to the model, which answers in plain language."
    ),
    "S003-1.7-store-response": Requirement(
        "The assistant's answer is stored under the same session_id."
    ),
    "S003-1.8-return": Requirement("The reply holds the assistant's message."),
    "S003-1.8-display": Requirement("The page shows the assistant's message."),
    "S003-2-external-state": Requirement(
        "Conversations lie in the store and tasks with the MCP server, none in the process."
    ),
    "S003-2-reconstruction": Requirement(
        "A session_id is all a fresh process needs to continue a conversation."
    ),
    "S003-3a-any-instance": Requirement(
        "Two server processes on one database answer alternate turns of one conversation."
    ),
    "S003-3a-many-hosts": Requirement(
        "Instances on several hosts serve one conversation without sticky sessions.", FLEET
    ),
    "S003-3b-crash": Requirement(
        "After a server is killed the next request continues where the conversation was."
    ),
    "S003-3c-memory": Requirement("A conversation nobody is working on costs next to no memory."),
    "S003-3d-deployment": Requirement(
        "A server told to stop hands its work over and loses none of it."
    ),
}
