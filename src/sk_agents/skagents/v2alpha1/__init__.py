"""`skagents/v2alpha1`: one agent that chats in texts and images."""
