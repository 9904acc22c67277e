"""`skagents/v1`: one agent that chats, or several that work through tasks."""
